//! The parts of the window. Each `_ui` function draws plain data and returns what the user asked for.
//!
//! ```text
//! ViewState ──► sidebar │ documents, chat, composer │ status ──► [Action] ──► window::StrataApp
//! ```

pub mod chat;
pub mod document;
pub mod menu_row;
pub mod notices;
pub mod pages;
pub mod sidebar;
pub mod status;
pub mod tiers;

use std::ops::Range;
use std::path::PathBuf;

use crate::app::answer::citations::SourceLocation;
use crate::app::state::chat::{ChatId, DocId};
use crate::app::state::{MainView, ModelState};
use crate::chats::Format;
use crate::engine::{AttentionKind, KvDtype, ModelSource};
use crate::model::path_name;

/// Which kind of attention answered.
pub fn attention_words(kind: AttentionKind) -> &'static str {
    match kind {
        AttentionKind::Dense => "exact dense",
        AttentionKind::ExactOffload => "exact offload",
        AttentionKind::Selective => "selective",
    }
}

/// `f16`, as on the command line.
pub fn kv_dtype_name(kv_dtype: KvDtype) -> &'static str {
    match kv_dtype {
        KvDtype::F16 => "f16",
        KvDtype::Q8 => "q8",
        KvDtype::Q4 => "q4",
        KvDtype::F32 => "f32",
    }
}

/// What the user asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// ask what is in the composer
    Send,
    /// end the running turn
    Stop,
    /// ask the question of this exchange again
    Regenerate(u64),
    /// ask this text in place of the question of an exchange
    EditQuestion(u64, String),
    /// show the branch through this exchange
    ShowBranch(u64),
    /// the next question follows this answer
    BranchFrom(u64),
    /// answer this exchange once more, from everything
    Check(u64),
    /// put text on the clipboard
    Copy(String),
    /// an empty chat
    NewChat,
    /// another chat
    SelectChat(ChatId),
    /// a chat that a search found, and the message that holds the words
    ShowHit(ChatId, Option<u64>),
    /// type another title for a chat
    BeginRename(ChatId, String),
    /// this is its title
    Rename(ChatId, String),
    /// its title stays
    EndRename,
    /// a chat above the others, or back among them
    Pin(ChatId),
    /// save a chat as a file
    ExportChat(ChatId, Format),
    /// put a chat on the clipboard, as Markdown
    CopyChat(ChatId),
    /// take a chat out of the list
    DeleteChat(ChatId),
    /// take a document, or only its KV, out of the library
    RemoveDocument {
        /// hash of its text
        content_hash: String,
        /// what people call it
        name: String,
        /// only its KV
        keeps_text: bool,
    },
    /// bring back what was deleted last
    Undo,
    /// do not
    DiscardUndo,
    /// put a document whose text is kept in front of this chat
    AttachKept(String),
    /// take a document that is not here away from this chat: its hash
    DetachMissing(String),
    /// open a document's file
    OpenFile(PathBuf),
    /// choose documents in a dialog
    OpenDocuments,
    /// choose a GGUF file in a dialog
    OpenModelFile,
    /// choose a model folder in a dialog
    OpenModelFolder,
    /// load a model
    LoadModel(ModelSource),
    /// load a model with what the picker says
    LoadChosen(ModelSource),
    /// free the model
    UnloadModel,
    /// load it no further
    StopLoading,
    /// look for models again
    FindModels,
    /// look for models in this folder too
    AddModelFolder(PathBuf),
    /// choose such a folder in a dialog
    ChooseModelFolder,
    /// look there no longer
    ForgetModelFolder(PathBuf),
    /// answers are sampled as the model's makers advise again
    ForgetSampling,
    /// put a document of the library in front of this chat
    Attach(DocId),
    /// take a document away from this chat
    Detach(DocId),
    /// read the documents now
    Read,
    /// add the sample document, and ask this of it
    Sample(Option<String>),
    /// ask this
    Ask(String),
    /// light or dark
    ToggleTheme,
    /// another page in the middle
    Show(MainView),
    /// the text of the settings changed
    SettingsChanged,
    /// open the list of notices, or close it
    ToggleNotices,
    /// remove the notice at this index of the list
    Dismiss(usize),
    /// remove all notices
    DismissAll,
    /// end the opening of files
    CancelOpening,
    /// show a document from its first page, beside the chat
    ShowDocument(DocId),
    /// show a quotation of this answer where it stands
    ShowSpot(SourceLocation, u64),
    /// show the pages that this answer read most
    ShowMostRead(u64),
    /// no more
    CloseDocument,
    /// put some pages of a document, from 0, in its place
    TakePages(DocId, Range<usize>),
    /// write this session's events to a file, with questions and answers where that was asked for
    SaveTrace {
        /// with questions and answers
        with_text: bool,
    },
    /// add this session's counters to a file
    SaveCounters,
    /// show a saved trace beside this session
    OpenTrace,
    /// put the newest answer's speeds on the clipboard, as llama-bench prints them
    CopyBenchRow,
    /// the dashboard beside the chat, or gone
    ToggleDock,
    /// the dashboard in place of the chat, or beside it again
    ToggleDockFullWidth,
    /// show the text that a page of the KV cache was made of, below the map
    ShowPageText(SourceLocation),
    /// the step that made this token of an answer, on the timeline
    ShowToken {
        /// whose answer
        exchange: u64,
        /// from 0
        token: usize,
    },
    /// show a folder in the file manager
    OpenFolder(PathBuf),
}

/// What the model in the binary is called.
const BUILT_IN_NAME: &str = "Strata Quote";

/// The name of the model that is there, coming, or missing.
pub fn model_name(model: &ModelState, source: &ModelSource) -> String {
    match (model, source) {
        (ModelState::Ready(info), _) => info.name.clone(),
        (_, ModelSource::BuiltIn) => BUILT_IN_NAME.to_owned(),
        (_, ModelSource::Path(path)) => path_name(path).unwrap_or_else(|| path.display().to_string()),
        (_, ModelSource::Synthetic { name, .. }) => name.clone(),
    }
}
