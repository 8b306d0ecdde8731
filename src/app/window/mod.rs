//! Frame loop: receives events, draws, and performs actions.
//!
//! Limits: [`EVENTS_PER_FRAME`] events per frame, so that a fast engine cannot delay it. While an answer streams, frames are
//! [`FRAME_INTERVAL`] apart at least; [`SOFTWARE_FRAME_INTERVAL`] if window and model share the CPU.

mod chat_actions;
mod chat_sync;
pub mod file_dialogs;
mod file_drop;
mod frame_stats;
mod idle;
mod launch;
mod options;
mod settings_sync;
pub mod single_instance;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use eframe::egui;
use egui::{CentralPanel, Frame, Ui};

use crate::app::dashboard::trace_files::{write_counters, write_trace};
use crate::app::dashboard::{self, DashboardState};
use crate::app::panels::chat::composer::{Composition, composer_id, composer_ui};
use crate::app::panels::chat::{ChatMemory, chat_ui, document_chips};
use crate::app::panels::document::{document_view, file_progress};
use crate::app::panels::pages::{help, models, settings};
use crate::app::panels::{Action, notices, sidebar, status};
use crate::app::persist::logging;
use crate::app::state::settings::ThemeChoice;
use crate::app::state::{MainView, ModelState, ViewState, sample_document};
use crate::app::ui::{shortcuts, theme};
use crate::app::window::file_dialogs::{Dialog, Files};
use crate::app::window::frame_stats::FrameTimes;
use crate::engine::{Detail, EngineHandle};
use chat_sync::ChatSync;
pub use launch::{APP_ID, WindowError, run};
pub use options::{Spawn, Wake, WindowOptions};
use settings_sync::{SettingsSync, save_dock};

/// Events per frame at most.
const EVENTS_PER_FRAME: usize = 4096;
/// Between two frames for engine events.
const FRAME_INTERVAL: Duration = Duration::from_millis(30);
/// The same on a software device, where each frame takes CPU time from the model.
const SOFTWARE_FRAME_INTERVAL: Duration = Duration::from_millis(120);
/// Between two polls of a busy engine, in case a wake was lost or the engine has ended.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Alternative on a desktop without a save dialog.
const TRACE_FALLBACK: &str = "`strata ask --trace FILE` writes one.";

/// Page, chat, notices and whether their list is open, documents, open panels.
type LayoutKey = (MainView, u64, (usize, bool), usize, [bool; 5]);

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The application.
pub struct StrataApp {
    /// state of the window
    pub state: ViewState,
    /// state of the dock
    pub dashboard: DashboardState,
    engine: Option<EngineHandle>,
    spawn: Option<Spawn>,
    files: Files,
    memory: ChatMemory,
    composition: Composition,
    frame_millis: Arc<AtomicU64>,
    start_documents: Vec<PathBuf>,
    frames: u64,
    theme: Option<ThemeChoice>,
    settings_sync: SettingsSync,
    layout: Option<LayoutKey>,
    focus_question: bool,
    frame_times: FrameTimes,
    chat_sync: ChatSync,
    /// time of the last input or request, seconds
    used_at: f64,
}

impl StrataApp {
    /// A window that starts its engine after the first frame.
    pub fn new(ctx: &egui::Context, options: WindowOptions, spawn: Spawn) -> StrataApp {
        theme::install(ctx);
        let mut state = ViewState::new(options.initial_model, options.load);
        let settings_sync = SettingsSync::open(ctx, &mut state, &options.folders);
        let files = Files::new(ctx.clone());
        options.handed_over.into_iter().for_each(|inbox| files.watch(inbox));
        StrataApp {
            settings_sync,
            dashboard: DashboardState::default(),
            engine: None,
            spawn: Some(spawn),
            files,
            memory: ChatMemory::default(),
            composition: Composition::default(),
            frame_millis: Arc::new(AtomicU64::new(millis(FRAME_INTERVAL))),
            start_documents: options.documents,
            frames: 0,
            theme: None,
            layout: None,
            focus_question: true,
            frame_times: FrameTimes::default(),
            used_at: 0.0,
            chat_sync: ChatSync::start(ctx, options.folders.chats(), &mut state),
            state,
        }
    }

    /// Exchanges and blocks laid out in the last frame.
    pub fn drawn_items(&self) -> usize {
        self.memory.drawn
    }

    /// Between two frames for engine events.
    pub fn frame_interval(&self) -> Duration {
        Duration::from_millis(self.frame_millis.load(Ordering::Relaxed))
    }

    fn start(&mut self, ctx: &egui::Context) {
        self.frames += 1;
        if self.frames == 1 {
            ctx.request_repaint();
            return;
        }
        let Some(spawn) = self.spawn.take() else { return };
        let (waker, interval) = (ctx.clone(), self.frame_millis.clone());
        let wake = move || waker.request_repaint_after(Duration::from_millis(interval.load(Ordering::Relaxed)));
        self.engine = Some(spawn(Box::new(wake)));
        self.state.load_model(self.state.engine.source.clone());
        self.state.list_library();
        let documents = std::mem::take(&mut self.start_documents);
        if !documents.is_empty() {
            self.files.open(documents);
        }
    }

    fn receive_engine_events(&mut self, ctx: &egui::Context) {
        let Some(engine) = &self.engine else { return };
        for _ in 0..EVENTS_PER_FRAME {
            match engine.wait(Duration::ZERO) {
                Ok(event) => {
                    logging::log_event(&event);
                    self.dashboard.apply(event).into_iter().for_each(|event| self.state.apply(event));
                }
                Err(false) => break,
                Err(true) => {
                    self.engine = None;
                    self.state.engine_lost();
                    return;
                }
            }
        }
        engine.observe(if self.dashboard.open { Detail::Parts } else { Detail::Events });
        engine.watch_pages(self.dashboard.shows_map());
        if std::mem::take(&mut self.state.engine.pending_stop) {
            engine.stop();
        }
        let software = self.state.info().is_some_and(|info| info.software);
        let interval = if software { SOFTWARE_FRAME_INTERVAL } else { FRAME_INTERVAL };
        self.frame_millis.store(millis(interval), Ordering::Relaxed);
        if self.state.engine.running.is_some() || matches!(self.state.engine.model, ModelState::Loading { .. }) {
            ctx.request_repaint_after(HEARTBEAT);
        }
    }

    fn shortcuts(&mut self, ctx: &egui::Context) -> Vec<Action> {
        let mut actions = Vec::new();
        let doing = [
            (shortcuts::NEW_CHAT, Action::NewChat),
            (shortcuts::OPEN, Action::OpenDocuments),
            (shortcuts::DOCK, Action::ToggleDock),
        ];
        actions.extend(doing.into_iter().filter(|(shortcut, _)| shortcut.consume(ctx)).map(|(_, action)| action));
        if shortcuts::SEARCH.consume(ctx) {
            ctx.memory_mut(|m| m.request_focus(sidebar::search_id()));
        }
        if shortcuts::QUESTION.consume(ctx) {
            self.state.page = MainView::Chat;
            self.focus_question = true;
        }
        let pages =
            [(shortcuts::SETTINGS, MainView::Settings), (shortcuts::MODELS, MainView::Models), (shortcuts::HELP, MainView::Help)];
        for (_, page) in pages.into_iter().filter(|(shortcut, _)| shortcut.consume(ctx)) {
            actions.push(Action::Show(if self.state.page == page { MainView::Chat } else { page }));
        }
        // A menu or a field with the focus handles the key first.
        if ctx.input(|i| shortcuts::LEAVE.is_in(i)) && !egui::Popup::is_any_open(ctx) {
            actions.extend(self.escape(ctx));
        }
        actions
    }

    /// Escape leaves the page or the search, and otherwise stops the request.
    fn escape(&mut self, ctx: &egui::Context) -> Option<Action> {
        if self.state.page != MainView::Chat {
            return Some(Action::Show(MainView::Chat));
        }
        if self.state.documents.opening.is_some() {
            return Some(Action::CancelOpening);
        }
        if !self.state.chats.search.is_empty() && ctx.memory(|m| m.had_focus_last_frame(sidebar::search_id())) {
            self.state.clear_search();
            return None;
        }
        self.state.engine.running.is_some().then_some(Action::Stop)
    }

    fn perform(&mut self, ctx: &egui::Context, action: Action) {
        match action {
            Action::Send => {
                self.state.send();
                self.after_asking();
            }
            Action::Stop => self.stop_request(),
            Action::Regenerate(exchange) => {
                self.state.regenerate_at(exchange);
                self.after_asking();
            }
            Action::EditQuestion(exchange, text) => {
                self.state.edit_question(exchange, &text);
                self.after_asking();
            }
            Action::ShowBranch(exchange) => self.state.show_branch(exchange),
            Action::BranchFrom(exchange) => {
                self.state.branch_from(exchange);
                self.focus_question = true;
            }
            Action::ShowHit(..)
            | Action::BeginRename(..)
            | Action::Rename(..)
            | Action::EndRename
            | Action::Pin(_)
            | Action::ExportChat(..)
            | Action::CopyChat(_)
            | Action::DeleteChat(_)
            | Action::RemoveDocument { .. }
            | Action::Undo
            | Action::DiscardUndo
            | Action::AttachStored(_)
            | Action::DetachMissing(_)
            | Action::OpenFile(_) => self.perform_chat_action(action),
            Action::Check(exchange) => {
                self.state.check(exchange);
                self.focus_question = true;
            }
            Action::Copy(text) => ctx.copy_text(text),
            Action::NewChat => {
                self.state.new_chat();
                self.focus_question = true;
            }
            Action::SelectChat(id) => {
                self.state.select_chat(id);
                self.focus_question = true;
            }
            Action::OpenDocuments => self.files.ask(Dialog::Documents),
            Action::OpenModelFile => self.files.ask(Dialog::ModelFile),
            Action::OpenModelFolder => self.files.ask(Dialog::ModelFolder),
            Action::LoadModel(source) => {
                self.stop_request();
                self.state.load_model(source);
            }
            Action::LoadFromPicker(source) => {
                self.stop_request();
                self.state.load_from_picker(source);
            }
            Action::UnloadModel => {
                self.stop_request();
                self.state.unload_model();
            }
            Action::StopLoading => self.engine.iter().for_each(EngineHandle::stop),
            Action::FindModels => self.state.models.is_due = true,
            Action::AddModelFolder(folder) => self.state.add_model_folder(folder),
            Action::ChooseModelFolder => self.files.ask(Dialog::ModelPlace),
            Action::RemoveModelFolder(folder) => self.state.remove_model_folder(&folder),
            Action::ResetSampling => self.state.reset_sampling(),
            Action::Attach(id) => self.state.attach(id),
            Action::Detach(id) => self.state.detach(id),
            Action::PrefillDocuments => self.state.prefill_documents(),
            Action::PrefillAlone(id) => self.state.prefill_alone(id),
            Action::Sample(question) => match sample_document::document() {
                Ok(document) => {
                    self.state.add_document(document, true);
                    question.into_iter().for_each(|q| self.ask(q));
                }
                Err(error) => self.state.notice(error.to_string(), true),
            },
            Action::Ask(question) => self.ask(question),
            Action::ToggleTheme => self.state.toggle_theme(ctx.theme() == egui::Theme::Dark),
            Action::Show(MainView::Models) => self.state.show_models(),
            Action::Show(page) => {
                self.state.page = page;
                self.focus_question = page == MainView::Chat;
            }
            Action::SettingsChanged => self.state.check_settings(),
            Action::CancelOpening => {
                if let Some(opening) = &self.state.documents.opening {
                    opening.watch.cancel();
                }
            }
            Action::ShowDocument(doc) => self.state.show_document(doc),
            Action::ShowSource(spot, answer) => self.state.show_source(spot, answer),
            Action::ShowAttendedPages(answer) => self.state.show_attended_pages(answer),
            Action::CloseDocument => self.state.documents.viewer = None,
            Action::TakePages(doc, pages) => self.state.take_pages(doc, pages),
            Action::SaveTrace { with_text } => {
                let (snapshot, info) = (self.dashboard.history.snapshot(), self.state.run_info(with_text));
                self.files.save("strata-trace.json", TRACE_FALLBACK, move |path| write_trace(path, &snapshot, info));
            }
            Action::SaveCounters => {
                let counters = *self.dashboard.history.counters();
                self.files.save("strata-counters.jsonl", TRACE_FALLBACK, move |path| write_counters(path, &counters));
            }
            Action::OpenTrace => self.files.ask(Dialog::Trace),
            Action::CopyBenchRow => match self.state.bench_table() {
                Some(table) => ctx.copy_text(table),
                None => self.state.notice("There is no finished answer to copy the speeds of yet.".to_owned(), false),
            },
            Action::ToggleDock => self.dashboard.toggle(),
            Action::ToggleDockFullWidth => self.dashboard.fills = !self.dashboard.fills,
            Action::ShowPageText(spot) => self.dashboard.show_page_text(spot),
            Action::ShowToken { exchange, token } => self.show_token(exchange, token),
            Action::OpenFolder(folder) => self.files.show_folder(folder),
            Action::ToggleNotices => self.state.notices.toggle(),
            Action::Dismiss(index) => self.state.notices.dismiss(index),
            Action::DismissAll => self.state.notices.dismiss_all(),
        }
        ctx.request_repaint();
    }

    fn stop_request(&mut self) {
        if self.state.request_stop()
            && let Some(engine) = &self.engine
        {
            engine.stop();
        }
    }

    /// Points the dashboard at the step that made a token.
    fn show_token(&mut self, exchange: u64, token: usize) {
        let exchange = self.state.chats.list.iter().flat_map(|chat| &chat.exchanges).find(|e| e.id == exchange);
        if let Some(step) = exchange.and_then(|exchange| self.dashboard.step_of(exchange, token)) {
            self.dashboard.show_step(step);
        }
    }

    fn ask(&mut self, question: String) {
        let draft = std::mem::replace(&mut self.state.chat_mut().draft, question);
        self.state.send();
        self.state.chat_mut().draft = draft;
        self.after_asking();
    }

    fn after_asking(&mut self) {
        self.memory.jump_to_end = true;
        self.focus_question = true;
    }

    fn send_commands(&mut self) {
        if self.spawn.is_some() {
            return; // the engine is not started yet: commands wait for it
        }
        self.state.engine.outbox.extend(self.dashboard.commands(&self.state));
        for command in std::mem::take(&mut self.state.engine.outbox) {
            if !self.engine.as_ref().is_some_and(|engine| engine.send(command)) {
                self.state.engine_lost();
                return;
            }
        }
    }

    fn apply_theme(&mut self, ctx: &egui::Context) {
        let choice = self.state.settings.values.theme;
        if self.theme != Some(choice) {
            self.theme = Some(choice);
            ctx.set_theme(match choice {
                ThemeChoice::System => egui::ThemePreference::System,
                ThemeChoice::Light => egui::ThemePreference::Light,
                ThemeChoice::Dark => egui::ThemePreference::Dark,
            });
        }
    }

    fn panels(&mut self, ui: &mut Ui) -> Vec<Action> {
        self.memory.shows_parts = self.dashboard.open;
        let mut actions = status::status_ui(ui, &self.state);
        actions.extend(sidebar::sidebar_ui(ui, &mut self.state));
        // The document replaces the dock.
        if self.state.page == MainView::Chat && self.state.documents.viewer.is_some() {
            actions.extend(document_view::document_view_ui(ui, &mut self.state));
        } else {
            actions.extend(dashboard::dock_ui(ui, &self.state, &mut self.dashboard));
        }
        let page = theme::tokens(ui).page;
        let frame = Frame::NONE.fill(page);
        let fills = self.dashboard.open && self.dashboard.fills;
        let middle = CentralPanel::default().frame(frame).show(ui, |ui| match self.state.page {
            MainView::Chat if fills => actions.extend(dashboard::contents_ui(ui, &self.state, &mut self.dashboard)),
            MainView::Chat => {
                actions.extend(document_chips::documents_ui(ui, &self.state));
                actions.extend(file_progress::opening_ui(ui, &self.state));
                actions.extend(notices::notices_ui(ui, &self.state));
                actions.extend(composer_ui(ui, &mut self.state, &mut self.composition));
                actions.extend(chat_ui(ui, &self.state, &mut self.memory));
            }
            MainView::Settings => actions.extend(settings::settings_ui(ui, &mut self.state)),
            MainView::Help => actions.extend(help::help_ui(ui)),
            MainView::Models => actions.extend(models::models_ui(ui, &mut self.state)),
        });
        self.drop_target(ui, middle.response.rect);
        actions
    }

    /// State that determines the heights of the panels. If it changes, the frame is laid out twice, so that no panel has its old
    /// height.
    fn layout_key(&self) -> LayoutKey {
        let (state, chat) = (&self.state, self.state.chat());
        let failed = matches!(state.engine.model, ModelState::Failed(_));
        let parts = [
            failed,
            state.documents.opening.is_some(),
            state.documents.viewer.is_some(),
            self.dashboard.open,
            state.chats.persistence.undo.is_some(),
        ];
        let notices = (state.notices.list().len(), state.notices.is_open());
        (state.page, chat.id, notices, chat.documents.len() + chat.missing.len(), parts)
    }
}

impl eframe::App for StrataApp {
    fn ui(&mut self, ui: &mut Ui, frame: &mut eframe::Frame) {
        let ctx = ui.ctx().clone();
        self.frame_times.record(self.state.engine.running.is_some(), frame.info().cpu_usage);
        self.dashboard.cost.frame(frame.info().cpu_usage);
        self.start(&ctx);
        self.apply_theme(&ctx);
        self.receive_chat_events(&ctx);
        self.settings_sync.apply_zoom(&ctx, &mut self.state);
        self.receive_engine_events(&ctx);
        self.prefill_when_idle(&ctx);
        self.receive_file_events(&ctx);
        self.receive_drops(&ctx);
        self.receive_pastes(&ctx);
        let key = Some(self.layout_key());
        if self.layout != key {
            self.layout = key;
            ctx.request_discard("panel heights");
        }
        // Before it is shown.
        self.chat_sync.send(&mut self.state);
        let mut actions = self.shortcuts(&ctx);
        actions.extend(self.panels(ui));
        for action in actions {
            self.perform(&ctx, action);
        }
        if std::mem::take(&mut self.focus_question) && self.state.page == MainView::Chat {
            ctx.memory_mut(|m| m.request_focus(composer_id()));
        }
        if let Some(search) = self.state.next_model_search() {
            self.files.find_models(search);
        }
        self.settings_sync.save(&ctx, &mut self.state);
        self.send_commands();
        self.chat_sync.flush(&ctx, &mut self.state);
    }

    fn save(&mut self, storage: &mut dyn eframe::Storage) {
        save_dock(&self.dashboard, storage);
    }

    /// Scroll positions are not saved.
    fn persist_egui_memory(&self) -> bool {
        false
    }

    fn on_exit(&mut self) {
        self.state.discard_undo();
        self.send_commands();
        self.chat_sync.finish(&mut self.state);
        self.engine = None;
    }
}
