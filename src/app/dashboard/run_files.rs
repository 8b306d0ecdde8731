//! Traces and counters to files and back. Everything here waits for a disk: not for the thread that draws.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

use super::runs::OpenRun;
use crate::base::Bytes;
use crate::telemetry::chrome::{self, ChromeTrace, RunInfo};
use crate::telemetry::{Counters, History, Snapshot, jsonl, now};

/// Writes a trace of `snapshot`.
///
/// # Errors
/// A file that cannot be written.
pub fn write_trace(path: &Path, snapshot: &Snapshot, run: RunInfo) -> io::Result<()> {
    let mut trace = ChromeTrace::new(BufWriter::new(File::create(path)?))?;
    trace.describe(run);
    trace.add(snapshot)?;
    trace.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Adds `counters` as they stand now to a file of JSON lines.
///
/// # Errors
/// A file that cannot be written.
pub fn write_counters(path: &Path, counters: &Counters) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    jsonl::write_counters(&mut file, now(), counters)?;
    file.flush()
}

/// Reads a trace, as a run under the name of its file.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn read_trace(path: &Path) -> Result<OpenRun, String> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let file = File::open(path).map_err(|error| format!("{name} cannot be opened: {error}"))?;
    let recording = chrome::read(BufReader::new(file)).map_err(|error| format!("{name}: {error}"))?;
    // As much as the file may hold: what was saved is shown whole.
    let mut history = History::new(Bytes(u64::MAX));
    history.add(&recording.snapshot);
    Ok(OpenRun { name, info: recording.run, history })
}
