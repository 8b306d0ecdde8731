//! Saved documents, as commands and events name them.

use std::path::PathBuf;

use crate::document::catalog::PrecedingDocument;
use crate::document::{BLANK_LINE, Document};
use crate::engine::api::KvDtype;

/// Tokens at the end of a document that are prefilled with the question: the template and the tokenizer may join them
/// differently with what follows.
pub const READ_MARGIN: usize = 8;

/// A document at the beginning of a conversation, whose KV may be saved. Several documents are saved one by one: any
/// conversation that begins with the same documents in the same order uses the same saved KV for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentRef {
    /// hash of its text
    pub content_hash: [u8; 32],
    /// display name
    pub name: String,
    /// size of the file(s), bytes
    pub bytes: u64,
    /// pages of the file(s)
    pub pages: usize,
    /// end of its text in the first user message, bytes
    pub end_byte: usize,
    /// save its KV on disk; KV that is saved already is used either way
    pub save: bool,
}

impl DocumentRef {
    /// References to documents whose texts the first user message joins with blank lines.
    pub fn joined<'a>(documents: impl IntoIterator<Item = &'a Document>, save: bool) -> Vec<DocumentRef> {
        let mut end_byte = 0;
        let reference = |document: &Document| {
            end_byte += if end_byte == 0 { 0 } else { BLANK_LINE.len() };
            end_byte += document.text.len();
            let (name, bytes, pages) = (document.name.clone(), document.bytes, document.pages.len());
            DocumentRef { content_hash: document.content_hash.0, name, bytes, pages, end_byte, save }
        };
        documents.into_iter().map(reference).collect()
    }
}

/// Request for the saved documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LibraryAction {
    /// list them
    List {
        /// the library's folder, as in [`LoadOptions::kv_dir`]
        kv_dir: Option<PathBuf>,
    },
    /// delete the saved KV of one document, and that of documents saved after it
    Remove {
        /// the library's folder
        kv_dir: Option<PathBuf>,
        /// [`SavedDocument::id`], or a unique prefix of it
        id: String,
    },
}

/// Progress of the prefill of a saved document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SavedState {
    /// complete
    Read,
    /// interrupted; prefill resumes there
    Partial,
    /// its files are missing or corrupt as a whole; it will be prefilled again
    Missing,
}

/// A document of the library, with the model that prefilled it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct SavedDocument {
    /// id in commands, hexadecimal
    pub id: String,
    /// display name
    pub name: String,
    /// hash of its text, hexadecimal
    pub content_hash: String,
    /// documents before it in the prompt; its KV can be used after exactly these. Empty if it was first
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<PrecedingDocument>,
    /// size of the file(s), bytes
    pub bytes: u64,
    /// pages of the file(s)
    pub pages: usize,
    /// model that prefilled it
    pub model: String,
    /// element type of its KV
    pub kv_dtype: KvDtype,
    /// its tokens
    pub tokens: usize,
    /// number of them that are saved
    pub saved_tokens: usize,
    /// bytes on disk
    pub kv_bytes: u64,
    /// progress of its prefill
    pub state: SavedState,
    /// duration of its prefill, which resuming saves
    pub prefill_seconds: f64,
    /// seconds since 1970
    pub last_used: i64,
}
