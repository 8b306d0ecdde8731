//! Everything the window shows, as plain data, and how engine events and the user's acts change it.
//!
//! ```text
//! EngineEvent ── events::apply() ─┐
//! the user's acts ────────────────┴─► ViewState ──► outbox: [EngineCommand]      (no I/O, no clock, no egui)
//! ```
//! Invariants: 1. One turn runs at a time; events of any other turn are ignored. 2. The engine's cache holds one chat:
//! when a turn begins elsewhere, every other chat is shown as unread. 3. Nothing here waits.

pub mod branches;
pub mod chat;
pub mod chat_persistence;
pub mod documents;
mod engine_events;
mod model_loading;
pub mod models;
pub mod notices;
pub mod preferences;
pub mod read_progress;
mod requests;
pub mod resume_estimate;
pub(in crate::app) mod sample_document;
pub mod settings;
pub mod undo;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::app::answer::citations::Search;
use crate::app::panels::document::document_view::Viewer;
use crate::app::state::chat::{Chat, ChatId, DocId, OpenDocument};
use crate::app::state::chat_persistence::ChatPersistence;
use crate::app::state::documents::Opening;
use crate::app::state::models::ModelList;
use crate::app::state::notices::{Notice, Notices};
use crate::app::state::preferences::Preferences;
use crate::app::state::read_progress::CountTarget;
use crate::app::state::settings::{Form, Settings, ThemeChoice};
use crate::base::Tiers;
use crate::document::Document;
use crate::engine::{
    AttentionKind, DeviceFacts, EngineCommand, LibraryAction, LoadOptions, ModelInfo, ModelSource, RequestId, SavedDocument,
    StopReason,
};

/// The model and what is happening to it.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelState {
    /// nothing asked for yet
    Absent,
    /// being loaded
    Loading {
        /// 0 to 1
        share: f32,
        /// a few words
        what: String,
    },
    /// ready
    Ready(Box<ModelInfo>),
    /// one sentence that says what to do
    Failed(String),
}

/// Where the running turn is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Phase {
    /// asked for, not begun
    Waiting,
    /// reading the prompt
    Prefill {
        /// tokens in the cache
        done: usize,
        /// tokens of the prompt
        total: usize,
        /// speed so far
        tokens_per_s: f64,
    },
    /// writing
    Decode {
        /// tokens of the answer
        n: usize,
        /// speed so far
        tokens_per_s: f64,
    },
}

/// What a turn is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// reading documents ahead
    Read,
    /// the answer of an exchange
    Answer(u64),
    /// the answer of an exchange once more, from everything
    Check(u64),
}

/// The turn that runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Running {
    /// names its events
    pub turn: RequestId,
    /// where it belongs
    pub chat: ChatId,
    /// what for
    pub task: Task,
    /// where it is
    pub phase: Phase,
    /// stop was asked for
    pub stopping: bool,
}

impl Running {
    /// It answers this exchange, or checks its answer.
    pub fn is_for(&self, exchange: u64) -> bool {
        matches!(self.task, Task::Answer(id) | Task::Check(id) if id == exchange)
    }
}

/// What the KV tiers hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvUse {
    /// bytes in each tier
    pub used: Tiers<u64>,
    /// and the caps
    pub budgets: Tiers<u64>,
}

/// What the middle of the window shows.
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
    /// the model
    pub model: ModelState,
    /// what was last asked to be loaded
    pub source: ModelSource,
    /// how
    pub load: LoadOptions,
    /// newest first; never empty
    pub chats: Vec<Chat>,
    /// the chat on screen
    pub current: ChatId,
    /// every document of this session
    pub documents: Vec<OpenDocument>,
    /// the turn that runs
    pub running: Option<Running>,
    /// speed of the last decode, for the status line
    pub last_speed: Option<f64>,
    /// speed of the last prefill, for estimates
    pub last_prefill: Option<f64>,
    /// speed of the disk when it was last read, bytes per second
    pub disk_speed: Option<f64>,
    /// how attention reached the keys in the last answer
    pub attention: Option<AttentionKind>,
    /// and the share of it that a policy kept, where that was measured
    pub mass_kept: Option<f64>,
    /// what the KV tiers hold, once the engine has said it
    pub kv: Option<KvUse>,
    /// saved documents, once the engine has listed them
    pub library: Option<Vec<SavedDocument>>,
    /// checked settings
    pub settings: Settings,
    /// settings as typed
    pub form: Form,
    /// settings as they were kept last
    pub(in crate::app) noted: Settings,
    /// what outlasts the window
    pub kept: Preferences,
    /// something of it is not written yet
    pub(in crate::app) unsaved: bool,
    /// the device and the machine, once the engine has said it
    pub device: Option<DeviceFacts>,
    /// models on this machine
    pub models: ModelList,
    /// sentences for the user
    pub notices: Notices,
    /// the middle of the window
    pub page: MainView,
    /// text in the search field
    pub search: String,
    /// commands to send, oldest first
    pub outbox: Vec<EngineCommand>,
    /// stop was asked for before the turn began: a stop ends only what runs, so it is due again
    pub stop_due: bool,
    /// the chat whose question waits for a check to end
    pub send_due: Option<ChatId>,
    /// files that are being opened
    pub opening: Option<Opening>,
    /// quotations to look up, oldest first
    pub searches: Vec<Search>,
    /// the document whose pages stand beside the chat
    pub viewer: Option<Viewer>,
    /// what is kept of all this, and what is to be asked of it
    pub keeping: ChatPersistence,
    pub(in crate::app) counting: HashMap<RequestId, CountTarget>,
    next_id: u64,
}

impl ViewState {
    /// A window with one empty chat.
    pub fn new(source: ModelSource, load: LoadOptions) -> ViewState {
        let kept = Preferences::new(load.clone());
        let (settings, _) = kept.settings(&source);
        let chat = Chat { id: 1, ..Chat::default() };
        ViewState {
            model: ModelState::Absent,
            source,
            load,
            current: chat.id,
            chats: vec![chat],
            documents: Vec::new(),
            running: None,
            last_speed: None,
            last_prefill: None,
            disk_speed: None,
            attention: None,
            mass_kept: None,
            kv: None,
            library: None,
            form: Form::of(&settings),
            settings,
            noted: settings,
            kept,
            unsaved: false,
            device: None,
            models: ModelList::default(),
            notices: Notices::default(),
            page: MainView::default(),
            search: String::new(),
            outbox: Vec::new(),
            stop_due: false,
            send_due: None,
            opening: None,
            searches: Vec::new(),
            viewer: None,
            keeping: ChatPersistence::default(),
            counting: HashMap::new(),
            next_id: 1,
        }
    }

    /// Names of chats and messages are `first` and later ones from now on: none that is kept already.
    pub fn begin_ids(&mut self, first: u64) {
        self.skip_ids(first);
        let id = self.fresh_id();
        if let [chat] = self.chats.as_mut_slice() {
            chat.id = id;
            self.current = id;
        }
    }

    /// These names are taken, up to and including `newest`.
    pub(in crate::app) fn skip_ids(&mut self, newest: u64) {
        self.next_id = self.next_id.max(newest);
    }

    pub(in crate::app) fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// The chat on screen.
    pub fn chat(&self) -> &Chat {
        // `chats` is never empty: there is always a first one to fall back to.
        self.chats.iter().find(|c| c.id == self.current).unwrap_or(&self.chats[0])
    }

    /// The chat on screen, to change.
    pub fn chat_mut(&mut self) -> &mut Chat {
        let index = self.chats.iter().position(|c| c.id == self.current).unwrap_or(0);
        &mut self.chats[index]
    }

    /// The loaded model.
    pub fn info(&self) -> Option<&ModelInfo> {
        match &self.model {
            ModelState::Ready(info) => Some(info),
            _ => None,
        }
    }

    /// The turn that runs, if it belongs to the chat on screen.
    pub fn running_here(&self) -> Option<&Running> {
        self.running.as_ref().filter(|r| r.chat == self.current)
    }

    /// The loaded model was loaded with other settings than those on the settings page.
    pub fn load_changed(&self) -> bool {
        let mut wanted = self.load.clone();
        self.settings.put_in(&mut wanted);
        self.info().is_some() && wanted != self.load
    }

    /// Caps on the KV tiers in force; None before the engine has said any.
    pub fn budgets(&self) -> Option<Tiers<u64>> {
        let said = self.kv.map(|kv| kv.budgets).or_else(|| Some(self.info()?.kv.budgets));
        said.filter(|b| *b != Tiers::default())
    }

    /// The saved KV that the documents of the chat on screen can go on from.
    pub fn saved_here(&self) -> Option<&SavedDocument> {
        self.saved_of(self.chat())
    }

    pub(in crate::app) fn saved_of(&self, chat: &Chat) -> Option<&SavedDocument> {
        resume_estimate::resumable(self.library.as_deref()?, chat.content_hash?, self.info()?, self.load.kv_dtype)
    }

    /// Asks what the library holds.
    pub fn list_library(&mut self) {
        let kv_dir = self.load.kv_dir.clone();
        self.outbox.push(EngineCommand::Library(LibraryAction::List { kv_dir }));
    }

    /// An empty chat on screen; an empty one that is already there is used again.
    pub fn new_chat(&mut self) {
        self.page = MainView::Chat;
        self.clear_search();
        if let Some(blank) = self.chats.iter().find(|c| c.is_blank() && c.draft.is_empty()) {
            return self.turn_to(blank.id);
        }
        let id = self.fresh_id();
        self.chats.insert(0, Chat { id, updated: self.keeping.now, ..Chat::default() });
        self.turn_to(id);
    }

    /// Puts a chat on screen. A document that is none of its own is not shown beside it.
    fn turn_to(&mut self, id: ChatId) {
        if self.current != id {
            self.current = id;
            let viewer = self.viewer.take();
            self.viewer = viewer.filter(|viewer| self.chat().documents.contains(&viewer.doc));
            self.count_chat();
        }
    }

    /// Another chat on screen.
    pub fn select_chat(&mut self, id: ChatId) {
        if self.chats.iter().any(|c| c.id == id) {
            self.turn_to(id);
            self.page = MainView::Chat;
            self.read_kept();
        }
    }

    /// Takes a document into the session and in front of the chat on screen.
    pub fn add_document(&mut self, document: Document, sample: bool) -> DocId {
        let id = self.take_document(document, sample, None);
        self.attach(id);
        id
    }

    /// The same of a document that was read from a file.
    pub fn add_file(&mut self, document: Document, path: PathBuf) -> DocId {
        let id = self.take_document(document, false, Some(path));
        self.find_missing();
        self.attach(id);
        id
    }

    /// Takes a document into the session, and into the kept ones.
    pub(in crate::app) fn take_document(&mut self, document: Document, sample: bool, path: Option<PathBuf>) -> DocId {
        let same = self.documents.iter().find(|d| d.name == document.name && d.content_hash == document.content_hash);
        if let Some(doc) = same {
            return doc.id;
        }
        let id = self.fresh_id();
        let (n_chars, document) = (document.text.chars().count(), Arc::new(document));
        self.keep_document(&document, n_chars, path.clone());
        self.documents.push(OpenDocument {
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

    /// Puts a document of the session in front of the chat on screen.
    pub fn attach(&mut self, id: DocId) {
        self.page = MainView::Chat;
        if !self.chat().documents.contains(&id) {
            self.change_documents(|documents| documents.push(id));
        }
    }

    /// Takes a document away from the chat on screen; it stays in the library.
    pub fn detach(&mut self, id: DocId) {
        self.change_documents(|documents| documents.retain(|d| *d != id));
    }

    pub(in crate::app) fn change_documents(&mut self, change: impl FnOnce(&mut Vec<DocId>)) {
        let index = self.chats.iter().position(|c| c.id == self.current).unwrap_or(0);
        let chat = &mut self.chats[index];
        change(&mut chat.documents);
        (chat.cached_tokens, chat.prompt_tokens) = (0, 0);
        chat.token_ranges.clear();
        chat.content_hash = chat.hash(&self.documents);
        chat.forget_asked();
        self.keep_chat(self.current);
        self.count_chat();
    }

    /// Takes the text of the settings page.
    pub fn check_settings(&mut self) {
        self.form.check(&mut self.settings);
    }

    /// Light when dark and dark when light.
    pub fn toggle_theme(&mut self, dark_now: bool) {
        self.settings.theme = if dark_now { ThemeChoice::Light } else { ThemeChoice::Dark };
    }

    /// The engine took no command: says so where it was asked.
    pub fn engine_gone(&mut self) {
        let sentence = "The engine does not answer. Close Strata and start it again.".to_owned();
        match self.running {
            Some(running) => self.fail(running.turn, sentence),
            None => self.notice(sentence, true),
        }
    }

    /// Shows a sentence until it is dismissed.
    pub fn notice(&mut self, text: String, error: bool) {
        self.notices.add(Notice { text, error });
    }
}

/// Why an answer ended, where that is worth a word.
pub fn stop_note(stop: StopReason) -> Option<&'static str> {
    match stop {
        StopReason::Eos => None,
        StopReason::Length => Some("ended at the length limit"),
        StopReason::Cancelled => Some("stopped"),
    }
}

#[cfg(test)]
mod tests;
