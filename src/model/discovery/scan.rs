//! Files below a folder, by name, without going round in circles.
//!
//! Limits: [`Limits`]; hidden folders and the blobs of the Hugging Face cache (its snapshots link to them) are left out.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// What a folder with safetensors is known by.
const CONFIG: &str = "config.json";

/// How far a search goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// folders inside folders
    pub max_depth: usize,
    /// entries of folders that are looked at, for each place
    pub max_entries: usize,
    /// models that are listed in all
    pub max_models: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_depth: 8, max_entries: 50_000, max_models: 1000 }
    }
}

/// GGUF files below `root`, and the configurations of folders with safetensors, in order of their names; true where a limit was
/// met.
pub fn model_files(root: &Path, limits: &Limits) -> (Vec<PathBuf>, bool) {
    let is_gguf = |path: &Path| path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"));
    files(root, limits, &|path| is_gguf(path) || config_folder(path).is_some_and(|folder| !weights_in(folder).is_empty()))
}

/// The folder that this file is the configuration of.
pub fn config_folder(path: &Path) -> Option<&Path> {
    path.parent().filter(|_| path.file_name().is_some_and(|name| name == CONFIG))
}

/// The safetensors files of a folder, in order of their names.
pub fn weights_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "safetensors"));
    paths.sort();
    paths
}

/// Files below `root` that are `wanted`, in order of their names; true where a limit was met. Links are followed.
pub fn files(root: &Path, limits: &Limits, wanted: &dyn Fn(&Path) -> bool) -> (Vec<PathBuf>, bool) {
    let mut walk = Scan { limits, wanted, n_entries: 0, visited: HashSet::new(), found: Vec::new(), has_more: false };
    walk.folder(root, 0);
    (walk.found, walk.has_more)
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
        // A folder is known by where it really is: a link to one above it ends here.
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
            if is_left_out(&path) {
                continue;
            }
            match path.metadata() {
                Ok(entry) if entry.is_dir() => match depth < self.limits.max_depth {
                    true => self.folder(&path, depth + 1),
                    false => self.has_more = true,
                },
                // Opening a pipe would wait for whoever writes to it.
                Ok(entry) if !entry.is_file() => {}
                // A link that leads nowhere is listed, with the reason.
                _ if (self.wanted)(&path) => self.found.push(path),
                _ => {}
            }
        }
    }
}

fn is_left_out(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_encoded_bytes().starts_with(b".") || name == "blobs"
}
