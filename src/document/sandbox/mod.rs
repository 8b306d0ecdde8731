//! Untrusted formats are read by another process of this program, which can do nothing but compute and answer.
//!
//! ```text
//! here:  bytes ─ stdin ─► strata __read-document PDF ─ stdout ─► progress …, Extracted or why not
//!        cancel, no progress ─► kill                   child: memory, files, time limited; nothing can be opened
//! ```
//! Why a process: a parser of a hostile file may panic, loop, recurse off its stack or ask for all memory, and only a
//! process ends with all that it holds. It costs a few milliseconds a file.
//!
//! Invariants: 1. whatever the child does, [`read`] returns: with a text, or with one sentence; 2. the child does not
//! outlive it; 3. what the child says is checked like any other input.
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
use super::{DocumentError, Watch};
use crate::base::{Bytes, limits};

/// First argument of the program that makes it a reader; the second is the format.
pub const ARGUMENT: &str = "__read-document";
/// Between two looks at whether the reading was cancelled.
const LOOK: Duration = Duration::from_millis(50);
/// Answers that wait at most.
const QUEUE: usize = 64;
/// JSON of the largest text, with its escapes.
const MAX_ANSWER_BYTES: u64 = 3 * limits::MAX_DOCUMENT_BYTES;

/// What the child says, one line each.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// pages or chapters: done, and all
    Progress(usize, usize),
    /// the last one
    Done(Result<Extracted, ExtractError>),
}

/// The program that runs, to be started again.
pub fn this_program() -> PathBuf {
    // The link stays right where the file was replaced while the program runs.
    if cfg!(target_os = "linux") {
        return PathBuf::from("/proc/self/exe");
    }
    std::env::current_exe().unwrap_or_default()
}

/// Lets a process of `program` read the content of a file.
///
/// # Errors
/// What is wrong with the file, or that its reader crashed, stalled or was cancelled.
pub fn read(program: &Path, name: &str, kind: FileFormat, bytes: &[u8], watch: &Watch) -> Result<Extracted, DocumentError> {
    let no_reader = |e: std::io::Error| DocumentError::NoReader { name: name.to_owned(), reason: e.to_string() };
    let mut command = Command::new(program);
    command.arg(ARGUMENT).arg(kind.name()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Reaped(command.spawn().map_err(no_reader)?);
    let (stdin, stdout) = (child.0.stdin.take(), child.0.stdout.take());
    let (sender, messages) = bounded(QUEUE);
    std::thread::scope(|scope| {
        if let Some(mut stdin) = stdin {
            // A child that ended reads no more: then its answer, or the lack of one, says why.
            scope.spawn(move || stdin.write_all(bytes));
        }
        if let Some(stdout) = stdout {
            scope.spawn(move || {
                let lines = BufReader::new(stdout.take(MAX_ANSWER_BYTES)).lines().map_while(Result::ok);
                let messages = lines.map_while(|line| serde_json::from_str::<Message>(&line).ok());
                messages.map_while(|message| sender.send(message).ok()).for_each(|()| {});
            });
        }
        let answer = wait(name, &messages, watch);
        drop(messages);
        // Ends the threads that write to it and read from it.
        child.end();
        answer
    })
}

fn wait(name: &str, messages: &Receiver<Message>, watch: &Watch) -> Result<Extracted, DocumentError> {
    let name = || name.to_owned();
    let mut last_sign = Instant::now();
    loop {
        if watch.is_cancelled() {
            return Err(DocumentError::Cancelled { name: name() });
        }
        match messages.recv_timeout(LOOK) {
            Ok(Message::Progress(done, total)) => {
                watch.set(done, total);
                last_sign = Instant::now();
            }
            Ok(Message::Done(answer)) => return answer.map_err(|why| DocumentError::Refused { name: name(), why }),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(DocumentError::Crashed { name: name(), max: Bytes(limits::READER_MEMORY_BYTES) });
            }
            Err(RecvTimeoutError::Timeout) if last_sign.elapsed().as_secs() >= limits::READER_STALL_SECONDS => {
                return Err(DocumentError::Stalled { name: name(), seconds: limits::READER_STALL_SECONDS });
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// A child that is ended and waited for, whatever happens here.
struct Reaped(Child);

impl Reaped {
    fn end(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        self.end();
    }
}
