//! Reads and writes of slabs that happen elsewhere: one interface, two backends, bounded queues.
//!
//! ```text
//! owner ─ IoRequest(slab) ─► queue ─► ring thread (Linux) │ pool of threads ─► IoDone(slab) ─► owner
//! ```
//! 1. A slab belongs to the backend from `submit` until its `IoDone`: whatever becomes of the owner, nobody else reads,
//!    writes or reuses the memory that the system may still write to.
//! 2. Every request that was taken comes back exactly once, done, failed or cancelled.
//! 3. Queues are bounded: a request that would pass the bound is handed back at once.
//! 4. Whatever keeps a ring from being made, the threads do the same work; [`IoInfo`] says which and why.
//!
//! A request is done when all of its bytes are: short reads go on where they stopped, EINTR and EAGAIN are tried again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, io};

use crossbeam_channel::{Receiver, Sender, TrySendError};

use crate::kv::store::slab::Slab;
use crate::kv::store::storage::{IoOp, Storage, read_exact, write_all};
use crate::kv::store::thread_pool::Threads;

/// Operations that the disk works on at once, by default.
pub const DEFAULT_DEPTH: u32 = 64;
/// Requests that wait or are worked on at once, at most.
pub const DEFAULT_QUEUE: usize = 1024;
/// Names a backend in the environment: `STRATA_IO=threads`.
pub const IO_VARIABLE: &str = "STRATA_IO";

/// The two backends.
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

/// How to start.
#[derive(Debug, Clone)]
pub struct IoConfig {
    /// the backend to use; none: a ring where one can be made
    pub force: Option<IoKind>,
    /// operations that the disk works on at once
    pub depth: u32,
    /// requests that wait or are worked on at once, at most
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
    /// The defaults, with what `STRATA_IO` says.
    pub fn from_env() -> Self {
        let force = match std::env::var(IO_VARIABLE).as_deref() {
            Ok("threads") => Some(IoKind::Threads),
            _ => None,
        };
        IoConfig { force, ..IoConfig::default() }
    }
}

/// What is in use, to be said once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoInfo {
    /// which backend
    pub kind: IoKind,
    /// why it is this one
    pub reason: String,
    /// operations at once
    pub depth: u32,
}

/// Counts since the start. A snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// bytes read
    pub read_bytes: u64,
    /// bytes written
    pub written_bytes: u64,
    /// requests done
    pub n_done: u64,
    /// of them failed
    pub n_failed: u64,
    /// operations given again for their rest
    pub n_short: u64,
    /// operations given again after EINTR or EAGAIN
    pub n_retried: u64,
    /// operations into registered memory
    pub n_fixed_buffer: u64,
    /// operations on registered files
    pub n_fixed_file: u64,
    /// regions that could not be registered, most likely for the limit on locked memory
    pub n_unregistered: u64,
}

/// The same, shared between threads.
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
    fn snapshot(&self) -> IoCounts {
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

/// Shared by the requests of one piece of work that may be given up: those that have not begun come back as cancelled.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Gives up.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// True after [`Cancel::cancel`].
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The memory of a request, which also says the direction.
#[derive(Debug)]
pub enum IoBuffer {
    /// to be filled from the disk
    Read(Slab),
    /// to be written; others may read it meanwhile, and nobody can change it
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

    /// The memory that was read into.
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

/// A read into, or a write of, the first `len` bytes of a slab.
#[derive(Debug)]
pub struct IoRequest {
    /// comes back with the result
    pub tag: u64,
    /// the file
    pub storage: Arc<dyn Storage>,
    /// where in the file
    pub offset: u64,
    /// how much
    pub len: usize,
    /// target or source
    pub buffer: IoBuffer,
    /// whose work it is
    pub cancel: Cancel,
}

/// A request that is over.
#[derive(Debug)]
pub struct IoDone {
    /// of the request
    pub tag: u64,
    /// of the request
    pub op: IoOp,
    /// all bytes, or why not
    pub result: io::Result<()>,
    /// the memory back; none only where the ring broke and the system may still use it
    pub buffer: Option<IoBuffer>,
    /// of the request
    pub len: usize,
    /// from `submit` until the disk began
    pub wait: Duration,
    /// from then until it was done
    pub service: Duration,
}

/// A request with what a backend needs to know of it.
#[derive(Debug)]
pub struct Job {
    pub(in crate::kv::store) request: IoRequest,
    pub(in crate::kv::store) submitted: Instant,
}

/// What the two backends have in common: they take jobs, and send what became of them.
pub trait Backend: Send + Sync + fmt::Debug {
    /// Which it is.
    fn info(&self) -> &IoInfo;
    /// Takes a job, or hands it back where the queue is full or closed.
    fn push(&self, job: Job) -> Result<(), Job>;
}

/// The sending half of the completions, and the counters.
#[derive(Debug, Clone)]
pub struct Outbox {
    pub(in crate::kv::store) done: Sender<IoDone>,
    pub(in crate::kv::store) counters: Arc<Counters>,
    pub(in crate::kv::store) closing: Arc<AtomicBool>,
}

impl Outbox {
    /// True where the job is not worth beginning.
    pub(in crate::kv::store) fn is_given_up(&self, job: &Job) -> bool {
        job.request.cancel.is_cancelled() || self.closing.load(Ordering::Acquire)
    }

    /// Sends what became of a job. Room was made for it by the bound on outstanding requests; where the owner is gone the
    /// slab goes back to its pool here.
    pub(in crate::kv::store) fn send(&self, job: Job, began: Instant, result: io::Result<()>) {
        let IoRequest { tag, len, buffer, .. } = job.request;
        let op = buffer.op();
        self.count_result(op, len, &result);
        let (wait, service) = (began.duration_since(job.submitted), began.elapsed());
        let _ = self.done.try_send(IoDone { tag, op, result, buffer: Some(buffer), len, wait, service });
    }

    /// Sends a failure and leaks the memory, which the system may still use.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only a ring can break"))]
    pub(in crate::kv::store) fn send_leaking(&self, job: Job, began: Instant, error: &io::Error) {
        let IoRequest { tag, len, buffer, .. } = job.request;
        let op = buffer.op();
        std::mem::forget(buffer);
        let result = Err(io::Error::new(error.kind(), format!("the ring broke: {error}")));
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

    /// Does a job here and now.
    pub(in crate::kv::store) fn perform(&self, mut job: Job) {
        let began = Instant::now();
        let result = if self.is_given_up(&job) { Err(cancelled()) } else { perform(&mut job.request) };
        self.send(job, began, result);
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cancelled")]
struct GivenUp;

/// The error of a request that was given up.
pub(in crate::kv::store) fn cancelled() -> io::Error {
    io::Error::other(GivenUp)
}

/// True for a request that was given up: nothing is known of what it was about.
pub fn is_cancelled(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<GivenUp>())
}

/// Does a request with positioned reads and writes.
///
/// # Errors
/// What the disk said, after retries.
pub fn perform(request: &mut IoRequest) -> io::Result<()> {
    let IoRequest { storage, offset, len, buffer, .. } = request;
    let too_long = || io::Error::new(io::ErrorKind::InvalidInput, "the slab is shorter than the request");
    match buffer {
        IoBuffer::Read(slab) => read_exact(&**storage, slab.get_mut(..*len).ok_or_else(too_long)?, *offset),
        IoBuffer::Write(slab) => write_all(&**storage, slab.get(..*len).ok_or_else(too_long)?, *offset),
    }
}

/// Submits requests and collects what became of them. Belongs to one owner; `submit` and `next` may be called from any
/// thread.
#[derive(Debug)]
pub struct Io {
    /// Dropped first, so that the threads end while the channels are still there.
    backend: Option<Box<dyn Backend>>,
    done: Receiver<IoDone>,
    counters: Arc<Counters>,
    closing: Arc<AtomicBool>,
    n_outstanding: AtomicUsize,
    queue: usize,
}

impl Io {
    /// Starts a backend.
    ///
    /// # Errors
    /// Where not even a thread can be started.
    pub fn start(config: &IoConfig) -> io::Result<Self> {
        let (sender, done) = crossbeam_channel::bounded(config.queue.max(1));
        let counters = Arc::new(Counters::default());
        let closing = Arc::new(AtomicBool::new(false));
        let outbox = Outbox { done: sender, counters: Arc::clone(&counters), closing: Arc::clone(&closing) };
        let backend = choose(config, &outbox)?;
        let n_outstanding = AtomicUsize::new(0);
        Ok(Io { backend: Some(backend), done, counters, closing, n_outstanding, queue: config.queue.max(1) })
    }

    /// Which backend is in use, and why.
    pub fn info(&self) -> IoInfo {
        let none = || IoInfo { kind: IoKind::Threads, reason: "closed".into(), depth: 0 };
        self.backend.as_ref().map_or_else(none, |b| b.info().clone())
    }

    /// Counts since the start.
    pub fn counts(&self) -> IoCounts {
        self.counters.snapshot()
    }

    /// Requests taken whose `IoDone` has not been collected.
    pub fn n_outstanding(&self) -> usize {
        self.n_outstanding.load(Ordering::Acquire)
    }

    /// Hands a request over.
    ///
    /// # Errors
    /// The request itself where the queue is full: collect some with [`Io::next`] first.
    pub fn submit(&self, request: IoRequest) -> Result<(), Box<IoRequest>> {
        let Some(backend) = &self.backend else { return Err(Box::new(request)) };
        let before = self.n_outstanding.fetch_add(1, Ordering::AcqRel);
        let job = Job { request, submitted: Instant::now() };
        let refused = if before >= self.queue { Some(job) } else { backend.push(job).err() };
        match refused {
            None => Ok(()),
            Some(job) => {
                self.n_outstanding.fetch_sub(1, Ordering::AcqRel);
                Err(Box::new(job.request))
            }
        }
    }

    /// The next request that is over, waiting at most `timeout`.
    pub fn next(&self, timeout: Duration) -> Option<IoDone> {
        self.collected(self.done.recv_timeout(timeout).ok())
    }

    /// The next request that is over already.
    pub fn try_next(&self) -> Option<IoDone> {
        self.collected(self.done.try_recv().ok())
    }

    fn collected(&self, done: Option<IoDone>) -> Option<IoDone> {
        if done.is_some() {
            self.n_outstanding.fetch_sub(1, Ordering::AcqRel);
        }
        done
    }
}

impl Drop for Io {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        self.backend = None;
    }
}

/// A ring, unless it is not wanted or cannot be made.
fn choose(config: &IoConfig, outbox: &Outbox) -> io::Result<Box<dyn Backend>> {
    let reason = match config.force {
        Some(IoKind::Threads) => "chosen by STRATA_IO=threads".to_owned(),
        _ => match ring(config, outbox) {
            Ok(ring) => return Ok(ring),
            Err(e) => format!("a ring cannot be made here: {e}"),
        },
    };
    Ok(Box::new(Threads::start(config, outbox.clone(), reason)?))
}

#[cfg(target_os = "linux")]
fn ring(config: &IoConfig, outbox: &Outbox) -> io::Result<Box<dyn Backend>> {
    Ok(Box::new(crate::kv::store::linux::Ring::start(config, outbox.clone())?))
}

#[cfg(not(target_os = "linux"))]
fn ring(_config: &IoConfig, _outbox: &Outbox) -> io::Result<Box<dyn Backend>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring is Linux's own"))
}

/// A job that a channel did not take.
pub(in crate::kv::store) fn returned(error: TrySendError<Job>) -> Job {
    error.into_inner()
}
