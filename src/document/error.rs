//! Why a file cannot be a document, one sentence each that says what to do.

use std::path::PathBuf;

use super::extract::ExtractError;
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
    #[error("{path} is {what}, not a file; choose a file in it")]
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
    #[error("{name} is {what}, not text that can be read; choose text, Markdown, HTML, PDF, DOCX or EPUB")]
    Binary {
        /// file name
        name: String,
        /// what it seems to be
        what: &'static str,
    },
    /// what its reader found
    #[error("{name} {why}")]
    Refused {
        /// file name
        name: String,
        /// goes on after the name
        why: ExtractError,
    },
    /// no progress for too long
    #[error("{name} was given up: nothing could be read from it for {seconds} s; it is damaged or made to do harm")]
    Stalled {
        /// file name
        name: String,
        /// how long
        seconds: u64,
    },
    /// the process that reads it ended
    #[error(
        "{name} cannot be read: it makes its reader crash, or take more than {max} of memory; it is damaged or made to do harm"
    )]
    Crashed {
        /// file name
        name: String,
        /// memory that a reader may take
        max: Bytes,
    },
    /// the process that reads it did not begin
    #[error("{name} cannot be read: no process can be started for it ({reason}); close other programs")]
    NoReader {
        /// file name
        name: String,
        /// the system's words
        reason: String,
    },
    /// somebody asked for it to end
    #[error("reading {name} was stopped")]
    Cancelled {
        /// file name
        name: String,
    },
}
