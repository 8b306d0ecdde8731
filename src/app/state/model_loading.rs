//! Model loading: restores the stored settings of a model, and records changes of them.
//!
//! ```text
//! load_model ─► apply_stored_settings: Preferences ─► settings, form
//! every frame ─► record_settings: changes ─► Preferences ─► (true) write the file
//! ```
//! Invariant: the model's own sampling is not stored as a setting.

use std::path::{Path, PathBuf};

use crate::app::state::chat::Chat;
use crate::app::state::models::ModelSearch;
use crate::app::state::preferences::Preferences;
use crate::app::state::settings::{Form, Settings};
use crate::app::state::{MainView, ModelState, ViewState};
use crate::engine::{EngineCommand, ModelSource};

impl ViewState {
    /// Starts with the stored preferences, and shows their errors. The last model is the initial one, unless another was requested.
    pub fn use_preferences(&mut self, preferences: Preferences, notices: Vec<String>) {
        self.settings.preferences = preferences;
        notices.into_iter().for_each(|sentence| self.notice(sentence, true));
        if self.engine.source == ModelSource::BuiltIn {
            self.engine.source = self.settings.preferences.last_model().unwrap_or(ModelSource::BuiltIn);
        }
        self.models.folders = self.settings.preferences.model_folders();
        self.apply_stored_settings();
    }

    /// Loads a model with its stored settings. Running requests end.
    pub fn load_model(&mut self, source: ModelSource) {
        self.load_with(source, |_| {});
    }

    /// Loads a model with the context and KV type of the picker, which are stored for it.
    pub fn load_from_picker(&mut self, source: ModelSource) {
        let chosen = self.models.chosen;
        self.load_with(source, |s| (s.context_cap, s.kv_dtype) = (chosen.context_cap, chosen.kv_dtype));
    }

    fn load_with(&mut self, source: ModelSource, choose: impl FnOnce(&mut Settings)) {
        self.chats.list.iter_mut().for_each(Chat::clear_original_requests);
        self.settings.unsaved |= self.record_settings();
        self.engine.source = source.clone();
        self.record_model(false);
        self.apply_stored_settings();
        choose(&mut self.settings.values);
        self.settings.form = Form::of(&self.settings.values);
        self.settings.values.put_in(&mut self.engine.load);
        self.engine.model = ModelState::Loading { share: 0.0, what: "starting".to_owned() };
        self.engine.outbox.push(EngineCommand::LoadModel { source, options: self.engine.load.clone() });
    }

    /// Shows the picker with the settings of the current model.
    pub fn show_models(&mut self) {
        self.page = MainView::Models;
        self.models.chosen = self.settings.values;
        self.models.form = Form::of(&self.settings.values);
    }

    /// Applies the stored settings of the model to be loaded.
    pub(in crate::app) fn apply_stored_settings(&mut self) {
        let (settings, wrong) = self.settings.preferences.settings(&self.engine.source);
        wrong.into_iter().for_each(|sentence| self.notice(sentence, true));
        (self.settings.values, self.settings.recorded) = (settings, settings);
        self.settings.form = Form::of(&settings);
    }

    /// Applies the loaded model's own sampling, except values that the user has set.
    pub(in crate::app) fn apply_model_sampling(&mut self) {
        self.settings.unsaved |= self.record_settings();
        let Some(advised) = self.info().map(|info| info.sampling) else { return };
        self.settings.values.sampling = advised;
        self.settings.preferences.sampling(&self.engine.source, &mut self.settings.values);
        self.settings.recorded.sampling = self.settings.values.sampling;
        self.settings.form = Form::of(&self.settings.values);
    }

    /// Records changes of the settings since the last call. True if the file must be written.
    pub fn record_settings(&mut self) -> bool {
        let has_changed = self.settings.values != self.settings.recorded
            && self.settings.preferences.record(&self.engine.source, &self.settings.recorded, &self.settings.values);
        self.settings.recorded = self.settings.values;
        self.settings.unsaved |= has_changed;
        std::mem::take(&mut self.settings.unsaved)
    }

    /// True if the sampling is the user's, not the model's own.
    pub fn has_own_sampling(&self) -> bool {
        self.settings.preferences.has_sampling(&self.engine.source)
            || self.info().is_some_and(|info| info.sampling != self.settings.values.sampling)
    }

    /// Resets sampling to the model's own values.
    pub fn reset_sampling(&mut self) {
        self.settings.preferences.reset_sampling(&self.engine.source);
        self.settings.unsaved = true;
        self.settings.recorded.sampling = self.settings.values.sampling;
        self.apply_model_sampling();
    }

    /// Records this model as loaded, or that none is.
    pub(in crate::app) fn record_model(&mut self, is_loaded: bool) {
        self.settings.unsaved |= self.settings.preferences.record_model(Some(&self.engine.source).filter(|_| is_loaded));
    }

    /// Adds a folder to the search for models. The search reports if it is missing.
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

    /// Removes a folder from the search for models.
    pub fn remove_model_folder(&mut self, folder: &Path) {
        self.models.folders.retain(|f| f != folder);
        self.model_folders_changed();
    }

    fn model_folders_changed(&mut self) {
        self.settings.preferences.set_model_folders(&self.models.folders);
        self.settings.unsaved = true;
        self.models.is_due = true;
    }

    /// Unloads the model.
    pub fn unload_model(&mut self) {
        self.engine.outbox.push(EngineCommand::UnloadModel);
    }

    /// The search for models to run now, if none has run or something has changed.
    pub fn next_model_search(&mut self) -> Option<ModelSearch> {
        let models = &self.models;
        let never = models.searched.is_none() && !models.is_searching;
        let fits_now = self.engine.device.is_some() && !models.is_searching && models.lacks_fit();
        // The device is reported when the model is loaded.
        let waits = self.engine.device.is_none() && matches!(self.engine.model, ModelState::Loading { .. });
        let is_due = (models.is_due || never || fits_now) && !waits && self.page == MainView::Models;
        is_due.then(|| self.models.begin(self.engine.device.clone()))
    }
}
