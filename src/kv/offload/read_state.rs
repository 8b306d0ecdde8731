//! Read state: the access plan, reads in flight, and pages read ahead.
//!
//! Owner: [`OffloadTiers`](crate::kv::offload::OffloadTiers).

use std::collections::{HashMap, HashSet};

use crate::kv::offload::access_plan::AccessPlan;
use crate::kv::offload::page::PageBytes;
use crate::kv::offload::stats::BusyClock;
use crate::kv::store::PageId;

/// Reads from disk.
#[derive(Debug, Default)]
pub(super) struct ReadState {
    pub plan: AccessPlan,
    /// read ahead, not fetched yet
    pub prefetched: HashMap<PageId, PageBytes>,
    /// reads in flight that are still needed, with their tags
    pub reading: HashMap<PageId, u64>,
    /// pages of failed runs: each is read singly, so that only the corrupt ones are lost
    pub read_singly: HashSet<PageId>,
    pub clock: BusyClock,
}

impl ReadState {
    /// Replaces the plan, and discards what it does not need.
    pub fn set_plan(&mut self, plan: AccessPlan) {
        self.plan = plan;
        if !self.prefetched.is_empty() || !self.reading.is_empty() {
            let still_needed =
                self.plan.pages().iter().filter(|p| self.prefetched.contains_key(p) || self.reading.contains_key(p));
            let still_needed: HashSet<PageId> = still_needed.copied().collect();
            self.prefetched.retain(|p, _| still_needed.contains(p));
            self.reading.retain(|p, _| still_needed.contains(p));
        }
    }

    /// Moves the plan to a page, and discards the pages before it. False if the page is not planned.
    pub fn seek(&mut self, page: PageId) -> bool {
        let Some(skipped) = self.plan.seek(page) else { return false };
        for page in skipped {
            self.prefetched.remove(&page);
            self.reading.remove(&page);
        }
        true
    }

    /// Drops all pages from `n_groups` on, and every read with one of them.
    pub fn truncate(&mut self, n_groups: u32) {
        let is_dropped = |page: &PageId| page.group >= n_groups;
        let dropped_tags: Vec<u64> = self.reading.iter().filter(|(p, _)| is_dropped(p)).map(|(_, tag)| *tag).collect();
        self.reading.retain(|_, tag| !dropped_tags.contains(tag));
        self.prefetched.retain(|p, _| !is_dropped(p));
        self.read_singly.retain(|p| !is_dropped(p));
        self.plan.truncate(n_groups);
    }

    /// Discards reads of a page, so that stale bytes are not taken for the payload put now.
    pub fn discard(&mut self, page: PageId) {
        if let Some(tag) = self.reading.get(&page).copied() {
            self.reading.retain(|_, t| *t != tag);
        }
        self.prefetched.remove(&page);
        self.read_singly.remove(&page);
    }

    /// Discards one page read ahead, the one needed last. False if there is none.
    pub fn cancel_read_ahead(&mut self) -> bool {
        while let Some(page) = self.plan.step_back() {
            if self.prefetched.remove(&page).is_some() {
                return true;
            }
        }
        let any_discarded = !self.prefetched.is_empty();
        self.prefetched.clear();
        any_discarded
    }
}
