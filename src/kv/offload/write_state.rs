//! Write state: the queue of unwritten pages, and whether write-back runs.
//!
//! Owner: [`OffloadTiers`](crate::kv::offload::OffloadTiers).

use std::collections::VecDeque;

use crate::base::Bytes;
use crate::kv::store::PageId;

/// State of write-back and commits.
#[derive(Debug)]
pub(super) struct WriteState {
    /// unwritten pages, oldest first
    pub queue: VecDeque<PageId>,
    /// writes in flight
    pub n_writing: usize,
    pub is_enabled: bool,
    /// can resume after a change; false after a failed sync
    pub may_resume: bool,
    /// missing disk space in bytes
    pub missing_bytes: Option<Bytes>,
    /// groups completed since the last commit began
    pub n_groups_to_commit: usize,
}

impl WriteState {
    /// Nothing is written; write-back runs if there is a store.
    pub fn new(has_store: bool) -> WriteState {
        WriteState {
            queue: VecDeque::new(),
            n_writing: 0,
            is_enabled: has_store,
            may_resume: has_store,
            missing_bytes: None,
            n_groups_to_commit: 0,
        }
    }

    /// Runs write-back again. False if it runs already, or must not resume.
    pub fn restart(&mut self) -> bool {
        let can_restart = self.may_resume && !self.is_enabled;
        if can_restart {
            (self.is_enabled, self.missing_bytes) = (true, None);
        }
        can_restart
    }
}
