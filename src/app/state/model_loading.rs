//! How the user's choices outlast the window: what is kept for a model comes with it, and what is changed is kept.
//!
//! ```text
//! load_model ─► take_choices: Preferences ─► settings, form
//! every frame ─► note_settings: what changed ─► Preferences ─► (true) to be written
//! ```
//! Invariant: what the model itself advises is not a choice, and is never kept.

use std::path::{Path, PathBuf};

use crate::app::state::chat::Chat;
use crate::app::state::models::ModelSearch;
use crate::app::state::preferences::Preferences;
use crate::app::state::settings::{Form, Settings};
use crate::app::state::{MainView, ModelState, ViewState};
use crate::engine::{EngineCommand, ModelSource};

impl ViewState {
    /// Goes on with what was kept, and says what was wrong with it. The model in use last is the one to begin with, unless
    /// another was asked for.
    pub fn use_preferences(&mut self, kept: Preferences, notices: Vec<String>) {
        self.kept = kept;
        notices.into_iter().for_each(|sentence| self.notice(sentence, true));
        if self.source == ModelSource::BuiltIn {
            self.source = self.kept.last_model().unwrap_or(ModelSource::BuiltIn);
        }
        self.models.folders = self.kept.model_folders();
        self.take_choices();
    }

    /// Asks for a model, with what is kept for it. Turns that were running end with it.
    pub fn load_model(&mut self, source: ModelSource) {
        self.load_with(source, |_| {});
    }

    /// Asks for a model, with the context and the KV type of the picker, which are kept for it.
    pub fn load_chosen(&mut self, source: ModelSource) {
        let chosen = self.models.chosen;
        self.load_with(source, |s| (s.context_cap, s.kv_dtype) = (chosen.context_cap, chosen.kv_dtype));
    }

    fn load_with(&mut self, source: ModelSource, choose: impl FnOnce(&mut Settings)) {
        self.chats.iter_mut().for_each(Chat::forget_asked);
        self.unsaved |= self.note_settings();
        self.source = source.clone();
        self.note_model(false);
        self.take_choices();
        choose(&mut self.settings);
        self.form = Form::of(&self.settings);
        self.settings.put_in(&mut self.load);
        self.model = ModelState::Loading { share: 0.0, what: "starting".to_owned() };
        self.outbox.push(EngineCommand::LoadModel { source, options: self.load.clone() });
    }

    /// Shows the picker, which begins with what the model in use has.
    pub fn show_models(&mut self) {
        self.page = MainView::Models;
        self.models.chosen = self.settings;
        self.models.form = Form::of(&self.settings);
    }

    /// The settings that are kept for the model to be loaded.
    pub(in crate::app) fn take_choices(&mut self) {
        let (settings, wrong) = self.kept.settings(&self.source);
        wrong.into_iter().for_each(|sentence| self.notice(sentence, true));
        (self.settings, self.noted) = (settings, settings);
        self.form = Form::of(&settings);
    }

    /// The loaded model's advice, but for what the user chose instead.
    pub(in crate::app) fn take_advice(&mut self) {
        self.unsaved |= self.note_settings();
        let Some(advised) = self.info().map(|info| info.sampling) else { return };
        self.settings.sampling = advised;
        self.kept.sampling(&self.source, &mut self.settings);
        self.noted.sampling = self.settings.sampling;
        self.form = Form::of(&self.settings);
    }

    /// Keeps what the user changed since the last time. True where the file is to be written.
    pub fn note_settings(&mut self) -> bool {
        let has_changed = self.settings != self.noted && self.kept.note(&self.source, &self.noted, &self.settings);
        self.noted = self.settings;
        self.unsaved |= has_changed;
        std::mem::take(&mut self.unsaved)
    }

    /// The sampling is the user's, not the model's own advice.
    pub fn has_own_sampling(&self) -> bool {
        self.kept.has_sampling(&self.source) || self.info().is_some_and(|info| info.sampling != self.settings.sampling)
    }

    /// Back to what the model's makers advise.
    pub fn forget_sampling(&mut self) {
        self.kept.forget_sampling(&self.source);
        self.unsaved = true;
        self.noted.sampling = self.settings.sampling;
        self.take_advice();
    }

    /// Keeps that this model can be loaded, or that none is known to be.
    pub(in crate::app) fn note_model(&mut self, is_loaded: bool) {
        self.unsaved |= self.kept.note_model(Some(&self.source).filter(|_| is_loaded));
    }

    /// Looks for models in this folder too, from now on. Whether it is there, the search finds out.
    pub fn add_model_folder(&mut self, folder: PathBuf) {
        let folder = match (folder.strip_prefix("~"), directories::BaseDirs::new()) {
            (Ok(below), Some(dirs)) => dirs.home_dir().join(below),
            _ => folder,
        };
        self.models.typed.clear();
        if !self.models.folders.contains(&folder) {
            self.models.folders.push(folder);
            self.model_folders_changed();
        }
    }

    /// Looks for models there no longer.
    pub fn forget_model_folder(&mut self, folder: &Path) {
        self.models.folders.retain(|f| f != folder);
        self.model_folders_changed();
    }

    fn model_folders_changed(&mut self) {
        self.kept.set_model_folders(&self.models.folders);
        self.unsaved = true;
        self.models.is_due = true;
    }

    /// Frees the model and everything it holds.
    pub fn unload_model(&mut self) {
        self.outbox.push(EngineCommand::UnloadModel);
    }

    /// The search for models to run now: nobody looked yet, or something changed since.
    pub fn due_search(&mut self) -> Option<ModelSearch> {
        let models = &self.models;
        let never = models.searched.is_none() && !models.is_searching;
        let fits_now = self.device.is_some() && !models.is_searching && models.lacks_fit();
        // A model that is being loaded will tell of its device.
        let waits = self.device.is_none() && matches!(self.model, ModelState::Loading { .. });
        let is_due = (models.is_due || never || fits_now) && !waits && self.page == MainView::Models;
        is_due.then(|| self.models.begin(self.device.clone()))
    }
}
