//! File scan: files of a folder tree by name, safe against cycles of links.
//!
//! Limits: [`Limits`]. Hidden folders, and the blobs of the Hugging Face cache (its snapshots link to them), are skipped.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// File that marks a folder with safetensors.
const CONFIG: &str = "config.json";

/// Limits of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// nesting of folders
    pub max_depth: usize,
    /// folder entries read per search path
    pub max_entries: usize,
    /// models listed in total
    pub max_models: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_depth: 8, max_entries: 50_000, max_models: 1000 }
    }
}

/// GGUF files in `root`, and the `config.json` of folders with safetensors, sorted by name; true if a limit was reached.
pub fn model_files(root: &Path, limits: &Limits) -> (Vec<PathBuf>, bool) {
    let is_gguf = |path: &Path| path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"));
    files(root, limits, &|path| is_gguf(path) || config_folder(path).is_some_and(|folder| !weights_in(folder).is_empty()))
}

/// The folder that this file configures; None if it is not a `config.json`.
pub fn config_folder(path: &Path) -> Option<&Path> {
    path.parent().filter(|_| path.file_name().is_some_and(|name| name == CONFIG))
}

/// Safetensors files of a folder, sorted by name.
pub fn weights_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "safetensors"));
    paths.sort();
    paths
}

/// Files in `root` for which `wanted` holds, sorted by name; true if a limit was reached. Links are followed.
pub fn files(root: &Path, limits: &Limits, wanted: &dyn Fn(&Path) -> bool) -> (Vec<PathBuf>, bool) {
    let mut scan = Scan { limits, wanted, n_entries: 0, visited: HashSet::new(), found: Vec::new(), has_more: false };
    scan.folder(root, 0);
    (scan.found, scan.has_more)
}

struct Scan<'a> {
    limits: &'a Limits,
    wanted: &'a dyn Fn(&Path) -> bool,
    n_entries: usize,
    visited: HashSet<PathBuf>,
    found: Vec<PathBuf>,
    has_more: bool,
}

impl Scan<'_> {
    fn folder(&mut self, folder: &Path, depth: usize) {
        // The real path identifies a folder, so a link to a parent ends here.
        let Ok(real) = folder.canonicalize() else { return };
        if !self.visited.insert(real) {
            return;
        }
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        let left = self.limits.max_entries - self.n_entries;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).take(left + 1).collect();
        if paths.len() > left {
            self.has_more = true;
            paths.truncate(left);
        }
        self.n_entries += paths.len();
        paths.sort();
        for path in paths {
            if is_skipped(&path) {
                continue;
            }
            match path.metadata() {
                Ok(entry) if entry.is_dir() => match depth < self.limits.max_depth {
                    true => self.folder(&path, depth + 1),
                    false => self.has_more = true,
                },
                // Pipes are skipped: opening one would block.
                Ok(entry) if !entry.is_file() => {}
                // A dangling link is listed, with the reason.
                _ if (self.wanted)(&path) => self.found.push(path),
                _ => {}
            }
        }
    }
}

fn is_skipped(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_encoded_bytes().starts_with(b".") || name == "blobs"
}
