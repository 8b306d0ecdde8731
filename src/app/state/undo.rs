//! Undo of deletions: chats are restored at once; saved KV and texts are deleted only when the undo expires.
//!
//! ```text
//! delete ─► Undo ─┬─ undo ──────────────────────► as it was
//!                 └─ discard (time, or the next) ─► the store, the engine
//! ```
//! Invariants: 1. One deletion can be undone: the next one makes it final. 2. KV that took hours to prefill is deleted only when
//! the undo is discarded, so a window that is killed deletes none.

use crate::app::state::ViewState;
use crate::app::state::chat::{Chat, ChatId, Outcome};
use crate::app::state::deletion::Undo;
use crate::chats::Change;
use crate::document::catalog::begins_with;
use crate::engine::{EngineCommand, LibraryAction, SavedDocument};

impl ViewState {
    /// Deletes a chat.
    pub fn delete_chat(&mut self, id: ChatId) {
        let Some(place) = self.chats.list.iter().position(|c| c.id == id) else { return };
        self.discard_undo();
        if self.engine.running.is_some_and(|r| r.chat == id) {
            self.engine.pending_stop = self.request_stop();
        }
        let mut chat = self.chats.list.remove(place);
        let running = chat.all_exchanges_mut().filter(|e| e.outcome == Outcome::Running);
        running.for_each(|e| e.outcome = Outcome::Restored("stopped".to_owned()));
        self.chats.persistence.queue(Change::Delete(id));
        self.chats.persistence.undo = Some(Undo::Chat(Box::new(chat)));
        if self.chats.list.is_empty() || self.chats.current == id {
            let next = self.listed_chats().first().map(|c| c.id);
            match next {
                Some(next) => self.select_chat(next),
                None => self.new_chat(),
            }
        }
    }

    /// Removes a document, or only its KV, from the library.
    pub fn remove_document(&mut self, content_hash: &str, name: &str, keeps_text: bool) {
        self.discard_undo();
        let kv_bytes = self.saved_of_text(content_hash).map(|s| s.kv_bytes).sum();
        let (content_hash, name) = (content_hash.to_owned(), name.to_owned());
        self.chats.persistence.undo = Some(Undo::Document { content_hash, name, keeps_text, kv_bytes });
    }

    /// Restores the last deletion.
    pub fn undo(&mut self) {
        if let Some(Undo::Chat(chat)) = self.chats.persistence.undo.take() {
            self.chats.persistence.queue(Change::Restore(chat.id));
            let id = chat.id;
            self.chats.list.push(*chat);
            self.select_chat(id);
        }
    }

    /// Makes the last deletion final.
    pub fn discard_undo(&mut self) {
        let Some(Undo::Document { content_hash, keeps_text, .. }) = self.chats.persistence.undo.take() else { return };
        let kv_dir = self.engine.load.kv_dir.clone();
        let remove = |s: &SavedDocument| LibraryAction::Remove { kv_dir: kv_dir.clone(), id: s.id.clone() };
        // The engine removes what was saved after a document together with it.
        let goes_with = |saved: &SavedDocument| {
            let is_same_kv = |other: &&SavedDocument| other.model == saved.model && other.kv_dtype == saved.kv_dtype;
            let mut others = self.saved_of_text(&content_hash).filter(is_same_kv);
            others.any(|other| begins_with(&saved.after, &other.after, &other.content_hash))
        };
        let removed = self.saved_of_text(&content_hash).filter(|saved| !goes_with(saved));
        let commands: Vec<EngineCommand> = removed.map(|saved| EngineCommand::Library(remove(saved))).collect();
        self.engine.outbox.extend(commands);
        if keeps_text {
            return;
        }
        self.chats.persistence.documents.retain(|d| d.document.content_hash != content_hash);
        let is_used = |id| self.chats.list.iter().any(|c| c.documents.contains(&id));
        let gone: Vec<u64> = self
            .documents
            .list
            .iter()
            .filter(|d| d.content_hash.to_string() == content_hash && !is_used(d.id))
            .map(|d| d.id)
            .collect();
        self.documents.list.retain(|d| !gone.contains(&d.id));
        self.chats.persistence.queue(Change::ForgetDocument(content_hash));
    }

    /// True if the document, or only its KV, is hidden by a deletion that can be undone.
    pub fn is_removed(&self, hash: &str, kv_only: bool) -> bool {
        matches!(&self.chats.persistence.undo, Some(Undo::Document { content_hash, keeps_text, .. })
            if content_hash == hash && (kv_only || !keeps_text))
    }

    /// Saved KV of a text and of documents saved after it, by any model.
    pub fn saved_of_text(&self, hash: &str) -> impl Iterator<Item = &SavedDocument> {
        let is_before = move |saved: &SavedDocument| saved.after.iter().any(|before| before.content_hash == hash);
        self.library.iter().flatten().filter(move |saved| saved.content_hash == hash || is_before(saved))
    }

    /// Chats in the order of the list: pinned ones, the empty one, then by the last message.
    pub fn listed_chats(&self) -> Vec<&Chat> {
        let mut chats: Vec<&Chat> = self.chats.list.iter().collect();
        chats.sort_by_key(|c| std::cmp::Reverse((c.pinned, c.is_blank(), c.updated, c.id)));
        chats
    }

    /// Renames a chat; with an empty name its first question is the title.
    pub fn rename_chat(&mut self, id: ChatId, name: &str) {
        if let Some(chat) = self.chats.list.iter_mut().find(|c| c.id == id) {
            chat.name = name.split_whitespace().collect::<Vec<_>>().join(" ");
            self.save_chat(id);
        }
    }

    /// Pins a chat above the others, or unpins it.
    pub fn pin_chat(&mut self, id: ChatId) {
        if let Some(chat) = self.chats.list.iter_mut().find(|c| c.id == id) {
            chat.pinned = !chat.pinned;
            self.save_chat(id);
        }
    }
}
