//! Split GGUF model: `name-00001-of-00003.gguf` and its other parts, opened as one model.
//!
//! ```text
//! any part ─► names of all ─► part 1: metadata, tensors │ parts 2 ..: tensors ─► one TensorTable with shard numbers
//! ```
//! Invariants: 1. All parts exist and have the same count, or the error names a missing one. 2. No tensor is in two
//! parts. Limits: [`MAX_PARTS`]. Source: llama.cpp's `gguf-split`, which writes the names and the key `split.count`.

use std::path::{Path, PathBuf};

use super::ModelError;
use super::gguf::Gguf;
use super::mmap::{Bytes, map_file};

/// Largest number of parts of one model.
pub const MAX_PARTS: usize = 512;

/// Parsed file name of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartName {
    /// name before the numbers
    pub stem: String,
    /// number of this part, from 1
    pub part: usize,
    /// number of parts
    pub n_parts: usize,
}

impl PartName {
    /// Parses `name-00001-of-00003.gguf`; None for any other name.
    pub fn of(path: &Path) -> Option<PartName> {
        let name = path.file_name()?.to_str()?;
        let (dot, extension) = name.split_at_checked(name.len().checked_sub(".gguf".len())?)?;
        let (rest, n_parts) = dot.rsplit_once("-of-")?;
        let (stem, part) = rest.rsplit_once('-')?;
        let number = |text: &str| (text.len() == 5).then(|| text.parse::<usize>().ok()).flatten();
        let (part, n_parts) = (number(part)?, number(n_parts)?);
        let plausible = extension.eq_ignore_ascii_case(".gguf") && (1..=n_parts).contains(&part) && n_parts <= MAX_PARTS;
        plausible.then(|| PartName { stem: stem.to_owned(), part, n_parts })
    }

    /// Paths of all parts in the folder of `path`, in order.
    pub fn paths(&self, path: &Path) -> Vec<PathBuf> {
        let n = self.n_parts;
        (1..=n).map(|part| path.with_file_name(format!("{}-{part:05}-of-{n:05}.gguf", self.stem))).collect()
    }
}

/// True if a file of this name is one part of several by its metadata, too. A corrupt file counts as a part.
pub(crate) fn is_part(bytes: &[u8], name: &PartName) -> bool {
    let is_whole = |gguf: Gguf| matches!(gguf.uint("split.count"), Ok(None | Some(0 | 1)));
    name.n_parts > 1 && !Gguf::parse(bytes).is_ok_and(is_whole)
}

/// Opens all parts of the model that `path` belongs to. Metadata is that of part 1, tensors are those of all parts.
///
/// # Errors
/// A part that is missing or corrupt, or that belongs to another model.
pub(crate) fn open_parts(path: &Path, name: &PartName) -> Result<(Gguf, Vec<Bytes>), ModelError> {
    let paths = name.paths(path);
    let missing: Vec<String> = paths.iter().filter(|p| !p.is_file()).map(|p| file_name(p)).collect();
    if let Some(first) = missing.first() {
        let others = match missing.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        return Err(ModelError::MissingPart { n_parts: paths.len(), missing: format!("{first}{others}") });
    }
    let mut shards: Vec<Bytes> = Vec::with_capacity(paths.len());
    let mut joined: Option<Gguf> = None;
    for (shard, path) in paths.iter().enumerate() {
        let bytes = map_file(path)?;
        let gguf = Gguf::parse(bytes.get()).map_err(|e| ModelError::Part { part: file_name(path), source: Box::new(e) })?;
        if gguf.uint("split.count")? != Some(name.n_parts as u64) || gguf.uint("split.no")? != Some(shard as u64) {
            let must = format!("part {} of {} of this model", shard + 1, name.n_parts);
            return Err(ModelError::corrupt(file_name(path), "part of another model", must));
        }
        match &mut joined {
            None => joined = Some(gguf),
            Some(joined) => joined.take_tensors_of(gguf, shard)?,
        }
        shards.push(bytes);
    }
    // A part name guarantees at least one part.
    joined.map(|gguf| (gguf, shards)).ok_or_else(|| ModelError::corrupt("the number of parts", 0, "at least 1"))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_part_gives_the_names_of_all() {
        let path = Path::new("/models/big-Q4_K_M-00002-of-00003.gguf");
        let name = PartName::of(path).unwrap();
        assert_eq!(name, PartName { stem: "big-Q4_K_M".into(), part: 2, n_parts: 3 });
        let last = name.paths(path).pop().unwrap();
        assert_eq!(last, Path::new("/models/big-Q4_K_M-00003-of-00003.gguf"));
    }

    #[test]
    fn other_names_are_no_part_names() {
        let names = [
            "big.gguf",
            "big-00001-of-00003.bin",
            "big-00004-of-00003.gguf",
            "big-00000-of-00003.gguf",
            "big-1-of-3.gguf",
            "big-00001-of-99999.gguf",
            "-of-.gguf",
            ".gguf",
            "é",
        ];
        for name in names {
            assert_eq!(PartName::of(Path::new(name)), None, "{name}");
        }
    }
}
