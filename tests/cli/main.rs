//! The real binary, run like a user or a script runs it: arguments, exit codes, output streams.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;

mod engine;
mod eval;
mod kill;
mod library;
mod malformed;
#[cfg(not(feature = "window"))]
mod no_window;
mod saved;
mod trace;
mod usage;

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};

/// `strata` without the `STRATA_*` variables of this shell, and without a terminal.
fn strata() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strata"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("STRATA_") {
            command.env_remove(name);
        }
    }
    // The Vulkan loader prints warnings on stderr without one.
    if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        command.env("XDG_RUNTIME_DIR", std::env::temp_dir());
    }
    command.stdin(Stdio::null());
    command
}

/// Output of a run.
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    /// The run ended with this code and one plain line that has `part`, and printed nothing else.
    #[track_caller]
    fn assert_refused(&self, code: i32, part: &str) {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.out, self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.err.starts_with("strata: ") && self.err.contains(part), "'{part}' is not in: {}", self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        assert_eq!(self.out, "");
    }
}

fn run(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ran {
    strata().args(args).output().unwrap().into()
}
