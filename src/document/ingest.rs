//! Ingest: a file of any supported format to a document.
//!
//! ```text
//! path ──► a file, not too large ──► FileFormat ──► text: Document
//!                                       └──► PDF, DOCX, EPUB, HTML: sandboxed process ──► Extracted ──► Document
//! ```
//! Invariants: 1. No parser of untrusted formats runs in this process. 2. A cancelled call returns within a tenth of a
//! second. Owner thread: the caller's, which blocks.
//! Limits: [`limits::MAX_DOCUMENT_BYTES`] of text, [`limits::MAX_FILE_BYTES`] of file.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::file_format::FileFormat;
use super::progress::Progress;
use super::text::check_size;
use super::{Document, DocumentError, sandbox};
use crate::base::limits;

/// Reader of document files, which starts `program` as its sandboxed process.
#[derive(Debug, Clone)]
pub struct Reader {
    program: PathBuf,
}

impl Default for Reader {
    /// Uses the running program.
    fn default() -> Self {
        Reader { program: sandbox::this_program() }
    }
}

impl Reader {
    /// Uses this program, which must handle [`sandbox::ARGUMENT`].
    pub fn with_sandbox(program: impl Into<PathBuf>) -> Self {
        Reader { program: program.into() }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be used; the error has the reason and the remedy.
    pub fn open(&self, path: &Path, progress: &Progress) -> Result<Document, DocumentError> {
        let unreadable = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => DocumentError::Missing { path: path.to_owned() },
            _ => DocumentError::Unreadable { path: path.to_owned(), reason: e.to_string() },
        };
        let metadata = std::fs::metadata(path).map_err(unreadable)?;
        if !metadata.is_file() {
            let what = if metadata.is_dir() { "a folder" } else { "a device or a pipe" };
            return Err(DocumentError::NotAFile { path: path.to_owned(), what });
        }
        let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
        check_size(&name, usize::try_from(metadata.len()).unwrap_or(usize::MAX), limits::MAX_FILE_BYTES)?;
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(limits::MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        self.read(&name, &bytes, progress)
    }

    /// Reads the content of a file called `name`.
    ///
    /// # Errors
    /// The file cannot be used; the error has the reason and the remedy.
    pub fn read(&self, name: &str, bytes: &[u8], progress: &Progress) -> Result<Document, DocumentError> {
        check_size(name, bytes.len(), limits::MAX_FILE_BYTES)?;
        let kind = FileFormat::of(name, bytes).map_err(|what| DocumentError::Binary { name: name.to_owned(), what })?;
        if !kind.needs_sandbox() {
            return Document::from_bytes(name, bytes);
        }
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(DocumentError::Empty { name: name.to_owned() });
        }
        let extracted = sandbox::read(&self.program, name, kind, bytes, progress)?;
        Document::from_extracted(name, kind, bytes.len() as u64, extracted)
    }
}

impl Document {
    /// Reads a file with the [`Reader`] of this program.
    ///
    /// # Errors
    /// The file cannot be used; the error has the reason and the remedy.
    pub fn open(path: &Path) -> Result<Self, DocumentError> {
        Reader::default().open(path, &Progress::default())
    }
}
