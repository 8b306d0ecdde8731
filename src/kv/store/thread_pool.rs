//! Portable I/O backend: a pool of threads for positioned reads and writes.
//!
//! ```text
//! Job ─► bounded queue ─► strata-io-0 │ strata-io-1 │ ... ─► IoDone
//! ```
//! Each thread runs one request at a time, so the number of threads is the queue depth of the disk. Idle threads sleep.
//! They exit when the queue is closed and empty.

use std::io;
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender};

use crate::kv::store::backend::{Backend, IoConfig, IoInfo, IoKind, Job, Outbox, into_job};

/// Maximum number of threads, at any depth.
const MAX_THREADS: u32 = 32;
/// Sufficient for a loop around `pread`.
const STACK_BYTES: usize = 256 << 10;

/// The thread pool.
#[derive(Debug)]
pub struct Threads {
    info: IoInfo,
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts the threads.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start(config: &IoConfig, outbox: Outbox, reason: String) -> io::Result<Self> {
        let (jobs, queue) = crossbeam_channel::bounded(config.queue.max(1));
        let wanted = config.depth.clamp(1, MAX_THREADS);
        let mut threads = Vec::new();
        for n in 0..wanted {
            let (queue, outbox) = (queue.clone(), outbox.clone());
            let builder = Builder::new().name(format!("strata-io-{n}")).stack_size(STACK_BYTES);
            match builder.spawn(move || work(&queue, &outbox)) {
                Ok(thread) => threads.push(thread),
                Err(e) if threads.is_empty() => return Err(e),
                Err(_) => break,
            }
        }
        let info = IoInfo { kind: IoKind::Threads, reason, depth: threads.len() as u32 };
        Ok(Threads { info, jobs: Some(jobs), threads })
    }
}

fn work(queue: &Receiver<Job>, outbox: &Outbox) {
    for job in queue {
        outbox.perform(job);
    }
}

impl Backend for Threads {
    fn info(&self) -> &IoInfo {
        &self.info
    }

    fn push(&self, job: Job) -> Result<(), Job> {
        match &self.jobs {
            Some(jobs) => jobs.try_send(job).map_err(into_job),
            None => Err(job),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
