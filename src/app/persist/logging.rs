//! Log in the state folder: the program's actions, never the text of a document, a question or an answer.
//!
//! ```text
//! engine events ─► log_event ─┐
//! log::warn! of wgpu, eframe, winit ─► Logger ─► strata.log, strata.1.log, ... (the oldest goes)
//! panic ─► location only ─┘
//! ```
//! Invariants: 1. No line has text of a document, a question or an answer. Engine events add figures, names of models and
//! devices, and sentences of this program; a panic adds its location only, because its message can quote a text.
//! 2. The files together stay below `N_FILES * MAX_FILE_BYTES`. 3. A log that cannot be written stops nothing.
//!
//! Owner thread: any; a line is written under a lock.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::engine::EngineEvent;

/// Size of one file at most, bytes.
const MAX_FILE_BYTES: u64 = 512 << 10;
/// The current file and older ones.
const N_FILES: usize = 4;
/// Length of a line at most; the rest is cut.
const MAX_LINE_CHARS: usize = 1000;
/// Other crates whose warnings are logged.
const OTHERS: [&str; 5] = ["wgpu", "eframe", "egui_wgpu", "winit", "naga"];

/// Starts the log of this process, once. If it cannot be written, there is no log.
pub fn start(state: &Path) {
    let Some(file) = Rotating::open(state.join("strata.log")) else { return };
    if log::set_logger(Box::leak(Box::new(Logger(Mutex::new(file))))).is_err() {
        return;
    }
    log::set_max_level(LevelFilter::Info);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
        let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        log::error!("thread {thread} panicked at {place}");
        before(panic);
    }));
}

/// Logs an event of the engine.
pub fn log_event(event: &EngineEvent) {
    match event {
        EngineEvent::Device(device) => log::info!("device: {} ({:?})", device.name, device.machine),
        EngineEvent::ModelLoaded(info) => log::info!(
            "model loaded: {}, {}, {}, window {} of {} tokens, {} bytes on the device, {} for KV in {:?}",
            info.name,
            info.architecture,
            info.quantization,
            info.context_limit,
            info.context_len,
            info.vram_bytes,
            info.kv.io_backend,
            info.kv.budgets
        ),
        EngineEvent::ModelFailed { sentence, .. } => log::error!("model not loaded: {sentence}"),
        EngineEvent::ModelUnloaded => log::info!("model unloaded"),
        EngineEvent::Finished { summary, .. } => log::info!(
            "turn ended ({:?}): {} tokens of prompt, {} of them cached, prefill {:.0} ms, {} generated, {:.1} per second",
            summary.stop,
            summary.prompt_tokens,
            summary.cached_tokens,
            summary.prefill_ms,
            summary.generated_tokens,
            summary.tokens_per_s
        ),
        // The sentence may come from a chat template, which has the text of the messages.
        EngineEvent::Failed { bad_input, .. } => {
            log::error!("turn failed, {}", if *bad_input { "refused" } else { "broken off" })
        }
        EngineEvent::Notice(sentence) => log::warn!("{sentence}"),
        _ => {}
    }
}

struct Logger(Mutex<Rotating>);

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let of = |name: &str| metadata.target().split("::").next() == Some(name);
        let is_others = || OTHERS.iter().any(|name| metadata.target().starts_with(name));
        of(env!("CARGO_PKG_NAME")) || (metadata.level() <= Level::Warn && is_others())
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let said: String = record.args().to_string().chars().take(MAX_LINE_CHARS).collect();
            let line =
                format!("{} {:5} {} {}\n", jiff::Timestamp::now(), record.level(), record.target(), said.replace('\n', " "));
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(&line);
        }
    }

    fn flush(&self) {}
}

/// A log file with rotation.
struct Rotating {
    path: PathBuf,
    file: File,
    n_bytes: u64,
}

impl Rotating {
    fn open(path: PathBuf) -> Option<Rotating> {
        std::fs::create_dir_all(path.parent()?).ok()?;
        let file = File::options().create(true).append(true).open(&path).ok()?;
        let n_bytes = file.metadata().ok()?.len();
        Some(Rotating { path, file, n_bytes })
    }

    fn write(&mut self, line: &str) {
        if self.n_bytes + line.len() as u64 > MAX_FILE_BYTES {
            for n in (1..N_FILES).rev() {
                // A missing older file is no error.
                let _ = std::fs::rename(self.older(n - 1), self.older(n));
            }
            if let Some(fresh) = Rotating::open(self.path.clone()) {
                *self = fresh;
            }
        }
        if self.file.write_all(line.as_bytes()).is_ok() {
            self.n_bytes += line.len() as u64;
        }
    }

    /// `strata.log`, `strata.1.log`, `strata.2.log`, ...
    fn older(&self, n: usize) -> PathBuf {
        if n == 0 { self.path.clone() } else { self.path.with_extension(format!("{n}.log")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_stays_bounded_and_keeps_the_newest_lines() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Rotating::open(dir.path().join("strata.log")).unwrap();
        let line = format!("{}\n", "x".repeat(999));
        (0..4000).for_each(|_| log.write(&line));
        log.write("the newest\n");
        let files: Vec<u64> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).collect();
        assert_eq!(files.len(), N_FILES);
        assert!(files.iter().all(|n| *n <= MAX_FILE_BYTES) && files.iter().sum::<u64>() > MAX_FILE_BYTES);
        assert!(std::fs::read_to_string(dir.path().join("strata.log")).unwrap().ends_with("the newest\n"));
        drop(log);
        let again = Rotating::open(dir.path().join("strata.log")).unwrap();
        assert!(again.n_bytes > 0, "it goes on where it was");
    }

    #[test]
    fn own_words_and_warnings_of_the_devices_are_logged() {
        let dir = tempfile::tempdir().unwrap();
        let logger = Logger(Mutex::new(Rotating::open(dir.path().join("strata.log")).unwrap()));
        let is_logged = |target: &str, level| logger.enabled(&Metadata::builder().target(target).level(level).build());
        assert!(is_logged("strata::app::logs", Level::Info) && is_logged("wgpu_core::device", Level::Warn));
        assert!(
            !is_logged("wgpu_core::device", Level::Info)
                && !is_logged("epaint::text", Level::Error)
                && !is_logged("stratagem", Level::Info)
        );
    }
}
