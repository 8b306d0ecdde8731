//! Model list of the picker: facts of each model on this machine, and whether it fits, before any is loaded.
//!
//! ```text
//! search paths, own folders ─► ModelSearch (its own thread) ─► ModelEvent ─► ModelList ─► panels::models
//!                                └ header only: facts, needs
//! ```
//! Invariants: 1. Only [`ModelSearch::run`] waits for a disk. 2. Events of an earlier search change nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::app::state::settings::{Form, Settings};
use crate::engine::{DeviceFacts, MemoryNeeds};
use crate::model::ModelFile;
use crate::model::discovery::scan::Limits;
use crate::model::discovery::{DiscoveredModel, DiscoveryReport, Provider, SearchPath, search};

/// Facts of a model's header.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFacts {
    /// its title
    pub title: String,
    /// `llama`, `qwen2`, ...
    pub architecture: String,
    /// for example `Q4_K_M`
    pub quantization: String,
    /// number of weights
    pub n_params: u64,
    /// window that it was trained for, tokens
    pub window: usize,
    /// as the file names it
    pub license: Option<String>,
    /// it has its own chat template
    pub has_template: bool,
    /// memory it needs; None before the device is known
    pub needs: Option<MemoryNeeds>,
}

/// A row of the picker.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelEntry {
    /// its provider
    pub store: Provider,
    /// path to load
    pub path: PathBuf,
    /// its name at the provider
    pub name: String,
    /// its place within the provider's folder
    pub within: String,
    /// size of the file or files
    pub bytes: u64,
    /// its facts, or one sentence on why it cannot be used
    pub facts: Result<ModelFacts, String>,
}

/// An event of a search, with the number of that search.
#[derive(Debug)]
pub enum ModelEvent {
    /// a model
    DiscoveredModel(u64, Box<ModelEntry>),
    /// the end
    Done(u64, DiscoveryReport),
}

/// A search to run.
#[derive(Debug, Clone)]
pub struct ModelSearch {
    number: u64,
    newest: Arc<AtomicU64>,
    places: Vec<SearchPath>,
    device: Option<DeviceFacts>,
}

/// All rows, and the state of the search.
#[derive(Debug, Default)]
pub struct ModelList {
    /// by provider, in the order found
    pub entries: Vec<ModelEntry>,
    /// a search runs
    pub is_searching: bool,
    /// result of the last search
    pub searched: Option<DiscoveryReport>,
    /// part of a name
    pub filter: String,
    /// load options of the picker: of these, context and KV type
    pub chosen: Settings,
    /// the same, as typed
    pub form: Form,
    /// search paths of other programs
    pub places: Vec<SearchPath>,
    /// the user's folders
    pub folders: Vec<PathBuf>,
    /// text of the field that adds a folder
    pub typed: String,
    /// a new search is due
    pub is_due: bool,
    newest: Arc<AtomicU64>,
}

impl ModelList {
    /// Starts a new search; an earlier one ends.
    pub fn begin(&mut self, device: Option<DeviceFacts>) -> ModelSearch {
        self.entries.clear();
        (self.is_searching, self.searched, self.is_due) = (true, None, false);
        let own = self.folders.iter().map(|folder| SearchPath { provider: Provider::Own, folder: folder.clone() });
        let places = own.chain(self.places.iter().cloned()).collect();
        let number = self.newest.fetch_add(1, Ordering::Relaxed) + 1;
        ModelSearch { number, newest: self.newest.clone(), places, device }
    }

    /// Applies an event of a search.
    pub fn take(&mut self, event: ModelEvent) {
        let newest = self.newest.load(Ordering::Relaxed);
        match event {
            ModelEvent::DiscoveredModel(number, entry) if number == newest => self.entries.push(*entry),
            ModelEvent::Done(number, searched) if number == newest => {
                (self.is_searching, self.searched) = (false, Some(searched));
            }
            _ => {}
        }
    }

    /// Rows of one provider that match the filter.
    pub fn shown(&self, store: Provider) -> impl Iterator<Item = &ModelEntry> {
        let wanted = self.filter.trim().to_lowercase();
        let matches = move |text: &str| text.to_lowercase().contains(&wanted);
        self.entries.iter().filter(move |entry| entry.store == store && (matches(&entry.name) || matches(&entry.within)))
    }

    /// True if models were found before the device facts that their fit needs.
    pub fn lacks_fit(&self) -> bool {
        self.entries.iter().any(|entry| entry.facts.as_ref().is_ok_and(|facts| facts.needs.is_none()))
    }
}

impl ModelSearch {
    /// Searches all paths. `on_event` returns false if the receiver is gone.
    pub fn run(&self, on_event: &mut dyn FnMut(ModelEvent) -> bool) {
        let device = self.device.as_ref();
        let searched = search(&self.places, &Limits::default(), &mut |found| {
            self.is_newest() && on_event(ModelEvent::DiscoveredModel(self.number, Box::new(entry(found, device))))
        });
        if self.is_newest() {
            on_event(ModelEvent::Done(self.number, searched));
        }
    }

    fn is_newest(&self) -> bool {
        self.newest.load(Ordering::Relaxed) == self.number
    }
}

fn entry(found: DiscoveredModel, device: Option<&DeviceFacts>) -> ModelEntry {
    let facts = found.header.and_then(|file| facts(&file, device));
    let of = found.candidate;
    ModelEntry { store: of.provider, path: of.path, name: of.name, within: of.within, bytes: of.bytes, facts }
}

fn facts(file: &ModelFile, device: Option<&DeviceFacts>) -> Result<ModelFacts, String> {
    let needs = device.map(|device| MemoryNeeds::of(file, device)).transpose();
    let needs = needs.map_err(|error| format!("It cannot be run: {error}."))?;
    let (meta, plan) = (file.info(), file.plan());
    Ok(ModelFacts {
        title: meta.name.clone(),
        architecture: meta.architecture.clone(),
        quantization: meta.quantization.clone(),
        n_params: meta.n_params,
        window: plan.dims.context_len,
        license: meta.license.clone(),
        has_template: meta.chat_template.is_some(),
        needs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str) -> Box<ModelEntry> {
        let facts = Err("It is broken.".to_owned());
        let (path, within) = (PathBuf::from(name), "someone".to_owned());
        Box::new(ModelEntry { store: Provider::Own, path, name: name.to_owned(), within, bytes: 1, facts })
    }

    #[test]
    fn lines_of_an_earlier_search_are_not_taken() {
        let mut list = ModelList::default();
        let first = list.begin(None);
        let second = list.begin(None);
        list.take(ModelEvent::DiscoveredModel(first.number, line("old")));
        list.take(ModelEvent::DiscoveredModel(second.number, line("new")));
        list.take(ModelEvent::Done(first.number, DiscoveryReport::default()));
        assert!(list.is_searching && list.entries.len() == 1 && list.entries[0].name == "new");
        let mut told = 0;
        first.run(&mut |_| {
            told += 1;
            true
        });
        assert_eq!(told, 0, "it ended when the next began");
        list.take(ModelEvent::Done(second.number, DiscoveryReport { n_found: 1, ..DiscoveryReport::default() }));
        assert!(!list.is_searching);
    }

    #[test]
    fn filter_finds_names_and_where_they_are_in_any_case() {
        let mut list = ModelList { entries: vec![*line("Qwen2.5"), *line("Llama")], ..ModelList::default() };
        for (filter, n) in [("", 2), ("LLAMA", 1), ("some", 2), ("phi", 0), (" qwen ", 1)] {
            list.filter = filter.to_owned();
            assert_eq!(list.shown(Provider::Own).count(), n, "{filter}");
        }
        assert_eq!(list.shown(Provider::Ollama).count(), 0);
    }
}
