//! The window and its kept chats: what is sent to be kept before a frame is drawn, and what comes back.
//!
//! ```text
//! ViewState.keeping.requests ─► ChatWriter ─► ChatEvent ─► ViewState
//! ```
//! Limits: a frame waits [`PATIENCE`] at most for what it shows to be kept; a deletion can be undone for [`UNDO_SECONDS`].

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use eframe::egui;

use crate::app::panels::Action;
use crate::app::state::ViewState;
use crate::app::window::StrataApp;
use crate::chats::{ChatRequest, ChatWriter, Destination, ExportFormat};

/// The disk is given this long while a frame is drawn: a write to memory takes a thousandth of it, a flush a tenth.
const PATIENCE: Duration = Duration::from_millis(100);
/// The same when the window closes.
const LAST_PATIENCE: Duration = Duration::from_secs(10);
/// How long a deletion can be undone, seconds.
const UNDO_SECONDS: f64 = 12.0;
/// What to do where a desktop cannot ask for a file's name.
const EXPORT_INSTEAD: &str = "Copy the chat as Markdown instead.";

/// The keeper of this window.
pub(in crate::app) struct Keep {
    keeper: Option<ChatWriter>,
    /// when what can be undone was first seen, seconds
    undo_since: Option<f64>,
    has_unsettled: bool,
}

impl Keep {
    /// Chats in the folder `root`; in memory where there is none.
    pub(in crate::app) fn start(ctx: &egui::Context, root: Option<PathBuf>, state: &mut ViewState) -> Keep {
        if root.is_some() {
            // Later than every name that was given before, on this machine's clock.
            state.begin_ids(since_1970().as_micros().try_into().unwrap_or_default());
        }
        let waker = ctx.clone();
        let keeper = ChatWriter::start(root, move || waker.request_repaint());
        if let Err(error) = &keeper {
            state.notice(format!("Chats of this window are not kept: {error}."), true);
        }
        Keep { keeper: keeper.ok(), undo_since: None, has_unsettled: false }
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl StrataApp {
    /// Takes what the kept chats say.
    pub(in crate::app) fn take_kept(&mut self, ctx: &egui::Context) {
        self.state.keeping.now = i64::try_from(since_1970().as_secs()).unwrap_or_default();
        while let Some(news) = self.keep.keeper.as_ref().and_then(ChatWriter::poll) {
            self.state.take_news(news);
            ctx.request_repaint();
        }
        if let Some(exchange) = self.state.take_reveal() {
            self.memory.jump_to = Some(exchange);
        }
        for (name, text) in std::mem::take(&mut self.state.keeping.exported) {
            self.files.save(&name, EXPORT_INSTEAD, move |path| std::fs::write(path, text));
        }
        if let Some(text) = self.state.keeping.copied.take() {
            ctx.copy_text(text);
        }
        self.forget_undo(ctx);
    }

    /// Hands over what is to be kept. What there is no room for waits for the next frame.
    pub(in crate::app) fn send_kept(&mut self) {
        self.state.keep_draft();
        let Some(keeper) = &mut self.keep.keeper else { return self.state.keeping.requests.clear() };
        let mut requests = std::mem::take(&mut self.state.keeping.requests).into_iter();
        while let Some(request) = requests.next() {
            self.keep.has_unsettled |= matches!(request, ChatRequest::Save(_));
            if let Err(request) = keeper.send(request) {
                self.state.keeping.requests = std::iter::once(request).chain(requests).collect();
                return;
            }
        }
    }

    /// Waits, not long, until what this frame shows is kept.
    pub(in crate::app) fn settle_kept(&mut self, ctx: &egui::Context) {
        self.send_kept();
        if std::mem::take(&mut self.keep.has_unsettled) {
            // A disk that takes longer goes on by itself.
            let _ = self.keep.keeper.as_ref().map(|keeper| keeper.flush(PATIENCE));
        }
        if !self.state.keeping.requests.is_empty() {
            ctx.request_repaint_after(PATIENCE);
        }
    }

    /// Keeps everything: the window closes.
    pub(in crate::app) fn keep_all(&mut self) {
        self.send_kept();
        if let Some(keeper) = self.keep.keeper.take() {
            keeper.flush(LAST_PATIENCE);
        }
    }

    /// Lets go of what was deleted long enough ago.
    fn forget_undo(&mut self, ctx: &egui::Context) {
        let now = ctx.input(|i| i.time);
        if self.state.keeping.undo.is_none() {
            self.keep.undo_since = None;
            return;
        }
        let since = *self.keep.undo_since.get_or_insert(now);
        let left = since + UNDO_SECONDS - now;
        if left <= 0.0 {
            self.state.let_go();
            ctx.request_repaint();
        } else {
            ctx.request_repaint_after(Duration::from_secs_f64(left));
        }
    }

    /// What was asked of chats and documents that are kept.
    pub(in crate::app) fn perform_on_kept(&mut self, action: Action) {
        match action {
            Action::ShowHit(chat, message) => {
                self.state.select_chat(chat);
                self.state.keeping.reveal = message.map(|message| (chat, message));
            }
            Action::BeginRename(chat, title) => self.state.keeping.renaming = Some((chat, title)),
            Action::Rename(chat, title) => {
                self.state.keeping.renaming = None;
                self.state.rename_chat(chat, &title);
            }
            Action::EndRename => self.state.keeping.renaming = None,
            Action::Pin(chat) => self.state.pin_chat(chat),
            Action::ExportChat(chat, format) => self.state.export_chat(chat, format, Destination::File),
            Action::CopyChat(chat) => self.state.export_chat(chat, ExportFormat::Markdown, Destination::Clipboard),
            Action::DeleteChat(chat) => {
                self.keep.undo_since = None;
                self.state.delete_chat(chat);
            }
            Action::RemoveDocument { content_hash, name, keeps_text } => {
                self.keep.undo_since = None;
                self.state.remove_document(&content_hash, &name, keeps_text);
            }
            Action::Undo => self.state.undo(),
            Action::DiscardUndo => self.state.let_go(),
            Action::AttachKept(content_hash) => self.state.attach_kept(&content_hash),
            Action::DetachMissing(content_hash) => self.state.detach_missing(&content_hash),
            Action::OpenFile(path) => self.files.read(vec![path]),
            _ => {}
        }
    }
}
