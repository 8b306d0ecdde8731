//! Extraction: formats that need a parser (PDF, DOCX, EPUB, HTML) to text, in the sandboxed process.
//!
//! ```text
//! bytes, FileFormat ──► pdf │ docx │ epub │ html ──► Extracted { parts: [title, text] } ──► Document
//!                      └── zip_archive, text_flow ──┘
//! ```
//! Invariants: 1. Nothing is truncated silently: content above a limit is rejected. 2. The result is deterministic.
//! 3. Files are untrusted, so this runs in a process of its own (see [`super::sandbox`]).
//! Limits: all in [`limits`].

mod docx;
mod epub;
mod glyph_layout;
mod html;
mod pdf;
mod text_flow;
mod zip_archive;

use serde::{Deserialize, Serialize};

use super::file_format::FileFormat;
use crate::base::limits;

/// A page or a chapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// title of a chapter
    pub title: Option<String>,
    /// text with LF line ends
    pub text: String,
}

/// Extracted content of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Extracted {
    /// parts in reading order
    pub parts: Vec<Part>,
    /// true if each part is one page of the file, even if empty; otherwise parts are chapters, to be split into pages
    pub is_paged: bool,
    /// notices for the user, one sentence each
    pub notes: Vec<String>,
}

/// Why a file cannot be read, as the predicate after its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ExtractError {
    /// protected by a password or rights management
    #[error("is protected ({how}). Save a copy without protection and open that")]
    Protected {
        /// kind of protection
        how: String,
    },
    /// no content
    #[error("has no text. Choose another file")]
    Empty,
    /// pages without text
    #[error("has no text on its {n_pages} page(s), which are empty or scanned images. Run text recognition (OCR) on it first")]
    NoText {
        /// number of pages
        n_pages: usize,
    },
    /// glyphs without characters
    #[error("has text in fonts without character codes. Run text recognition (OCR) on it first")]
    NoLetters,
    /// invalid content
    #[error("is corrupt: {what}. Try to open it in its own program and save it again")]
    Corrupt {
        /// fault, in a few words
        what: String,
    },
    /// above a limit
    #[error("is too large: {what}. Split the file")]
    TooLarge {
        /// item and limit
        what: String,
    },
}

impl ExtractError {
    fn corrupt(what: impl Into<String>) -> ExtractError {
        ExtractError::Corrupt { what: what.into() }
    }
}

/// Callback with the number of pages or chapters done, and their total.
pub type ReportProgress<'a> = &'a mut dyn FnMut(usize, usize);

/// Extracts the content of a file.
///
/// # Errors
/// The file cannot be read; the error has the reason and the remedy.
pub fn extract(kind: FileFormat, bytes: &[u8], progress: ReportProgress<'_>) -> Result<Extracted, ExtractError> {
    let extracted = match kind {
        FileFormat::Text | FileFormat::Html => html::extract(bytes),
        FileFormat::Pdf => pdf::extract(bytes, progress),
        FileFormat::Docx => docx::extract(bytes),
        FileFormat::Epub => epub::extract(bytes, progress),
    }?;
    match (extracted.parts.iter().any(|p| !p.text.trim().is_empty()), kind) {
        (true, _) => Ok(extracted),
        (false, FileFormat::Pdf) => Err(ExtractError::NoText { n_pages: extracted.parts.len() }),
        (false, _) => Err(ExtractError::Empty),
    }
}

/// Counter of text against [`limits::MAX_DOCUMENT_BYTES`].
#[derive(Default)]
struct TextLimit {
    n_bytes: u64,
}

impl TextLimit {
    fn add(&mut self, text: &str) -> Result<(), ExtractError> {
        self.n_bytes += text.len() as u64;
        if self.n_bytes > limits::MAX_DOCUMENT_BYTES {
            let what = format!("its text exceeds {}", crate::base::Bytes(limits::MAX_DOCUMENT_BYTES));
            return Err(ExtractError::TooLarge { what });
        }
        Ok(())
    }
}
