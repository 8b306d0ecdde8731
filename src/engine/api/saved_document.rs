//! Saved documents, as commands and events name them.

use std::path::PathBuf;

use crate::engine::api::KvDtype;

/// Tokens at the end of a document that are prefilled with the question: the template and the tokenizer may join them
/// differently with what follows.
pub const READ_MARGIN: usize = 8;

/// A document at the beginning of a conversation, whose KV may be kept from one start to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentRef {
    /// hash of the text, which names it in the library
    pub content_hash: [u8; 32],
    /// what people call it
    pub name: String,
    /// size of the file(s), bytes
    pub bytes: u64,
    /// pages of the file(s)
    pub pages: usize,
    /// bytes of the first user message that are the document's text
    pub text_bytes: usize,
    /// keep its KV on the disk; a document that is there already is used either way
    pub save: bool,
}

/// What can be done with saved documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LibraryAction {
    /// nothing, just tell
    List {
        /// the library's folder, as in [`LoadOptions::kv_dir`]
        kv_dir: Option<PathBuf>,
    },
    /// delete the saved KV of one document
    Remove {
        /// the library's folder
        kv_dir: Option<PathBuf>,
        /// [`SavedDocument::id`], or the beginning of it where that is unique
        id: String,
    },
}

/// How far a saved document is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SavedState {
    /// all of it
    Read,
    /// reading was interrupted; it goes on where it stopped
    Partial,
    /// its files are gone or damaged as a whole; it will be read again
    Missing,
}

/// A document of the library, with the model that read it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct SavedDocument {
    /// names it in commands: hexadecimal digits
    pub id: String,
    /// what people call it
    pub name: String,
    /// hash of its text, hexadecimal
    pub content_hash: String,
    /// size of the file(s), bytes
    pub bytes: u64,
    /// pages of the file(s)
    pub pages: usize,
    /// the model that read it
    pub model: String,
    /// element type of its KV
    pub kv_dtype: KvDtype,
    /// its tokens
    pub tokens: usize,
    /// of which are saved
    pub saved_tokens: usize,
    /// bytes on the disk
    pub kv_bytes: u64,
    /// how far it is read
    pub state: SavedState,
    /// what reading it took, which opening it again saves
    pub prefill_seconds: f64,
    /// seconds since 1970
    pub last_used: i64,
}
