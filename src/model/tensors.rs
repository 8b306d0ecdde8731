//! Tensor table: type, shape and byte range of each tensor by name, for every kind of model file.

use std::collections::BTreeMap;

use super::ModelError;
use super::quant::TensorType;

/// Type and size of a stored tensor as rows. A one-dimensional tensor of n elements is `[n, 1]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorInfo {
    /// element type
    pub ty: TensorType,
    /// rows as stored
    pub rows: usize,
    /// columns as stored
    pub cols: usize,
}

/// One tensor of a [`TensorTable`].
#[derive(Debug, Clone, PartialEq)]
pub struct TensorEntry {
    /// element type, or the name of a type without a decoder
    pub ty: Result<TensorType, String>,
    /// shape, outermost dimension first
    pub shape: Vec<usize>,
    /// index of the file
    pub shard: usize,
    /// first byte in that file
    pub start: usize,
    /// one past the last byte
    pub end: usize,
}

/// All tensors of a model.
#[derive(Debug, Clone, Default)]
pub struct TensorTable {
    entries: BTreeMap<String, TensorEntry>,
}

impl TensorTable {
    /// Adds a tensor; returns the previous one of that name.
    pub fn insert(&mut self, name: String, entry: TensorEntry) -> Option<TensorEntry> {
        self.entries.insert(name, entry)
    }

    /// One tensor.
    pub fn get(&self, name: &str) -> Option<&TensorEntry> {
        self.entries.get(name)
    }

    /// True if the tensor exists.
    pub fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// All tensors, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TensorEntry)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// Adds the tensors of another part of the same model, stored in file `shard`.
    pub(crate) fn take_over(&mut self, part: TensorTable, shard: usize) -> Result<(), ModelError> {
        for (name, entry) in part.entries {
            if self.has(&name) {
                return Err(ModelError::corrupt(
                    "the model",
                    format!("a model with '{name}' in two parts"),
                    "one of each tensor",
                ));
            }
            self.insert(name, TensorEntry { shard, ..entry });
        }
        Ok(())
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A tensor that must exist and have a decoder.
    ///
    /// # Errors
    /// The tensor is missing, or has no decoder.
    pub fn require(&self, name: &str) -> Result<(&TensorEntry, TensorInfo), ModelError> {
        let entry = self.get(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        Ok((entry, entry.info(name)?))
    }

    /// Checks that a tensor has exactly this shape; leading dimensions of 1 are ignored.
    ///
    /// # Errors
    /// The tensor is missing, has no decoder, or has another shape.
    pub fn require_shape(&self, name: &str, expected: &[usize]) -> Result<TensorInfo, ModelError> {
        let (entry, info) = self.require(name)?;
        let spare = entry.shape.len().saturating_sub(expected.len());
        let (ones, shape) = entry.shape.split_at(spare);
        if shape != expected || ones.iter().any(|d| *d != 1) {
            return Err(ModelError::Shape {
                tensor: name.to_owned(),
                expected: format!("{expected:?}"),
                got: format!("{:?}", entry.shape),
            });
        }
        Ok(info)
    }
}

impl TensorEntry {
    /// The tensor as rows.
    ///
    /// # Errors
    /// The type has no decoder.
    pub fn info(&self, name: &str) -> Result<TensorInfo, ModelError> {
        let ty = self.ty.as_ref().map_err(|ty| ModelError::TensorType {
            tensor: name.to_owned(),
            ty: ty.clone(),
            supported: TensorType::supported(),
        })?;
        let (rows, cols) = match self.shape.as_slice() {
            [] => (1, 1),
            [n] => (*n, 1),
            [outer @ .., cols] => (outer.iter().product(), *cols),
        };
        Ok(TensorInfo { ty: *ty, rows, cols })
    }

    /// Number of elements.
    pub fn n_elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Tensor entry of a GGUF header.
pub(super) struct TensorHeader {
    pub name: String,
    /// shape, outermost dimension first
    pub shape: Vec<usize>,
    pub ty: TensorType,
    /// offset from the beginning of the data
    pub offset: u64,
    pub n_bytes: u64,
}

/// Turns offsets into byte ranges of the file, and checks that they lie inside it and do not overlap.
pub(super) fn place_tensors(
    headers: Vec<TensorHeader>,
    start: u64,
    alignment: u64,
    file_bytes: u64,
) -> Result<TensorTable, ModelError> {
    let mut table = TensorTable::default();
    let mut ranges = Vec::with_capacity(headers.len());
    for header in headers {
        let what = || format!("the offset of tensor '{}'", header.name);
        if !header.offset.is_multiple_of(alignment) {
            return Err(ModelError::corrupt(what(), header.offset, format!("a multiple of the alignment {alignment}")));
        }
        let range = start.checked_add(header.offset).and_then(|from| Some((from, from.checked_add(header.n_bytes)?)));
        let Some((from, to)) = range else {
            return Err(ModelError::corrupt(what(), header.offset, "inside the file"));
        };
        if to > file_bytes {
            return Err(ModelError::Truncated {
                what: format!("tensor '{}'", header.name),
                offset: usize::try_from(from).unwrap_or(usize::MAX),
                needed: header.n_bytes,
                available: file_bytes.saturating_sub(from),
            });
        }
        let (Ok(from), Ok(to)) = (usize::try_from(from), usize::try_from(to)) else {
            return Err(ModelError::Unsupported(
                "this model file is too large for a 32-bit system. Choose a smaller model".to_owned(),
            ));
        };
        ranges.push((from, to, header.name.clone()));
        let entry = TensorEntry { ty: Ok(header.ty), shape: header.shape, shard: 0, start: from, end: to };
        if table.insert(header.name.clone(), entry).is_some() {
            let got = format!("listing '{}' twice", header.name);
            return Err(ModelError::corrupt("the tensor list", got, "one entry for each tensor"));
        }
    }
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        let [(_, end, first), (from, _, second)] = pair else { continue };
        if from < end {
            let got = format!("placing '{first}' and '{second}' on the same bytes");
            return Err(ModelError::corrupt("the tensor list", got, "tensors that do not overlap"));
        }
    }
    Ok(table)
}
