//! Settings sync: loads and saves the settings file, the dock, and the scale of the window.
//!
//! ```text
//! settings.json ─► open ─► ViewState ─► save (every frame) ─► SettingsFile ─► settings.json
//! ```

use eframe::egui;

use crate::app::dashboard::{DashboardState, Tab};
use crate::app::persist::paths::Folders;
use crate::app::persist::settings_file::SettingsFile;
use crate::app::state::ViewState;
use crate::app::state::preferences::Preferences;

/// File in the configuration folder.
const SETTINGS_FILE: &str = "settings.json";
/// Keys of the dock's state, stored with the place of the window.
const DOCK_KEY: &str = "dock";
const TAB_KEY: &str = "dock tab";
const WIDTH_KEY: &str = "dock width";

/// Writer of the settings file, and the scale that was last seen.
pub(in crate::app) struct SettingsSync {
    file: SettingsFile,
    zoom_seen: f32,
}

impl SettingsSync {
    /// Loads the settings into `state`.
    pub(in crate::app) fn open(ctx: &egui::Context, state: &mut ViewState, folders: &Folders) -> SettingsSync {
        state.models.places.clone_from(&folders.models);
        let file = folders.config.as_ref().map(|config| {
            let path = config.join(SETTINGS_FILE);
            let (preferences, notices) = Preferences::open(&path, state.engine.load.clone());
            state.use_preferences(preferences, notices);
            SettingsFile::of(path)
        });
        SettingsSync { file: file.unwrap_or_default(), zoom_seen: ctx.zoom_factor() }
    }

    /// Sends changes since the last frame to the writer of the file.
    pub(in crate::app) fn save(&mut self, ctx: &egui::Context, state: &mut ViewState) {
        if state.record_settings() {
            self.file.save(state.settings.preferences.text());
        }
        if let Some(sentence) = self.file.error() {
            state.notice(sentence, true);
            ctx.request_repaint();
        }
    }

    /// Applies zoom keys, which egui handles, and the zoom of the settings page.
    pub(in crate::app) fn apply_zoom(&mut self, ctx: &egui::Context, state: &mut ViewState) {
        let now = ctx.zoom_factor();
        if now != self.zoom_seen {
            (self.zoom_seen, state.settings.values.zoom) = (now, now);
        } else if state.settings.values.zoom != now {
            ctx.set_zoom_factor(state.settings.values.zoom);
        }
    }
}

/// Stores the state of the dock.
pub(in crate::app) fn save_dock(dashboard: &DashboardState, storage: &mut dyn eframe::Storage) {
    let stands = match (dashboard.open, dashboard.fills) {
        (false, _) => "closed",
        (true, false) => "beside",
        (true, true) => "fills",
    };
    storage.set_string(DOCK_KEY, stands.to_owned());
    storage.set_string(TAB_KEY, dashboard.tab.name().to_owned());
    if let Some(width) = dashboard.width {
        storage.set_string(WIDTH_KEY, width.to_string());
    }
}

/// Restores the state of the dock.
pub(in crate::app) fn restore_dock(dashboard: &mut DashboardState, storage: &dyn eframe::Storage) {
    let stood = storage.get_string(DOCK_KEY);
    dashboard.open = matches!(stood.as_deref(), Some("beside" | "fills"));
    dashboard.fills = stood.as_deref() == Some("fills");
    let tab = storage.get_string(TAB_KEY).and_then(|name| Tab::ALL.into_iter().find(|tab| tab.name() == name));
    dashboard.tab = tab.unwrap_or(dashboard.tab);
    let width = storage.get_string(WIDTH_KEY).and_then(|width| width.parse().ok());
    // The panel limits it to the width of the window.
    dashboard.width = width.filter(|width: &f32| width.is_finite() && *width > 0.0);
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[derive(Default)]
    struct Memory(HashMap<String, String>);

    impl eframe::Storage for Memory {
        fn get_string(&self, key: &str) -> Option<String> {
            self.0.get(key).cloned()
        }

        fn set_string(&mut self, key: &str, value: String) {
            self.0.insert(key.to_owned(), value);
        }

        fn remove_string(&mut self, key: &str) {
            self.0.remove(key);
        }

        fn flush(&mut self) {}
    }

    #[test]
    fn dock_of_the_next_window_stands_as_it_stood() {
        for (open, fills, tab) in [(false, false, Tab::Activity), (true, false, Tab::Ledger), (true, true, Tab::KvMap)] {
            let (mut storage, mut dashboard) = (Memory::default(), DashboardState::default());
            (dashboard.open, dashboard.fills, dashboard.tab, dashboard.width) = (open, fills, tab, Some(512.5));
            save_dock(&dashboard, &mut storage);
            let mut next = DashboardState::default();
            restore_dock(&mut next, &storage);
            assert_eq!((next.open, next.fills, next.tab, next.width), (open, fills, tab, Some(512.5)));
        }
        for wrong in ["wide", "NaN", "-3"] {
            let mut storage = Memory::default();
            eframe::Storage::set_string(&mut storage, WIDTH_KEY, wrong.to_owned());
            let mut next = DashboardState::default();
            restore_dock(&mut next, &storage);
            assert_eq!(next.width, None, "{wrong}");
        }
        let mut fresh = DashboardState::default();
        restore_dock(&mut fresh, &Memory::default());
        assert!(!fresh.open, "where nothing was kept");
    }
}
