//! Why a file cannot be a document, one sentence each that says what to do.

use std::path::PathBuf;

use crate::base::Bytes;

/// Why a document was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// no such file
    #[error("there is no file {path}; check the name")]
    Missing {
        /// asked for
        path: PathBuf,
    },
    /// a folder, a device, a pipe
    #[error("{path} is {what}, not a file; choose a text file")]
    NotAFile {
        /// asked for
        path: PathBuf,
        /// `a folder`, ...
        what: &'static str,
    },
    /// the system does not let us read it
    #[error("cannot read {path}: {reason}; check that you may read it")]
    Unreadable {
        /// asked for
        path: PathBuf,
        /// the system's words
        reason: String,
    },
    /// no text in it
    #[error("{name} holds no text; choose another file")]
    Empty {
        /// file name
        name: String,
    },
    /// beyond [`crate::base::limits::MAX_DOCUMENT_BYTES`]
    #[error("{name} has {got}, and {max} is the most that is read; split it")]
    TooLarge {
        /// file name
        name: String,
        /// size, or the limit and one byte where it is not known
        got: Bytes,
        /// limit
        max: Bytes,
    },
    /// not text at all
    #[error("{name} is {what}, not text; save it as plain text (UTF-8) or Markdown first")]
    Binary {
        /// file name
        name: String,
        /// what it seems to be
        what: &'static str,
    },
    /// text in another encoding
    #[error("{name} is not UTF-8 (byte {offset} cannot be read{guess}); save it as UTF-8, for example with `iconv -t UTF-8`")]
    NotUtf8 {
        /// file name
        name: String,
        /// first bad byte of the file, from 0
        offset: usize,
        /// `; it looks like ...`, or nothing
        guess: &'static str,
    },
}
