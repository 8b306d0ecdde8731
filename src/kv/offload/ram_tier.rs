//! RAM tier: slabs of cached copies, unwritten pages and reads, within the RAM budget.
//!
//! ```text
//! resident pool ─ page_slab ─► pages: unwritten, or cached copies by rank        read-ahead pool ─ run_slab ─► reads
//! ```
//! Invariant: a copy is a page in RAM that the disk has; only copies are evicted.
//!
//! Owner: [`OffloadTiers`](crate::kv::offload::OffloadTiers).

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};

use crate::base::Bytes;
use crate::kv::offload::config::RamSplit;
use crate::kv::offload::page::Retention;
use crate::kv::offload::ram_pages::RamPages;
use crate::kv::store::{PageId, Slab, SlabPool};

/// Order of the RAM copies: pinned pages, then those that were paged in last, then the first groups. The last one is evicted first.
type Rank = (bool, Reverse<u64>, u32);

/// Memory of the offload tiers.
#[derive(Debug)]
pub(super) struct RamTier {
    pub split: RamSplit,
    resident_pool: SlabPool,
    read_ahead_pool: SlabPool,
    /// pages with their own slab: cached copies, and unwritten pages
    pub pages: RamPages,
    /// cached copies of pages on disk, by rank
    copies: BTreeSet<(Rank, PageId)>,
    /// pages whose copies are evicted last
    pinned: HashSet<PageId>,
    /// number of the last call that paged a page in
    paged_in: HashMap<PageId, u64>,
    n_paged_in: u64,
    peak_bytes: u64,
}

impl RamTier {
    /// An empty tier.
    pub fn new(split: RamSplit) -> RamTier {
        RamTier {
            split,
            resident_pool: SlabPool::with_few_regions(split.resident_budget()),
            read_ahead_pool: SlabPool::new(split.read_ahead_budget()),
            pages: RamPages::new(split.n_slots),
            copies: BTreeSet::new(),
            pinned: HashSet::new(),
            paged_in: HashMap::new(),
            n_paged_in: 0,
            peak_bytes: 0,
        }
    }

    /// Bytes in use.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.resident_pool.usage().in_use.0 + self.read_ahead_pool.usage().in_use.0)
    }

    /// Most bytes ever mapped at once.
    pub fn peak_bytes(&self) -> Bytes {
        Bytes(self.peak_bytes)
    }

    /// A slab for one page.
    pub fn page_slab(&mut self) -> Option<Slab> {
        let slab = self.resident_pool.take(self.split.slot_bytes).ok();
        self.record_peak();
        slab
    }

    /// A slab for one read.
    pub fn run_slab(&mut self) -> Option<Slab> {
        let slab = self.read_ahead_pool.take(self.split.run_bytes()).ok();
        self.record_peak();
        slab
    }

    /// Memory is mapped only when a slab is taken, so this misses no peak.
    fn record_peak(&mut self) {
        let mapped = self.resident_pool.usage().mapped.0 + self.read_ahead_pool.usage().mapped.0;
        self.peak_bytes = self.peak_bytes.max(mapped);
    }

    /// Drops all pages from `n_groups` on.
    pub fn truncate(&mut self, n_groups: u32) {
        self.pages.retain(|p| p.group < n_groups);
        self.copies.retain(|(_, p)| p.group < n_groups);
        self.paged_in.retain(|p, _| p.group < n_groups);
    }

    /// Caches these pages before all others.
    pub fn pin(&mut self, pages: HashSet<PageId>) {
        self.pinned = pages;
        let copies = std::mem::take(&mut self.copies);
        self.copies = copies.into_iter().map(|(_, page)| (self.rank(page), page)).collect();
    }

    /// Ranks these pages before all that are not pinned.
    pub fn page_in(&mut self, pages: &[PageId]) {
        self.n_paged_in += 1;
        for page in pages {
            let is_copy = self.forget_copy(*page);
            self.paged_in.insert(*page, self.n_paged_in);
            if is_copy {
                self.copies.insert((self.rank(*page), *page));
            }
        }
    }

    fn rank(&self, page: PageId) -> Rank {
        (!self.pinned.contains(&page), Reverse(self.paged_in.get(&page).copied().unwrap_or(0)), page.group)
    }

    /// Number of pages that are only in RAM.
    pub fn n_unsaved(&self) -> usize {
        self.pages.len() - self.copies.len()
    }

    /// Stores a page that the disk does not have.
    pub fn insert(&mut self, page: PageId, slab: Slab, payload: &[u8], retention: Retention) {
        self.pages.insert(page, fill_slab(slab, payload), retention);
    }

    /// Changes the retention of a page.
    pub fn set_retention(&mut self, page: PageId, retention: Retention) {
        if self.pages.set_retention(page, retention) && self.forget_copy(page) {
            self.retain_or_drop(page);
        }
    }

    /// The disk no longer has the page, so that it is no copy. False if it was none.
    pub fn forget_copy(&mut self, page: PageId) -> bool {
        self.copies.remove(&(self.rank(page), page))
    }

    /// Called when the disk has the page: caches or drops its RAM copy.
    pub fn retain_or_drop(&mut self, page: PageId) {
        let Some(retention) = self.pages.get(&page).map(|resident| resident.retention) else { return };
        if retention == Retention::InRam && self.has_room_for_copy(page) {
            self.copies.insert((self.rank(page), page));
        } else {
            self.pages.remove(page);
        }
    }

    /// Caches a copy of a page on disk, if its group is among the first that fit.
    pub fn cache_copy(&mut self, page: PageId, payload: &[u8]) {
        if !self.has_room_for_copy(page) {
            return;
        }
        let Some(slab) = self.page_slab() else { return };
        self.insert(page, slab, payload, Retention::InRam);
        self.copies.insert((self.rank(page), page));
    }

    /// True if one more copy fits. Evicts a copy of a later rank for it.
    fn has_room_for_copy(&mut self, page: PageId) -> bool {
        if self.copies.len() < self.split.n_resident {
            return true;
        }
        match self.copies.last() {
            Some((last, _)) if *last > self.rank(page) => self.drop_copy(),
            _ => false,
        }
    }

    /// Evicts the copy of the last rank, which the disk has. False if there is none.
    pub fn drop_copy(&mut self) -> bool {
        match self.copies.pop_last() {
            Some((_, page)) => {
                self.paged_in.remove(&page);
                self.pages.remove(page);
                true
            }
            None => false,
        }
    }

    /// Drops an unwritable page that is also in VRAM. False if there is none.
    pub fn drop_replica(&mut self) -> bool {
        let found = self.pages.iter().find(|(_, resident)| resident.retention == Retention::OnDiskOnly).map(|(page, _)| *page);
        found.is_some_and(|page| self.pages.remove(page))
    }

    /// Lends read-ahead memory, as far as no read uses it, to pages that the disk does not accept. False if there is no
    /// more of it.
    pub fn lend_read_ahead_memory(&mut self, ram_budget: Bytes) -> bool {
        let least = self.split.min_read_ahead_budget();
        self.read_ahead_pool.set_budget(least);
        let read_ahead = self.read_ahead_pool.usage().mapped.max(least);
        let pages = Bytes(ram_budget.0.saturating_sub(read_ahead.0));
        let has_more = pages.0 >= self.resident_pool.usage().budget.0 + self.split.slot_bytes as u64;
        if has_more {
            self.resident_pool.set_budget(pages);
        }
        has_more
    }

    /// Takes that memory back once the pages fit their own budget again.
    pub fn reclaim_read_ahead_memory(&mut self) {
        let own = self.split.resident_budget();
        if self.resident_pool.usage().budget > own && self.n_unsaved() == 0 {
            self.resident_pool.set_budget(own);
        }
        let pages = self.resident_pool.usage();
        if pages.budget.max(pages.mapped) <= own {
            self.read_ahead_pool.set_budget(self.split.read_ahead_budget());
        }
    }
}

/// Fills the slab with the payload, and zeros after it.
fn fill_slab(mut slab: Slab, payload: &[u8]) -> Slab {
    if let Some((head, tail)) = slab.split_at_mut_checked(payload.len()) {
        head.copy_from_slice(payload);
        tail.fill(0);
    }
    slab
}
