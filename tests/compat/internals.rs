//! Rust names of the library: the only file of these tests that a renaming of types touches.
//!
//! Each function takes paths or text and gives JSON or text, so that the tests themselves name no type.

use std::io::BufReader;
use std::path::Path;

use serde_json::{Value, json};
use strata::app::state::preferences::Preferences;
use strata::app::state::settings::{Form, Settings};
use strata::chats::ChatStore;
use strata::engine::{LoadOptions, ModelSource, RequestSummary, Sampling};
use strata::telemetry::chrome_trace::{self, ChromeTrace};
use strata::telemetry::{Counters, jsonl};

/// Chats, messages, presets and documents of a folder, as the store gives them.
pub fn chats(folder: &Path) -> Value {
    let store = ChatStore::open(folder).unwrap();
    let chats = store.list().unwrap();
    let messages: Vec<_> = chats.iter().flat_map(|chat| store.messages(chat.id).unwrap()).collect();
    let presets = store.presets().unwrap();
    let presets: Vec<Value> = presets.iter().map(|p| json!([p.name, p.instructions, p.sampling])).collect();
    let kept = store.documents().unwrap();
    let document = |hash: &str| {
        let (document, path) = store.document(hash).unwrap().unwrap();
        json!([document.name, document.text, document.pages.len(), document.sections.len(), path])
    };
    let documents: Vec<Value> = kept.iter().map(|d| document(&d.document.content_hash)).collect();
    json!({ "chats": chats, "messages": messages, "presets": presets, "documents": documents })
}

/// Chats in which a word is found.
pub fn chats_with(folder: &Path, words: &str) -> Vec<u64> {
    ChatStore::open(folder).unwrap().search(words).unwrap().iter().map(|hit| hit.chat).collect()
}

/// The cost of an answer, read from the text in its row and written again.
pub fn cost_again(text: &str) -> String {
    serde_json::to_string(&serde_json::from_str::<RequestSummary>(text).unwrap()).unwrap()
}

/// The sampling of a chat, read from the text in its row and written again.
pub fn sampling_again(text: &str) -> String {
    serde_json::to_string(&serde_json::from_str::<Sampling>(text).unwrap()).unwrap()
}

fn source(model: &str) -> ModelSource {
    if model == "built-in" { ModelSource::BuiltIn } else { ModelSource::Path(model.into()) }
}

/// Settings of a model in a settings file, in the order of the settings page, and what was wrong with them.
pub fn settings(file: &Path, model: &str) -> (Value, Vec<String>) {
    let (kept, mut notices) = Preferences::open(file, LoadOptions::default());
    let (settings, wrong) = kept.settings(&source(model));
    notices.extend(wrong);
    let last = kept.last_model().map(|model| format!("{model:?}"));
    let values = json!({
        "fields": Form::of(&settings).texts,
        "kv_dtype": format!("{:?}", settings.kv_dtype).to_lowercase(),
        "reads_what_matters": settings.policy.is_some(),
        "keep_read": settings.keep_read,
        "theme": format!("{:?}", settings.theme).to_lowercase(),
        "zoom": (f64::from(settings.zoom) * 100.0).round() / 100.0,
        "has_last_model": last.is_some(),
        "model_folders": kept.model_folders(),
    });
    (values, notices)
}

/// The settings of a model in a file, chosen once more in a window that had none, and written.
pub fn settings_again(file: &Path, model: &str) -> String {
    let (kept, _) = Preferences::open(file, LoadOptions::default());
    let mut again = Preferences::default();
    again.record(&source(model), &Settings::default(), &kept.settings(&source(model)).0);
    again.record_model(kept.last_model().as_ref());
    again.set_model_folders(&kept.model_folders());
    again.text()
}

/// A trace read and written again: events of others, events of Strata, and the text.
pub fn trace_again(file: &Path) -> (u64, usize, String) {
    let recording = chrome_trace::read(BufReader::new(std::fs::File::open(file).unwrap())).unwrap();
    let mut again = ChromeTrace::new(Vec::new()).unwrap();
    again.describe(recording.run.clone());
    again.add(&recording.snapshot).unwrap();
    let n_events = recording.snapshot.lanes.iter().map(|lane| lane.events.len()).sum();
    (recording.n_foreign, n_events, String::from_utf8(again.finish().unwrap()).unwrap())
}

/// A line of counters, as the dashboard saves them.
pub fn counters_line() -> String {
    let mut line = Vec::new();
    jsonl::write_counters(&mut line, 7, &Counters::default()).unwrap();
    String::from_utf8(line).unwrap()
}
