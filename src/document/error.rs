//! Errors of documents. Each message names the fault and the remedy.

use std::path::PathBuf;

use super::extract::ExtractError;
use crate::base::Bytes;

/// Error of a file that cannot be used as a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// the file does not exist
    #[error("there is no file {path}. Check its name")]
    Missing {
        /// requested path
        path: PathBuf,
    },
    /// the path is a folder, a device or a pipe
    #[error("{path} is {what}, not a file. Choose a file")]
    NotAFile {
        /// requested path
        path: PathBuf,
        /// kind of the path, such as `a folder`
        what: &'static str,
    },
    /// the file cannot be read
    #[error("{path} could not be read: {reason}. Check its permissions")]
    Unreadable {
        /// requested path
        path: PathBuf,
        /// cause
        reason: String,
    },
    /// the file has no text
    #[error("{name} has no text. Choose another file")]
    Empty {
        /// file name
        name: String,
    },
    /// the file exceeds [`crate::base::limits::MAX_DOCUMENT_BYTES`] or [`crate::base::limits::MAX_FILE_BYTES`]
    #[error("{name} has {got}, but at most {max} are supported. Split the file")]
    TooLarge {
        /// file name
        name: String,
        /// size, or one byte above the limit if unknown
        got: Bytes,
        /// limit
        max: Bytes,
    },
    /// the file is binary
    #[error("{name} is {what}, not readable text. Choose text, Markdown, HTML, PDF, DOCX or EPUB")]
    Binary {
        /// file name
        name: String,
        /// apparent kind of the file
        what: &'static str,
    },
    /// the sandboxed reader rejected the file
    #[error("{name} {why}")]
    Refused {
        /// file name
        name: String,
        /// cause, as the predicate after the name
        why: ExtractError,
    },
    /// the sandboxed reader stalled
    #[error(
        "{name} could not be read: its reader made no progress for {seconds} s, so it is corrupt or malicious. Choose another file"
    )]
    Stalled {
        /// file name
        name: String,
        /// duration of the stall
        seconds: u64,
    },
    /// the sandboxed reader crashed
    #[error(
        "{name} could not be read: its reader crashed or needed more than {max} of memory, so it is corrupt or malicious. Choose another file"
    )]
    Crashed {
        /// file name
        name: String,
        /// memory limit of the reader
        max: Bytes,
    },
    /// the sandboxed reader could not be started
    #[error("{name} could not be read: its reader could not be started ({reason}). Close other programs")]
    NoReader {
        /// file name
        name: String,
        /// cause
        reason: String,
    },
    /// the user cancelled it
    #[error("reading {name} was cancelled")]
    Cancelled {
        /// file name
        name: String,
    },
}
