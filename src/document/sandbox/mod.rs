//! Sandbox: a separate process of this program reads untrusted formats, and can only compute and reply.
//!
//! ```text
//! here:  bytes ─ stdin ─► strata __read-document PDF ─ stdout ─► progress …, Extracted or an error
//!        cancelled or stalled ─► kill                  child: memory, files and time limited; nothing can be opened
//! ```
//! Reason for a process: a parser of a hostile file may panic, loop, overflow its stack or exhaust memory, and only a process
//! can be ended with all that it holds. It costs a few milliseconds per file.
//!
//! Invariants: 1. [`read`] always returns, with a text or an error, whatever the child does. 2. The child does not outlive
//! the call. 3. Output of the child is validated like any untrusted input.
//! Limits: [`limits::READER_MEMORY_BYTES`], [`limits::READER_STALL_SECONDS`].

mod child;

pub use child::serve;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use serde::{Deserialize, Serialize};

use super::extract::{ExtractError, Extracted};
use super::file_format::FileFormat;
use super::{DocumentError, Progress};
use crate::base::{Bytes, limits};

/// First argument that makes the program a sandboxed reader; the second is the format.
pub const ARGUMENT: &str = "__read-document";
/// Interval between checks for cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Capacity of the queue of messages.
const QUEUE: usize = 64;
/// Largest reply, bytes: JSON of the largest text with escapes.
const MAX_REPLY_BYTES: u64 = 3 * limits::MAX_DOCUMENT_BYTES;

/// Message of the child, one line each.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// pages or chapters done, and their total
    Progress(usize, usize),
    /// the result, last
    Done(Result<Extracted, ExtractError>),
}

/// Path of the running program.
pub fn this_program() -> PathBuf {
    // The link stays valid if the file is replaced while the program runs.
    if cfg!(target_os = "linux") {
        return PathBuf::from("/proc/self/exe");
    }
    std::env::current_exe().unwrap_or_default()
}

/// Reads the content of a file in a process of `program`.
///
/// # Errors
/// The file cannot be read, or its reader crashed, stalled or was cancelled.
pub fn read(program: &Path, name: &str, kind: FileFormat, bytes: &[u8], progress: &Progress) -> Result<Extracted, DocumentError> {
    let no_reader = |e: std::io::Error| DocumentError::NoReader { name: name.to_owned(), reason: e.to_string() };
    let mut command = Command::new(program);
    command.arg(ARGUMENT).arg(kind.name()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Reaped(command.spawn().map_err(no_reader)?);
    let (stdin, stdout) = (child.0.stdin.take(), child.0.stdout.take());
    let (sender, messages) = bounded(QUEUE);
    std::thread::scope(|scope| {
        if let Some(mut stdin) = stdin {
            // If the child ends early, its result, or the lack of one, has the reason.
            scope.spawn(move || stdin.write_all(bytes));
        }
        if let Some(stdout) = stdout {
            scope.spawn(move || {
                let lines = BufReader::new(stdout.take(MAX_REPLY_BYTES)).lines().map_while(Result::ok);
                let messages = lines.map_while(|line| serde_json::from_str::<Message>(&line).ok());
                messages.map_while(|message| sender.send(message).ok()).for_each(|()| {});
            });
        }
        let result = wait(name, &messages, progress);
        drop(messages);
        // Ends the two threads on its pipes.
        child.end();
        result
    })
}

fn wait(name: &str, messages: &Receiver<Message>, progress: &Progress) -> Result<Extracted, DocumentError> {
    let name = || name.to_owned();
    let mut last_progress = Instant::now();
    loop {
        if progress.is_cancelled() {
            return Err(DocumentError::Cancelled { name: name() });
        }
        match messages.recv_timeout(POLL_INTERVAL) {
            Ok(Message::Progress(done, total)) => {
                progress.set(done, total);
                last_progress = Instant::now();
            }
            Ok(Message::Done(result)) => return result.map_err(|why| DocumentError::Refused { name: name(), why }),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(DocumentError::Crashed { name: name(), max: Bytes(limits::READER_MEMORY_BYTES) });
            }
            Err(RecvTimeoutError::Timeout) if last_progress.elapsed().as_secs() >= limits::READER_STALL_SECONDS => {
                return Err(DocumentError::Stalled { name: name(), seconds: limits::READER_STALL_SECONDS });
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// A child process that is killed and waited for on drop.
struct Reaped(Child);

impl Reaped {
    fn end(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        self.end();
    }
}
