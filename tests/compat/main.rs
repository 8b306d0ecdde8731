//! Compatibility fixtures: files, output and answers of commit 9b1e455, read and repeated by the current program.
//!
//! ```text
//! tests/fixtures/compat/* (written by 9b1e455) ─► strata of now ─► same tokens, answers, rows, keys, flags, exit codes
//! ```
//! 1. Fixtures are driven through the binary, `rusqlite` and `serde_json`; Rust names stand in `internals` alone.
//! 2. Recorded lines stay as they are: a difference is a broken promise. A new policy or flag may add lines.
//!
//! Recording: `STRATA_RECORD_COMPAT=$(git rev-parse HEAD) cargo test --test compat` rewrites the fixtures of the program in the
//! working tree, with that commit in them. `chats.sqlite` and `settings.json` are never rewritten: `README.md` beside them
//! has the code that wrote them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;

mod answers;
mod chats;
mod exit_codes;
mod flags;
mod internals;
mod json_lines;
mod library;
mod settings;
mod trace;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Set to a commit id, it makes every test write its fixture instead of comparing with it.
const RECORD: &str = "STRATA_RECORD_COMPAT";
const DTYPES: [&str; 3] = ["f16", "q8", "q4"];

/// Output of one run of the binary.
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    /// The lines of a run that succeeded, as JSON.
    #[track_caller]
    fn lines(&self) -> Vec<Value> {
        assert_eq!(self.code, Some(0), "{}\n{}", self.err, self.out);
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// `strata` with none of this shell's `STRATA_*` settings and no terminal.
fn strata() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strata"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("STRATA_")) {
        command.env_remove(name);
    }
    if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        command.env("XDG_RUNTIME_DIR", std::env::temp_dir());
    }
    command.stdin(Stdio::null());
    command
}

fn run(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ran {
    let output = strata().args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Name of the device. None if there is no device, and then the test is reported as skipped.
fn device(test: &str) -> Option<String> {
    common::gpu(test, strata::gpu::FeatureOverrides::default()).map(|gpu| gpu.info().name.clone())
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/compat").join(name)
}

/// A folder on the disk of the build, since direct I/O needs a real file system.
fn scratch() -> TempDir {
    tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The commit to record, where fixtures are being recorded.
fn recording() -> Option<String> {
    std::env::var(RECORD).ok().filter(|commit| !commit.is_empty())
}

/// The recorded data of a fixture; while recording, `now` becomes it first.
fn recorded(name: &str, now: &Value) -> Value {
    let path = fixture(name);
    if let Some(commit) = recording() {
        let text = serde_json::to_string_pretty(&json!({ "commit": commit, "data": now })).unwrap();
        std::fs::write(&path, text + "\n").unwrap();
    }
    let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(file["commit"].as_str().is_some_and(|commit| commit.len() == 40), "{name} does not name its commit");
    file["data"].take()
}

/// Copies the files of a folder and of the folders in it.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &target),
            false => _ = std::fs::copy(entry.path(), target).unwrap(),
        }
    }
}

/// `CREATE` statements of a database, by name, with runs of white space made one space.
fn schema(path: &Path) -> Vec<String> {
    let db = rusqlite::Connection::open(path).unwrap();
    let sql = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'words_%' OR type = 'trigger' ORDER BY name";
    let mut statement = db.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    rows.map(|sql| sql.unwrap().split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn user_version(path: &Path) -> i64 {
    rusqlite::Connection::open(path).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}
