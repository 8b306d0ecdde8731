//! Model files that other programs have put on this machine, found where they are. Nothing is copied and nothing changed.
//!
//! ```text
//! home, environment ─► places ─► walk (GGUF files, folders) │ ollama (manifests) ─► Candidate ─► look: header only ─► DiscoveredModel
//! ```
//! Invariants: 1. Of a file only the header is read. 2. A file is listed once, however many links lead to it, and a model in
//! several files is one entry. 3. What cannot be used is listed too, with the reason. 4. Ends: depth, entries and models are
//! bounded, and no folder is walked twice.
//!
//! Owner thread: whoever calls; it waits for the disk. Limits: [`scan::Limits`].

mod locations;
mod ollama;
pub mod scan;

pub use locations::{Provider, SearchPath, places};

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::gguf_split::PartName;
use super::{ModelError, ModelFile};
use scan::Limits;

/// A file that may be a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// who put it there
    pub store: Provider,
    /// to be loaded: a file (the first part that is there, of a model in several), or a folder with safetensors
    pub path: PathBuf,
    /// as its store calls it
    pub name: String,
    /// where in the store it is: a repository, a publisher, a folder
    pub within: String,
    /// of the file, or of all its parts
    pub bytes: u64,
}

/// A candidate, and what its header says.
pub struct DiscoveredModel {
    /// the file
    pub candidate: Candidate,
    /// its header, or one sentence on why it cannot be used
    pub header: Result<ModelFile, String>,
}

/// What a search came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiscoveryReport {
    /// models that were told
    pub n_found: usize,
    /// a limit was met: there may be more
    pub has_more: bool,
    /// folders that are not there
    pub missing: Vec<PathBuf>,
}

/// Looks through `places` in order and tells what is found; `tell` returns false to end the search.
pub fn search(places: &[SearchPath], limits: &Limits, tell: &mut dyn FnMut(DiscoveredModel) -> bool) -> DiscoveryReport {
    let mut seen = HashSet::new();
    let mut searched = DiscoveryReport::default();
    for place in places {
        if !place.folder.is_dir() {
            searched.missing.push(place.folder.clone());
            continue;
        }
        let (listed, has_more) = match place.store {
            Provider::Ollama => ollama::list(&place.folder, limits),
            _ => list_files(place, limits),
        };
        searched.has_more |= has_more;
        for entry in listed {
            let path = entry.as_ref().map_or_else(|broken| &broken.0.path, |candidate| &candidate.path);
            // A folder is known by its weights: another revision of a repository may link to the same.
            let known_by = scan::weights_in(path).into_iter().next().unwrap_or_else(|| path.clone());
            if !seen.insert(known_by.canonicalize().unwrap_or(known_by)) {
                continue;
            }
            if searched.n_found == limits.max_models {
                searched.has_more = true;
                return searched;
            }
            searched.n_found += 1;
            let found = match entry {
                Ok(candidate) => look(candidate),
                Err(BrokenModel(candidate, reason)) => DiscoveredModel { candidate, header: Err(reason) },
            };
            if !tell(found) {
                return searched;
            }
        }
    }
    searched
}

/// A candidate of which its store already shows that it cannot be used, and why.
struct BrokenModel(Candidate, String);

/// Reads the header.
fn look(candidate: Candidate) -> DiscoveredModel {
    let header = ModelFile::open(&candidate.path).map_err(|error| reason(&error));
    DiscoveredModel { candidate, header }
}

/// An error as a sentence.
fn reason(error: &ModelError) -> String {
    let text = error.to_string();
    let mut chars = text.chars();
    let capital = chars.next().map(|c| c.to_uppercase().collect::<String>()).unwrap_or_default();
    format!("{capital}{}.", chars.as_str())
}

/// The models below a folder, one entry for each: GGUF files, and folders with safetensors.
fn list_files(place: &SearchPath, limits: &Limits) -> (Vec<Result<Candidate, BrokenModel>>, bool) {
    let (paths, has_more) = scan::model_files(&place.folder, limits);
    let mut models = HashSet::new();
    let mut listed = Vec::new();
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |m| m.len());
    for path in paths {
        if let Some(folder) = scan::config_folder(&path) {
            let bytes = scan::weights_in(folder).iter().map(|weights| size(weights)).sum();
            let (name, within) = folder_names(place, folder);
            listed.push(Ok(Candidate { store: place.store, path: folder.to_owned(), name, within, bytes }));
            continue;
        }
        let part = PartName::of(&path);
        if let Some(part) = &part
            && !models.insert((path.parent().map(Path::to_owned), part.stem.clone(), part.n_parts))
        {
            continue;
        }
        let bytes = part.as_ref().map_or_else(|| size(&path), |part| part.paths(&path).iter().map(|p| size(p)).sum());
        let (name, within) = names(place, &path, part.as_ref());
        listed.push(Ok(Candidate { store: place.store, path, name, within, bytes }));
    }
    (listed, has_more)
}

/// What a file is called, and where it is.
fn names(place: &SearchPath, path: &Path, part: Option<&PartName>) -> (String, String) {
    let stem = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = part.map_or_else(stem, |part| part.stem.clone());
    let folder = path.parent().and_then(|parent| parent.strip_prefix(&place.folder).ok()).unwrap_or(Path::new(""));
    match place.store {
        Provider::HuggingFace => (name, repository(folder)),
        // Every file of Jan is called model.gguf, in a folder with the model's name.
        Provider::Jan if name == "model" => {
            let called = folder.file_name().map_or(name, |folder| folder.to_string_lossy().into_owned());
            (called, String::new())
        }
        _ => (name, folder.display().to_string()),
    }
}

/// What a folder with safetensors is called, and where it is.
fn folder_names(place: &SearchPath, folder: &Path) -> (String, String) {
    let below = folder.strip_prefix(&place.folder).unwrap_or(folder);
    if place.store == Provider::HuggingFace {
        // A part of a model in several folders is called by its own.
        let parts: Vec<String> = below.iter().skip(3).map(|part| part.to_string_lossy().into_owned()).collect();
        let repository = repository(below);
        let (publisher, name) = repository.rsplit_once('/').unwrap_or(("", &repository));
        return (std::iter::once(name.to_owned()).chain(parts).collect::<Vec<_>>().join("/"), publisher.to_owned());
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    (name, below.parent().unwrap_or(Path::new("")).display().to_string())
}

/// `publisher/name` of `models--publisher--name/snapshots/revision/...`, a path below the cache of huggingface_hub.
fn repository(below: &Path) -> String {
    let first = below.iter().next().unwrap_or_default().to_string_lossy().into_owned();
    first.strip_prefix("models--").unwrap_or(&first).replace("--", "/")
}
