//! Preferences: the settings file in the configuration folder.
//!
//! ```text
//! settings.json ─► Preferences ── for a model ─► Settings (checked as on the settings page), sentences on wrong values
//!       ▲                ▲
//!       └── text() ◄─────┴── record(): changes by the user only
//! ```
//! Invariants: 1. Unknown keys stay in the file. 2. A wrong value is reported, and the default is in force. A file that is not JSON
//! is renamed, never overwritten. 3. Values from the command line or the environment are not stored. 4. Sampling, lengths,
//! context and KV type are stored for each model, the rest for all models.
//!
//! Limits: [`MAX_FILE_BYTES`].

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::app::state::settings::{FIELDS, Field, Form, Settings, ThemeChoice, ZOOM};
use crate::engine::{KvDtype, LoadOptions, ModelSource};

/// Size of a settings file at most, bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Name of the built-in model in the file.
const BUILT_IN: &str = "built-in";
const THEMES: [(&str, ThemeChoice); 3] =
    [("system", ThemeChoice::System), ("light", ThemeChoice::Light), ("dark", ThemeChoice::Dark)];
const KV_DTYPES: [KvDtype; 3] = [KvDtype::F16, KvDtype::Q8, KvDtype::Q4];
/// Values of `answers_read`.
const READS: [&str; 2] = ["everything", "what matters"];
const READS_KEY: &str = "answers_read";
const KV_DTYPE_KEY: &str = "kv_dtype";
const REUSE_KEY: &str = "reuse_anywhere";

/// Content of the file, and the options of the command line.
#[derive(Debug, Default, Clone)]
pub struct Preferences {
    root: Map<String, Value>,
    given: LoadOptions,
    /// the user has changed `answers_read` in this window
    has_changed_policy: bool,
}

impl Preferences {
    /// Without a file: only the options of the command line.
    pub fn new(given: LoadOptions) -> Preferences {
        Preferences { given, ..Preferences::default() }
    }

    /// Reads the file, if there is one. A damaged file is renamed, and a sentence reports it.
    pub fn open(path: &Path, given: LoadOptions) -> (Preferences, Vec<String>) {
        let mut preferences = Preferences::new(given);
        let text = match read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return (preferences, Vec::new()),
            Err(error) => return (preferences, vec![format!("The settings in {} cannot be read: {error}.", path.display())]),
        };
        match serde_json::from_str::<Value>(&text) {
            Ok(Value::Object(root)) => {
                preferences.root = root;
                (preferences, Vec::new())
            }
            _ => (preferences, vec![rename_damaged(path)]),
        }
    }

    /// The settings of a model, and a sentence for every wrong value.
    pub fn settings(&self, source: &ModelSource) -> (Settings, Vec<String>) {
        let mut settings = Settings::default();
        let mut wrong = Vec::new();
        let model = self.of_model(source);
        for field in FIELDS {
            let place = if field.is_of_model() { model } else { Some(&self.root) };
            if let Some(Err(sentence)) = place.and_then(|place| take(field, place, &mut settings)) {
                wrong.push(wrong_value(field.key(), &sentence));
            }
        }
        let mut choose = |place: Option<&Map<String, Value>>, key: &str, names: &[&str]| -> Option<usize> {
            let value = place?.get(key)?;
            let chosen = names.iter().position(|name| value.as_str() == Some(name));
            if chosen.is_none() {
                wrong.push(wrong_value(key, &format!("It can be {}.", names.join(", "))));
            }
            chosen
        };
        let root = Some(&self.root);
        let theme = choose(root, "theme", &THEMES.map(|(name, _)| name)).and_then(|i| THEMES.get(i));
        let kv_dtype = choose(model, KV_DTYPE_KEY, &KV_DTYPES.map(KvDtype::name)).and_then(|i| KV_DTYPES.get(i));
        let reads = choose(model, READS_KEY, &READS);
        settings.theme = theme.map_or(settings.theme, |(_, theme)| *theme);
        settings.kv_dtype = kv_dtype.copied().unwrap_or(settings.kv_dtype);
        // A policy of the command line keeps its numbers.
        let policy = self.given.policy.unwrap_or_default();
        settings.policy = match (reads, self.has_changed_policy) {
            (Some(1), _) => Some(policy),
            (_, true) => None,
            (_, false) => self.given.policy,
        };
        for (key, switch) in [("keep_read", &mut settings.keep_read), (REUSE_KEY, &mut settings.reuse_anywhere)] {
            match self.root.get(key).map(Value::as_bool) {
                Some(None) => wrong.push(wrong_value(key, "It can be true or false.")),
                stored => *switch = stored.flatten().unwrap_or(*switch),
            }
        }
        match self.root.get("zoom").map(|value| value.as_f64().map(|v| v as f32).filter(|v| ZOOM.contains(v)).ok_or("zoom")) {
            Some(Err(key)) => wrong.push(wrong_value(key, &format!("It can be from {} to {}.", ZOOM.start(), ZOOM.end()))),
            zoom => settings.zoom = zoom.and_then(Result::ok).unwrap_or(settings.zoom),
        }
        settings.override_with(&self.given);
        (settings, wrong)
    }

    /// Applies the stored sampling of a model over its own values. Wrong values were reported before.
    pub fn sampling(&self, source: &ModelSource, settings: &mut Settings) {
        let Some(model) = self.of_model(source) else { return };
        FIELDS.into_iter().filter(|field| field.is_of_sampling()).for_each(|field| {
            take(field, model, settings);
        });
    }

    /// True if sampling is stored for a model.
    pub fn has_sampling(&self, source: &ModelSource) -> bool {
        let chosen = |model: &Map<String, Value>| FIELDS.iter().any(|f| f.is_of_sampling() && model.contains_key(f.key()));
        self.of_model(source).is_some_and(chosen)
    }

    /// Records the changes between two settings of a model. True if there are any.
    pub fn record(&mut self, source: &ModelSource, before: &Settings, after: &Settings) -> bool {
        let (old, new) = (Form::of(before), Form::of(after));
        let texts = old.texts.iter().zip(&new.texts).zip(FIELDS);
        let mut changes: Vec<(bool, &str, Value)> = texts
            .filter(|((old, new), _)| old != new)
            .map(|((_, new), field)| (field.is_of_model(), field.key(), Value::from(new.as_str())))
            .collect();
        if before.theme != after.theme {
            let name = THEMES.iter().find(|(_, theme)| *theme == after.theme).map(|(name, _)| *name);
            changes.push((false, "theme", name.into()));
        }
        if before.keep_read != after.keep_read {
            changes.push((false, "keep_read", after.keep_read.into()));
        }
        if before.reuse_anywhere != after.reuse_anywhere {
            changes.push((false, REUSE_KEY, after.reuse_anywhere.into()));
        }
        if before.zoom != after.zoom {
            // In hundredths, without the digits that a wider float adds.
            changes.push((false, "zoom", (f64::from((after.zoom * 100.0).round()) / 100.0).into()));
        }
        if before.kv_dtype != after.kv_dtype {
            changes.push((true, KV_DTYPE_KEY, after.kv_dtype.name().into()));
        }
        if before.policy.is_some() != after.policy.is_some() {
            changes.push((true, READS_KEY, (if after.policy.is_some() { READS[1] } else { READS[0] }).into()));
        }
        let has_changed = !changes.is_empty();
        self.has_changed_policy |= changes.iter().any(|(_, key, _)| *key == READS_KEY);
        for (is_of_model, key, value) in changes {
            self.drop_override(key);
            let Some(place) = (if is_of_model { self.model_mut(source) } else { Some(&mut self.root) }) else { continue };
            // An empty field stores no value.
            if value == "" {
                place.shift_remove(key);
            } else {
                place.insert(key.to_owned(), value);
            }
        }
        has_changed
    }

    /// Drops an option of the command line once the user changes it in the window.
    fn drop_override(&mut self, key: &str) {
        match FIELDS.iter().find(|field| field.key() == key) {
            Some(Field::ContextCap) => self.given.context = None,
            Some(Field::VramBudget) => self.given.budgets.vram = None,
            Some(Field::RamBudget) => self.given.budgets.ram = None,
            Some(Field::DiskBudget) => self.given.budgets.disk = None,
            _ if key == KV_DTYPE_KEY => self.given.kv_dtype = KvDtype::default(),
            _ if key == REUSE_KEY => self.given.reuse_anywhere = false,
            _ => {}
        }
    }

    /// Removes the stored sampling of a model, so that its own values are in force.
    pub fn reset_sampling(&mut self, source: &ModelSource) {
        let Some(model) = self.model_mut(source) else { return };
        model.retain(|key, _| !FIELDS.iter().any(|field| field.is_of_sampling() && field.key() == key));
    }

    /// The last model. None if it was the built-in one.
    pub fn last_model(&self) -> Option<ModelSource> {
        let path = self.root.get("model")?.as_str()?;
        (path != BUILT_IN).then(|| ModelSource::Path(path.into()))
    }

    /// Records the model in use; None while one is being loaded, so that a model that fails to load is not tried at every start.
    /// True if the record has changed.
    pub fn record_model(&mut self, source: Option<&ModelSource>) -> bool {
        let name = source.map_or_else(|| BUILT_IN.to_owned(), key_of);
        let before = self.root.get("model").and_then(Value::as_str).unwrap_or(BUILT_IN);
        if before == name {
            return false;
        }
        self.root.insert("model".to_owned(), name.into());
        true
    }

    /// The user's folders to search for models.
    pub fn model_folders(&self) -> Vec<PathBuf> {
        let folders = self.root.get("model_folders").and_then(Value::as_array);
        folders.into_iter().flatten().filter_map(|folder| Some(folder.as_str()?.into())).collect()
    }

    /// Stores those folders.
    pub fn set_model_folders(&mut self, folders: &[PathBuf]) {
        let folders: Vec<Value> = folders.iter().map(|folder| folder.display().to_string().into()).collect();
        self.root.insert("model_folders".to_owned(), folders.into());
    }

    /// The new text of the file.
    pub fn text(&self) -> String {
        // A map of strings, numbers and lists always becomes text.
        serde_json::to_string_pretty(&self.root).unwrap_or_default() + "\n"
    }

    fn of_model(&self, source: &ModelSource) -> Option<&Map<String, Value>> {
        self.root.get("models")?.get(key_of(source))?.as_object()
    }

    fn model_mut(&mut self, source: &ModelSource) -> Option<&mut Map<String, Value>> {
        let models = object(self.root.entry("models").or_insert_with(|| Map::new().into()))?;
        object(models.entry(key_of(source)).or_insert_with(|| Map::new().into()))
    }
}

/// Applies the stored value of a field, if there is one, or returns an error.
fn take(field: Field, place: &Map<String, Value>, settings: &mut Settings) -> Option<Result<(), String>> {
    let value = place.get(field.key())?;
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Some(field.take(&text, settings))
}

/// The value as an object; anything else is replaced by an empty one.
fn object(value: &mut Value) -> Option<&mut Map<String, Value>> {
    if !value.is_object() {
        *value = Map::new().into();
    }
    value.as_object_mut()
}

fn wrong_value(key: &str, sentence: &str) -> String {
    format!("The settings file has a wrong value for '{key}', so its default is in force. {sentence}")
}

fn key_of(source: &ModelSource) -> String {
    match source {
        ModelSource::BuiltIn => BUILT_IN.to_owned(),
        ModelSource::Path(path) => path.display().to_string(),
        ModelSource::Synthetic { name, weight_type } => format!("random {name} {weight_type}"),
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    // Bytes that are not UTF-8 are not JSON either, so the file is renamed.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Renames a damaged file, never over another one.
fn rename_damaged(path: &Path) -> String {
    let free = (1..1000).map(|n| path.with_extension(format!("broken-{n}.json"))).find(|to| !to.exists());
    let renamed = free.filter(|to| std::fs::rename(path, to).is_ok());
    match renamed {
        Some(to) => format!("The settings file was damaged and is now {}. The defaults are in force.", to.display()),
        None => format!("The settings file {} is damaged and could not be renamed. The defaults are in force.", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Bytes, Tiers};
    use crate::engine::{PolicySpec, Sampling};

    fn other() -> ModelSource {
        ModelSource::Path("/models/other.gguf".into())
    }

    fn opened(text: &str) -> (Preferences, Vec<String>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings.json");
        std::fs::write(&path, text).unwrap();
        let (preferences, notices) = Preferences::open(&path, LoadOptions::default());
        (preferences, notices, dir)
    }

    #[test]
    fn settings_that_were_noted_come_back_for_their_model_alone() {
        let mut preferences = Preferences::default();
        let before = Settings::default();
        let mut after = before;
        after.sampling.temperature = 0.3;
        (after.context_cap, after.kv_dtype, after.policy) = (Some(4096), KvDtype::Q8, Some(PolicySpec::default()));
        (after.theme, after.keep_read, after.reuse_anywhere, after.zoom) = (ThemeChoice::Light, false, true, 1.1);
        after.budgets = Tiers { ram: Some(Bytes(3 << 30)), ..Tiers::default() };
        assert!(preferences.record(&other(), &before, &after));
        let (again, notices, _dir) = opened(&preferences.text());
        assert_eq!(notices, Vec::<String>::new());
        assert_eq!(again.settings(&other()), (after, Vec::new()));
        assert!(again.has_sampling(&other()) && !again.has_sampling(&ModelSource::BuiltIn));
        let shared =
            Settings { theme: after.theme, keep_read: false, reuse_anywhere: true, zoom: 1.1, budgets: after.budgets, ..before };
        assert_eq!(again.settings(&ModelSource::BuiltIn).0, shared, "what is of the machine holds for all models");
        let advised = Sampling { temperature: 0.9, top_k: 7, ..Sampling::default() };
        let mut settings = Settings { sampling: advised, ..before };
        again.sampling(&other(), &mut settings);
        assert_eq!(settings.sampling, Sampling { temperature: 0.3, ..advised }, "the rest is the model's own advice");
    }

    #[test]
    fn unknown_keys_stay_in_the_file_and_cleared_fields_leave_it() {
        let (mut preferences, ..) = opened(r#"{"future": {"a": [1]}, "models": {"built-in": {"context": 4096, "novel": true}}}"#);
        let before = preferences.settings(&ModelSource::BuiltIn).0;
        assert_eq!(before.context_cap, Some(4096), "a number is as good as a text");
        assert!(!preferences.record(&ModelSource::BuiltIn, &before, &before));
        preferences.record(&ModelSource::BuiltIn, &before, &Settings { context_cap: None, ..before });
        let json: Value = serde_json::from_str(&preferences.text()).unwrap();
        assert_eq!(json["future"]["a"][0], 1);
        assert_eq!(json["models"]["built-in"], serde_json::json!({ "novel": true }));
    }

    #[test]
    fn wrong_values_are_told_and_the_defaults_hold() {
        let text = r#"{"theme": "pink", "zoom": 99, "keep_read": "yes", "reuse_anywhere": 1, "ram_budget": "much", "models": {"built-in": {"top_p": 7}}}"#;
        let (preferences, notices, _dir) = opened(text);
        assert_eq!(notices, Vec::<String>::new());
        let (settings, wrong) = preferences.settings(&ModelSource::BuiltIn);
        assert_eq!(settings, Settings::default());
        for key in ["theme", "zoom", "keep_read", "reuse_anywhere", "ram_budget", "top_p"] {
            assert!(wrong.iter().any(|w| w.contains(&format!("'{key}'"))), "{key}: {wrong:?}");
        }
    }

    #[test]
    fn damaged_file_is_set_aside_and_not_lost() {
        for text in ["{\"theme\": \"li", "[]", "", "\u{0}\u{1}"] {
            let (preferences, notices, dir) = opened(text);
            assert!(notices.len() == 1 && notices[0].contains("broken-1.json"), "{notices:?}");
            assert_eq!(preferences.settings(&other()).0, Settings::default());
            assert!(!dir.path().join("settings.json").exists());
            assert_eq!(std::fs::read_to_string(dir.path().join("settings.broken-1.json")).unwrap(), text);
        }
    }

    #[test]
    fn what_was_given_holds_and_is_not_stored() {
        let given = LoadOptions { context: Some(512), kv_dtype: KvDtype::F32, ..LoadOptions::default() };
        let mut preferences = Preferences::new(given);
        let (before, ..) = preferences.settings(&other());
        assert_eq!((before.context_cap, before.kv_dtype), (Some(512), KvDtype::F32));
        preferences.record(&other(), &before, &Settings { theme: ThemeChoice::Dark, ..before });
        assert!(!preferences.text().contains("512") && preferences.text().contains("dark"));
        preferences.record(&other(), &before, &Settings { context_cap: None, ..before });
        assert_eq!(preferences.settings(&other()).0.context_cap, None, "what is changed in the window holds from then on");
    }

    #[test]
    fn model_in_use_and_folders_are_remembered() {
        let mut preferences = Preferences::default();
        assert!(preferences.record_model(Some(&other())) && !preferences.record_model(Some(&other())));
        preferences.set_model_folders(&["/models".into()]);
        let (mut again, ..) = opened(&preferences.text());
        assert_eq!((again.last_model(), again.model_folders()), (Some(other()), vec![PathBuf::from("/models")]));
        again.record_model(None);
        assert_eq!(again.last_model(), None);
    }
}
