//! `strata logits`: writes the logits of every position, for comparison with other engines.
//!
//! ```text
//! --text ─► ids │ --tokens ─► ids ─► Session ─► rows [n, V] ─► FILE.npy [T, V] float32
//! ```
//! Invariants: 1. Rows are written in order, each once. 2. A failed run leaves no partial file.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use super::args::LogitsArgs;
use super::console::Console;
use super::error::CliError;
use super::input::{self, Encoding};
use super::npy::NpyWriter;
use super::session::Session;
use crate::engine::{EngineCommand, EngineEvent, LoadOptions, StopReason};

/// Writes `[T, V]` logits. `start` creates the session after the text is read.
///
/// # Errors
/// A bad text, token id, model or output path; a failure of the engine; Ctrl-C.
pub fn run(args: &LogitsArgs, start: impl FnOnce() -> Session, console: &mut Console) -> Result<(), CliError> {
    let mut tokens = match &args.text {
        Some(path) => {
            let encoding = Encoding { with_start: true, parse_special: true };
            input::token_ids(&args.model.source(), &input::read_text(path)?, encoding)?
        }
        None => args.tokens.clone(),
    };
    tokens.truncate(args.max_tokens.unwrap_or(usize::MAX));
    if tokens.is_empty() {
        return Err(CliError::Input("there are no tokens. Give --text or --tokens at least one".to_owned()));
    }
    check_folder(&args.out)?;
    let mut session = start();
    let options = LoadOptions { exact: true, ..args.device.options() };
    let info = session.load(args.model.source(), options, console)?;
    let mut is_created = false;
    match write(args, &mut session, tokens, console, &mut is_created) {
        Ok([n_rows, n_cols]) if console.is_json() => console.json_line(&serde_json::json!({
            "event": "summary", "model": info.name, "adapter": info.adapter, "out": args.out, "shape": [n_rows, n_cols],
        })),
        Ok([n_rows, n_cols]) => {
            console.detail(&format!("{}: float32 [{n_rows}, {n_cols}]", args.out.display()));
            Ok(())
        }
        Err(error) => {
            // Only a file that this run created is removed; a device such as /dev/null stays.
            if is_created && args.out.metadata().is_ok_and(|m| m.is_file()) {
                let _ = std::fs::remove_file(&args.out);
            }
            Err(error)
        }
    }
}

/// Streams the rows to the file and returns its shape. `is_created` is set once the file exists.
fn write(
    args: &LogitsArgs,
    session: &mut Session,
    tokens: Vec<u32>,
    console: &mut Console,
    is_created: &mut bool,
) -> Result<[usize; 2], CliError> {
    let n_tokens = tokens.len();
    let request = session.next_request();
    let mut npy: Option<NpyWriter<BufWriter<File>>> = None;
    let mut shape = [0, 0];
    let cost = session.run_request(request, EngineCommand::Logits { request, tokens }, console, |event, console| {
        let EngineEvent::LogitsRows { first, rows, vocab_size, .. } = event else { return Ok(()) };
        let writer = match &mut npy {
            Some(writer) => writer,
            None => {
                let file = File::create(&args.out).map_err(|e| cannot_write(&args.out, &e))?;
                *is_created = true;
                let made = NpyWriter::new(BufWriter::new(file), n_tokens, vocab_size);
                npy.insert(made.map_err(|e| cannot_write(&args.out, &e))?)
            }
        };
        if first != shape[0] {
            return Err(CliError::Failed(format!("the engine returned logits of position {first} instead of {}", shape[0])));
        }
        writer.rows(&rows).map_err(|e| cannot_write(&args.out, &e))?;
        shape = [first + rows.len().checked_div(vocab_size).unwrap_or(0), vocab_size];
        let json = serde_json::json!({ "event": "progress", "phase": "logits", "done": shape[0], "total": n_tokens });
        console.progress(&format!("logits of {} of {n_tokens} tokens", shape[0]), &json)
    })?;
    if cost.stop == StopReason::Cancelled {
        return Err(CliError::Failed(format!("interrupted after {} of {n_tokens} tokens. No file was written", shape[0])));
    }
    let writer = npy.ok_or_else(|| CliError::Failed("the engine returned no logits".to_owned()))?;
    writer.finish().map_err(|e| cannot_write(&args.out, &e))?;
    Ok(shape)
}

/// Rejects an output path that cannot be written, before a model is loaded.
fn check_folder(out: &Path) -> Result<(), CliError> {
    let folder = match out.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if out.is_dir() {
        return Err(CliError::Input(format!("{} is a folder. Give a .npy file", out.display())));
    }
    if !folder.is_dir() {
        return Err(CliError::Input(format!("the folder {} does not exist. Create it first", folder.display())));
    }
    Ok(())
}

fn cannot_write(path: &Path, error: &io::Error) -> CliError {
    CliError::Failed(format!("{} could not be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::args::{Cli, Command};
    use crate::cli::interrupt::Interrupt;
    use crate::cli::mock_engine::{finished, session};

    /// Runs `logits` on a mock engine that returns rows of two, starting at the positions of `firsts`.
    fn run_mock(out: &Path, firsts: &'static [usize], stop: StopReason) -> Result<(), CliError> {
        let words = ["strata", "logits", "--tokens", "7,8,9", "--out", out.to_str().unwrap()];
        let Some(Command::Logits(args)) = Cli::parse_from(words).command else { panic!("not logits") };
        let (session, worker) = session(Interrupt::default(), move |command, port| {
            let EngineCommand::Logits { request, tokens } = command else { panic!("{command:?}") };
            assert_eq!(tokens, &[7, 8, 9]);
            for first in firsts {
                let rows = vec![*first as f32, 0.5];
                port.emit(EngineEvent::LogitsRows { request: *request, first: *first, rows, vocab_size: 2 });
            }
            port.emit(finished(*request, 0, stop));
        });
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let result = run(&args, || session, &mut Console::plain(&mut stdout, &mut stderr, false));
        worker.join().unwrap();
        result
    }

    #[test]
    fn logits_rows_become_a_matrix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l.npy");
        run_mock(&path, &[0, 1, 2], StopReason::Eos).unwrap();
        let bytes = std::fs::read(path).unwrap();
        assert!(String::from_utf8_lossy(&bytes[..128]).contains("'shape': (3, 2)"));
        assert_eq!(bytes.len() % 64, 3 * 2 * 4);
        assert_eq!(bytes[bytes.len() - 8..bytes.len() - 4], 2.0f32.to_le_bytes());
    }

    #[test]
    fn missing_or_unordered_logits_leave_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l.npy");
        for (firsts, stop) in
            [(&[0, 1][..], StopReason::Eos), (&[0, 2], StopReason::Eos), (&[0], StopReason::Cancelled), (&[], StopReason::Eos)]
        {
            assert_eq!(run_mock(&path, firsts, stop).unwrap_err().exit_code(), 1, "{firsts:?}");
            assert!(!path.exists(), "{firsts:?}");
        }
        assert_eq!(run_mock(&dir.path().join("no/l.npy"), &[0], StopReason::Eos).unwrap_err().exit_code(), 2);
    }
}
