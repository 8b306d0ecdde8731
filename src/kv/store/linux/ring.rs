//! io_uring backend: one ring on one thread.
//!
//! ```text
//! Job ─► bounded queue ─► strata-io: admit ─► submission ring ─ kernel ─► completion ring ─► reap ─► IoDone
//!           └ eventfd, written only while the thread sleeps in the kernel with room for more ┘
//! ```
//! 1. The kernel accesses a slab only while an [`InFlight`] owns it; that ends with the completion. If the thread dies
//!    with operations in flight, their slabs are leaked rather than reused.
//! 2. At most `depth` operations are in flight, so neither ring can overflow.
//!
//! Owner thread: `strata-io`, the only one to touch the ring (single issuer, deferred task work). No SQPOLL, which
//! occupies a core, and no IOPOLL, which most desktop drives do not support.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use io_uring::{IoUring, opcode, squeue, types};

use crate::kv::store::backend::{Backend, IoBuffer, IoConfig, IoInfo, IoKind, Job, Outbox, cancelled, count, into_job};
use crate::kv::store::linux::registration::{Buffers, Files};
use crate::kv::store::storage::{IoOp, is_transient, step_align};

/// `user_data` of the poll on the eventfd. Operations use their index.
const WAKE: u64 = u64::MAX;
/// Consecutive interruptions after which the thread runs the operation itself, with sleeps.
const MAX_QUICK_RETRIES: u32 = 8;
/// Maximum operations per submission.
const SUBMIT_EVERY: usize = 4;
/// Interval at which an idle ring unregisters closed files.
const SWEEP: Duration = Duration::from_secs(5);

/// Wakes the ring thread while it waits in the kernel.
#[derive(Debug)]
struct Wake {
    event: File,
    asleep: AtomicBool,
}

impl Wake {
    fn new() -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and has no other owner.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Wake { event: File::from(owned), asleep: AtomicBool::new(false) })
    }

    /// Call after queueing a job.
    fn notify(&self) {
        // Either this load sees `asleep`, or the thread sees the job, because it sets `asleep` before it checks the
        // queue.
        fence(Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            let _ = (&self.event).write_all(&1u64.to_ne_bytes());
        }
    }

    fn clear(&self) {
        let _ = (&self.event).read(&mut [0; 8]);
    }
}

/// The io_uring backend.
#[derive(Debug)]
pub struct Ring {
    info: IoInfo,
    jobs: Option<Sender<Job>>,
    wake: Arc<Wake>,
    thread: Option<JoinHandle<()>>,
}

impl Ring {
    /// Starts a ring on its own thread.
    ///
    /// # Errors
    /// The kernel cannot create a ring: refused, unsupported, too large, or out of memory.
    pub fn start(config: &IoConfig, outbox: Outbox) -> io::Result<Self> {
        let (jobs, queue) = crossbeam_channel::bounded(config.queue.max(1));
        let (started, result) = crossbeam_channel::bounded::<io::Result<()>>(1);
        let wake = Arc::new(Wake::new()?);
        let (depth, register, waker) = (config.depth.max(1), config.register_buffers, Arc::clone(&wake));
        let thread = Builder::new().name("strata-io".into()).spawn(move || {
            // The ring belongs to the thread that creates it.
            let worker = Worker::new(depth, register, queue, outbox, waker);
            let _ = started.send(worker.as_ref().map(|_| ()).map_err(|e| io::Error::new(e.kind(), e.to_string())));
            if let Ok(mut worker) = worker {
                worker.run();
            }
        })?;
        let failed = || io::Error::other("the I/O thread did not start");
        result.recv().map_err(|_| failed())??;
        let info = IoInfo { kind: IoKind::Uring, reason: "a ring was created".into(), depth };
        Ok(Ring { info, jobs: Some(jobs), wake, thread: Some(thread) })
    }
}

impl Backend for Ring {
    fn info(&self) -> &IoInfo {
        &self.info
    }

    fn push(&self, job: Job) -> Result<(), Job> {
        let Some(jobs) = &self.jobs else { return Err(job) };
        jobs.try_send(job).map_err(into_job)?;
        self.wake.notify();
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.jobs = None;
        self.wake.notify();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An operation owned by the kernel.
#[derive(Debug)]
struct InFlight {
    job: Job,
    began: Instant,
    n_done: usize,
    idle: u32,
}

struct Worker {
    ring: IoUring,
    queue: Receiver<Job>,
    outbox: Outbox,
    wake: Arc<Wake>,
    wake_armed: bool,
    in_flight: Vec<Option<InFlight>>,
    free: Vec<usize>,
    /// completed, result not sent yet
    completed: Vec<(InFlight, io::Result<()>)>,
    files: Files,
    buffers: Buffers,
}

fn make_ring(depth: u32) -> io::Result<IoUring> {
    let entries = (depth + 1).checked_next_power_of_two().ok_or(ErrorKind::InvalidInput)?;
    let quick = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
    // Linux before 6.1 has no deferred task work.
    quick.or_else(|_| IoUring::builder().build(entries))
}

impl Worker {
    fn new(depth: u32, register: bool, queue: Receiver<Job>, outbox: Outbox, wake: Arc<Wake>) -> io::Result<Self> {
        let ring = make_ring(depth)?;
        let files = Files::new(&ring);
        let buffers = Buffers::new(&ring, register);
        let in_flight = (0..depth).map(|_| None).collect();
        let free = (0..depth as usize).rev().collect();
        Ok(Worker { ring, queue, outbox, wake, wake_armed: false, in_flight, free, completed: Vec::new(), files, buffers })
    }

    fn n_in_flight(&self) -> usize {
        self.in_flight.len() - self.free.len()
    }

    fn run(&mut self) {
        loop {
            self.start_waiting();
            // Results are sent only after the disk has new work.
            if !self.completed.is_empty() {
                self.submit();
                self.completed.drain(..).for_each(|(operation, result)| self.outbox.send(operation.job, operation.began, result));
                continue;
            }
            if self.n_in_flight() == 0 {
                let timeout = if self.files.is_empty() { Duration::MAX } else { SWEEP };
                match self.queue.recv_timeout(timeout) {
                    Ok(job) => self.start(job),
                    Err(RecvTimeoutError::Timeout) => self.sweep(),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                continue;
            }
            if let Err(e) = self.wait() {
                return self.abort(&e);
            }
            self.reap();
        }
    }

    /// Starts as many jobs as fit, and submits every few, so that the disk begins before all are prepared.
    fn start_waiting(&mut self) {
        for n_started in 1.. {
            if self.free.is_empty() {
                break;
            }
            let Ok(job) = self.queue.try_recv() else { break };
            self.start(job);
            if n_started % SUBMIT_EVERY == 0 {
                self.submit();
            }
        }
    }

    /// Submits without waiting. Entries that the kernel does not accept now go with the next submission.
    fn submit(&mut self) {
        let _ = self.ring.submit();
    }

    fn sweep(&mut self) {
        self.files.sweep(&self.ring);
        self.buffers.sweep(&self.ring);
    }

    /// Starts a job, or runs it synchronously if the ring cannot use the file.
    fn start(&mut self, job: Job) {
        let fits = job.request.len <= job.request.buffer.len() && u32::try_from(job.request.len).is_ok();
        if self.outbox.is_cancelled(&job) {
            return self.outbox.send(job, Instant::now(), Err(cancelled()));
        }
        if !fits || job.request.len == 0 || job.request.storage.ring_file().is_none() {
            return self.outbox.perform(job);
        }
        let Some(index) = self.free.pop() else { return self.outbox.perform(job) };
        self.submit_rest(index, InFlight { job, began: Instant::now(), n_done: 0, idle: 0 });
    }

    /// Submits the remaining part of an operation.
    fn submit_rest(&mut self, index: usize, mut operation: InFlight) {
        let Some(entry) = self.entry(&mut operation) else { return self.complete_inline(index, operation) };
        let entry = entry.user_data(index as u64);
        if let Some(place) = self.in_flight.get_mut(index) {
            *place = Some(operation);
        }
        // SAFETY: the entry points into the slab of the operation, which stays in `in_flight` until the completion of
        // this entry, and to a descriptor that its storage keeps open.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // The ring has room for every operation and the poll. If it were full, the operation would run here.
        if pushed.is_err()
            && let Some(operation) = self.in_flight.get_mut(index).and_then(Option::take)
        {
            self.complete_inline(index, operation);
        }
    }

    fn entry(&mut self, operation: &mut InFlight) -> Option<squeue::Entry> {
        let request = &mut operation.job.request;
        let fd = request.storage.ring_file()?.as_raw_fd();
        let file = self.files.find(&self.ring, &request.storage, fd);
        let buffer = self.buffers.find(&self.ring, request.buffer.slab().region(), &self.outbox.counters);
        let offset = request.offset.checked_add(operation.n_done as u64)?;
        let len = u32::try_from(request.len - operation.n_done).ok()?;
        // In bounds: `start` has checked `len` against the slab, and `n_done` stays below it.
        let rest = operation.n_done..request.len;
        macro_rules! op {
            ($name:ident, $fd:expr, $at:expr $(, $index:expr)?) => {
                opcode::$name::new($fd, $at, len $(, $index)?).offset(offset).build()
            };
        }
        macro_rules! on_file {
            ($fd:expr) => {
                match (&mut request.buffer, buffer) {
                    (IoBuffer::Read(slab), Some(i)) => op!(ReadFixed, $fd, slab.get_mut(rest)?.as_mut_ptr(), i),
                    (IoBuffer::Read(slab), None) => op!(Read, $fd, slab.get_mut(rest)?.as_mut_ptr()),
                    (IoBuffer::Write(slab), Some(i)) => op!(WriteFixed, $fd, slab.get(rest)?.as_ptr(), i),
                    (IoBuffer::Write(slab), None) => op!(Write, $fd, slab.get(rest)?.as_ptr()),
                }
            };
        }
        let entry = match file {
            Some(slot) => on_file!(types::Fixed(slot)),
            None => on_file!(types::Fd(fd)),
        };
        let counters = &self.outbox.counters;
        buffer.inspect(|_| count(&counters.n_fixed_buffer));
        file.inspect(|_| count(&counters.n_fixed_file));
        Some(entry)
    }

    /// Submits, and waits for a completion or, if more jobs fit, for a job.
    fn wait(&mut self) -> io::Result<()> {
        let mut n_wait = 1;
        if !self.free.is_empty() {
            if !self.wake_armed {
                let poll = opcode::PollAdd::new(types::Fd(self.wake.event.as_raw_fd()), libc::POLLIN as u32).build();
                // SAFETY: a poll accesses no memory of this process, and the eventfd is open as long as this worker.
                self.wake_armed = unsafe { self.ring.submission().push(&poll.user_data(WAKE)) }.is_ok();
            }
            self.wake.asleep.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if !self.queue.is_empty() || !self.wake_armed {
                n_wait = 0;
            }
        }
        let result = self.ring.submit_and_wait(n_wait);
        self.wake.asleep.store(false, Ordering::SeqCst);
        match result {
            Ok(_) => Ok(()),
            // Interrupted, or the completion ring has to be drained first.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn reap(&mut self) {
        let completions: Vec<(u64, i32)> = self.ring.completion().map(|c| (c.user_data(), c.result())).collect();
        for (user_data, result) in completions {
            if user_data == WAKE {
                self.wake.clear();
                self.wake_armed = false;
                continue;
            }
            let index = usize::try_from(user_data).unwrap_or(usize::MAX);
            if let Some(operation) = self.in_flight.get_mut(index).and_then(Option::take) {
                self.on_completion(index, operation, result);
            }
        }
    }

    /// Handles a completion: done, submit the rest, retry, or fail.
    fn on_completion(&mut self, index: usize, mut operation: InFlight, result: i32) {
        let request = &mut operation.job.request;
        let (op, len) = (request.buffer.op(), request.len);
        let raw = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(result.saturating_neg()));
        let rest = match &mut request.buffer {
            IoBuffer::Read(slab) => slab.get_mut(operation.n_done..len).unwrap_or_default(),
            IoBuffer::Write(_) => &mut [],
        };
        let align = step_align(&*request.storage);
        match request.storage.adjust(op, request.offset + operation.n_done as u64, rest, raw) {
            Ok(n) if operation.n_done + n >= len => self.complete(index, operation, Ok(())),
            Ok(n) if n / align == 0 => {
                let kind = if op == IoOp::Read { ErrorKind::UnexpectedEof } else { ErrorKind::WriteZero };
                self.complete(index, operation, Err(kind.into()));
            }
            Ok(n) => {
                count(&self.outbox.counters.n_short);
                operation.n_done += n / align * align;
                operation.idle = 0;
                self.submit_rest(index, operation);
            }
            Err(e) if is_transient(&e) => {
                count(&self.outbox.counters.n_retried);
                operation.idle += 1;
                if operation.idle > MAX_QUICK_RETRIES {
                    self.complete_inline(index, operation)
                } else {
                    self.submit_rest(index, operation)
                }
            }
            Err(e) if align > 1 && matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                request.storage.stop_direct();
                self.complete_inline(index, operation);
            }
            Err(e) => self.complete(index, operation, Err(e)),
        }
    }

    fn complete(&mut self, index: usize, operation: InFlight, result: io::Result<()>) {
        self.free.push(index);
        self.completed.push((operation, result));
    }

    /// Completes an operation with positioned reads and writes, from its beginning.
    fn complete_inline(&mut self, index: usize, operation: InFlight) {
        self.free.push(index);
        self.outbox.perform(operation.job);
    }

    /// The ring has failed: reports the operations in flight, whose slabs the kernel may still write to, and runs the
    /// queued jobs without the ring.
    fn abort(&mut self, error: &io::Error) {
        for operation in self.in_flight.iter_mut().filter_map(Option::take) {
            self.outbox.send_leaking(operation.job, operation.began, error);
        }
        for job in &self.queue {
            self.outbox.perform(job);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Non-empty only after a panic; the kernel may still write to these slabs.
        self.in_flight.drain(..).flatten().for_each(std::mem::forget);
    }
}
