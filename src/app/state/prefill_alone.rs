//! Prefill of single documents: a document that is saved only after others is prefilled alone, so that it can be used alone
//! or first.
//!
//! ```text
//! window idle, or a click ─► next_alone() ─► EngineCommand::Prefill of one document ─► saved alone
//! ```
//! Invariants: 1. A question stops it; what was prefilled stays saved. 2. Each document is prefilled once, whatever comes of
//! it. 3. Nothing is prefilled alone unless the documents of the chat are saved.

use crate::app::state::chat::{ChatId, DocId, OpenDocument};
use crate::app::state::saved_prefix::MIN_SAVED_TOKENS;
use crate::app::state::{ModelState, Phase, Running, Task, ViewState};
use crate::engine::{DocumentRef, EngineCommand};

/// Chat of a prefill that belongs to no chat.
pub(in crate::app) const NO_CHAT: ChatId = ChatId::MAX;

impl ViewState {
    /// The next document of the current chat that an idle window prefills. None if there is nothing to do.
    pub fn next_alone(&self) -> Option<DocId> {
        let is_idle = self.engine.outbox.is_empty() && self.documents.opening.is_none();
        if !is_idle || !self.saved_prefix().is_some_and(|prefix| prefix.is_complete) {
            return None;
        }
        let is_new = |doc: &&OpenDocument| !self.engine.prefilled_alone.contains(&doc.id);
        self.chat().docs(&self.documents.list).filter(is_new).find(|doc| self.can_prefill_alone(doc)).map(|doc| doc.id)
    }

    /// True if a prefill of the document alone would save something, and can begin now.
    pub fn can_prefill_alone(&self, doc: &OpenDocument) -> bool {
        let ModelState::Ready(info) = &self.engine.model else { return false };
        let (n_tokens, _) = doc.tokens();
        let fits = (MIN_SAVED_TOKENS..info.context_limit).contains(&n_tokens);
        self.settings.values.keep_read && self.engine.running.is_none() && fits && !self.is_saved_alone(doc)
    }

    /// Prefills a document alone.
    pub fn prefill_alone(&mut self, id: DocId) {
        let request = self.fresh_id();
        let Some(doc) = self.documents.list.iter().find(|doc| doc.id == id && self.can_prefill_alone(doc)) else { return };
        let (text, documents) = (doc.text.clone(), DocumentRef::joined([&*doc.document], true));
        self.engine.prefilled_alone.push(id);
        let task = Task::PrefillAlone(id);
        self.engine.running = Some(Running { request, chat: NO_CHAT, task, phase: Phase::Waiting, stopping: false });
        self.engine.outbox.push(EngineCommand::Prefill { request, text, documents });
    }

    /// The document that is being prefilled alone.
    pub fn prefilling_alone(&self) -> Option<&OpenDocument> {
        match self.engine.running?.task {
            Task::PrefillAlone(id) => self.documents.list.iter().find(|doc| doc.id == id),
            _ => None,
        }
    }

    /// Moves a document that is saved alone to the front, if the first one is not. The order of the documents is free until
    /// they are prefilled or a question was asked.
    pub(in crate::app) fn put_saved_first(&self, documents: &mut [DocId]) {
        let is_saved = |id: &DocId| self.documents.list.iter().any(|doc| doc.id == *id && self.is_saved_alone(doc));
        let place = documents.iter().position(is_saved).unwrap_or(0);
        if let Some(front) = documents.get_mut(..=place) {
            front.rotate_right(1);
        }
    }
}
