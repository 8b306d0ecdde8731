//! Model discovery: finds models that other programs stored on this machine. It copies and changes nothing.
//!
//! ```text
//! home, environment ─► search_paths ─► scan (GGUF files, folders) │ ollama (manifests) ─► Candidate ─► header ─► DiscoveredModel
//! ```
//! Invariants: 1. Only the header of a file is read. 2. A file is listed once, whatever links lead to it, and a model in
//! several files is one entry. 3. Unusable models are listed too, with the reason. 4. The search ends: depth, entries and
//! models are bounded, and no folder is visited twice.
//!
//! Owner thread: the caller's; calls block on the disk. Limits: [`scan::Limits`].

mod candidate;
mod locations;
mod ollama;
pub mod scan;

pub use candidate::Candidate;
pub use locations::{Provider, SearchPath, search_paths};

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::gguf_split::PartName;
use super::{ModelError, ModelFile};
use candidate::BrokenModel;
use scan::Limits;

/// A candidate with its header.
pub struct DiscoveredModel {
    /// the file
    pub candidate: Candidate,
    /// opened header, or a sentence on why the model cannot be used
    pub header: Result<ModelFile, String>,
}

/// Outcome of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiscoveryReport {
    /// models that were reported
    pub n_found: usize,
    /// true if a limit ended the search, so there may be more
    pub has_more: bool,
    /// folders that do not exist
    pub missing: Vec<PathBuf>,
}

/// Searches `paths` in order and reports each model; `report` returns false to end the search.
pub fn search(paths: &[SearchPath], limits: &Limits, report: &mut dyn FnMut(DiscoveredModel) -> bool) -> DiscoveryReport {
    let mut seen = HashSet::new();
    let mut outcome = DiscoveryReport::default();
    for root in paths {
        if !root.folder.is_dir() {
            outcome.missing.push(root.folder.clone());
            continue;
        }
        let (listed, has_more) = match root.provider {
            Provider::Ollama => ollama::list(&root.folder, limits),
            _ => list_files(root, limits),
        };
        outcome.has_more |= has_more;
        for entry in listed {
            let path = entry.as_ref().map_or_else(|broken| &broken.0.path, |candidate| &candidate.path);
            // Weights identify a folder: another revision of a repository may link to the same files.
            let identity = scan::weights_in(path).into_iter().next().unwrap_or_else(|| path.clone());
            if !seen.insert(identity.canonicalize().unwrap_or(identity)) {
                continue;
            }
            if outcome.n_found == limits.max_models {
                outcome.has_more = true;
                return outcome;
            }
            outcome.n_found += 1;
            let found = match entry {
                Ok(candidate) => read_header(candidate),
                Err(BrokenModel(candidate, reason)) => DiscoveredModel { candidate, header: Err(reason) },
            };
            if !report(found) {
                return outcome;
            }
        }
    }
    outcome
}

/// Opens a candidate, which reads its header only.
fn read_header(candidate: Candidate) -> DiscoveredModel {
    let header = ModelFile::open(&candidate.path).map_err(|error| reason(&error));
    DiscoveredModel { candidate, header }
}

/// The error as a sentence with a capital and a full stop.
fn reason(error: &ModelError) -> String {
    let text = error.to_string();
    let mut chars = text.chars();
    let capital = chars.next().map(|c| c.to_uppercase().collect::<String>()).unwrap_or_default();
    format!("{capital}{}.", chars.as_str())
}

/// Models in a folder: GGUF files, and folders with safetensors.
fn list_files(place: &SearchPath, limits: &Limits) -> (Vec<Result<Candidate, BrokenModel>>, bool) {
    let (paths, has_more) = scan::model_files(&place.folder, limits);
    let mut models = HashSet::new();
    let mut listed = Vec::new();
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |m| m.len());
    for path in paths {
        if let Some(folder) = scan::config_folder(&path) {
            let bytes = scan::weights_in(folder).iter().map(|weights| size(weights)).sum();
            let (name, within) = folder_names(place, folder);
            listed.push(Ok(Candidate { provider: place.provider, path: folder.to_owned(), name, within, bytes }));
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
        listed.push(Ok(Candidate { provider: place.provider, path, name, within, bytes }));
    }
    (listed, has_more)
}

/// Name and location of a file.
fn names(place: &SearchPath, path: &Path, part: Option<&PartName>) -> (String, String) {
    let stem = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = part.map_or_else(stem, |part| part.stem.clone());
    let folder = path.parent().and_then(|parent| parent.strip_prefix(&place.folder).ok()).unwrap_or(Path::new(""));
    match place.provider {
        Provider::HuggingFace => (name, repository(folder)),
        // Jan names every file model.gguf, in a folder with the model's name.
        Provider::Jan if name == "model" => {
            let called = folder.file_name().map_or(name, |folder| folder.to_string_lossy().into_owned());
            (called, String::new())
        }
        _ => (name, folder.display().to_string()),
    }
}

/// Name and location of a folder with safetensors.
fn folder_names(place: &SearchPath, folder: &Path) -> (String, String) {
    let below = folder.strip_prefix(&place.folder).unwrap_or(folder);
    if place.provider == Provider::HuggingFace {
        // A subfolder of a repository keeps its own name as a suffix.
        let parts: Vec<String> = below.iter().skip(3).map(|part| part.to_string_lossy().into_owned()).collect();
        let repository = repository(below);
        let (publisher, name) = repository.rsplit_once('/').unwrap_or(("", &repository));
        return (std::iter::once(name.to_owned()).chain(parts).collect::<Vec<_>>().join("/"), publisher.to_owned());
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    (name, below.parent().unwrap_or(Path::new("")).display().to_string())
}

/// `publisher/name` of `models--publisher--name/snapshots/revision/...`, a relative path in huggingface_hub's cache.
fn repository(below: &Path) -> String {
    let first = below.iter().next().unwrap_or_default().to_string_lossy().into_owned();
    first.strip_prefix("models--").unwrap_or(&first).replace("--", "/")
}
