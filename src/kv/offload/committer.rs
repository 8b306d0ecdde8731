//! Commit thread: a sync takes milliseconds that the owner must not wait for.
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
        let (sender, results) = bounded(1);
        let work = move || {
            for job in queue {
                if sender.send(job.run()).is_err() {
                    break;
                }
            }
        };
        let thread = Builder::new().name("strata-commit".into()).spawn(work).ok()?;
        Some(Worker { jobs, results, thread })
    }
}

/// Runs commits on a thread, which starts with the first job.
#[derive(Debug, Default)]
pub(super) struct Committer {
    worker: Option<Worker>,
    /// result of a job that ran synchronously, because there is no thread
    synchronous_result: Option<CommitResult>,
    is_busy: bool,
}

impl Committer {
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Submits a job. No other job may be in progress.
    pub fn begin(&mut self, job: CommitJob) {
        if self.worker.is_none() {
            self.worker = Worker::start();
        }
        let refused = match &self.worker {
            Some(worker) => worker.jobs.send(job).err().map(|e| e.into_inner()),
            // If no thread can be started, the owner runs the job and waits.
            None => Some(job),
        };
        self.synchronous_result = refused.map(CommitJob::run);
        self.is_busy = true;
    }

    /// The result of the job in progress. Waits at most `timeout`.
    pub fn next(&mut self, timeout: Duration) -> Option<CommitResult> {
        if !self.is_busy {
            return None;
        }
        let received = || self.worker.as_ref()?.results.recv_timeout(timeout).ok();
        let result = self.synchronous_result.take().or_else(received)?;
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
