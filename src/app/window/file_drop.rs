//! File drop: files that are read, dropped or pasted, and other events of background threads.
//!
//! ```text
//! drop, paste ─► Files ─► FileEvent ─► ViewState
//! ```
//! Limits: while a file is opened, its bar is drawn every [`OPENING_INTERVAL`].

use std::path::PathBuf;
use std::time::Duration;

use eframe::egui;
use egui::Ui;

use crate::app::panels::chat::drop_target_ui;
use crate::app::state::MainView;
use crate::app::state::documents::PASTE_CHARS;
use crate::app::window::StrataApp;
use crate::app::window::file_dialogs::{FileEvent, looks_like_model};
use crate::document::Document;
use crate::engine::ModelSource;

/// Between two updates of the progress bar.
const OPENING_INTERVAL: Duration = Duration::from_millis(100);

impl StrataApp {
    pub(in crate::app) fn receive_file_events(&mut self, ctx: &egui::Context) {
        while let Some(event) = self.files.poll() {
            match event {
                FileEvent::Opening(opening) => self.state.documents.opening = opening,
                FileEvent::Quotes { exchange, quotes } => self.state.set_citations(exchange, quotes),
                FileEvent::Read(read, took) => {
                    self.dashboard.ingest_events.push(took);
                    match read {
                        Ok(read) => {
                            let (document, path) = *read;
                            log::info!("document opened: {} bytes of text", document.text.len());
                            let id = self.state.add_file(document, path);
                            let doc = self.state.documents.list.iter_mut().find(|doc| doc.id == id);
                            doc.into_iter().for_each(|doc| doc.ingest_ms = Some(took.duration_ns as f64 / 1e6));
                            self.focus_question = true;
                        }
                        Err(sentence) => self.refused(sentence),
                    }
                }
                FileEvent::Refused(sentence) => self.refused(sentence),
                FileEvent::Trace(run) => self.dashboard.show_run(*run),
                FileEvent::Model(path) => self.state.load_model(ModelSource::Path(path)),
                FileEvent::ModelPlace(folder) => self.state.add_model_folder(folder),
                FileEvent::HandedOver(paths) => {
                    ctx.send_viewport_cmd(egui::ViewportCommand::Minimized(false));
                    ctx.send_viewport_cmd(egui::ViewportCommand::Focus);
                    self.files.open(paths);
                }
                FileEvent::Models(event) => self.state.models.take(event),
            }
            ctx.request_repaint();
        }
        if self.state.documents.opening.is_some() {
            ctx.request_repaint_after(OPENING_INTERVAL);
        }
        if !self.state.documents.searches.is_empty() {
            self.files.search(std::mem::take(&mut self.state.documents.searches));
        }
    }

    fn refused(&mut self, sentence: String) {
        self.state.page = MainView::Chat;
        self.state.notice(sentence, true);
    }

    /// A long text that is pasted is a document, not a question.
    pub(in crate::app) fn receive_pastes(&mut self, ctx: &egui::Context) {
        let is_long = |event: &egui::Event| matches!(event, egui::Event::Paste(text) if text.chars().nth(PASTE_CHARS).is_some());
        let pasted: Vec<egui::Event> = ctx.input_mut(|i| i.events.extract_if(.., |event| is_long(event)).collect());
        for event in pasted {
            let egui::Event::Paste(text) = event else { continue };
            let n_pasted = self.state.documents.list.iter().filter(|d| d.name.starts_with("Pasted text")).count();
            match Document::from_bytes(&format!("Pasted text {}", n_pasted + 1), text.as_bytes()) {
                Ok(document) => {
                    self.state.add_document(document, false);
                }
                Err(error) => self.state.notice(error.to_string(), true),
            }
        }
    }

    pub(in crate::app) fn receive_drops(&mut self, ctx: &egui::Context) {
        let dropped: Vec<PathBuf> = ctx.input(|i| i.raw.dropped_files.iter().map(|f| f.path().to_owned()).collect());
        if !dropped.is_empty() {
            self.files.open(dropped);
        }
    }

    pub(in crate::app) fn drop_target(&self, ui: &Ui, rect: egui::Rect) {
        let hovered = ui.input(|i| i.raw.hovered_files.clone());
        if hovered.is_empty() {
            return;
        }
        let model = hovered.iter().all(|f| f.path.as_deref().is_some_and(looks_like_model));
        drop_target_ui(ui, rect, if model { "Open this model" } else { "Add to this chat" });
    }
}
