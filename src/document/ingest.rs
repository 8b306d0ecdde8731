//! A file to a document, whatever its format.
//!
//! ```text
//! path ──► a file, not too large ──► FileFormat ──► text: Document
//!                                       └──► PDF, DOCX, EPUB, HTML: worker process ──► Extracted ──► Document
//! ```
//! Invariants: 1. no parser of untrusted formats runs in this process; 2. a reading that was cancelled ends within
//! a tenth of a second. Owner thread: whoever calls; it waits.
//! Limits: [`limits::MAX_DOCUMENT_BYTES`] of text, [`limits::MAX_FILE_BYTES`] of file.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::file_format::FileFormat;
use super::progress::Watch;
use super::text::check_size;
use super::{Document, DocumentError, sandbox};
use crate::base::limits;

/// Reads files, with the help of a program that is this one.
#[derive(Debug, Clone)]
pub struct Reader {
    program: PathBuf,
}

impl Default for Reader {
    /// Other formats are read by the program that runs.
    fn default() -> Self {
        Reader { program: sandbox::this_program() }
    }
}

impl Reader {
    /// Other formats are read by this program, which answers to [`sandbox::ARGUMENT`].
    pub fn with_worker(program: impl Into<PathBuf>) -> Self {
        Reader { program: program.into() }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, and what to do.
    pub fn open(&self, path: &Path, watch: &Watch) -> Result<Document, DocumentError> {
        let unreadable = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => DocumentError::Missing { path: path.to_owned() },
            _ => DocumentError::Unreadable { path: path.to_owned(), reason: e.to_string() },
        };
        let about = std::fs::metadata(path).map_err(unreadable)?;
        if !about.is_file() {
            let what = if about.is_dir() { "a folder" } else { "a device or a pipe" };
            return Err(DocumentError::NotAFile { path: path.to_owned(), what });
        }
        let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
        check_size(&name, usize::try_from(about.len()).unwrap_or(usize::MAX), limits::MAX_FILE_BYTES)?;
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(limits::MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        self.read(&name, &bytes, watch)
    }

    /// Reads the content of a file called `name`.
    ///
    /// # Errors
    /// What is wrong with it, and what to do.
    pub fn read(&self, name: &str, bytes: &[u8], watch: &Watch) -> Result<Document, DocumentError> {
        check_size(name, bytes.len(), limits::MAX_FILE_BYTES)?;
        let kind = FileFormat::of(name, bytes).map_err(|what| DocumentError::Binary { name: name.to_owned(), what })?;
        if !kind.needs_worker() {
            return Document::from_bytes(name, bytes);
        }
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(DocumentError::Empty { name: name.to_owned() });
        }
        let extracted = sandbox::read(&self.program, name, kind, bytes, watch)?;
        Document::from_extracted(name, kind, bytes.len() as u64, extracted)
    }
}

impl Document {
    /// Reads a file with the [`Reader`] of this program.
    ///
    /// # Errors
    /// What is wrong with the file, and what to do.
    pub fn open(path: &Path) -> Result<Self, DocumentError> {
        Reader::default().open(path, &Watch::default())
    }
}
