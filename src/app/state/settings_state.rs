//! Settings state: the values in force, the text of the settings page, and the settings file.

use crate::app::state::preferences::Preferences;
use crate::app::state::settings::{Form, Settings};
use crate::engine::{LoadOptions, ModelSource};

/// Settings of the window, and the settings file.
#[derive(Debug)]
pub struct SettingsState {
    /// checked values
    pub values: Settings,
    /// text of the settings page
    pub form: Form,
    /// values when they were last recorded
    pub(in crate::app) recorded: Settings,
    /// the settings file
    pub preferences: Preferences,
    /// the settings file has changes that are not written
    pub(in crate::app) unsaved: bool,
}

impl SettingsState {
    /// Without a settings file: the options of the command line.
    pub fn new(source: &ModelSource, load: &LoadOptions) -> SettingsState {
        let preferences = Preferences::new(load.clone());
        let (values, _) = preferences.settings(source);
        SettingsState { values, form: Form::of(&values), recorded: values, preferences, unsaved: false }
    }
}
