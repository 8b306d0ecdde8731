//! Chat actions: actions of the user on stored chats and documents, and the results of the chat database.

use eframe::egui;

use crate::app::panels::Action;
use crate::app::window::StrataApp;
use crate::chats::{Destination, ExportFormat};

/// Alternative on a desktop without a save dialog.
const EXPORT_FALLBACK: &str = "Copy the chat as Markdown instead.";

impl StrataApp {
    /// Receives the events of the database.
    pub(in crate::app) fn receive_chat_events(&mut self, ctx: &egui::Context) {
        self.chat_sync.receive(ctx, &mut self.state);
        if let Some(exchange) = self.state.take_reveal() {
            self.memory.jump_to = Some(exchange);
        }
        for (name, text) in std::mem::take(&mut self.state.chats.persistence.exported) {
            self.files.save(&name, EXPORT_FALLBACK, move |path| std::fs::write(path, text));
        }
        if let Some(text) = self.state.chats.persistence.copied.take() {
            ctx.copy_text(text);
        }
        self.chat_sync.expire_undo(ctx, &mut self.state);
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
                self.chat_sync.restart_undo();
                self.state.delete_chat(chat);
            }
            Action::RemoveDocument { content_hash, name, keeps_text } => {
                self.chat_sync.restart_undo();
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
