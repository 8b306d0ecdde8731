//! Extracted content of a file, the reasons why there is none, and the limit of its text.

use serde::{Deserialize, Serialize};

use crate::base::{Bytes, limits};

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

/// Reason that a file cannot be read, as the predicate after its name.
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
    pub(super) fn corrupt(what: impl Into<String>) -> ExtractError {
        ExtractError::Corrupt { what: what.into() }
    }
}

/// Callback with the number of pages or chapters done, and their total.
pub type ReportProgress<'a> = &'a mut dyn FnMut(usize, usize);

/// Counter of text against [`limits::MAX_DOCUMENT_BYTES`].
#[derive(Default)]
pub(super) struct TextLimit {
    n_bytes: u64,
}

impl TextLimit {
    pub fn add(&mut self, text: &str) -> Result<(), ExtractError> {
        self.n_bytes += text.len() as u64;
        if self.n_bytes > limits::MAX_DOCUMENT_BYTES {
            let what = format!("its text exceeds {}", Bytes(limits::MAX_DOCUMENT_BYTES));
            return Err(ExtractError::TooLarge { what });
        }
        Ok(())
    }
}

/// One notice of all that was lost or guessed; none if nothing was.
pub(super) fn one_notice(sentences: Vec<String>) -> Vec<String> {
    if sentences.is_empty() { sentences } else { vec![sentences.join(" ")] }
}
