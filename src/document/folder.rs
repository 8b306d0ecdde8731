//! Folder scan: the documents in a dropped folder.
//!
//! Invariants: 1. Links are not followed, so there are no cycles. 2. Hidden files and folders are skipped. 3. Files are in
//! order of their names.
//! Limits: [`limits::MAX_FOLDER_FILES`], [`limits::MAX_FOLDER_DEPTH`].

use std::path::{Path, PathBuf};

use crate::base::limits;

/// Extensions of files that are taken from a folder; a file that the user selects is read whatever its extension.
const EXTENSIONS: [&str; 50] = [
    "txt", "text", "md", "markdown", "rst", "org", "adoc", "tex", "html", "htm", "xhtml", "pdf", "docx", "epub", "csv", "tsv",
    "json", "jsonl", "toml", "yaml", "yml", "xml", "ini", "log", "rs", "c", "h", "cc", "cpp", "hpp", "cs", "go", "java", "kt",
    "swift", "js", "ts", "tsx", "jsx", "py", "rb", "php", "lua", "sh", "sql", "r", "jl", "hs", "ml", "wgsl",
];

/// Documents in a folder and its subfolders; true if a limit left some out.
pub fn documents_in(folder: &Path) -> (Vec<PathBuf>, bool) {
    let mut found = Vec::new();
    scan(folder, 0, &mut found);
    let has_more = found.len() > limits::MAX_FOLDER_FILES;
    found.truncate(limits::MAX_FOLDER_FILES);
    (found, has_more)
}

fn scan(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut entries: Vec<_> = entries.filter(|e| !e.file_name().to_string_lossy().starts_with('.')).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        if found.len() > limits::MAX_FOLDER_FILES {
            return;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < limits::MAX_FOLDER_DEPTH => scan(&entry.path(), depth + 1, found),
            Ok(kind) if kind.is_file() && is_document(&entry.path()) => found.push(entry.path()),
            _ => {}
        }
    }
}

fn is_document(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    extension.is_some_and(|e| EXTENSIONS.contains(&e.as_str()))
}
