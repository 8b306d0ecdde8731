//! Bytes of a model file, mapped or embedded.

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use super::ModelError;

/// Owner of the bytes.
pub(crate) enum Bytes {
    Mapped(Mmap),
    Static(&'static [u8]),
}

impl Bytes {
    pub fn get(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Static(bytes) => bytes,
        }
    }

    /// Lets the system read a part of a mapped file now, before it is used. A hint: without it, reads are smaller.
    pub fn read_ahead(&self, offset: usize, len: usize) {
        #[cfg(unix)]
        if let Bytes::Mapped(map) = self {
            // A system that refuses reads the part when it is used.
            let _ = map.advise_range(memmap2::Advice::WillNeed, offset, len);
        }
        #[cfg(not(unix))]
        let _ = (offset, len);
    }
}

/// Maps a whole file for reading.
pub(crate) fn map_file(path: &Path) -> Result<Bytes, ModelError> {
    let io = |source| ModelError::Io { path: path.display().to_string(), source };
    let file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.len() == 0 {
        return Ok(Bytes::Static(&[]));
    }
    // SAFETY: the map is read-only and owned by the returned value, which outlives every slice of it. If another program
    // overwrites the file, weights change (any bit pattern is a valid byte). If it truncates the file, a later read fails
    // with SIGBUS, a known limit of every engine that maps its weights.
    let map = unsafe { Mmap::map(&file) }.map_err(io)?;
    Ok(Bytes::Mapped(map))
}
