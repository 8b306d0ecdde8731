//! Panels of the window. Each `_ui` function draws plain data and returns the user's actions.
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
use crate::chats::ExportFormat;
use crate::engine::{AttentionKind, ModelSource};
use crate::model::path_name;

/// Label of a kind of attention.
pub fn attention_label(kind: AttentionKind) -> &'static str {
    match kind {
        AttentionKind::Dense => "exact dense",
        AttentionKind::ExactOffload => "exact offload",
        AttentionKind::Selective => "selective",
        AttentionKind::ExactByCost => "exact: selecting would cost more",
    }
}

/// An action of the user.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// send the question in the composer
    Send,
    /// stop the running request
    Stop,
    /// generate another answer to this exchange
    Regenerate(u64),
    /// replace the question of an exchange by this text
    EditQuestion(u64, String),
    /// show the branch through this exchange
    ShowBranch(u64),
    /// continue the chat after this answer
    BranchFrom(u64),
    /// check the answer of this exchange exactly
    Check(u64),
    /// put text on the clipboard
    Copy(String),
    /// show an empty chat
    NewChat,
    /// show another chat
    SelectChat(ChatId),
    /// show a chat that a search found, and the message with the words
    ShowHit(ChatId, Option<u64>),
    /// edit the title of a chat
    BeginRename(ChatId, String),
    /// rename a chat
    Rename(ChatId, String),
    /// leave the title as it is
    EndRename,
    /// pin a chat above the others, or unpin it
    Pin(ChatId),
    /// save a chat as a file
    ExportChat(ChatId, ExportFormat),
    /// put a chat on the clipboard, as Markdown
    CopyChat(ChatId),
    /// delete a chat
    DeleteChat(ChatId),
    /// remove a document, or only its KV, from the library
    RemoveDocument {
        /// hash of its text
        content_hash: String,
        /// display name
        name: String,
        /// only its KV
        keeps_text: bool,
    },
    /// restore the last deletion
    Undo,
    /// make the last deletion final
    DiscardUndo,
    /// add a document whose text is stored to this chat
    AttachStored(String),
    /// remove a missing document from this chat: its hash
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
    /// load a model with the options of the picker
    LoadFromPicker(ModelSource),
    /// free the model
    UnloadModel,
    /// cancel the loading
    StopLoading,
    /// search for models again
    FindModels,
    /// search this folder for models too
    AddModelFolder(PathBuf),
    /// choose a model folder for the search in a dialog
    ChooseModelFolder,
    /// remove a folder from the search
    RemoveModelFolder(PathBuf),
    /// reset sampling to the model's own values
    ResetSampling,
    /// add a document of the library to this chat
    Attach(DocId),
    /// remove a document from this chat
    Detach(DocId),
    /// prefill the documents now
    PrefillDocuments,
    /// prefill a document alone, so that it can be used alone or first
    PrefillAlone(DocId),
    /// add the sample document, and ask this question
    Sample(Option<String>),
    /// send this question
    Ask(String),
    /// switch between light and dark
    ToggleTheme,
    /// show another page in the middle
    Show(MainView),
    /// check the text of the settings page
    SettingsChanged,
    /// open the list of notices, or close it
    ToggleNotices,
    /// remove the notice at this index of the list
    Dismiss(usize),
    /// remove all notices
    DismissAll,
    /// cancel the opening of files
    CancelOpening,
    /// show a document from its first page, beside the chat
    ShowDocument(DocId),
    /// show the source of a citation of this answer
    ShowSource(SourceLocation, u64),
    /// show the pages that this answer attended to most
    ShowAttendedPages(u64),
    /// close the document
    CloseDocument,
    /// replace a document by some of its pages, from 0
    TakePages(DocId, Range<usize>),
    /// write this session's events to a file
    SaveTrace {
        /// with questions and answers
        with_text: bool,
    },
    /// append this session's counters to a file
    SaveCounters,
    /// open a saved trace beside this session
    OpenTrace,
    /// copy the newest answer's speeds as a llama-bench row
    CopyBenchRow,
    /// open or close the dashboard
    ToggleDock,
    /// let the dashboard fill the window, or not
    ToggleDockFullWidth,
    /// show the text of a page of the KV cache below the map
    ShowPageText(SourceLocation),
    /// show the step of this token of an answer on the timeline
    ShowToken {
        /// its exchange
        exchange: u64,
        /// from 0
        token: usize,
    },
    /// show a folder in the file manager
    OpenFolder(PathBuf),
}

/// Name of the built-in model.
const BUILT_IN_NAME: &str = "Strata Quote";

/// Name of the model that is loaded, loading or missing.
pub fn model_name(model: &ModelState, source: &ModelSource) -> String {
    match (model, source) {
        (ModelState::Ready(info), _) => info.name.clone(),
        (_, ModelSource::BuiltIn) => BUILT_IN_NAME.to_owned(),
        (_, ModelSource::Path(path)) => path_name(path).unwrap_or_else(|| path.display().to_string()),
        (_, ModelSource::Synthetic { name, .. }) => name.clone(),
    }
}
