//! The thread that commits: syncing takes milliseconds that nobody should wait for.
//!
//! ```text
//! owner ─ CommitJob ─► strata-commit ─ CommitResult ─► owner      one at a time
//! ```

use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::kv::store::{CommitJob, CommitResult};

#[derive(Debug)]
struct Worker {
    jobs: Sender<CommitJob>,
    results: Receiver<CommitResult>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn start() -> Option<Self> {
        let (jobs, queue) = bounded::<CommitJob>(1);
        let (done, results) = bounded(1);
        let work = move || {
            for job in queue {
                if done.send(job.run()).is_err() {
                    break;
                }
            }
        };
        let thread = Builder::new().name("strata-commit".into()).spawn(work).ok()?;
        Some(Worker { jobs, results, thread })
    }
}

/// Starts its thread with the first job.
#[derive(Debug, Default)]
pub(super) struct Committer {
    worker: Option<Worker>,
    /// of a job that was done at once, because there is no thread
    at_once: Option<CommitResult>,
    is_busy: bool,
}

impl Committer {
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Hands a job over. There must be none under way.
    pub fn begin(&mut self, job: CommitJob) {
        if self.worker.is_none() {
            self.worker = Worker::start();
        }
        let refused = match &self.worker {
            Some(worker) => worker.jobs.send(job).err().map(|e| e.into_inner()),
            // Where no thread can be had the owner does it, and waits.
            None => Some(job),
        };
        self.at_once = refused.map(CommitJob::run);
        self.is_busy = true;
    }

    /// The result of the job under way, waiting at most `timeout`.
    pub fn next(&mut self, timeout: Duration) -> Option<CommitResult> {
        if !self.is_busy {
            return None;
        }
        let received = || self.worker.as_ref()?.results.recv_timeout(timeout).ok();
        let result = self.at_once.take().or_else(received)?;
        self.is_busy = false;
        Some(result)
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        if let Some(Worker { jobs, results, thread }) = self.worker.take() {
            drop((jobs, results));
            let _ = thread.join();
        }
    }
}
