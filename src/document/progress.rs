//! How far a document is read, for the thread that shows it and may end it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Follows a reading from another thread. Clones follow the same one.
#[derive(Debug, Clone, Default)]
pub struct Watch(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    done: AtomicUsize,
    total: AtomicUsize,
    is_cancelled: AtomicBool,
}

impl Watch {
    /// Ends the reading soon.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Somebody asked for it to end.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Relaxed)
    }

    /// Pages or chapters that are read, and how many there are; none before that is known.
    pub fn progress(&self) -> Option<(usize, usize)> {
        let total = self.0.total.load(Ordering::Relaxed);
        (total > 0).then(|| (self.0.done.load(Ordering::Relaxed).min(total), total))
    }

    pub(super) fn set(&self, done: usize, total: usize) {
        self.0.done.store(done, Ordering::Relaxed);
        self.0.total.store(total, Ordering::Relaxed);
    }
}
