//! The process that reads one untrusted file.
//!
//! ```text
//! confine ──► stdin: the file ──► extract, on a large stack ──► stdout: lines of JSON
//! ```
//! Invariants: 1. limits are set before the first byte of the file is read; 2. from then on no file and no socket can be
//! opened: the three that are open are all that may be. Off Unix, the parent's clock and the parsers' own limits remain.

use std::io::{Read, Write};
use std::process::ExitCode;

use super::Message;
use crate::base::limits;
use crate::document::extract::{ExtractError, extract};
use crate::document::file_format::FileFormat;

/// Parsers recurse on nested content.
const STACK_BYTES: usize = 64 << 20;

/// Reads the file on stdin as the named format, and answers on stdout.
pub fn serve(kind: &str) -> ExitCode {
    confine();
    // What a parser complains of is nobody's business; that it ended is.
    std::panic::set_hook(Box::new(|_| {}));
    let kinds = [FileFormat::Html, FileFormat::Pdf, FileFormat::Docx, FileFormat::Epub];
    let Some(kind) = kinds.into_iter().find(|k| k.name() == kind) else { return ExitCode::FAILURE };
    let mut bytes = Vec::new();
    if std::io::stdin().lock().take(limits::MAX_FILE_BYTES + 1).read_to_end(&mut bytes).is_err() {
        return ExitCode::FAILURE;
    }
    let work = move || {
        let answer = extract(kind, &bytes, &mut |done, total| tell(&Message::Progress(done, total)));
        tell(&Message::Done(answer));
    };
    match std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).map(std::thread::JoinHandle::join) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(_)) => {
            tell(&Message::Done(Err(ExtractError::Damaged { what: "its reader gave up on it".to_owned() })));
            ExitCode::FAILURE
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// A parent that is gone needs no answer.
fn tell(message: &Message) {
    let mut out = std::io::stdout().lock();
    let written = serde_json::to_writer(&mut out, message).is_ok() && out.write_all(b"\n").and_then(|()| out.flush()).is_ok();
    if !written {
        std::process::exit(1);
    }
}

#[cfg(unix)]
fn confine() {
    use rlimit::Resource;
    /// Processor time of the longest book, for a parent that was killed.
    const CPU_SECONDS: u64 = 900;
    /// stdin, stdout and stderr.
    const OPEN_FILES: u64 = 3;
    let limits = [
        (Resource::AS, limits::READER_MEMORY_BYTES),
        (Resource::CPU, CPU_SECONDS),
        (Resource::NOFILE, OPEN_FILES),
        (Resource::FSIZE, 0),
        (Resource::CORE, 0),
    ];
    for (resource, limit) in limits {
        // A system that refuses one (macOS knows no limit on addresses) keeps the others.
        let _ = resource.set(limit, limit);
    }
}

#[cfg(not(unix))]
fn confine() {}
