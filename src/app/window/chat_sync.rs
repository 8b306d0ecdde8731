//! Chat sync: sends queued changes to the chat database before a frame is drawn, and receives its events.
//!
//! ```text
//! ChatPersistence.requests ─► ChatWriter ─► ChatEvent ─► ViewState
//! ```
//! Limits: a frame waits [`FLUSH_TIMEOUT`] for its changes to be saved; a deletion can be undone for [`UNDO_SECONDS`].

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use eframe::egui;

use crate::app::panels::Action;
use crate::app::state::ViewState;
use crate::app::window::StrataApp;
use crate::chats::{ChatRequest, ChatWriter, Destination, ExportFormat};

/// Wait for the disk in a frame at most: a write to memory takes a thousandth of it, a flush a tenth.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(100);
/// Wait for the disk when the window closes, at most.
const FINAL_FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// A deletion can be undone for so long, seconds.
const UNDO_SECONDS: f64 = 12.0;
/// Alternative on a desktop without a save dialog.
const EXPORT_FALLBACK: &str = "Copy the chat as Markdown instead.";

/// Connection to the chat database.
pub(in crate::app) struct ChatSync {
    writer: Option<ChatWriter>,
    /// when the current undo was first seen, seconds
    undo_since: Option<f64>,
    has_unflushed: bool,
}

impl ChatSync {
    /// Opens the database in the folder `root`; in memory without one.
    pub(in crate::app) fn start(ctx: &egui::Context, root: Option<PathBuf>, state: &mut ViewState) -> ChatSync {
        if root.is_some() {
            // Ids from the clock are larger than all earlier ids of this machine.
            state.start_ids(since_1970().as_micros().try_into().unwrap_or_default());
        }
        let waker = ctx.clone();
        let writer = ChatWriter::start(root, move || waker.request_repaint());
        if let Err(error) = &writer {
            state.notice(format!("Chats of this window are not saved: {error}."), true);
        }
        ChatSync { writer: writer.ok(), undo_since: None, has_unflushed: false }
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl StrataApp {
    /// Receives the events of the database.
    pub(in crate::app) fn receive_chat_events(&mut self, ctx: &egui::Context) {
        self.state.chats.persistence.now = i64::try_from(since_1970().as_secs()).unwrap_or_default();
        while let Some(event) = self.chat_sync.writer.as_ref().and_then(ChatWriter::poll) {
            self.state.apply_chat_event(event);
            ctx.request_repaint();
        }
        if let Some(exchange) = self.state.take_reveal() {
            self.memory.jump_to = Some(exchange);
        }
        for (name, text) in std::mem::take(&mut self.state.chats.persistence.exported) {
            self.files.save(&name, EXPORT_FALLBACK, move |path| std::fs::write(path, text));
        }
        if let Some(text) = self.state.chats.persistence.copied.take() {
            ctx.copy_text(text);
        }
        self.expire_undo(ctx);
    }

    /// Sends the queued requests. Those that find the channel full are sent in the next frame.
    pub(in crate::app) fn send_chat_requests(&mut self) {
        self.state.save_draft();
        let Some(writer) = &mut self.chat_sync.writer else { return self.state.chats.persistence.requests.clear() };
        let mut requests = std::mem::take(&mut self.state.chats.persistence.requests).into_iter();
        while let Some(request) = requests.next() {
            self.chat_sync.has_unflushed |= matches!(request, ChatRequest::Save(_));
            if let Err(request) = writer.send(request) {
                self.state.chats.persistence.requests = std::iter::once(request).chain(requests).collect();
                return;
            }
        }
    }

    /// Waits for a short time until the changes of this frame are saved.
    pub(in crate::app) fn flush_chats(&mut self, ctx: &egui::Context) {
        self.send_chat_requests();
        if std::mem::take(&mut self.chat_sync.has_unflushed) {
            // A slower disk finishes in the background.
            let _ = self.chat_sync.writer.as_ref().map(|writer| writer.flush(FLUSH_TIMEOUT));
        }
        if !self.state.chats.persistence.requests.is_empty() {
            ctx.request_repaint_after(FLUSH_TIMEOUT);
        }
    }

    /// Saves everything before the window closes.
    pub(in crate::app) fn flush_all_chats(&mut self) {
        self.send_chat_requests();
        if let Some(writer) = self.chat_sync.writer.take() {
            writer.flush(FINAL_FLUSH_TIMEOUT);
        }
    }

    /// Discards an undo that has expired.
    fn expire_undo(&mut self, ctx: &egui::Context) {
        let now = ctx.input(|i| i.time);
        if self.state.chats.persistence.undo.is_none() {
            self.chat_sync.undo_since = None;
            return;
        }
        let since = *self.chat_sync.undo_since.get_or_insert(now);
        let left = since + UNDO_SECONDS - now;
        if left <= 0.0 {
            self.state.discard_undo();
            ctx.request_repaint();
        } else {
            ctx.request_repaint_after(Duration::from_secs_f64(left));
        }
    }

    /// Performs an action on stored chats and documents.
    pub(in crate::app) fn perform_chat_action(&mut self, action: Action) {
        match action {
            Action::ShowHit(chat, message) => {
                self.state.select_chat(chat);
                self.state.chats.persistence.reveal = message.map(|message| (chat, message));
            }
            Action::BeginRename(chat, title) => self.state.chats.persistence.renaming = Some((chat, title)),
            Action::Rename(chat, title) => {
                self.state.chats.persistence.renaming = None;
                self.state.rename_chat(chat, &title);
            }
            Action::EndRename => self.state.chats.persistence.renaming = None,
            Action::Pin(chat) => self.state.pin_chat(chat),
            Action::ExportChat(chat, format) => self.state.export_chat(chat, format, Destination::File),
            Action::CopyChat(chat) => self.state.export_chat(chat, ExportFormat::Markdown, Destination::Clipboard),
            Action::DeleteChat(chat) => {
                self.chat_sync.undo_since = None;
                self.state.delete_chat(chat);
            }
            Action::RemoveDocument { content_hash, name, keeps_text } => {
                self.chat_sync.undo_since = None;
                self.state.remove_document(&content_hash, &name, keeps_text);
            }
            Action::Undo => self.state.undo(),
            Action::DiscardUndo => self.state.discard_undo(),
            Action::AttachStored(content_hash) => self.state.attach_stored(&content_hash),
            Action::DetachMissing(content_hash) => self.state.detach_missing(&content_hash),
            Action::OpenFile(path) => self.files.read(vec![path]),
            _ => {}
        }
    }
}
