//! Asynchronous slab I/O: one interface, two backends, bounded queues.
//!
//! ```text
//! owner ─ IoRequest(slab) ─► queue ─► ring thread (Linux) │ pool of threads ─► IoDone(slab) ─► owner
//! ```
//! 1. A slab belongs to the backend from `submit` until its `IoDone`. Even if the owner is dropped, no other code
//!    reads, writes or reuses memory that the kernel may still write to.
//! 2. Every accepted request completes exactly once: done, failed or cancelled.
//! 3. Queues are bounded: a request beyond the bound is returned at once.
//! 4. If no ring can be created, threads do the same work. [`IoInfo`] has the backend and the reason.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use crate::kv::store::backend::{Backend, Counters, Job, Outbox};
use crate::kv::store::thread_pool::Threads;

pub use crate::kv::store::backend::{
    Cancel, DEFAULT_DEPTH, DEFAULT_QUEUE, IO_VARIABLE, IoBuffer, IoConfig, IoCounts, IoDone, IoInfo, IoKind, IoRequest,
    is_cancelled, perform,
};

/// I/O interface: submits requests and collects their completions. It has one owner, but any thread may call `submit`
/// and `next`.
#[derive(Debug)]
pub struct Io {
    /// Dropped first, so that the threads exit while the channels still exist.
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
    /// Not even one thread could be started.
    pub fn start(config: &IoConfig) -> io::Result<Self> {
        let (sender, done) = crossbeam_channel::bounded(config.queue.max(1));
        let counters = Arc::new(Counters::default());
        let closing = Arc::new(AtomicBool::new(false));
        let outbox = Outbox { done: sender, counters: Arc::clone(&counters), closing: Arc::clone(&closing) };
        let backend = start_backend(config, &outbox)?;
        let n_outstanding = AtomicUsize::new(0);
        Ok(Io { backend: Some(backend), done, counters, closing, n_outstanding, queue: config.queue.max(1) })
    }

    /// The backend in use, and the reason.
    pub fn info(&self) -> IoInfo {
        let closed = || IoInfo { kind: IoKind::Threads, reason: "closed".into(), depth: 0 };
        self.backend.as_ref().map_or_else(closed, |b| b.info().clone())
    }

    /// Counts since the start.
    pub fn counts(&self) -> IoCounts {
        self.counters.snapshot()
    }

    /// Accepted requests whose `IoDone` has not been collected.
    pub fn n_outstanding(&self) -> usize {
        self.n_outstanding.load(Ordering::Acquire)
    }

    /// Submits a request.
    ///
    /// # Errors
    /// Returns the request if the queue is full. Collect completions with [`Io::next`] first.
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

    /// The next completed request. Waits at most `timeout`.
    pub fn next(&self, timeout: Duration) -> Option<IoDone> {
        self.collected(self.done.recv_timeout(timeout).ok())
    }

    /// The next request that has already completed.
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

/// Starts a ring, or threads if those are selected or no ring can be created.
fn start_backend(config: &IoConfig, outbox: &Outbox) -> io::Result<Box<dyn Backend>> {
    let reason = match config.force {
        Some(IoKind::Threads) => "selected by STRATA_IO=threads".to_owned(),
        _ => match ring(config, outbox) {
            Ok(ring) => return Ok(ring),
            Err(e) => format!("a ring cannot be created: {e}"),
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
    Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring needs Linux"))
}
