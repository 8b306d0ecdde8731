//! Trace files: writes and reads traces and counters. Waits for the disk, so never call it on the UI thread.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use crate::app::dashboard::OpenRun;
use crate::base::Bytes;
use crate::telemetry::chrome_trace::{self, ChromeTrace, RunInfo};
use crate::telemetry::{Counters, History, Snapshot, jsonl, now};

/// A trace has its `traceEvents` key within so many bytes.
const HEAD_BYTES: u64 = 64 << 10;

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

/// Appends `counters` to a file of JSON lines.
///
/// # Errors
/// A file that cannot be written.
pub fn write_counters(path: &Path, counters: &Counters) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    jsonl::write_counters(&mut file, now(), counters)?;
    file.flush()
}

/// True if the file begins like a trace. False for pipes and devices: reading them may block.
pub fn is_trace(path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    let head = String::from_utf8_lossy(&head);
    let after_key = head.split_once("\"traceEvents\"").map(|(_, after)| after.trim_start());
    read.is_ok() && head.trim_start().starts_with('{') && after_key.is_some_and(|after| after.starts_with(':'))
}

/// Reads a trace, as a run with the name of its file.
///
/// # Errors
/// Error of a trace file, as one sentence.
pub fn read_trace(path: &Path) -> Result<OpenRun, String> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let file = File::open(path).map_err(|error| format!("{name} cannot be opened: {error}"))?;
    let recording = chrome_trace::read(BufReader::new(file)).map_err(|error| format!("{name}: {error}"))?;
    // No cap: a saved trace is shown whole.
    let mut history = History::new(Bytes(u64::MAX));
    history.add(&recording.snapshot);
    Ok(OpenRun { name, info: recording.run, history })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_is_known_by_what_it_holds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("some.json");
        for (text, expected) in [
            ("{\"displayTimeUnit\":\"ns\",\n \"traceEvents\" : [", true),
            ("{\"traceEvents\":", true),
            ("{\"rents\": [1662], \"note\": \"see traceEvents\"}", false),
            ("[\"traceEvents\", 1]", false),
            ("{\"a\": \"traceEvents\"}", false),
            ("", false),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(is_trace(&path), expected, "{text}");
        }
        assert!(!is_trace(dir.path()) && !is_trace(&dir.path().join("absent.json")));
    }
}
