//! What the user asks of the model: questions, other questions and answers in their place, reading ahead, and stop.
//!
//! ```text
//! draft ─► send ─► Exchange ─► EngineCommand::Generate      edit_question, regenerate_at: beside what was there, on a new branch
//! ```
//! Invariants: 1. One turn runs at a time. 2. What was said is never replaced: it moves aside. 3. A question is not asked
//! while a document of its chat is missing.

use crate::app::answer::exact_check::OriginalRequest;
use crate::app::state::chat::{Exchange, Stored};
use crate::app::state::{Phase, Running, Task, ViewState};
use crate::engine::{AttentionMode, EngineCommand};

impl ViewState {
    /// Something can be asked now: nothing runs that must end first, and the question has text.
    pub fn can_send(&self) -> bool {
        let chat = self.chat();
        let is_here = chat.stored == Stored::Here && chat.missing.is_empty();
        (self.running.is_none() || self.is_checking()) && is_here && !chat.draft.trim().is_empty()
    }

    /// Asks what is typed in the composer.
    pub fn send(&mut self) {
        if !self.can_send() {
            return;
        }
        if self.is_checking() {
            return self.send_after_check();
        }
        let question = std::mem::take(&mut self.chat_mut().draft).trim().to_owned();
        self.ask_question(question);
    }

    /// Asks `text` in place of a question of the chat on screen; what was said from there on stays on its own branch.
    pub fn edit_question(&mut self, exchange: u64, text: &str) {
        let chat = self.chat_mut();
        let Some(index) = chat.exchanges.iter().position(|e| e.id == exchange) else { return };
        if self.running.is_none() && !text.trim().is_empty() {
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

    /// Asks the last question of the chat on screen again.
    pub fn regenerate(&mut self) {
        if let Some(last) = self.chat().exchanges.last() {
            self.regenerate_at(last.id);
        }
    }

    /// Asks a question of the chat on screen again: another answer beside that which is there.
    pub fn regenerate_at(&mut self, exchange: u64) {
        let fresh = self.fresh_id();
        let is_idle = self.running.is_none();
        let chat = self.chat_mut();
        let index = chat.exchanges.iter().position(|e| e.id == exchange);
        let Some((index, shown)) = index.and_then(|i| Some((i, chat.exchanges.get(i)?))).filter(|_| is_idle) else { return };
        let Exchange { question_id, parent, attempt, .. } = *shown;
        let attempt = attempt.max(chat.answers_beside(shown).ids.len() as u64 - 1) + 1;
        // What has no answer is no alternative to one.
        let (id, question) = (if shown.answer.is_empty() { exchange } else { fresh }, shown.question.clone());
        chat.cut(index);
        chat.aside.retain(|e| e.id != id);
        chat.exchanges.push(Exchange { question_id, parent, attempt, ..Exchange::new(id, question) });
        self.ask_last();
    }

    /// Shows another branch of the chat on screen.
    pub fn show_branch(&mut self, exchange: u64) {
        self.chat_mut().show_branch(exchange);
        self.keep_chat(self.current);
    }

    /// The next question follows this answer; what was said after it stays on its own branch.
    pub fn go_on_from(&mut self, exchange: u64) {
        if self.running_here().is_none() {
            self.chat_mut().show_until(exchange);
            self.keep_chat(self.current);
        }
    }

    fn ask_last(&mut self) {
        let turn = self.fresh_id();
        let chat = self.chat();
        let Some(last) = chat.exchanges.last() else { return };
        let mut sampling = chat.sampling.unwrap_or(self.settings.sampling);
        // Greedy answers repeat; otherwise another try needs another seed.
        sampling.seed = sampling.seed.wrapping_add(last.attempt);
        let messages = chat.messages(&self.documents, chat.exchanges.len() - 1);
        let document = chat.document_ref(&self.documents, self.settings.keep_read);
        let task = Task::Answer(last.id);
        self.running = Some(Running { turn, chat: chat.id, task, phase: Phase::Waiting, stopping: false });
        let (max_tokens, policy) = (self.settings.max_tokens, AttentionMode::Sampled);
        if let Some(last) = self.chat_mut().exchanges.last_mut() {
            last.asked = Some(OriginalRequest { sampling, max_tokens });
        }
        self.outbox.push(EngineCommand::Generate { turn, messages, document, sampling, max_tokens, policy });
        self.keep_asked();
    }

    /// Reads the documents of the chat on screen ahead of the first question.
    pub fn read(&mut self) {
        let text = self.chat().document_text(&self.documents);
        if self.running.is_some() || text.is_empty() {
            return;
        }
        let document = self.chat().document_ref(&self.documents, self.settings.keep_read);
        let turn = self.fresh_id();
        let chat = self.current;
        self.running = Some(Running { turn, chat, task: Task::Read, phase: Phase::Waiting, stopping: false });
        self.outbox.push(EngineCommand::Prefill { turn, text, document });
    }

    /// Notes that stop was asked for. True when there was something to stop.
    pub fn stopping(&mut self) -> bool {
        match &mut self.running {
            Some(running) => {
                running.stopping = true;
                true
            }
            None => false,
        }
    }
}
