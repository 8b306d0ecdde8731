//! Chat persistence: queues changes of chats for the database, and applies its events to the window.
//!
//! ```text
//! ViewState ── save_* ──► requests ─► chats::ChatWriter ─► ChatEvent ── apply_chat_event ──► chats, documents, presets, hits
//! ```
//! Invariants: 1. A change of a chat is queued in the same step. 2. An empty chat is not saved. 3. Messages of a stored chat are
//! loaded when it is first shown. Units: times in seconds since 1970. Nothing here waits.

use std::path::PathBuf;
use std::sync::Arc;

use crate::app::state::chat::{Chat, ChatId, Exchange, MissingDocument, OpenDocument, Outcome, Stored};
use crate::app::state::{MainView, Running, Task, ViewState, stop_note};
use crate::chats::{
    Author, Change, ChatEvent, ChatRequest, ChatRow, Destination, DocumentName, ExportFormat, MessageRow, MessageState,
    StoredDocument, message_markdown,
};
use crate::document::Document;

/// Note of an answer whose process was killed.
const INTERRUPTED: &str = "interrupted when Strata ended";

impl ViewState {
    /// The database record of a chat.
    fn row(&self, chat: &Chat) -> ChatRow {
        let names = chat.docs(&self.documents.list).map(name_of);
        let mut documents: Vec<DocumentName> = names.collect();
        for missing in &chat.missing {
            documents.insert(missing.place.min(documents.len()), missing.document.clone());
        }
        let leaf = match &chat.stored {
            Stored::InDatabase { leaf, .. } => *leaf,
            Stored::Loaded => chat.exchanges.last().map(|e| e.id),
        };
        ChatRow {
            id: chat.id,
            title: chat.title(&self.documents.list),
            named: !chat.name.is_empty(),
            pinned: chat.pinned,
            instructions: chat.instructions.clone(),
            sampling: chat.sampling.and_then(|s| serde_json::to_string(&s).ok()).unwrap_or_default(),
            leaf,
            draft: chat.draft.clone(),
            updated: chat.updated,
            documents,
        }
    }

    /// Saves a chat without its messages.
    pub fn save_chat(&mut self, id: ChatId) {
        let Some(chat) = self.chats.list.iter().find(|c| c.id == id) else { return };
        if !chat.is_blank() || !chat.draft.is_empty() || !chat.instructions.is_empty() {
            let row = self.row(chat);
            self.chats.persistence.queue(Change::Chat(row));
        }
    }

    /// Saves the draft of the current chat.
    pub fn save_draft(&mut self) {
        let chat = self.chat();
        let (id, is_same) = (chat.id, chat.draft == self.chats.persistence.draft.1);
        if self.chats.persistence.draft.0 == id && is_same {
            return;
        }
        let draft = chat.draft.clone();
        if self.chats.persistence.draft.0 == id {
            match chat.is_blank() && !draft.is_empty() {
                true => self.save_chat(id),
                false => self.chats.persistence.queue(Change::Draft { chat: id, text: draft.clone() }),
            }
        }
        self.chats.persistence.draft = (id, draft);
    }

    /// Saves the question that was just sent, with a running answer.
    pub(in crate::app) fn save_question(&mut self) {
        let now = self.chats.persistence.now;
        self.chat_mut().updated = now;
        self.save_chat(self.chats.current);
        let chat = self.chat();
        let Some(last) = chat.exchanges.last() else { return };
        let rows = [question_row(chat.id, last, now), answer_row(chat.id, last, now)];
        rows.into_iter().for_each(|row| self.chats.persistence.queue(Change::Message(row)));
    }

    /// Saves a piece of the running answer.
    pub(in crate::app) fn save_answer_piece(&mut self, text: String) {
        if let Some(Running { task: Task::Answer(message), .. }) = self.engine.running
            && !text.is_empty()
        {
            self.chats.persistence.queue(Change::Piece { message, text });
        }
    }

    /// Saves the answer of the request that has ended.
    pub(in crate::app) fn save_answer(&mut self) {
        let Some(Running { chat: id, task: Task::Answer(message), .. }) = self.engine.running else { return };
        let now = self.chats.persistence.now;
        let Some(chat) = self.chats.list.iter_mut().find(|c| c.id == id) else { return };
        chat.updated = now;
        if let Some(row) = chat.all_exchanges().find(|e| e.id == message).map(|e| answer_row(id, e, now)) {
            self.chats.persistence.queue(Change::Message(row));
        }
        self.save_chat(id);
    }

    pub(in crate::app) fn save_document(&mut self, document: &Arc<Document>, n_chars: usize, path: Option<PathBuf>) {
        let content_hash = document.content_hash.to_string();
        let name = DocumentName { content_hash, name: document.name.clone(), path: path.clone() };
        let stored = StoredDocument { document: name, bytes: document.bytes, n_chars, n_pages: document.pages.len() };
        let documents = &mut self.chats.persistence.documents;
        if !documents.contains(&stored) {
            documents.retain(|d| d.document.content_hash != stored.document.content_hash);
            documents.push(stored);
            self.chats.persistence.queue(Change::Document(document.clone(), path));
        }
    }

    /// Requests a chat as text.
    pub fn export_chat(&mut self, id: ChatId, format: ExportFormat, to: Destination) {
        self.save_chat(id);
        self.chats.persistence.requests.push(ChatRequest::Export(id, format, to));
    }

    /// Requests messages and documents that the current chat lacks.
    pub(in crate::app) fn request_missing(&mut self) {
        let chat = self.chat();
        let mut requests = Vec::new();
        if matches!(chat.stored, Stored::InDatabase { .. }) {
            requests.push(ChatRequest::Messages(chat.id));
        }
        let absent = chat.missing.iter().filter(|m| !m.is_lost);
        requests.extend(absent.map(|m| ChatRequest::Document(m.document.content_hash.clone())));
        self.chats.persistence.requests.extend(requests);
        self.resolve_missing();
    }

    /// Requests the chats that match the search field.
    pub fn request_search(&mut self) {
        let query = self.chats.search.trim().to_owned();
        if query != self.chats.persistence.searched {
            self.chats.persistence.searched.clone_from(&query);
            if !query.is_empty() {
                self.chats.persistence.requests.push(ChatRequest::Search(query));
            }
        }
    }

    /// Clears the search field.
    pub fn clear_search(&mut self) {
        self.chats.search.clear();
        self.request_search();
    }

    /// Applies an event of the database.
    pub fn apply_chat_event(&mut self, event: ChatEvent) {
        match event {
            ChatEvent::Opened { newest_id, chats, documents, presets } => {
                // If the clock was set back, a new answer could have a smaller id than its question.
                self.reserve_ids(newest_id);
                self.chats.persistence.presets = presets;
                let known = |d: &StoredDocument, all: &[StoredDocument]| {
                    all.iter().any(|k| k.document.content_hash == d.document.content_hash)
                };
                let new: Vec<StoredDocument> =
                    documents.into_iter().filter(|d| !known(d, &self.chats.persistence.documents)).collect();
                self.chats.persistence.documents.extend(new);
                chats.into_iter().for_each(|row| self.add_stored_chat(row));
            }
            ChatEvent::Messages(chat, messages) => self.add_messages(chat, messages),
            ChatEvent::Document(document, path) => {
                self.register_document(*document, false, path);
                self.resolve_missing();
            }
            ChatEvent::NoDocument(hash) => {
                let missing = self.chats.list.iter_mut().flat_map(|c| &mut c.missing);
                missing.filter(|m| m.document.content_hash == hash).for_each(|m| m.is_lost = true);
            }
            ChatEvent::Found { query, hits } if query == self.chats.persistence.searched => {
                self.chats.persistence.found = Some((query, hits))
            }
            ChatEvent::Found { .. } => {}
            ChatEvent::Exported { to: Destination::File, name, text } => self.chats.persistence.exported.push((name, text)),
            ChatEvent::Exported { to: Destination::Clipboard, text, .. } => self.chats.persistence.copied = Some(text),
            ChatEvent::Refused(sentence) => self.notice(sentence, true),
        }
    }

    fn add_stored_chat(&mut self, row: ChatRow) {
        let has_words = row.named || !row.draft.is_empty() || !row.instructions.is_empty();
        let is_empty = row.leaf.is_none() && row.documents.is_empty() && !has_words;
        if is_empty {
            return self.chats.persistence.queue(Change::Delete(row.id));
        }
        let missing = |(place, document)| MissingDocument { place, document, is_lost: false };
        self.chats.list.push(Chat {
            id: row.id,
            draft: row.draft,
            name: if row.named { row.title.clone() } else { String::new() },
            pinned: row.pinned,
            instructions: row.instructions,
            sampling: serde_json::from_str(&row.sampling).ok(),
            updated: row.updated,
            missing: row.documents.into_iter().enumerate().map(missing).collect(),
            stored: Stored::InDatabase { title: row.title, leaf: row.leaf },
            ..Chat::default()
        });
    }

    fn add_messages(&mut self, id: ChatId, messages: Vec<MessageRow>) {
        let Some(chat) = self.chats.list.iter_mut().find(|c| c.id == id) else { return };
        let Stored::InDatabase { leaf, .. } = &chat.stored else { return };
        let leaf = *leaf;
        chat.stored = Stored::Loaded;
        chat.other_branches = messages.iter().filter_map(|m| exchange_of(m, &messages)).collect();
        let newest = chat.other_branches.iter().map(|e| e.id).max();
        let leaf = leaf.filter(|leaf| chat.other_branches.iter().any(|e| e.id == *leaf)).or(newest);
        leaf.into_iter().for_each(|leaf| chat.show_until(leaf));
        self.request_citations_of(id, |_| true);
    }

    /// Adds documents of this session to chats that miss them.
    pub(in crate::app) fn resolve_missing(&mut self) {
        let of = |documents: &[OpenDocument], missing: &MissingDocument| {
            let hash = &missing.document.content_hash;
            documents.iter().find(|d| d.content_hash.to_string() == *hash).map(|d| d.id)
        };
        let mut found = Vec::new();
        for chat in &mut self.chats.list {
            let missing = std::mem::take(&mut chat.missing);
            let (here, missing): (Vec<MissingDocument>, Vec<MissingDocument>) =
                missing.into_iter().partition(|m| of(&self.documents.list, m).is_some());
            chat.missing = missing;
            for (place, doc) in here.iter().filter_map(|m| Some((m.place, of(&self.documents.list, m)?))) {
                let n_before = chat.missing.iter().filter(|m| m.place < place).count();
                let at = place.saturating_sub(n_before).min(chat.documents.len());
                chat.documents.insert(at, doc);
            }
            if !here.is_empty() {
                chat.content_hash = chat.hash(&self.documents.list);
                chat.token_ranges.clear();
                found.push(chat.id);
            }
        }
        for chat in found {
            self.request_citations_of(chat, |e| e.quotes.is_none());
        }
        self.count_chat();
    }

    /// Adds a document whose text is stored to the current chat, once it is loaded.
    pub fn attach_stored(&mut self, content_hash: &str) {
        let stored = self.chats.persistence.documents.iter().find(|d| d.document.content_hash == content_hash);
        let Some(document) = stored.map(|d| d.document.clone()) else { return };
        let chat = self.chat_mut();
        if !chat.missing.iter().any(|m| m.document.content_hash == content_hash) {
            let place = chat.documents.len() + chat.missing.len();
            chat.missing.push(MissingDocument { place, document, is_lost: false });
        }
        self.page = MainView::Chat;
        self.save_chat(self.chats.current);
        self.request_missing();
    }

    /// Removes a missing document from the current chat.
    pub fn detach_missing(&mut self, content_hash: &str) {
        self.chat_mut().missing.retain(|m| m.document.content_hash != content_hash);
        self.save_chat(self.chats.current);
    }

    /// Exchange of the current chat that a search found; its branch is shown.
    pub fn take_reveal(&mut self) -> Option<u64> {
        let (chat, message) = self
            .chats
            .persistence
            .reveal
            .filter(|(chat, _)| *chat == self.chats.current && self.chat().stored == Stored::Loaded)?;
        self.chats.persistence.reveal = None;
        let is_it = |e: &&Exchange| e.id == message || e.question_id == message;
        let exchange = self.chat().all_exchanges().filter(is_it).map(|e| e.id).max()?;
        let shown = self.chat().exchanges.iter().find(is_it).map(|e| e.id);
        if shown.is_none() && self.engine.running.is_none_or(|r| r.chat != chat) {
            self.show_branch(exchange);
        }
        Some(shown.unwrap_or(exchange))
    }
}

impl Exchange {
    /// Question and answer as in an exported chat.
    pub fn markdown(&self) -> String {
        let answer = answer_row(0, self, 0);
        let question = message_markdown(Author::User, &self.question, "");
        format!("{question}\n{}", message_markdown(Author::Model, &answer.text, &answer.note))
    }
}

fn name_of(doc: &OpenDocument) -> DocumentName {
    DocumentName { content_hash: doc.content_hash.to_string(), name: doc.name.clone(), path: doc.path.clone() }
}

fn question_row(chat: ChatId, e: &Exchange, made: i64) -> MessageRow {
    MessageRow {
        id: e.question_id,
        chat,
        parent: e.parent,
        author: Author::User,
        text: e.question.clone(),
        state: MessageState::Done,
        note: String::new(),
        cost: String::new(),
        made,
    }
}

fn answer_row(chat: ChatId, e: &Exchange, made: i64) -> MessageRow {
    let (state, note, cost) = match &e.outcome {
        Outcome::Running => (MessageState::Running, String::new(), String::new()),
        Outcome::Failed(sentence) => (MessageState::Failed, sentence.clone(), String::new()),
        Outcome::Restored(note) => (MessageState::Done, note.clone(), String::new()),
        Outcome::Done(summary) => {
            let note = stop_note(summary.stop).unwrap_or_default().to_owned();
            (MessageState::Done, note, serde_json::to_string(summary).unwrap_or_default())
        }
    };
    let parent = Some(e.question_id);
    MessageRow { id: e.id, chat, parent, author: Author::Model, text: e.answer.clone(), state, note, cost, made }
}

/// The exchange of an answer. None for a question.
fn exchange_of(answer: &MessageRow, messages: &[MessageRow]) -> Option<Exchange> {
    let question = messages.iter().find(|m| Some(m.id) == answer.parent && m.author == Author::User)?;
    let outcome = match answer.state {
        MessageState::Failed => Outcome::Failed(answer.note.clone()),
        MessageState::Running | MessageState::Interrupted => Outcome::Restored(INTERRUPTED.to_owned()),
        MessageState::Done => match serde_json::from_str(&answer.cost) {
            Ok(summary) => Outcome::Done(Box::new(without_times(summary))),
            Err(_) => Outcome::Restored(answer.note.clone()),
        },
    };
    (answer.author == Author::Model).then(|| Exchange {
        question_id: question.id,
        parent: question.parent,
        answer: answer.text.clone(),
        outcome,
        ..Exchange::new(answer.id, question.text.clone())
    })
}

/// Times of another process are on another clock.
fn without_times(mut summary: crate::engine::RequestSummary) -> crate::engine::RequestSummary {
    (summary.phases.began_ns, summary.phases.ended_ns) = (0, 0);
    summary
}

#[cfg(test)]
#[path = "chat_persistence_tests.rs"]
mod tests;
