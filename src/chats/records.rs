//! Chats as they are kept: plain data, and what can change of it.

use std::path::PathBuf;
use std::sync::Arc;

use crate::document::Document;

/// Who wrote a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Author {
    /// the person
    User,
    /// the model
    Model,
}

/// How a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// being written
    Running,
    /// whole, or stopped on purpose
    Done,
    /// could not be written; the note says why
    Failed,
    /// the program ended while it was written
    Interrupted,
}

/// A message of a chat. Its parent is the message that it follows; messages with one parent are alternatives.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct MessageRow {
    /// unique among all messages; a later message has a larger one
    pub id: u64,
    /// whose
    pub chat: u64,
    /// none for a first question
    pub parent: Option<u64>,
    /// who
    pub author: Author,
    /// what
    pub text: String,
    /// how it stands
    pub state: State,
    /// a sentence for the person; empty where there is none
    pub note: String,
    /// what writing it cost, JSON; empty where it is not known
    pub cost: String,
    /// seconds since 1970
    pub made: i64,
}

/// A document that a chat is about.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DocumentName {
    /// hash of its text, hexadecimal
    pub content_hash: String,
    /// what people call it
    pub name: String,
    /// where its file was
    pub path: Option<PathBuf>,
}

/// A chat, but for its messages.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize)]
pub struct ChatRow {
    /// unique among all chats
    pub id: u64,
    /// what the list shows
    pub title: String,
    /// a person gave it the title
    pub named: bool,
    /// stands above the others
    pub pinned: bool,
    /// said to the model before everything else; empty where nothing is
    pub instructions: String,
    /// how tokens are chosen, JSON; empty where it is as in the settings
    pub sampling: String,
    /// the last message of the branch that is shown
    pub leaf: Option<u64>,
    /// not sent yet
    pub draft: String,
    /// when something was last said, seconds since 1970
    pub updated: i64,
    /// in front of the first question, in this order
    pub documents: Vec<DocumentName>,
}

/// A document whose text is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDocument {
    /// of its text
    pub document: DocumentName,
    /// size of its file
    pub bytes: u64,
    /// characters of its text
    pub n_chars: usize,
    /// pages of it
    pub n_pages: usize,
}

/// Instructions and sampling under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preset {
    /// unique
    pub name: String,
    /// as in [`ChatRow::instructions`]
    pub instructions: String,
    /// as in [`ChatRow::sampling`]
    pub sampling: String,
}

/// A chat that holds the words that were searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchHit {
    /// which
    pub chat: u64,
    /// its newest message that does; none where its title or a document's name does
    pub message: Option<u64>,
    /// the words and what is around them
    pub around: String,
}

/// What is to be kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// a new chat, or what a chat is now
    Chat(ChatRow),
    /// what is typed and not sent
    Draft {
        /// where
        chat: u64,
        /// all of it
        text: String,
    },
    /// a new message, or what it is now
    Message(MessageRow),
    /// the message goes on
    Piece {
        /// which
        message: u64,
        /// what comes after what it has
        text: String,
    },
    /// gone at the next start, and from every list now
    Delete(u64),
    /// not gone after all
    Restore(u64),
    /// the text of a document, and where its file is
    Document(Arc<Document>, Option<PathBuf>),
    /// no longer: the hash of its text
    ForgetDocument(String),
    /// new, or in place of that of the same name
    Preset(Preset),
    /// no longer: its name
    ForgetPreset(String),
}

impl Change {
    /// It is to survive a power cut, not only the end of the program.
    pub(super) fn is_lasting(&self) -> bool {
        !matches!(self, Change::Piece { .. } | Change::Draft { .. })
    }
}
