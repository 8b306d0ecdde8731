//! Queue and results of the chat database, as plain data.

use crate::app::state::chat::ChatId;
use crate::app::state::deletion::Undo;
use crate::chats::{Change, ChatRequest, Preset, SearchHit, StoredDocument};

/// Queue and results of the database.
#[derive(Debug, Default)]
pub struct ChatPersistence {
    /// requests to send, oldest first
    pub requests: Vec<ChatRequest>,
    /// current time, updated in every frame
    pub now: i64,
    /// documents whose text is stored
    pub documents: Vec<StoredDocument>,
    /// presets of instructions and sampling
    pub presets: Vec<Preset>,
    /// the last search, and its hits
    pub found: Option<(String, Vec<SearchHit>)>,
    /// the last deletion, if it can be undone
    pub undo: Option<Undo>,
    /// a chat whose title is being edited
    pub renaming: Option<(ChatId, String)>,
    /// chats to save as files: name and text
    pub exported: Vec<(String, String)>,
    /// a text for the clipboard
    pub copied: Option<String>,
    /// a message to show once its chat is loaded
    pub reveal: Option<(ChatId, u64)>,
    /// words of the last search that was requested
    pub(in crate::app::state) searched: String,
    /// the chat on screen, and its draft as it was saved last
    pub(in crate::app::state) draft: (ChatId, String),
}

impl ChatPersistence {
    /// Queues a change. Pieces of one answer are joined.
    pub fn queue(&mut self, change: Change) {
        match (self.requests.last_mut(), change) {
            (Some(ChatRequest::Save(changes)), Change::Piece { message, text }) => match changes.last_mut() {
                Some(Change::Piece { message: last, text: all }) if *last == message => all.push_str(&text),
                _ => changes.push(Change::Piece { message, text }),
            },
            (Some(ChatRequest::Save(changes)), change) => changes.push(change),
            (_, change) => self.requests.push(ChatRequest::Save(vec![change])),
        }
    }

    /// Hits of the search for `query`. None before they arrive.
    pub fn hits(&self, query: &str) -> Option<&[SearchHit]> {
        self.found.as_ref().filter(|(found, _)| found == query).map(|(_, hits)| hits.as_slice())
    }
}
