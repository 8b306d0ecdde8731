//! Chat sync: sends queued changes to the chat database before a frame is drawn, and receives its events.
//!
//! ```text
//! ChatPersistence.requests ─► ChatWriter ─► ChatEvent ─► ViewState
//! ```
//! Limits: a frame waits [`FLUSH_TIMEOUT`] for its changes to be saved; a deletion can be undone for [`UNDO_SECONDS`].

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use eframe::egui;

use crate::app::state::ViewState;
use crate::chats::{ChatRequest, ChatWriter};

/// Wait for the disk in a frame at most: a write to memory takes a thousandth of it, a flush a tenth.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(100);
/// Wait for the disk when the window closes, at most.
const FINAL_FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// A deletion can be undone for so long, seconds.
const UNDO_SECONDS: f64 = 12.0;

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

    /// Applies the events of the database.
    pub(in crate::app) fn receive(&mut self, ctx: &egui::Context, state: &mut ViewState) {
        state.chats.persistence.now = i64::try_from(since_1970().as_secs()).unwrap_or_default();
        while let Some(event) = self.writer.as_ref().and_then(ChatWriter::poll) {
            state.apply_chat_event(event);
            ctx.request_repaint();
        }
    }

    /// Sends the queued requests. Those that find the channel full are sent in the next frame.
    pub(in crate::app) fn send(&mut self, state: &mut ViewState) {
        state.save_draft();
        let Some(writer) = &mut self.writer else { return state.chats.persistence.requests.clear() };
        let mut requests = std::mem::take(&mut state.chats.persistence.requests).into_iter();
        while let Some(request) = requests.next() {
            self.has_unflushed |= matches!(request, ChatRequest::Save(_));
            if let Err(request) = writer.send(request) {
                state.chats.persistence.requests = std::iter::once(request).chain(requests).collect();
                return;
            }
        }
    }

    /// Waits for a short time until the changes of this frame are saved.
    pub(in crate::app) fn flush(&mut self, ctx: &egui::Context, state: &mut ViewState) {
        self.send(state);
        if std::mem::take(&mut self.has_unflushed) {
            // A slower disk finishes in the background.
            let _ = self.writer.as_ref().map(|writer| writer.flush(FLUSH_TIMEOUT));
        }
        if !state.chats.persistence.requests.is_empty() {
            ctx.request_repaint_after(FLUSH_TIMEOUT);
        }
    }

    /// Saves everything before the window closes.
    pub(in crate::app) fn finish(&mut self, state: &mut ViewState) {
        self.send(state);
        if let Some(writer) = self.writer.take() {
            writer.flush(FINAL_FLUSH_TIMEOUT);
        }
    }

    /// Discards an undo that has expired.
    pub(in crate::app) fn expire_undo(&mut self, ctx: &egui::Context, state: &mut ViewState) {
        let now = ctx.input(|i| i.time);
        if state.chats.persistence.undo.is_none() {
            self.undo_since = None;
            return;
        }
        let since = *self.undo_since.get_or_insert(now);
        let left = since + UNDO_SECONDS - now;
        if left <= 0.0 {
            state.discard_undo();
            ctx.request_repaint();
        } else {
            ctx.request_repaint_after(Duration::from_secs_f64(left));
        }
    }

    /// A deletion follows, whose undo has its whole time.
    pub(in crate::app) fn restart_undo(&mut self) {
        self.undo_since = None;
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
