//! I/O backends: requests, completions, and the state that each backend shares with the owner.
//!
//! ```text
//! Job(IoRequest) ─► Backend ─► Outbox ─► IoDone
//! ```
//! A request is done when all of its bytes are: short reads resume, EINTR and EAGAIN are retried.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, io};

use crossbeam_channel::{Sender, TrySendError};

use crate::kv::store::slab::Slab;
use crate::kv::store::storage::{IoOp, Storage, read_exact, write_all};

/// Default number of operations in flight.
pub const DEFAULT_DEPTH: u32 = 64;
/// Default maximum of outstanding requests.
pub const DEFAULT_QUEUE: usize = 1024;
/// Environment variable that selects a backend: `STRATA_IO=threads`.
pub const IO_VARIABLE: &str = "STRATA_IO";

/// I/O backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoKind {
    /// one ring on one thread
    Uring,
    /// positioned reads and writes on a pool of threads
    Threads,
}

impl fmt::Display for IoKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoKind::Uring => "io_uring",
            IoKind::Threads => "threads",
        })
    }
}

/// Configuration of the backend.
#[derive(Debug, Clone)]
pub struct IoConfig {
    /// the backend to use; none: a ring if one can be created
    pub force: Option<IoKind>,
    /// operations in flight
    pub depth: u32,
    /// maximum of outstanding requests
    pub queue: usize,
    /// false: plain reads into unregistered memory
    pub register_buffers: bool,
}

impl Default for IoConfig {
    fn default() -> Self {
        IoConfig { force: None, depth: DEFAULT_DEPTH, queue: DEFAULT_QUEUE, register_buffers: true }
    }
}

impl IoConfig {
    /// The defaults, overridden by `STRATA_IO`.
    pub fn from_env() -> Self {
        let force = match std::env::var(IO_VARIABLE).as_deref() {
            Ok("threads") => Some(IoKind::Threads),
            _ => None,
        };
        IoConfig { force, ..IoConfig::default() }
    }
}

/// The backend in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoInfo {
    /// which backend
    pub kind: IoKind,
    /// reason for this backend
    pub reason: String,
    /// operations in flight
    pub depth: u32,
}

/// I/O counters since the start. A snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// bytes read
    pub read_bytes: u64,
    /// bytes written
    pub written_bytes: u64,
    /// requests completed
    pub n_done: u64,
    /// requests failed
    pub n_failed: u64,
    /// operations resubmitted for their remaining bytes
    pub n_short: u64,
    /// operations resubmitted after EINTR or EAGAIN
    pub n_retried: u64,
    /// operations into registered memory
    pub n_fixed_buffer: u64,
    /// operations on registered files
    pub n_fixed_file: u64,
    /// regions that could not be registered, usually because of the limit on locked memory
    pub n_unregistered: u64,
}

/// Same as [`IoCounts`], shared between threads.
#[derive(Debug, Default)]
pub struct Counters {
    pub(in crate::kv::store) read_bytes: AtomicU64,
    pub(in crate::kv::store) written_bytes: AtomicU64,
    pub(in crate::kv::store) n_done: AtomicU64,
    pub(in crate::kv::store) n_failed: AtomicU64,
    pub(in crate::kv::store) n_short: AtomicU64,
    pub(in crate::kv::store) n_retried: AtomicU64,
    pub(in crate::kv::store) n_fixed_buffer: AtomicU64,
    pub(in crate::kv::store) n_fixed_file: AtomicU64,
    pub(in crate::kv::store) n_unregistered: AtomicU64,
}

/// Adds one.
pub(in crate::kv::store) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(in crate::kv::store) fn snapshot(&self) -> IoCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        IoCounts {
            read_bytes: of(&self.read_bytes),
            written_bytes: of(&self.written_bytes),
            n_done: of(&self.n_done),
            n_failed: of(&self.n_failed),
            n_short: of(&self.n_short),
            n_retried: of(&self.n_retried),
            n_fixed_buffer: of(&self.n_fixed_buffer),
            n_fixed_file: of(&self.n_fixed_file),
            n_unregistered: of(&self.n_unregistered),
        }
    }
}

/// Cancels a set of requests: those that have not begun complete as cancelled.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Cancels the requests.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// True after [`Cancel::cancel`].
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Memory and direction of a request.
#[derive(Debug)]
pub enum IoBuffer {
    /// filled from the disk
    Read(Slab),
    /// written to the disk; others may read it meanwhile
    Write(Arc<Slab>),
}

impl IoBuffer {
    /// Direction.
    pub fn op(&self) -> IoOp {
        match self {
            IoBuffer::Read(_) => IoOp::Read,
            IoBuffer::Write(_) => IoOp::Write,
        }
    }

    /// The memory.
    pub fn slab(&self) -> &Slab {
        match self {
            IoBuffer::Read(slab) => slab,
            IoBuffer::Write(slab) => slab,
        }
    }

    /// The slab of a read.
    pub fn into_read(self) -> Option<Slab> {
        match self {
            IoBuffer::Read(slab) => Some(slab),
            IoBuffer::Write(_) => None,
        }
    }

    /// Bytes of it.
    pub(in crate::kv::store) fn len(&self) -> usize {
        self.slab().len()
    }
}

/// A read into, or write from, the first `len` bytes of a slab.
#[derive(Debug)]
pub struct IoRequest {
    /// returned with the result
    pub tag: u64,
    /// the file
    pub storage: Arc<dyn Storage>,
    /// offset in the file
    pub offset: u64,
    /// length in bytes
    pub len: usize,
    /// destination or source
    pub buffer: IoBuffer,
    /// cancels the request
    pub cancel: Cancel,
}

/// A completed request.
#[derive(Debug)]
pub struct IoDone {
    /// of the request
    pub tag: u64,
    /// of the request
    pub op: IoOp,
    /// success of all bytes, or the error
    pub result: io::Result<()>,
    /// the memory; none only if the ring failed and the kernel may still use the slab
    pub buffer: Option<IoBuffer>,
    /// of the request
    pub len: usize,
    /// time from `submit` until the disk began
    pub wait: Duration,
    /// time from then until completion
    pub service: Duration,
}

/// A request with its submit time.
#[derive(Debug)]
pub struct Job {
    pub(in crate::kv::store) request: IoRequest,
    pub(in crate::kv::store) submitted: Instant,
}

/// I/O backend: takes jobs, and sends their results.
pub trait Backend: Send + Sync + fmt::Debug {
    /// Kind of backend, and the reason for it.
    fn info(&self) -> &IoInfo;
    /// Takes a job, or returns it if the queue is full or closed.
    fn push(&self, job: Job) -> Result<(), Job>;
}

/// Sender of completions, with the counters.
#[derive(Debug, Clone)]
pub struct Outbox {
    pub(in crate::kv::store) done: Sender<IoDone>,
    pub(in crate::kv::store) counters: Arc<Counters>,
    pub(in crate::kv::store) closing: Arc<AtomicBool>,
}

impl Outbox {
    /// True if the job was cancelled, or the backend is closing.
    pub(in crate::kv::store) fn is_cancelled(&self, job: &Job) -> bool {
        job.request.cancel.is_cancelled() || self.closing.load(Ordering::Acquire)
    }

    /// Sends the result of a job. The bound on outstanding requests guarantees room for it. If the owner is gone, the
    /// slab returns to its pool here.
    pub(in crate::kv::store) fn send(&self, job: Job, began: Instant, result: io::Result<()>) {
        let IoRequest { tag, len, buffer, .. } = job.request;
        let op = buffer.op();
        self.count_result(op, len, &result);
        let (wait, service) = (began.duration_since(job.submitted), began.elapsed());
        let _ = self.done.try_send(IoDone { tag, op, result, buffer: Some(buffer), len, wait, service });
    }

    /// Sends a failure and leaks the memory, because the kernel may still use it.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only a ring can fail"))]
    pub(in crate::kv::store) fn send_leaking(&self, job: Job, began: Instant, error: &io::Error) {
        let IoRequest { tag, len, buffer, .. } = job.request;
        let op = buffer.op();
        std::mem::forget(buffer);
        let result = Err(io::Error::new(error.kind(), format!("the ring failed: {error}")));
        self.count_result(op, len, &result);
        let (wait, service) = (began.duration_since(job.submitted), began.elapsed());
        let _ = self.done.try_send(IoDone { tag, op, result, buffer: None, len, wait, service });
    }

    fn count_result(&self, op: IoOp, len: usize, result: &io::Result<()>) {
        count(&self.counters.n_done);
        match (result, op) {
            (Err(_), _) => count(&self.counters.n_failed),
            (Ok(()), IoOp::Read) => drop(self.counters.read_bytes.fetch_add(len as u64, Ordering::Relaxed)),
            (Ok(()), IoOp::Write) => drop(self.counters.written_bytes.fetch_add(len as u64, Ordering::Relaxed)),
        }
    }

    /// Runs a job synchronously.
    pub(in crate::kv::store) fn perform(&self, mut job: Job) {
        let began = Instant::now();
        let result = if self.is_cancelled(&job) { Err(cancelled()) } else { perform(&mut job.request) };
        self.send(job, began, result);
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cancelled")]
struct CancelledError;

/// The error of a cancelled request.
pub(in crate::kv::store) fn cancelled() -> io::Error {
    io::Error::other(CancelledError)
}

/// True for a cancelled request: the state of its data is unknown.
pub fn is_cancelled(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<CancelledError>())
}

/// Runs a request with positioned reads and writes.
///
/// # Errors
/// The error of the disk, after retries.
pub fn perform(request: &mut IoRequest) -> io::Result<()> {
    let IoRequest { storage, offset, len, buffer, .. } = request;
    let too_long = || io::Error::new(io::ErrorKind::InvalidInput, "the slab is shorter than the request");
    match buffer {
        IoBuffer::Read(slab) => read_exact(&**storage, slab.get_mut(..*len).ok_or_else(too_long)?, *offset),
        IoBuffer::Write(slab) => write_all(&**storage, slab.get(..*len).ok_or_else(too_long)?, *offset),
    }
}

/// The job that a channel rejected.
pub(in crate::kv::store) fn into_job(error: TrySendError<Job>) -> Job {
    error.into_inner()
}
