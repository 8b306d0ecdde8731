//! Tensors by name: type, shape, and where the bytes lie. The same for every kind of model file.

use std::collections::BTreeMap;

use super::ModelError;
use super::quant::TensorType;

/// Type and size of a stored tensor, seen as rows. A one-dimensional tensor of n elements is `[n, 1]`.
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
    /// element type, or the name of one that has no decoder
    pub ty: Result<TensorType, String>,
    /// outermost dimension first
    pub shape: Vec<usize>,
    /// which file
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
    /// Adds a tensor; the former one of that name comes back.
    pub fn insert(&mut self, name: String, entry: TensorEntry) -> Option<TensorEntry> {
        self.entries.insert(name, entry)
    }

    /// One tensor.
    pub fn get(&self, name: &str) -> Option<&TensorEntry> {
        self.entries.get(name)
    }

    /// True when the tensor is there.
    pub fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// All tensors, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TensorEntry)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// No tensors at all.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A tensor that must be there, in a type that can be decoded.
    ///
    /// # Errors
    /// When it is missing, or of a foreign type (named).
    pub fn require(&self, name: &str) -> Result<(&TensorEntry, TensorInfo), ModelError> {
        let entry = self.get(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        Ok((entry, entry.info(name)?))
    }

    /// Checks that a tensor has exactly this shape (dimensions of 1 in front are ignored).
    ///
    /// # Errors
    /// When it is missing, of a foreign type, or of another shape.
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
    /// When its type cannot be decoded.
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
