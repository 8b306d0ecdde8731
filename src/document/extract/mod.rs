//! The formats that hold more than their text, each read by a crate that keeps up with it.
//!
//! ```text
//! bytes, FileFormat ──► pdf │ docx │ epub │ html ──► Extracted { parts: [title, text] } ──► Document
//!                      └── archive, flow ──┘
//! ```
//! Invariants: 1. nothing is cut off in silence: what is over a limit is refused; 2. what is read is the same each time;
//! 3. nothing here is trusted: it runs in a process of its own (see [`super::worker`]).
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
    /// of a chapter
    pub title: Option<String>,
    /// with LF line ends
    pub text: String,
}

/// What a file says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Extracted {
    /// in reading order
    pub parts: Vec<Part>,
    /// each part is one page of the file, be it empty; otherwise parts are chapters, to be cut into pages
    pub is_paged: bool,
    /// what a reader should know, one sentence each
    pub notes: Vec<String>,
}

/// Why a file cannot be read: goes on after its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ExtractError {
    /// a password, or rights management
    #[error("is protected ({how}); save a copy without the protection, and open that")]
    Protected {
        /// by what
        how: String,
    },
    /// nothing to read
    #[error("holds no text; choose another file")]
    Empty,
    /// pages, but no letters
    #[error(
        "has no text on its {n_pages} page(s): they are empty, or pictures as of a scan; run text recognition (OCR) on it first"
    )]
    NoText {
        /// pages that were looked at
        n_pages: usize,
    },
    /// glyphs that nobody can name
    #[error("has text whose fonts do not say which letters they draw; run text recognition (OCR) on it first")]
    NoLetters,
    /// not what it should be
    #[error("is damaged: {what}; try to open it in its own program and to save it again")]
    Damaged {
        /// a few words
        what: String,
    },
    /// over a limit
    #[error("is too large: {what}; split it")]
    TooLarge {
        /// what, and the limit
        what: String,
    },
}

impl ExtractError {
    fn damaged(what: impl Into<String>) -> ExtractError {
        ExtractError::Damaged { what: what.into() }
    }
}

/// Called with what is done and how much there is, in pages or chapters.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);

/// Reads the content of a file.
///
/// # Errors
/// What is wrong with it, and what to do.
pub fn extract(kind: FileFormat, bytes: &[u8], progress: Progress<'_>) -> Result<Extracted, ExtractError> {
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

/// Counts text against [`limits::MAX_DOCUMENT_BYTES`].
#[derive(Default)]
struct TextLimit {
    n_bytes: u64,
}

impl TextLimit {
    fn add(&mut self, text: &str) -> Result<(), ExtractError> {
        self.n_bytes += text.len() as u64;
        if self.n_bytes > limits::MAX_DOCUMENT_BYTES {
            let what = format!("its text is over {}", crate::base::Bytes(limits::MAX_DOCUMENT_BYTES));
            return Err(ExtractError::TooLarge { what });
        }
        Ok(())
    }
}
