//! `strata library`: lists, adds, removes and verifies saved documents.
//!
//! ```text
//! list, remove, verify ─► catalog and stores, no model ─► table │ JSON lines
//! add FILE... ─► Session ─► Prefill, one document after the other ─► summary of each
//! ```
//! Invariants: 1. `list` and `verify` create nothing: a missing library is empty. 2. After Ctrl-C the prefilled part stays
//! saved, and no further document is begun.

use std::fmt::Write;
use std::path::Path;

use super::args::{LibraryAddArgs, LibraryArgs, LibraryCommand, LibraryRemoveArgs};
use super::console::Console;
use super::error::CliError;
use super::input;
use super::interrupt::Interrupt;
use super::session::Session;
use crate::base::Bytes;
use crate::document::catalog::Catalog;
use crate::engine::saved_documents::{self, Checked, SavedError};
use crate::engine::{DocumentRef, EngineCommand, SavedDocument, SavedState, StopReason};
use crate::kv::store::StoreRoot;

/// Digits of an id in the table.
const SHORT_ID_LEN: usize = 8;

/// Runs the command. `start` creates the session if a model is needed; otherwise `interrupt` handles Ctrl-C.
///
/// # Errors
/// A bad file, model or id; a corrupt page; a failure of the engine, the library or the output.
pub fn run(
    command: &LibraryCommand,
    start: impl FnOnce() -> Session,
    interrupt: impl FnOnce() -> Interrupt,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        LibraryCommand::List(args) => list(args, console),
        LibraryCommand::Add(args) => add(args, start, console),
        LibraryCommand::Remove(args) => remove(args, console),
        LibraryCommand::Verify(args) => verify(args, &interrupt(), console),
    }
}

/// The library of `kv_dir`, or the user's default one; None if its folder does not exist.
fn open(kv_dir: Option<&Path>, console: &mut Console) -> Result<Option<(Catalog, StoreRoot)>, CliError> {
    let root = saved_documents::library_root(kv_dir)?;
    if !root.exists() {
        return Ok(None);
    }
    let (catalog, note) = Catalog::open(&root).map_err(SavedError::from)?;
    if let Some(note) = note {
        console.note(&note)?;
    }
    Ok(Some((catalog, StoreRoot::at(root))))
}

fn list(args: &LibraryArgs, console: &mut Console) -> Result<(), CliError> {
    let saved = match open(args.folder.kv_dir.as_deref(), console)? {
        Some((catalog, stores)) => saved_documents::list(&catalog, &stores)?,
        None => Vec::new(),
    };
    if args.json {
        return saved.iter().try_for_each(|document| console.json_line(document));
    }
    if saved.is_empty() {
        return console.note("no documents are saved. Save one with `strata library add FILE`");
    }
    console.text(&table(&saved))
}

fn add(args: &LibraryAddArgs, start: impl FnOnce() -> Session, console: &mut Console) -> Result<(), CliError> {
    let docs = input::read_documents(&args.files)?;
    input::notes(&docs).try_for_each(|note| console.note(&note))?;
    let mut session = start();
    session.load(args.model.source(), args.device.options(), console)?;
    for doc in &docs {
        if session.interrupted() {
            return Ok(());
        }
        let request = session.next_request();
        let documents = DocumentRef::joined([doc], true);
        let command = EngineCommand::Prefill { request, text: doc.text.clone(), documents };
        let cost = session.run_request(request, command, console, |_, _| Ok(()))?;
        if args.json {
            console.json_line(&serde_json::json!({
                "event": "summary", "name": doc.name, "prompt_tokens": cost.prompt_tokens,
                "cached_tokens": cost.cached_tokens, "prefill_ms": cost.prefill_ms, "kv_bytes": cost.kv_bytes, "stop": cost.stop,
            }))?;
        } else {
            let (tokens, known, secs) = (cost.prompt_tokens, cost.cached_tokens, cost.prefill_ms / 1000.0);
            console.text(&format!("{}: {tokens} tokens, {known} cached, the rest prefilled in {secs:.1} s\n", doc.name))?;
        }
        if cost.stop == StopReason::Cancelled {
            return console
                .note(&format!("interrupted. The prefilled part of {} is saved; the same command continues it", doc.name));
        }
    }
    Ok(())
}

fn remove(args: &LibraryRemoveArgs, console: &mut Console) -> Result<(), CliError> {
    let Some((catalog, stores)) = open(args.folder.kv_dir.as_deref(), console)? else {
        return Err(CliError::Input(format!("the library has no document '{}'. Nothing is saved yet", args.id)));
    };
    saved_documents::remove(&catalog, &stores, &args.id)?.iter().try_for_each(|removed| {
        console.text(&format!("removed {} ({}), {} freed\n", full_name(removed), shown_id(removed), Bytes(removed.kv_bytes)))
    })
}

fn verify(args: &LibraryArgs, interrupt: &Interrupt, console: &mut Console) -> Result<(), CliError> {
    let Some((catalog, stores)) = open(args.folder.kv_dir.as_deref(), console)? else { return Ok(()) };
    let mut printed = Ok(());
    let checked = saved_documents::verify(&catalog, &stores, &mut |name, done, all| {
        // JSON lines are for results only.
        if printed.is_ok() && !args.json {
            printed = console.progress(&format!("checking {name}: {done} of {all} pages"), &());
        }
        printed.is_ok() && !interrupt.pressed()
    })?;
    printed?;
    for one in &checked {
        if args.json { console.json_line(one)? } else { console.text(&verdict(one))? }
    }
    if interrupt.pressed() {
        return Err(CliError::Failed("interrupted before every page was checked. Run the command again".to_owned()));
    }
    match checked.iter().filter(|c| c.is_damaged()).count() {
        0 => Ok(()),
        n => Err(CliError::Failed(format!(
            "{n} of {} saved documents are damaged. Damaged pages are computed again when a document is opened",
            checked.len()
        ))),
    }
}

fn verdict(checked: &Checked) -> String {
    let id = checked.id.get(..SHORT_ID_LEN).unwrap_or(&checked.id);
    let pages = checked.pages;
    let what = match &checked.problem {
        Some(problem) if checked.in_use => format!("not checked: {problem}"),
        Some(problem) => format!("damaged: {problem}"),
        None if checked.damaged > 0 => format!("damaged: {} of {pages} pages and entries", checked.damaged),
        None => format!("whole: {pages} pages"),
    };
    format!("{id}  {}: {what}\n", checked.name)
}

fn shown_id(document: &SavedDocument) -> &str {
    document.id.get(..SHORT_ID_LEN).unwrap_or(&document.id)
}

/// `b.txt`, or `b.txt, after a.txt`
fn full_name(document: &SavedDocument) -> String {
    let before: Vec<&str> = document.after.iter().map(|before| before.name.as_str()).collect();
    if before.is_empty() { document.name.clone() } else { format!("{}, after {}", document.name, before.join(", ")) }
}

fn table(saved: &[SavedDocument]) -> String {
    let heads = ["id", "state", "tokens", "on disk", "prefill took", "last used", "model", "document"].map(str::to_owned);
    let rows = saved.iter().map(|document| {
        let tokens = match document.state {
            SavedState::Partial => format!("{} of {}", document.saved_tokens, document.tokens),
            SavedState::Read | SavedState::Missing => document.tokens.to_string(),
        };
        [
            shown_id(document).to_owned(),
            state(document.state).to_owned(),
            tokens,
            Bytes(document.kv_bytes).to_string(),
            format!("{:.1} s", document.prefill_seconds),
            day(document.last_used),
            format!("{} {}", document.model, document.kv_dtype.name()),
            full_name(document),
        ]
    });
    let rows: Vec<[String; 8]> = std::iter::once(heads).chain(rows).collect();
    let width = |column: usize| rows.iter().filter_map(|r| r.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..8).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

fn state(state: SavedState) -> &'static str {
    match state {
        SavedState::Read => "read",
        SavedState::Partial => "partial",
        SavedState::Missing => "missing",
    }
}

/// Date in the user's time zone.
fn day(seconds: i64) -> String {
    let Ok(then) = jiff::Timestamp::from_second(seconds) else { return "N/A".to_owned() };
    then.to_zoned(jiff::tz::TimeZone::system()).date().to_string()
}

impl From<SavedError> for CliError {
    fn from(error: SavedError) -> Self {
        if error.is_bad_input() { CliError::Input(error.to_string()) } else { CliError::Failed(error.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::args::{Cli, Command};
    use crate::cli::mock_engine::{finished, session};
    use crate::engine::{EngineEvent, EnginePort};

    /// Runs `library add` on a mock engine: result, stdout, stderr, and the commands that the engine got.
    fn add_with(
        words: &[&str],
        respond: impl Fn(&EngineCommand, &EnginePort) + Send + 'static,
    ) -> (Result<(), CliError>, String, String, Vec<EngineCommand>) {
        let Some(Command::Library(command)) = Cli::parse_from(["strata", "library", "add"].iter().chain(words)).command else {
            panic!("not library")
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let (session, worker) = session(Interrupt::default(), respond);
        let mut console = Console::plain(&mut out, &mut err, words.contains(&"--json"));
        let result = run(&command, || session, Interrupt::default, &mut console);
        drop(console);
        (result, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), worker.join().unwrap())
    }

    fn files(names: &[&str]) -> (tempfile::TempDir, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let paths = names.iter().map(|name| dir.path().join(name)).collect::<Vec<_>>();
        paths.iter().for_each(|path| std::fs::write(path, "Rents rose.").unwrap());
        (dir, paths.iter().map(|path| path.to_str().unwrap().to_owned()).collect())
    }

    #[test]
    fn add_prefills_each_file_separately_and_prints_notices() {
        let (_dir, paths) = files(&["a.txt", "b.txt"]);
        let words: Vec<&str> = paths.iter().map(String::as_str).collect();
        let (result, out, err, seen) = add_with(&words, |command, port| {
            let EngineCommand::Prefill { request, .. } = command else { panic!("{command:?}") };
            port.emit(EngineEvent::Notice("saved in the library".into()));
            port.emit(finished(*request, 0, StopReason::Length));
        });
        result.unwrap();
        assert!(out.starts_with("a.txt: 10 tokens, 4 cached") && out.contains("\nb.txt: "), "{out}");
        assert_eq!(err.matches("strata: saved in the library").count(), 2, "{err}");
        let names = seen.iter().filter_map(|c| match c {
            EngineCommand::Prefill { text, documents, .. } => {
                documents.first().map(|d| (d.name.as_str(), d.save, d.end_byte == text.len()))
            }
            _ => None,
        });
        assert_eq!(names.collect::<Vec<_>>(), [("a.txt", true, true), ("b.txt", true, true)]);
    }

    #[test]
    fn interrupted_add_saves_the_prefilled_part_and_begins_no_other() {
        let (_dir, paths) = files(&["a.txt", "b.txt"]);
        let words: Vec<&str> = paths.iter().map(String::as_str).chain(["--json"]).collect();
        let (result, out, _, seen) = add_with(&words, |command, port| {
            let EngineCommand::Prefill { request, .. } = command else { panic!("{command:?}") };
            port.emit(finished(*request, 0, StopReason::Cancelled));
        });
        result.unwrap();
        assert_eq!(seen.len(), 2, "load, and one prefill");
        let last: Vec<serde_json::Value> = out.lines().rev().take(2).map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!((&last[1]["event"], &last[1]["stop"]), (&"summary".into(), &"cancelled".into()));
        assert!(last[0]["text"].as_str().unwrap().contains("is saved"), "{out}");
    }
}
