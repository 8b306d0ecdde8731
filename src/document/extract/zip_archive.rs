//! ZIP archive with a limit on the total of decompressed bytes.
//!
//! ```text
//! bytes, name ──► Archive ──► content of that file, or an error
//! ```
//! Invariant: sizes in the archive's headers are not trusted; decompressed bytes are counted.
//! Limits: [`limits::MAX_UNPACKED_BYTES`].

use std::io::{Cursor, Read};

use zip::ZipArchive;
use zip::result::ZipError;

use super::extracted::ExtractError;
use crate::base::{Bytes, limits};

/// An open archive.
pub struct Archive<'a> {
    zip: ZipArchive<Cursor<&'a [u8]>>,
    left_bytes: u64,
}

impl<'a> Archive<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self, ExtractError> {
        let zip =
            ZipArchive::new(Cursor::new(bytes)).map_err(|e| ExtractError::corrupt(format!("it is not a ZIP archive ({e})")))?;
        Ok(Archive { zip, left_bytes: limits::MAX_UNPACKED_BYTES })
    }

    /// Content of a file; None if the archive has no file of that name.
    pub fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>, ExtractError> {
        let file = match self.zip.by_name(name) {
            Ok(file) => file,
            Err(ZipError::FileNotFound) => return Ok(None),
            Err(e) if e.to_string().contains("assword") => {
                return Err(ExtractError::Protected { how: "by a password".into() });
            }
            Err(e) => return Err(ExtractError::corrupt(format!("{name} in it cannot be decompressed ({e})"))),
        };
        let mut content = Vec::new();
        let read = file.take(self.left_bytes + 1).read_to_end(&mut content);
        let n = content.len() as u64;
        if n > self.left_bytes {
            let what = format!("it decompresses to more than {}", Bytes(limits::MAX_UNPACKED_BYTES));
            return Err(ExtractError::TooLarge { what });
        }
        self.left_bytes -= n;
        read.map_err(|e| ExtractError::corrupt(format!("{name} in it cannot be decompressed ({e})")))?;
        Ok(Some(content))
    }

    /// Content of a file that must exist.
    pub fn require(&mut self, name: &str) -> Result<Vec<u8>, ExtractError> {
        self.read(name)?.ok_or_else(|| ExtractError::corrupt(format!("it has no {name}")))
    }
}
