//! Open document: a document of this session, with its tokens once the engine has counted them.

use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::sync::Arc;

use crate::document::Document;

/// Id of a document of this session.
pub type DocId = u64;
/// Characters per token of a document that is not counted yet: an estimate, shown with `~`.
pub const CHARS_PER_TOKEN: f64 = 3.6;

/// A document of this session.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenDocument {
    /// its id
    pub id: DocId,
    /// its text and pages
    pub document: Arc<Document>,
    /// number of characters
    pub n_chars: usize,
    /// tokens, once the engine has counted them for the loaded model
    pub n_tokens: Option<usize>,
    /// range of its tokens in a prompt that begins with this document, once counted
    pub token_range: Option<Range<usize>>,
    /// time to turn the file into text, milliseconds; None without a file
    pub ingest_ms: Option<f64>,
    /// the bundled sample
    pub sample: bool,
    /// path of its file
    pub path: Option<PathBuf>,
}

impl Deref for OpenDocument {
    type Target = Document;

    fn deref(&self) -> &Document {
        &self.document
    }
}

impl OpenDocument {
    /// Number of tokens, and whether it is exact.
    pub fn tokens(&self) -> (usize, bool) {
        match self.n_tokens {
            Some(n) => (n, true),
            None => (estimate_tokens(self.n_chars), false),
        }
    }
}

/// Tokens of so many characters, an estimate.
pub fn estimate_tokens(n_chars: usize) -> usize {
    (n_chars as f64 / CHARS_PER_TOKEN).ceil() as usize
}
