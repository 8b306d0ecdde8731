//! One io_uring on one thread.
//!
//! ```text
//! Job ─► bounded queue ─► strata-io: admit ─► submission ring ─ kernel ─► completion ring ─► reap ─► IoDone
//!           └ eventfd, written only while the thread sleeps in the kernel with room for more ┘
//! ```
//! 1. The kernel reads and writes a slab only while a [`Flight`] owns it; a flight ends at its completion. Should the thread
//!    die with flights in the air, their slabs are leaked rather than reused.
//! 2. At most `depth` flights, each with one operation, so that neither ring can overflow.
//!
//! Owner thread: `strata-io`, which alone touches the ring (single issuer, deferred task work). No SQPOLL, which burns a
//! core, and no IOPOLL, which most desktop drives are not set up for.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use io_uring::{IoUring, opcode, squeue, types};

use crate::kv::store::io::{Backend, IoBuffer, IoConfig, IoInfo, IoKind, Job, Outbox, cancelled, count, returned};
use crate::kv::store::linux::registration::{Buffers, Files};
use crate::kv::store::storage::{IoOp, is_transient, step_align};

/// `user_data` of the poll on the eventfd; flights use their index.
const WAKE: u64 = u64::MAX;
/// Interruptions in a row after which the thread does the operation itself, where it may also sleep.
const MAX_QUICK_RETRIES: u32 = 8;
/// Operations that are submitted together at most.
const SUBMIT_EVERY: usize = 4;
/// How often an idle ring looks for files that have been closed.
const SWEEP: Duration = Duration::from_secs(5);

/// How the ring thread is woken while it waits in the kernel.
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

    /// After a job was queued.
    fn up(&self) {
        // Either this sees `asleep`, or the thread, which sets it before it looks, sees the job.
        fence(Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            let _ = (&self.event).write_all(&1u64.to_ne_bytes());
        }
    }

    fn clear(&self) {
        let _ = (&self.event).read(&mut [0; 8]);
    }
}

/// The backend.
#[derive(Debug)]
pub struct Ring {
    info: IoInfo,
    jobs: Option<Sender<Job>>,
    wake: Arc<Wake>,
    thread: Option<JoinHandle<()>>,
}

impl Ring {
    /// Makes a ring on a thread of its own.
    ///
    /// # Errors
    /// Whatever keeps the kernel from making one: refused, unknown, too large, out of memory.
    pub fn start(config: &IoConfig, outbox: Outbox) -> io::Result<Self> {
        let (jobs, queue) = crossbeam_channel::bounded(config.queue.max(1));
        let (made, result) = crossbeam_channel::bounded::<io::Result<()>>(1);
        let wake = Arc::new(Wake::new()?);
        let (depth, register, waker) = (config.depth.max(1), config.register_buffers, Arc::clone(&wake));
        let thread = Builder::new().name("strata-io".into()).spawn(move || {
            // Here, because the ring belongs to the thread that makes it.
            let worker = Worker::new(depth, register, queue, outbox, waker);
            let _ = made.send(worker.as_ref().map(|_| ()).map_err(|e| io::Error::new(e.kind(), e.to_string())));
            if let Ok(mut worker) = worker {
                worker.run();
            }
        })?;
        let died = || io::Error::other("the I/O thread did not start");
        result.recv().map_err(|_| died())??;
        let info = IoInfo { kind: IoKind::Uring, reason: "a ring could be made".into(), depth };
        Ok(Ring { info, jobs: Some(jobs), wake, thread: Some(thread) })
    }
}

impl Backend for Ring {
    fn info(&self) -> &IoInfo {
        &self.info
    }

    fn push(&self, job: Job) -> Result<(), Job> {
        let Some(jobs) = &self.jobs else { return Err(job) };
        jobs.try_send(job).map_err(returned)?;
        self.wake.up();
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.jobs = None;
        self.wake.up();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An operation that the kernel has.
#[derive(Debug)]
struct Flight {
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
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// over, and not told yet
    landed: Vec<(Flight, io::Result<()>)>,
    files: Files,
    buffers: Buffers,
}

fn make_ring(depth: u32) -> io::Result<IoUring> {
    let entries = (depth + 1).checked_next_power_of_two().ok_or(ErrorKind::InvalidInput)?;
    let quick = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
    // Before Linux 6.1 there is no deferred task work.
    quick.or_else(|_| IoUring::builder().build(entries))
}

impl Worker {
    fn new(depth: u32, register: bool, queue: Receiver<Job>, outbox: Outbox, wake: Arc<Wake>) -> io::Result<Self> {
        let ring = make_ring(depth)?;
        let files = Files::new(&ring);
        let buffers = Buffers::new(&ring, register);
        let flights = (0..depth).map(|_| None).collect();
        let free = (0..depth as usize).rev().collect();
        Ok(Worker { ring, queue, outbox, wake, wake_armed: false, flights, free, landed: Vec::new(), files, buffers })
    }

    fn n_flying(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    fn run(&mut self) {
        loop {
            self.start_waiting();
            // What has landed is told only after the disk has new work.
            if !self.landed.is_empty() {
                self.submit();
                self.landed.drain(..).for_each(|(flight, result)| self.outbox.send(flight.job, flight.began, result));
                continue;
            }
            if self.n_flying() == 0 {
                let patience = if self.files.is_empty() { Duration::MAX } else { SWEEP };
                match self.queue.recv_timeout(patience) {
                    Ok(job) => self.start(job),
                    Err(RecvTimeoutError::Timeout) => self.sweep(),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                continue;
            }
            if let Err(e) = self.wait() {
                return self.give_up(&e);
            }
            self.reap();
        }
    }

    /// Takes as many jobs into the air as may be there, a few at a time, so that the disk begins before all are prepared.
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

    /// Submits, and does not wait. What the kernel does not take now it takes with the next.
    fn submit(&mut self) {
        let _ = self.ring.submit();
    }

    fn sweep(&mut self) {
        self.files.sweep(&self.ring);
        self.buffers.sweep(&self.ring);
    }

    /// Takes a job into the air, or does it at once where the ring may not have the file.
    fn start(&mut self, job: Job) {
        let fits = job.request.len <= job.request.buffer.len() && u32::try_from(job.request.len).is_ok();
        if self.outbox.is_given_up(&job) {
            return self.outbox.send(job, Instant::now(), Err(cancelled()));
        }
        if !fits || job.request.len == 0 || job.request.storage.ring_file().is_none() {
            return self.outbox.perform(job);
        }
        let Some(index) = self.free.pop() else { return self.outbox.perform(job) };
        self.fly(index, Flight { job, began: Instant::now(), n_done: 0, idle: 0 });
    }

    /// Gives the kernel what is left of a flight.
    fn fly(&mut self, index: usize, mut flight: Flight) {
        let Some(entry) = self.entry(&mut flight) else { return self.land_inline(index, flight) };
        let entry = entry.user_data(index as u64);
        if let Some(place) = self.flights.get_mut(index) {
            *place = Some(flight);
        }
        // SAFETY: the entry points into the flight's slab, which stays in `flights` until the completion of this entry, and
        // at a descriptor that the flight's storage keeps open.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // The ring has room for every flight and the poll; were it full, the operation is done here.
        if pushed.is_err()
            && let Some(flight) = self.flights.get_mut(index).and_then(Option::take)
        {
            self.land_inline(index, flight);
        }
    }

    fn entry(&mut self, flight: &mut Flight) -> Option<squeue::Entry> {
        let request = &mut flight.job.request;
        let fd = request.storage.ring_file()?.as_raw_fd();
        let file = self.files.find(&self.ring, &request.storage, fd);
        let buffer = self.buffers.find(&self.ring, request.buffer.slab().region(), &self.outbox.counters);
        let offset = request.offset.checked_add(flight.n_done as u64)?;
        let len = u32::try_from(request.len - flight.n_done).ok()?;
        // In bounds: `start` has checked `len` against the slab, and `n_done` stays below it.
        let part = flight.n_done..request.len;
        macro_rules! op {
            ($name:ident, $fd:expr, $at:expr $(, $index:expr)?) => {
                opcode::$name::new($fd, $at, len $(, $index)?).offset(offset).build()
            };
        }
        macro_rules! on {
            ($fd:expr) => {
                match (&mut request.buffer, buffer) {
                    (IoBuffer::Read(slab), Some(i)) => op!(ReadFixed, $fd, slab.get_mut(part)?.as_mut_ptr(), i),
                    (IoBuffer::Read(slab), None) => op!(Read, $fd, slab.get_mut(part)?.as_mut_ptr()),
                    (IoBuffer::Write(slab), Some(i)) => op!(WriteFixed, $fd, slab.get(part)?.as_ptr(), i),
                    (IoBuffer::Write(slab), None) => op!(Write, $fd, slab.get(part)?.as_ptr()),
                }
            };
        }
        let entry = match file {
            Some(slot) => on!(types::Fixed(slot)),
            None => on!(types::Fd(fd)),
        };
        let counters = &self.outbox.counters;
        buffer.inspect(|_| count(&counters.n_fixed_buffer));
        file.inspect(|_| count(&counters.n_fixed_file));
        Some(entry)
    }

    /// Submits, and waits for a completion or, where there is room for more, a job.
    fn wait(&mut self) -> io::Result<()> {
        let mut n_wanted = 1;
        if !self.free.is_empty() {
            if !self.wake_armed {
                let poll = opcode::PollAdd::new(types::Fd(self.wake.event.as_raw_fd()), libc::POLLIN as u32).build();
                // SAFETY: a poll touches no memory of ours, and the eventfd is open as long as this worker.
                self.wake_armed = unsafe { self.ring.submission().push(&poll.user_data(WAKE)) }.is_ok();
            }
            self.wake.asleep.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if !self.queue.is_empty() || !self.wake_armed {
                n_wanted = 0;
            }
        }
        let result = self.ring.submit_and_wait(n_wanted);
        self.wake.asleep.store(false, Ordering::SeqCst);
        match result {
            Ok(_) => Ok(()),
            // Interrupted, or the completion ring wants to be emptied first.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn reap(&mut self) {
        let over: Vec<(u64, i32)> = self.ring.completion().map(|c| (c.user_data(), c.result())).collect();
        for (user_data, result) in over {
            if user_data == WAKE {
                self.wake.clear();
                self.wake_armed = false;
                continue;
            }
            let index = usize::try_from(user_data).unwrap_or(usize::MAX);
            if let Some(flight) = self.flights.get_mut(index).and_then(Option::take) {
                self.landed(index, flight, result);
            }
        }
    }

    /// Decides what a completion means: done, on with the rest, again, or failed.
    fn landed(&mut self, index: usize, mut flight: Flight, result: i32) {
        let request = &mut flight.job.request;
        let (op, len) = (request.buffer.op(), request.len);
        let raw = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(result.saturating_neg()));
        let rest = match &mut request.buffer {
            IoBuffer::Read(slab) => slab.get_mut(flight.n_done..len).unwrap_or_default(),
            IoBuffer::Write(_) => &mut [],
        };
        let align = step_align(&*request.storage);
        match request.storage.adjust(op, request.offset + flight.n_done as u64, rest, raw) {
            Ok(n) if flight.n_done + n >= len => self.land(index, flight, Ok(())),
            Ok(n) if n / align == 0 => {
                let kind = if op == IoOp::Read { ErrorKind::UnexpectedEof } else { ErrorKind::WriteZero };
                self.land(index, flight, Err(kind.into()));
            }
            Ok(n) => {
                count(&self.outbox.counters.n_short);
                flight.n_done += n / align * align;
                flight.idle = 0;
                self.fly(index, flight);
            }
            Err(e) if is_transient(&e) => {
                count(&self.outbox.counters.n_retried);
                flight.idle += 1;
                if flight.idle > MAX_QUICK_RETRIES { self.land_inline(index, flight) } else { self.fly(index, flight) }
            }
            Err(e) if align > 1 && matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                request.storage.stop_direct();
                self.land_inline(index, flight);
            }
            Err(e) => self.land(index, flight, Err(e)),
        }
    }

    fn land(&mut self, index: usize, flight: Flight, result: io::Result<()>) {
        self.free.push(index);
        self.landed.push((flight, result));
    }

    /// Finishes a flight with positioned reads and writes, from its beginning.
    fn land_inline(&mut self, index: usize, flight: Flight) {
        self.free.push(index);
        self.outbox.perform(flight.job);
    }

    /// The ring is of no more use: says so for what is in the air, whose slabs the kernel may still write to, and does the
    /// rest without it.
    fn give_up(&mut self, error: &io::Error) {
        for flight in self.flights.iter_mut().filter_map(Option::take) {
            self.outbox.send_leaking(flight.job, flight.began, error);
        }
        for job in &self.queue {
            self.outbox.perform(job);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Only after a panic is anything left; the kernel may still write to it.
        self.flights.drain(..).flatten().for_each(std::mem::forget);
    }
}
