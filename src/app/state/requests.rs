//! Requests to the model: questions, edited questions, regenerated answers, prefill of documents, and stop.
//!
//! ```text
//! draft ─► send ─► Exchange ─► EngineCommand::Generate      edit_question, regenerate_at: on a new branch
//! ```
//! Invariants: 1. One request runs at a time. 2. Nothing is overwritten: earlier exchanges move to
//! `other_branches`. 3. A question is not sent while a document of its chat is missing.

use crate::app::state::chat::{Exchange, Stored};
use crate::app::state::exchange::OriginalRequest;
use crate::app::state::{Phase, Running, Task, ViewState};
use crate::engine::{AttentionMode, EngineCommand};

impl ViewState {
    /// True if a question can be sent: it has text, the chat is loaded, and nothing runs but what a question stops.
    pub fn can_send(&self) -> bool {
        let chat = self.chat();
        let is_here = chat.stored == Stored::Loaded && chat.missing.is_empty();
        (self.engine.running.is_none() || self.yields_to_question()) && is_here && !chat.draft.trim().is_empty()
    }

    /// Sends the question in the composer.
    pub fn send(&mut self) {
        if !self.can_send() {
            return;
        }
        if self.yields_to_question() {
            return self.send_after_stop();
        }
        let question = std::mem::take(&mut self.chat_mut().draft).trim().to_owned();
        self.ask_question(question);
    }

    /// Replaces a question of the current chat by `text`, on a new branch.
    pub fn edit_question(&mut self, exchange: u64, text: &str) {
        let chat = self.chat_mut();
        let Some(index) = chat.exchanges.iter().position(|e| e.id == exchange) else { return };
        if self.engine.running.is_none() && !text.trim().is_empty() {
            self.chat_mut().cut(index);
            self.ask_question(text.trim().to_owned());
        }
    }

    fn ask_question(&mut self, question: String) {
        let (question_id, id) = (self.fresh_id(), self.fresh_id());
        let chat = self.chat_mut();
        let parent = chat.exchanges.last().map(|e| e.id);
        chat.exchanges.push(Exchange { question_id, parent, ..Exchange::new(id, question) });
        self.ask_last();
    }

    /// Regenerates the last answer of the current chat.
    pub fn regenerate(&mut self) {
        if let Some(last) = self.chat().exchanges.last() {
            self.regenerate_at(last.id);
        }
    }

    /// Regenerates an answer of the current chat, on a new branch.
    pub fn regenerate_at(&mut self, exchange: u64) {
        let fresh = self.fresh_id();
        let is_idle = self.engine.running.is_none();
        let chat = self.chat_mut();
        let index = chat.exchanges.iter().position(|e| e.id == exchange);
        let Some((index, shown)) = index.and_then(|i| Some((i, chat.exchanges.get(i)?))).filter(|_| is_idle) else { return };
        let Exchange { question_id, parent, attempt, .. } = *shown;
        let attempt = attempt.max(chat.answers_beside(shown).ids.len() as u64 - 1) + 1;
        // An exchange without an answer is replaced, not kept as an alternative.
        let (id, question) = (if shown.answer.is_empty() { exchange } else { fresh }, shown.question.clone());
        chat.cut(index);
        chat.other_branches.retain(|e| e.id != id);
        chat.exchanges.push(Exchange { question_id, parent, attempt, ..Exchange::new(id, question) });
        self.ask_last();
    }

    /// Shows another branch of the current chat.
    pub fn show_branch(&mut self, exchange: u64) {
        self.chat_mut().show_branch(exchange);
        self.save_chat(self.chats.current);
    }

    /// Continues the chat after this answer; later exchanges stay on their own branch.
    pub fn branch_from(&mut self, exchange: u64) {
        if self.running_here().is_none() {
            self.chat_mut().show_until(exchange);
            self.save_chat(self.chats.current);
        }
    }

    fn ask_last(&mut self) {
        let request = self.fresh_id();
        let chat = self.chat();
        let Some(last) = chat.exchanges.last() else { return };
        let mut sampling = chat.sampling.unwrap_or(self.settings.values.sampling);
        // Greedy answers repeat; otherwise a new attempt needs another seed.
        sampling.seed = sampling.seed.wrapping_add(last.attempt);
        let messages = chat.messages(&self.documents.list, chat.exchanges.len() - 1);
        let documents = chat.document_refs(&self.documents.list, self.settings.values.keep_read);
        let task = Task::Answer(last.id);
        self.engine.running = Some(Running { request, chat: chat.id, task, phase: Phase::Waiting, stopping: false });
        let (max_tokens, policy) = (self.settings.values.max_tokens, AttentionMode::Sampled);
        if let Some(last) = self.chat_mut().exchanges.last_mut() {
            last.original_request = Some(OriginalRequest { sampling, max_tokens });
        }
        self.engine.outbox.push(EngineCommand::Generate { request, messages, documents, sampling, max_tokens, policy });
        self.save_question();
    }

    /// Prefills the documents of the current chat before the first question.
    pub fn prefill_documents(&mut self) {
        let text = self.chat().document_text(&self.documents.list);
        if self.engine.running.is_some() || text.is_empty() {
            return;
        }
        let documents = self.chat().document_refs(&self.documents.list, self.settings.values.keep_read);
        let request = self.fresh_id();
        let chat = self.chats.current;
        self.engine.running = Some(Running { request, chat, task: Task::Prefill, phase: Phase::Waiting, stopping: false });
        self.engine.outbox.push(EngineCommand::Prefill { request, text, documents });
    }

    /// Marks the running request as stopping. False if none runs.
    pub fn request_stop(&mut self) -> bool {
        match &mut self.engine.running {
            Some(running) => {
                running.stopping = true;
                true
            }
            None => false,
        }
    }
}
