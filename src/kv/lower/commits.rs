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
pub(super) struct Committer {
    jobs: Option<Sender<CommitJob>>,
    results: Receiver<CommitResult>,
    /// of a job that was done at once, because there is no thread
    at_once: Option<CommitResult>,
    n_under_way: usize,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    pub fn start() -> Self {
        let (jobs, queue) = bounded::<CommitJob>(1);
        let (done, results) = bounded(1);
        let work = move || {
            for job in queue {
                if done.send(job.run()).is_err() {
                    break;
                }
            }
        };
        // Where no thread can be had the jobs are done by the owner, and it waits.
        let thread = Builder::new().name("strata-commit".into()).spawn(work).ok();
        Committer { jobs: thread.is_some().then_some(jobs), results, at_once: None, n_under_way: 0, thread }
    }

    pub fn is_busy(&self) -> bool {
        self.n_under_way > 0
    }

    /// Hands a job over. There must be none under way.
    pub fn begin(&mut self, job: CommitJob) {
        self.n_under_way += 1;
        let refused = match &self.jobs {
            Some(jobs) => jobs.send(job).err().map(|e| e.into_inner()),
            None => Some(job),
        };
        self.at_once = refused.map(CommitJob::run);
    }

    /// The result of the job under way, waiting at most `timeout`.
    pub fn next(&mut self, timeout: Duration) -> Option<CommitResult> {
        if self.n_under_way == 0 {
            return None;
        }
        let result = self.at_once.take().or_else(|| self.results.recv_timeout(timeout).ok())?;
        self.n_under_way -= 1;
        Some(result)
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
