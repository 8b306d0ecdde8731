//! Files become text: UTF-8 text and Markdown.

use std::path::Path;

/// A document's text and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// the file's name, without its folder
    pub name: String,
    /// the whole text
    pub text: String,
}

/// A file that is not a readable document: one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DocumentError(String);

impl Document {
    /// Reads a UTF-8 file.
    ///
    /// # Errors
    /// The file is missing, empty or not text.
    pub fn open(path: &Path) -> Result<Document, DocumentError> {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let bytes = std::fs::read(path).map_err(|e| DocumentError(format!("{name} cannot be read: {e}")))?;
        Document::from_bytes(&name, &bytes)
    }

    /// Takes UTF-8 bytes as a document.
    ///
    /// # Errors
    /// The bytes are empty or not UTF-8 text.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Document, DocumentError> {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| DocumentError(format!("{name} is not UTF-8 text; save it as UTF-8 and open it again")))?;
        if text.trim().is_empty() {
            return Err(DocumentError(format!("{name} is empty; choose a file with text in it")));
        }
        Ok(Document { name: name.to_owned(), text: text.to_owned() })
    }
}
