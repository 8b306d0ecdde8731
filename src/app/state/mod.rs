//! State of the window as plain data, and its changes by engine events and user actions.
//!
//! ```text
//! EngineEvent ── apply() ─┐
//! user actions ───────────┴─► ViewState ──► outbox: [EngineCommand]      (no I/O, no clock, no egui)
//! ```
//! Invariants: 1. One request runs at a time; events of other requests are ignored. 2. The engine's context holds one chat:
//! when a request begins, all other chats have 0 cached tokens. 3. Nothing here waits.

pub mod branches;
pub mod chat;
pub mod chat_list;
pub mod chat_persistence;
pub mod chat_queue;
pub mod deletion;
pub mod document_list;
pub mod documents;
mod engine_events;
mod engine_state;
pub mod exchange;
pub mod model_loading;
pub mod models;
pub mod notices;
pub mod open_document;
pub mod preferences;
pub mod prefill_alone;
pub mod read_progress;
mod requests;
pub mod resume_estimate;
pub(in crate::app) mod sample_document;
pub mod saved_prefix;
pub mod settings;
pub mod settings_state;
pub mod undo;
pub mod viewer;

use std::path::PathBuf;
use std::sync::Arc;

use crate::app::state::chat::{Chat, ChatId, DocId, OpenDocument};
use crate::app::state::chat_list::ChatList;
use crate::app::state::document_list::Documents;
use crate::app::state::models::ModelList;
use crate::app::state::notices::{Notice, Notices};
use crate::app::state::settings::ThemeChoice;
use crate::app::state::settings_state::SettingsState;
use crate::base::Tiers;
use crate::document::Document;
use crate::engine::{EngineCommand, LibraryAction, LoadOptions, ModelInfo, ModelSource, SavedDocument, StopReason};
pub use engine_state::{EngineState, KvUse, Measurements, ModelState, Phase, Running, Task};

/// The page in the middle of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MainView {
    /// the current chat
    #[default]
    Chat,
    /// the settings
    Settings,
    /// keyboard shortcuts and the legend
    Help,
    /// the models on this machine
    Models,
}

/// Everything the window shows.
#[derive(Debug)]
pub struct ViewState {
    /// the engine: its model, the running request, and commands
    pub engine: EngineState,
    /// measurements of the last requests
    pub measured: Measurements,
    /// all chats
    pub chats: ChatList,
    /// documents of this session
    pub documents: Documents,
    /// settings and the settings file
    pub settings: SettingsState,
    /// saved documents, once the engine has listed them
    pub library: Option<Vec<SavedDocument>>,
    /// models on this machine
    pub models: ModelList,
    /// notices for the user
    pub notices: Notices,
    /// the page in the middle
    pub page: MainView,
}

impl ViewState {
    /// A window with one empty chat.
    pub fn new(source: ModelSource, load: LoadOptions) -> ViewState {
        ViewState {
            settings: SettingsState::new(&source, &load),
            engine: EngineState::new(source, load),
            measured: Measurements::default(),
            chats: ChatList::new(),
            documents: Documents::default(),
            library: None,
            models: ModelList::default(),
            notices: Notices::default(),
            page: MainView::default(),
        }
    }

    /// Sets the next id to `first` or later, so that it differs from every stored id.
    pub fn start_ids(&mut self, first: u64) {
        self.reserve_ids(first);
        let id = self.fresh_id();
        if let [chat] = self.chats.list.as_mut_slice() {
            chat.id = id;
            self.chats.current = id;
        }
    }

    /// Reserves all ids up to `newest`.
    pub(in crate::app) fn reserve_ids(&mut self, newest: u64) {
        self.chats.next_id = self.chats.next_id.max(newest);
    }

    pub(in crate::app) fn fresh_id(&mut self) -> u64 {
        self.chats.next_id += 1;
        self.chats.next_id
    }

    /// The current chat.
    pub fn chat(&self) -> &Chat {
        // `chats` is never empty, so there is a first one.
        self.chats.list.iter().find(|c| c.id == self.chats.current).unwrap_or(&self.chats.list[0])
    }

    /// The current chat, mutable.
    pub fn chat_mut(&mut self) -> &mut Chat {
        let index = self.chats.list.iter().position(|c| c.id == self.chats.current).unwrap_or(0);
        &mut self.chats.list[index]
    }

    /// Facts of the loaded model.
    pub fn info(&self) -> Option<&ModelInfo> {
        match &self.engine.model {
            ModelState::Ready(info) => Some(info),
            _ => None,
        }
    }

    /// The running request, if it belongs to the current chat.
    pub fn running_here(&self) -> Option<&Running> {
        self.engine.running.as_ref().filter(|r| r.chat == self.chats.current)
    }

    /// True if the model was loaded with other settings than those of the settings page.
    pub fn needs_reload(&self) -> bool {
        let mut wanted = self.engine.load.clone();
        self.settings.values.put_in(&mut wanted);
        self.info().is_some() && wanted != self.engine.load
    }

    /// Budgets of the KV tiers. None before they are known.
    pub fn budgets(&self) -> Option<Tiers<u64>> {
        let said = self.measured.kv.map(|kv| kv.budgets).or_else(|| Some(self.info()?.kv.budgets));
        said.filter(|b| *b != Tiers::default())
    }

    /// Requests the list of saved documents.
    pub fn list_library(&mut self) {
        let kv_dir = self.engine.load.kv_dir.clone();
        self.engine.outbox.push(EngineCommand::Library(LibraryAction::List { kv_dir }));
    }

    /// Shows an empty chat; an existing one is reused.
    pub fn new_chat(&mut self) {
        self.page = MainView::Chat;
        self.clear_search();
        if let Some(blank) = self.chats.list.iter().find(|c| c.is_blank() && c.draft.is_empty()) {
            return self.show_chat(blank.id);
        }
        let id = self.fresh_id();
        self.chats.list.insert(0, Chat { id, updated: self.chats.persistence.now, ..Chat::default() });
        self.show_chat(id);
    }

    /// Shows a chat, and closes a document that is not its own.
    fn show_chat(&mut self, id: ChatId) {
        if self.chats.current != id {
            self.chats.current = id;
            let viewer = self.documents.viewer.take();
            self.documents.viewer = viewer.filter(|viewer| self.chat().documents.contains(&viewer.doc));
            self.count_chat();
        }
    }

    /// Selects another chat.
    pub fn select_chat(&mut self, id: ChatId) {
        if self.chats.list.iter().any(|c| c.id == id) {
            self.show_chat(id);
            self.page = MainView::Chat;
            self.request_missing();
        }
    }

    /// Adds a document to the session and to the current chat.
    pub fn add_document(&mut self, document: Document, sample: bool) -> DocId {
        let id = self.register_document(document, sample, None);
        self.attach(id);
        id
    }

    /// Adds a document from a file to the session and to the current chat.
    pub fn add_file(&mut self, document: Document, path: PathBuf) -> DocId {
        let id = self.register_document(document, false, Some(path));
        self.resolve_missing();
        self.attach(id);
        id
    }

    /// Adds a document to the session and saves its text.
    pub(in crate::app) fn register_document(&mut self, document: Document, sample: bool, path: Option<PathBuf>) -> DocId {
        let same = self.documents.list.iter().find(|d| d.name == document.name && d.content_hash == document.content_hash);
        if let Some(doc) = same {
            return doc.id;
        }
        let id = self.fresh_id();
        let (n_chars, document) = (document.text.chars().count(), Arc::new(document));
        self.save_document(&document, n_chars, path.clone());
        self.documents.list.push(OpenDocument {
            id,
            document,
            n_chars,
            n_tokens: None,
            token_range: None,
            ingest_ms: None,
            sample,
            path,
        });
        self.count_document(id);
        id
    }

    /// Adds a document of the session to the current chat: the last one, or the first if it is saved and the order is free.
    pub fn attach(&mut self, id: DocId) {
        self.page = MainView::Chat;
        if !self.chat().documents.contains(&id) {
            let is_order_free = self.chat().exchanges.is_empty() && self.chat().cached_tokens == 0;
            let mut documents = self.chat().documents.clone();
            documents.push(id);
            if is_order_free {
                self.put_saved_first(&mut documents);
            }
            self.change_documents(|all| *all = documents);
        }
    }

    /// Removes a document from the current chat; it stays in the library.
    pub fn detach(&mut self, id: DocId) {
        self.change_documents(|documents| documents.retain(|d| *d != id));
    }

    pub(in crate::app) fn change_documents(&mut self, change: impl FnOnce(&mut Vec<DocId>)) {
        let index = self.chats.list.iter().position(|c| c.id == self.chats.current).unwrap_or(0);
        let chat = &mut self.chats.list[index];
        change(&mut chat.documents);
        (chat.cached_tokens, chat.prompt_tokens) = (0, 0);
        chat.token_ranges.clear();
        chat.content_hash = chat.hash(&self.documents.list);
        chat.clear_original_requests();
        self.save_chat(self.chats.current);
        self.count_chat();
    }

    /// Checks the text of the settings page.
    pub fn check_settings(&mut self) {
        self.settings.form.check(&mut self.settings.values);
    }

    /// Switches between light and dark.
    pub fn toggle_theme(&mut self, dark_now: bool) {
        self.settings.values.theme = if dark_now { ThemeChoice::Light } else { ThemeChoice::Dark };
    }

    /// Reports that the engine has ended, in the running request if there is one.
    pub fn engine_lost(&mut self) {
        let sentence = "The engine does not answer. Close Strata and start it again.".to_owned();
        match self.engine.running {
            Some(running) => self.fail(running.request, sentence),
            None => self.notice(sentence, true),
        }
    }

    /// Shows a notice until it is dismissed.
    pub fn notice(&mut self, text: String, error: bool) {
        self.notices.add(Notice { text, error });
    }
}

/// Note on why an answer ended. None for a normal end.
pub fn stop_note(stop: StopReason) -> Option<&'static str> {
    match stop {
        StopReason::Eos => None,
        StopReason::Length => Some("ended at the length limit"),
        StopReason::Cancelled => Some("stopped"),
    }
}

#[cfg(test)]
mod tests;
