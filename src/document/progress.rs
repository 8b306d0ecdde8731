//! Progress and cancellation of a document's reading, shared between threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Shared handle of one reading. Clones refer to the same reading.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    done: AtomicUsize,
    total: AtomicUsize,
    is_cancelled: AtomicBool,
}

impl Progress {
    /// Cancels the reading.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// True if the reading was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Relaxed)
    }

    /// Pages or chapters done, and their total; None until the total is known.
    pub fn progress(&self) -> Option<(usize, usize)> {
        let total = self.0.total.load(Ordering::Relaxed);
        (total > 0).then(|| (self.0.done.load(Ordering::Relaxed).min(total), total))
    }

    pub(super) fn set(&self, done: usize, total: usize) {
        self.0.done.store(done, Ordering::Relaxed);
        self.0.total.store(total, Ordering::Relaxed);
    }
}
