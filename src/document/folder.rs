//! Documents in a folder that was dropped.
//!
//! Invariants: 1. links are not followed, so that no circle is walked; 2. hidden files and folders are passed over;
//! 3. the order is that of the names.
//! Limits: [`limits::MAX_FOLDER_FILES`], [`limits::MAX_FOLDER_DEPTH`].

use std::path::{Path, PathBuf};

use crate::base::limits;

/// Names of files that are read out of a folder; a file that is chosen by itself is read whatever its name.
const EXTENSIONS: [&str; 50] = [
    "txt", "text", "md", "markdown", "rst", "org", "adoc", "tex", "html", "htm", "xhtml", "pdf", "docx", "epub", "csv", "tsv",
    "json", "jsonl", "toml", "yaml", "yml", "xml", "ini", "log", "rs", "c", "h", "cc", "cpp", "hpp", "cs", "go", "java", "kt",
    "swift", "js", "ts", "tsx", "jsx", "py", "rb", "php", "lua", "sh", "sql", "r", "jl", "hs", "ml", "wgsl",
];

/// The documents in a folder and in those inside it, and whether there are more than are taken.
pub fn documents_in(folder: &Path) -> (Vec<PathBuf>, bool) {
    let mut found = Vec::new();
    walk(folder, 0, &mut found);
    let has_more = found.len() > limits::MAX_FOLDER_FILES;
    found.truncate(limits::MAX_FOLDER_FILES);
    (found, has_more)
}

fn walk(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut entries: Vec<_> = entries.filter(|e| !e.file_name().to_string_lossy().starts_with('.')).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        if found.len() > limits::MAX_FOLDER_FILES {
            return;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < limits::MAX_FOLDER_DEPTH => walk(&entry.path(), depth + 1, found),
            Ok(kind) if kind.is_file() && is_document(&entry.path()) => found.push(entry.path()),
            _ => {}
        }
    }
}

fn is_document(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    extension.is_some_and(|e| EXTENSIONS.contains(&e.as_str()))
}
