//! Files of the project: those that git tracks or would track, or all of them without git.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::rust;

/// A text file of the project.
pub struct Source {
    /// path in the project's folder, with `/`
    pub path: String,
    /// content
    pub text: String,
    code: OnceLock<String>,
    comments: OnceLock<String>,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned(), code: OnceLock::new(), comments: OnceLock::new() }
    }

    /// The code of Rust or WGSL, without comments and without the contents of literals.
    pub fn code(&self) -> &str {
        self.code.get_or_init(|| rust::code_of(&self.text))
    }

    /// The comments of Rust or WGSL, each in its line.
    pub fn comments(&self) -> &str {
        self.comments.get_or_init(|| rust::comments_of(&self.text))
    }

    pub fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|e| e == extension)
    }

    pub fn is_under(&self, folder: &str) -> bool {
        Path::new(&self.path).starts_with(folder)
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Folder of the papers' texts, beside the test data; it may not exist.
pub fn papers() -> PathBuf {
    let data = std::env::var_os("STRATA_DATA").map_or_else(|| root().join("../shared/data"), PathBuf::from);
    data.join("../papers")
}

/// Every text file of the project, read once; never empty.
pub fn tracked() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let read = |path: String| std::fs::read_to_string(root().join(&path)).ok().map(|text| Source::new(&path, &text));
        let sources: Vec<Source> = paths().into_iter().filter_map(read).collect();
        assert!(sources.len() > 10, "only {} files found", sources.len());
        sources
    })
}

/// Names at the top level of the project.
pub fn top_level() -> Vec<String> {
    let mut names: Vec<String> = paths().iter().filter_map(|p| p.split('/').next().map(str::to_owned)).collect();
    names.sort();
    names.dedup();
    names
}

fn paths() -> Vec<String> {
    let git = Command::new("git").args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root()).output();
    match git {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
        }
        _ => {
            let mut found = Vec::new();
            walk(&root(), "", &mut found);
            found
        }
    }
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && path != "target" && path != ".git" => {
                walk(&entry.path(), &format!("{path}/"), found);
            }
            Ok(kind) if kind.is_file() => found.push(path),
            _ => {}
        }
    }
}
