//! Records of the chat database, and the changes that can be applied to them. Plain data.

use std::path::PathBuf;
use std::sync::Arc;

use crate::document::Document;

/// Author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Author {
    /// the user
    User,
    /// the model
    Model,
}

/// Progress of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageState {
    /// being generated
    Running,
    /// complete, or stopped by the user
    Done,
    /// failed; the note has the reason
    Failed,
    /// the program ended during generation
    Interrupted,
}

/// A message of a chat. Its parent is the previous message; messages with the same parent are alternatives.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct MessageRow {
    /// unique among all messages; later messages have larger ids
    pub id: u64,
    /// id of its chat
    pub chat: u64,
    /// None for a first question
    pub parent: Option<u64>,
    /// author
    pub author: Author,
    /// text
    pub text: String,
    /// progress
    pub state: MessageState,
    /// a sentence for the user; empty if there is none
    pub note: String,
    /// cost of generation, JSON; empty if unknown
    pub cost: String,
    /// time of creation, seconds since 1970
    pub made: i64,
}

/// Reference to a document of a chat.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DocumentName {
    /// hash of its text, hexadecimal
    pub content_hash: String,
    /// name to show
    pub name: String,
    /// path of its file, if known
    pub path: Option<PathBuf>,
}

/// A chat without its messages.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize)]
pub struct ChatRow {
    /// unique among all chats
    pub id: u64,
    /// title in the list
    pub title: String,
    /// true if the user chose the title
    pub named: bool,
    /// pinned to the top of the list
    pub pinned: bool,
    /// instructions in front of the first question; may be empty
    pub instructions: String,
    /// sampling parameters, JSON; empty for those of the settings
    pub sampling: String,
    /// last message of the selected branch
    pub leaf: Option<u64>,
    /// text typed but not sent
    pub draft: String,
    /// time of the last message, seconds since 1970
    pub updated: i64,
    /// documents in front of the first question, in this order
    pub documents: Vec<DocumentName>,
}

/// A document whose text is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDocument {
    /// name, hash and path
    pub document: DocumentName,
    /// bytes of its file
    pub bytes: u64,
    /// characters of its text
    pub n_chars: usize,
    /// pages
    pub n_pages: usize,
}

/// Named instructions and sampling parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preset {
    /// unique name
    pub name: String,
    /// as in [`ChatRow::instructions`]
    pub instructions: String,
    /// as in [`ChatRow::sampling`]
    pub sampling: String,
}

/// A search result: a chat that contains the words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchHit {
    /// id of the chat
    pub chat: u64,
    /// its newest matching message; None if only its title or a document's name matches
    pub message: Option<u64>,
    /// excerpt around the match
    pub around: String,
}

/// A change to save.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// inserts or updates a chat
    Chat(ChatRow),
    /// updates the unsent text of a chat
    Draft {
        /// id of the chat
        chat: u64,
        /// the whole draft
        text: String,
    },
    /// inserts or updates a message
    Message(MessageRow),
    /// appends to a message
    Piece {
        /// id of the message
        message: u64,
        /// text to append
        text: String,
    },
    /// hides a chat, and deletes it at the next start
    Delete(u64),
    /// undoes a deletion
    Restore(u64),
    /// stores the text of a document, with the path of its file
    Document(Arc<Document>, Option<PathBuf>),
    /// deletes a document, by the hash of its text
    ForgetDocument(String),
    /// inserts a preset, or replaces the one of the same name
    Preset(Preset),
    /// deletes a preset, by its name
    ForgetPreset(String),
}

impl Change {
    /// True if the change must survive a power failure, not only the end of the program.
    pub(super) fn is_lasting(&self) -> bool {
        !matches!(self, Change::Piece { .. } | Change::Draft { .. })
    }
}
