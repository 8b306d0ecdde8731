//! What the window keeps of its chats, and what it shows of those that are kept.
//!
//! ```text
//! ViewState ── keep_* ──► requests ─► chats::ChatWriter ─► ChatEvent ── take_news ──► chats, documents, presets, hits
//! ```
//! Invariants: 1. What changes a chat asks for it to be kept, in the same step. 2. A chat without a word in it is not kept.
//! 3. A kept chat's messages are read when it is first shown. Units: times in seconds since 1970. Nothing here waits.

use std::path::PathBuf;
use std::sync::Arc;

use crate::app::state::chat::{Chat, ChatId, Exchange, MissingDocument, OpenDocument, Outcome, Stored};
use crate::app::state::undo::Undo;
use crate::app::state::{MainView, Running, Task, ViewState, stop_note};
use crate::chats::{
    Author, Change, ChatEvent, ChatRow, Destination, DocumentName, Format, MessageRow, Preset, Request, SearchHit, State,
    StoredDocument, message_markdown,
};
use crate::document::Document;

/// Said of an answer that a killed program was writing.
const INTERRUPTED: &str = "interrupted when Strata ended";

/// The window's part of what is kept.
#[derive(Debug, Default)]
pub struct ChatPersistence {
    /// to send, oldest first
    pub requests: Vec<Request>,
    /// the time, as the window last said it
    pub now: i64,
    /// documents whose text is kept
    pub documents: Vec<StoredDocument>,
    /// instructions and sampling by name
    pub presets: Vec<Preset>,
    /// the words that were last searched for, and where they are
    pub found: Option<(String, Vec<SearchHit>)>,
    /// what can be undone
    pub undo: Option<Undo>,
    /// a chat whose title is being typed
    pub renaming: Option<(ChatId, String)>,
    /// files to save: name and text
    pub exported: Vec<(String, String)>,
    /// a text for the clipboard
    pub copied: Option<String>,
    /// a message to show when its chat is here
    pub reveal: Option<(ChatId, u64)>,
    searched: String,
    draft: (ChatId, String),
}

impl ChatPersistence {
    /// To be kept, after all before it.
    pub fn keep(&mut self, change: Change) {
        match (self.requests.last_mut(), change) {
            (Some(Request::Keep(changes)), Change::Piece { message, text }) => match changes.last_mut() {
                Some(Change::Piece { message: last, text: all }) if *last == message => all.push_str(&text),
                _ => changes.push(Change::Piece { message, text }),
            },
            (Some(Request::Keep(changes)), change) => changes.push(change),
            (_, change) => self.requests.push(Request::Keep(vec![change])),
        }
    }

    /// The hits of the search, where they are here.
    pub fn hits(&self, query: &str) -> Option<&[SearchHit]> {
        self.found.as_ref().filter(|(found, _)| found == query).map(|(_, hits)| hits.as_slice())
    }
}

impl ViewState {
    /// A chat as it is kept.
    fn row(&self, chat: &Chat) -> ChatRow {
        let names = chat.docs(&self.documents).map(name_of);
        let mut documents: Vec<DocumentName> = names.collect();
        for missing in &chat.missing {
            documents.insert(missing.place.min(documents.len()), missing.document.clone());
        }
        let leaf = match &chat.stored {
            Stored::Kept { leaf, .. } => *leaf,
            Stored::Here => chat.exchanges.last().map(|e| e.id),
        };
        ChatRow {
            id: chat.id,
            title: chat.title(&self.documents),
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

    /// Keeps a chat, but for its messages.
    pub fn keep_chat(&mut self, id: ChatId) {
        let Some(chat) = self.chats.iter().find(|c| c.id == id) else { return };
        if !chat.is_blank() || !chat.draft.is_empty() || !chat.instructions.is_empty() {
            let row = self.row(chat);
            self.keeping.keep(Change::Chat(row));
        }
    }

    /// Keeps what is typed in the chat on screen.
    pub fn keep_draft(&mut self) {
        let chat = self.chat();
        let (id, is_same) = (chat.id, chat.draft == self.keeping.draft.1);
        if self.keeping.draft.0 == id && is_same {
            return;
        }
        let draft = chat.draft.clone();
        if self.keeping.draft.0 == id {
            match chat.is_blank() && !draft.is_empty() {
                true => self.keep_chat(id),
                false => self.keeping.keep(Change::Draft { chat: id, text: draft.clone() }),
            }
        }
        self.keeping.draft = (id, draft);
    }

    /// Keeps the question that was just asked, and that it is being answered.
    pub(in crate::app) fn keep_asked(&mut self) {
        let now = self.keeping.now;
        self.chat_mut().updated = now;
        self.keep_chat(self.current);
        let chat = self.chat();
        let Some(last) = chat.exchanges.last() else { return };
        let rows = [question_row(chat.id, last, now), answer_row(chat.id, last, now)];
        rows.into_iter().for_each(|row| self.keeping.keep(Change::Message(row)));
    }

    /// Keeps what the running turn has just said.
    pub(in crate::app) fn keep_piece(&mut self, text: String) {
        if let Some(Running { task: Task::Answer(message), .. }) = self.running
            && !text.is_empty()
        {
            self.keeping.keep(Change::Piece { message, text });
        }
    }

    /// Keeps the answer of the running turn, which has ended.
    pub(in crate::app) fn keep_answer(&mut self) {
        let Some(Running { chat: id, task: Task::Answer(message), .. }) = self.running else { return };
        let now = self.keeping.now;
        let Some(chat) = self.chats.iter_mut().find(|c| c.id == id) else { return };
        chat.updated = now;
        if let Some(row) = chat.all_exchanges().find(|e| e.id == message).map(|e| answer_row(id, e, now)) {
            self.keeping.keep(Change::Message(row));
        }
        self.keep_chat(id);
    }

    pub(in crate::app) fn keep_document(&mut self, document: &Arc<Document>, n_chars: usize, path: Option<PathBuf>) {
        let content_hash = document.content_hash.to_string();
        let name = DocumentName { content_hash, name: document.name.clone(), path: path.clone() };
        let kept = StoredDocument { document: name, bytes: document.bytes, n_chars, n_pages: document.pages.len() };
        let documents = &mut self.keeping.documents;
        if !documents.contains(&kept) {
            documents.retain(|d| d.document.content_hash != kept.document.content_hash);
            documents.push(kept);
            self.keeping.keep(Change::Document(document.clone(), path));
        }
    }

    /// Asks for a chat as a text.
    pub fn export_chat(&mut self, id: ChatId, format: Format, to: Destination) {
        self.keep_chat(id);
        self.keeping.requests.push(Request::Export(id, format, to));
    }

    /// Asks for what the chat on screen lacks.
    pub(in crate::app) fn read_kept(&mut self) {
        let chat = self.chat();
        let mut requests = Vec::new();
        if matches!(chat.stored, Stored::Kept { .. }) {
            requests.push(Request::Messages(chat.id));
        }
        let absent = chat.missing.iter().filter(|m| !m.is_lost);
        requests.extend(absent.map(|m| Request::Document(m.document.content_hash.clone())));
        self.keeping.requests.extend(requests);
        self.find_missing();
    }

    /// Asks for the chats that hold the words in the search field.
    pub fn search_kept(&mut self) {
        let query = self.search.trim().to_owned();
        if query != self.keeping.searched {
            self.keeping.searched.clone_from(&query);
            if !query.is_empty() {
                self.keeping.requests.push(Request::Search(query));
            }
        }
    }

    /// No words in the search field.
    pub fn clear_search(&mut self) {
        self.search.clear();
        self.search_kept();
    }

    /// Takes what the kept chats say.
    pub fn take_news(&mut self, news: ChatEvent) {
        match news {
            ChatEvent::Opened { newest_id, chats, documents, presets } => {
                // A clock that was set back would name an answer before its question.
                self.skip_ids(newest_id);
                self.keeping.presets = presets;
                let known = |d: &StoredDocument, all: &[StoredDocument]| {
                    all.iter().any(|k| k.document.content_hash == d.document.content_hash)
                };
                let new: Vec<StoredDocument> = documents.into_iter().filter(|d| !known(d, &self.keeping.documents)).collect();
                self.keeping.documents.extend(new);
                chats.into_iter().for_each(|row| self.take_row(row));
            }
            ChatEvent::Messages(chat, messages) => self.take_messages(chat, messages),
            ChatEvent::Document(document, path) => {
                self.take_document(*document, false, path);
                self.find_missing();
            }
            ChatEvent::NoDocument(hash) => {
                let missing = self.chats.iter_mut().flat_map(|c| &mut c.missing);
                missing.filter(|m| m.document.content_hash == hash).for_each(|m| m.is_lost = true);
            }
            ChatEvent::Found { query, hits } if query == self.keeping.searched => self.keeping.found = Some((query, hits)),
            ChatEvent::Found { .. } => {}
            ChatEvent::Exported { to: Destination::File, name, text } => self.keeping.exported.push((name, text)),
            ChatEvent::Exported { to: Destination::Clipboard, text, .. } => self.keeping.copied = Some(text),
            ChatEvent::Refused(sentence) => self.notice(sentence, true),
        }
    }

    fn take_row(&mut self, row: ChatRow) {
        let has_words = row.named || !row.draft.is_empty() || !row.instructions.is_empty();
        let is_empty = row.leaf.is_none() && row.documents.is_empty() && !has_words;
        if is_empty {
            return self.keeping.keep(Change::Delete(row.id));
        }
        let missing = |(place, document)| MissingDocument { place, document, is_lost: false };
        self.chats.push(Chat {
            id: row.id,
            draft: row.draft,
            name: if row.named { row.title.clone() } else { String::new() },
            pinned: row.pinned,
            instructions: row.instructions,
            sampling: serde_json::from_str(&row.sampling).ok(),
            updated: row.updated,
            missing: row.documents.into_iter().enumerate().map(missing).collect(),
            stored: Stored::Kept { title: row.title, leaf: row.leaf },
            ..Chat::default()
        });
    }

    fn take_messages(&mut self, id: ChatId, messages: Vec<MessageRow>) {
        let Some(chat) = self.chats.iter_mut().find(|c| c.id == id) else { return };
        let Stored::Kept { leaf, .. } = &chat.stored else { return };
        let leaf = *leaf;
        chat.stored = Stored::Here;
        chat.aside = messages.iter().filter_map(|m| exchange_of(m, &messages)).collect();
        let newest = chat.aside.iter().map(|e| e.id).max();
        let leaf = leaf.filter(|leaf| chat.aside.iter().any(|e| e.id == *leaf)).or(newest);
        leaf.into_iter().for_each(|leaf| chat.show_until(leaf));
        self.search_quotes_of(id, |_| true);
    }

    /// Puts documents of this session where chats miss them.
    pub(in crate::app) fn find_missing(&mut self) {
        let of = |documents: &[OpenDocument], missing: &MissingDocument| {
            let hash = &missing.document.content_hash;
            documents.iter().find(|d| d.content_hash.to_string() == *hash).map(|d| d.id)
        };
        let mut found = Vec::new();
        for chat in &mut self.chats {
            let missing = std::mem::take(&mut chat.missing);
            let (here, missing): (Vec<MissingDocument>, Vec<MissingDocument>) =
                missing.into_iter().partition(|m| of(&self.documents, m).is_some());
            chat.missing = missing;
            for (place, doc) in here.iter().filter_map(|m| Some((m.place, of(&self.documents, m)?))) {
                let n_before = chat.missing.iter().filter(|m| m.place < place).count();
                let at = place.saturating_sub(n_before).min(chat.documents.len());
                chat.documents.insert(at, doc);
            }
            if !here.is_empty() {
                chat.content_hash = chat.hash(&self.documents);
                chat.token_ranges.clear();
                found.push(chat.id);
            }
        }
        for chat in found {
            self.search_quotes_of(chat, |e| e.quotes.is_none());
        }
        self.count_chat();
    }

    /// Puts a document whose text is kept in front of the chat on screen, as soon as it is here.
    pub fn attach_kept(&mut self, content_hash: &str) {
        let kept = self.keeping.documents.iter().find(|d| d.document.content_hash == content_hash);
        let Some(document) = kept.map(|d| d.document.clone()) else { return };
        let chat = self.chat_mut();
        if !chat.missing.iter().any(|m| m.document.content_hash == content_hash) {
            let place = chat.documents.len() + chat.missing.len();
            chat.missing.push(MissingDocument { place, document, is_lost: false });
        }
        self.page = MainView::Chat;
        self.keep_chat(self.current);
        self.read_kept();
    }

    /// Takes a document that is not here away from the chat on screen.
    pub fn detach_missing(&mut self, content_hash: &str) {
        self.chat_mut().missing.retain(|m| m.document.content_hash != content_hash);
        self.keep_chat(self.current);
    }

    /// A message of the chat on screen that a search led to: its exchange, brought onto the branch that is shown.
    pub fn take_reveal(&mut self) -> Option<u64> {
        let (chat, message) =
            self.keeping.reveal.filter(|(chat, _)| *chat == self.current && self.chat().stored == Stored::Here)?;
        self.keeping.reveal = None;
        let is_it = |e: &&Exchange| e.id == message || e.question_id == message;
        let exchange = self.chat().all_exchanges().filter(is_it).map(|e| e.id).max()?;
        let shown = self.chat().exchanges.iter().find(is_it).map(|e| e.id);
        if shown.is_none() && self.running.is_none_or(|r| r.chat != chat) {
            self.show_branch(exchange);
        }
        Some(shown.unwrap_or(exchange))
    }
}

impl Exchange {
    /// The question and the answer, as an exported chat has them.
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
        state: State::Done,
        note: String::new(),
        cost: String::new(),
        made,
    }
}

fn answer_row(chat: ChatId, e: &Exchange, made: i64) -> MessageRow {
    let (state, note, cost) = match &e.outcome {
        Outcome::Running => (State::Running, String::new(), String::new()),
        Outcome::Failed(sentence) => (State::Failed, sentence.clone(), String::new()),
        Outcome::Kept(note) => (State::Done, note.clone(), String::new()),
        Outcome::Done(summary) => {
            let note = stop_note(summary.stop).unwrap_or_default().to_owned();
            (State::Done, note, serde_json::to_string(summary).unwrap_or_default())
        }
    };
    let parent = Some(e.question_id);
    MessageRow { id: e.id, chat, parent, author: Author::Model, text: e.answer.clone(), state, note, cost, made }
}

/// The exchange of an answer. None for a question.
fn exchange_of(answer: &MessageRow, messages: &[MessageRow]) -> Option<Exchange> {
    let question = messages.iter().find(|m| Some(m.id) == answer.parent && m.author == Author::User)?;
    let outcome = match answer.state {
        State::Failed => Outcome::Failed(answer.note.clone()),
        State::Running | State::Interrupted => Outcome::Kept(INTERRUPTED.to_owned()),
        State::Done => match serde_json::from_str(&answer.cost) {
            Ok(summary) => Outcome::Done(Box::new(without_times(summary))),
            Err(_) => Outcome::Kept(answer.note.clone()),
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

/// When an answer of another run began says nothing on this run's clock.
fn without_times(mut summary: crate::engine::RequestSummary) -> crate::engine::RequestSummary {
    (summary.phases.began_ns, summary.phases.ended_ns) = (0, 0);
    summary
}

#[cfg(test)]
#[path = "chat_persistence_tests.rs"]
mod tests;
