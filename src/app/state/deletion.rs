//! Deletion that can be undone: a chat, or a document of the library.

use crate::app::state::chat::Chat;

/// A deletion that can be undone.
#[derive(Debug, Clone, PartialEq)]
pub enum Undo {
    /// a chat
    Chat(Box<Chat>),
    /// a document of the library
    Document {
        /// hash of its text, hexadecimal
        content_hash: String,
        /// display name
        name: String,
        /// only its KV goes
        keeps_text: bool,
        /// KV bytes on the disk
        kv_bytes: u64,
    },
}
