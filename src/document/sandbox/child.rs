//! Sandboxed child process: reads one untrusted file.
//!
//! ```text
//! confine ──► stdin: the file ──► extract, on a large stack ──► stdout: JSON lines
//! ```
//! Invariants: 1. Limits are set before the first byte of the file is read. 2. After that no file and no socket can be
//! opened beyond stdin, stdout and stderr. Outside of Unix only the parent's timeout and the parsers' own limits remain.

use std::io::{Read, Write};
use std::process::ExitCode;

use super::Message;
use crate::base::limits;
use crate::document::extract::{ExtractError, extract};
use crate::document::file_format::FileFormat;

/// Stack size, bytes: parsers recurse on nested content.
const STACK_BYTES: usize = 64 << 20;

/// Reads a file of the named format on stdin, and writes the result to stdout.
pub fn serve(kind: &str) -> ExitCode {
    confine();
    // Panic messages of parsers are suppressed; the parent reports the crash.
    std::panic::set_hook(Box::new(|_| {}));
    let kinds = [FileFormat::Html, FileFormat::Pdf, FileFormat::Docx, FileFormat::Epub];
    let Some(kind) = kinds.into_iter().find(|k| k.name() == kind) else { return ExitCode::FAILURE };
    let mut bytes = Vec::new();
    if std::io::stdin().lock().take(limits::MAX_FILE_BYTES + 1).read_to_end(&mut bytes).is_err() {
        return ExitCode::FAILURE;
    }
    let work = move || {
        let result = extract(kind, &bytes, &mut |done, total| send(&Message::Progress(done, total)));
        send(&Message::Done(result));
    };
    match std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).map(std::thread::JoinHandle::join) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(_)) => {
            send(&Message::Done(Err(ExtractError::Corrupt { what: "its reader crashed".to_owned() })));
            ExitCode::FAILURE
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// Writes a message; exits if the parent is gone.
fn send(message: &Message) {
    let mut out = std::io::stdout().lock();
    let written = serde_json::to_writer(&mut out, message).is_ok() && out.write_all(b"\n").and_then(|()| out.flush()).is_ok();
    if !written {
        std::process::exit(1);
    }
}

#[cfg(unix)]
fn confine() {
    use rlimit::Resource;
    /// Largest CPU time, seconds, in case the parent was killed.
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
        // A system that rejects one limit (macOS has no RLIMIT_AS) keeps the others.
        let _ = resource.set(limit, limit);
    }
}

#[cfg(not(unix))]
fn confine() {}
