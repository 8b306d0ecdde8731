//! What is deleted from the lists, and how it comes back: chats at once, saved KV and texts when nobody wants them back.
//!
//! ```text
//! delete ─► Undo ─┬─ undo ──────────────────────► as it was
//!                 └─ let go (time, or the next) ─► the store, the engine
//! ```
//! Invariants: 1. One deletion can be undone: the next one lets it go. 2. KV that took hours is deleted only when it is let
//! go; a window that is killed meanwhile deletes nothing of it.

use crate::app::state::ViewState;
use crate::app::state::chat::{Chat, ChatId, Outcome};
use crate::chats::Change;
use crate::engine::{EngineCommand, LibraryAction, SavedDocument};

/// A deletion that can be undone.
#[derive(Debug, Clone, PartialEq)]
pub enum Undo {
    /// a chat
    Chat(Box<Chat>),
    /// a document of the library
    Document {
        /// hash of its text, hexadecimal
        content_hash: String,
        /// what people call it
        name: String,
        /// only its KV goes
        keeps_text: bool,
        /// KV bytes on the disk
        kv_bytes: u64,
    },
}

impl ViewState {
    /// Takes a chat out of the list.
    pub fn delete_chat(&mut self, id: ChatId) {
        let Some(place) = self.chats.iter().position(|c| c.id == id) else { return };
        self.let_go();
        if self.running.is_some_and(|r| r.chat == id) {
            self.stop_due = self.stopping();
        }
        let mut chat = self.chats.remove(place);
        let running = chat.all_exchanges_mut().filter(|e| e.outcome == Outcome::Running);
        running.for_each(|e| e.outcome = Outcome::Kept("stopped".to_owned()));
        self.keeping.keep(Change::Delete(id));
        self.keeping.undo = Some(Undo::Chat(Box::new(chat)));
        if self.chats.is_empty() || self.current == id {
            let next = self.listed_chats().first().map(|c| c.id);
            match next {
                Some(next) => self.select_chat(next),
                None => self.new_chat(),
            }
        }
    }

    /// Takes a document out of the library, or only its KV.
    pub fn remove_document(&mut self, content_hash: &str, name: &str, keeps_text: bool) {
        self.let_go();
        let kv_bytes = self.saved_of_text(content_hash).map(|s| s.kv_bytes).sum();
        let (content_hash, name) = (content_hash.to_owned(), name.to_owned());
        self.keeping.undo = Some(Undo::Document { content_hash, name, keeps_text, kv_bytes });
    }

    /// Brings back what was deleted last.
    pub fn undo(&mut self) {
        if let Some(Undo::Chat(chat)) = self.keeping.undo.take() {
            self.keeping.keep(Change::Restore(chat.id));
            let id = chat.id;
            self.chats.push(*chat);
            self.select_chat(id);
        }
    }

    /// What was deleted last is gone.
    pub fn let_go(&mut self) {
        let Some(Undo::Document { content_hash, keeps_text, .. }) = self.keeping.undo.take() else { return };
        let kv_dir = self.load.kv_dir.clone();
        let remove = |s: &SavedDocument| LibraryAction::Remove { kv_dir: kv_dir.clone(), id: s.id.clone() };
        let commands: Vec<EngineCommand> = self.saved_of_text(&content_hash).map(|s| EngineCommand::Library(remove(s))).collect();
        self.outbox.extend(commands);
        if keeps_text {
            return;
        }
        self.keeping.documents.retain(|d| d.document.content_hash != content_hash);
        let is_used = |id| self.chats.iter().any(|c| c.documents.contains(&id));
        let gone: Vec<u64> = self
            .documents
            .iter()
            .filter(|d| d.content_hash.to_string() == content_hash && !is_used(d.id))
            .map(|d| d.id)
            .collect();
        self.documents.retain(|d| !gone.contains(&d.id));
        self.keeping.keep(Change::ForgetDocument(content_hash));
    }

    /// The text, or all of the document, is deleted as far as a person can see.
    pub fn is_removed(&self, hash: &str, kv_only: bool) -> bool {
        matches!(&self.keeping.undo, Some(Undo::Document { content_hash, keeps_text, .. })
            if content_hash == hash && (kv_only || !keeps_text))
    }

    /// Saved KV of a text, by whichever model.
    pub fn saved_of_text(&self, hash: &str) -> impl Iterator<Item = &SavedDocument> {
        self.library.iter().flatten().filter(move |s| s.content_hash == hash)
    }

    /// Chats as they are listed: pinned ones first, then the one in which nothing was said yet, then the one last spoken in.
    pub fn listed_chats(&self) -> Vec<&Chat> {
        let mut chats: Vec<&Chat> = self.chats.iter().collect();
        chats.sort_by_key(|c| std::cmp::Reverse((c.pinned, c.is_blank(), c.updated, c.id)));
        chats
    }

    /// Another title for a chat; an empty one lets it be called after its first question.
    pub fn rename_chat(&mut self, id: ChatId, name: &str) {
        if let Some(chat) = self.chats.iter_mut().find(|c| c.id == id) {
            chat.name = name.split_whitespace().collect::<Vec<_>>().join(" ");
            self.keep_chat(id);
        }
    }

    /// Puts a chat above the others, or back among them.
    pub fn pin_chat(&mut self, id: ChatId) {
        if let Some(chat) = self.chats.iter_mut().find(|c| c.id == id) {
            chat.pinned = !chat.pinned;
            self.keep_chat(id);
        }
    }
}
