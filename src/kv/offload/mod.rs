//! Offload tiers of the KV cache: page copies in RAM and a page store on disk, with read-ahead and write-back.
//!
//! ```text
//! VRAM ─ put ─► slab in RAM ─ write-back ─► store ─ commit (own thread) ─► durable
//!                  │ stays as a cached copy, if its group is among the first and the budget allows
//! VRAM ◄─ fetch ─ copy in RAM │ run read ahead along the access plan ◄─ Io ─ store
//! ```
//! 1. All slabs together never exceed the RAM budget. The files of the store never exceed the disk budget.
//! 2. A page leaves RAM only when the disk has it, or the caller has it ([`Retention::OnDiskOnly`]).
//! 3. A page is written once. Only groups with a corrupt page are written again.
//! 4. A returned page has a matching checksum, or never left RAM. A page that no tier has intact is
//!    [missing](OffloadError::Missing): the caller recomputes it and puts it again.
//! 5. A disk fault is reported once as a [`Notice`]. It stops saving, never the answer: RAM is used while it has room.
//! 6. RAM copies are first those of pinned pages, then those of the first groups. Full attention reads all pages in the
//!    same order in every step, so any fixed set causes fewer disk reads than LRU. The first groups are the same share
//!    of every layer.
//!
//! Owner thread: the transfer thread. Only `fetch`, `flush`, `truncate`, `close`, and `put` with RAM full of unwritten
//! pages wait. Every wait has a timeout, and is counted by cause.
//!
//! Units: bytes; pages of 64 tokens of one layer, keys and values.
//!
//! Limits: one page size; no activation pages.
//!
//! Sources: a fixed set is optimal for a cyclic scan (Belady's MIN).

mod abstract_rows;
mod access_plan;
mod committer;
mod config;
mod error;
mod io_queue;
mod occupancy;
mod page;
mod ram_pages;
mod ram_tier;
mod read_ahead;
mod read_state;
mod scratch;
mod stats;
mod write_back;
mod write_state;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::base::{Bytes, MovedBytes};
use crate::kv::store::{Io, IoDone, IoInfo, PAGE_TOKENS, PageId, PageKind, PageRun, StoreChain};
use crate::telemetry::{Cause, EventKind, EventLane, FaultKind, Link, WaitCause, ns_of};

pub use config::OffloadConfig;
pub use error::OffloadError;
pub use page::{PageBytes, PageLocation, Retention};
pub use ram_pages::RamPagesView;
pub use scratch::{SCRATCH_PREFIX, Scratch, remove_stale_scratch, scratch};
pub use stats::{Notice, OffloadStats, OffloadUsage, TierUse, WaitTotal};

use abstract_rows::AbstractRows;
use access_plan::AccessPlan;
use committer::Committer;
use config::RamSplit;
use io_queue::{IoQueue, IoWork, PendingIo, TIMEOUT};
use ram_tier::RamTier;
use read_state::ReadState;
use scratch::ScratchFolder;
use stats::Notices;
use write_state::WriteState;

/// Backing of the disk tier.
#[derive(Debug)]
pub enum DiskBacking {
    /// no disk tier, RAM only
    None,
    /// saved documents; their stores remain
    Saved(StoreChain),
    /// saved documents, and a scratch store for all tokens after them
    SavedThenScratch(StoreChain, Box<Scratch>),
    /// a scratch store for this context only
    Scratch(Scratch),
}

/// Offload tiers of one context.
#[derive(Debug)]
pub struct OffloadTiers {
    /// Dropped first, so that no I/O is in flight when the files are closed.
    queue: IoQueue,
    committer: Committer,
    store: Option<StoreChain>,
    scratch: Option<ScratchFolder>,
    config: OffloadConfig,
    lane: EventLane,
    ram: RamTier,
    reads: ReadState,
    writes: WriteState,
    rows: AbstractRows,
    counts: OffloadStats,
    notices: Notices,
    disk_peak_bytes: u64,
}

impl OffloadTiers {
    /// Creates the tiers. The pages of a saved store are on disk from the start.
    ///
    /// # Errors
    /// [`OffloadError::TooSmall`], [`OffloadError::ShapeMismatch`].
    pub fn new(config: OffloadConfig, io: Io, backing: DiskBacking, lane: EventLane) -> Result<Self, OffloadError> {
        let (store, scratch) = match backing {
            DiskBacking::None => (None, None),
            DiskBacking::Saved(store) => (Some(store), None),
            DiskBacking::SavedThenScratch(saved, scratch) => {
                let Scratch { store, folder } = *scratch;
                (Some(saved.then_scratch(store)), Some(folder))
            }
            DiskBacking::Scratch(Scratch { store, folder }) => (Some(StoreChain::of_scratch(store)), Some(folder)),
        };
        if let Some(geometry) = store.as_ref().map(StoreChain::geometry) {
            let (got, expected) = (Bytes(geometry.payload_of(PageKind::Kv)), Bytes(config.page_bytes));
            let (got_layers, n_layer) = (geometry.n_layer, config.n_layer);
            if (got, got_layers) != (expected, n_layer) {
                return Err(OffloadError::ShapeMismatch { got, expected, got_layers, n_layer });
            }
        }
        let split = RamSplit::new(&config, store.as_ref().map(|s| s.geometry().extent_groups))?;
        let disk_peak_bytes = store.as_ref().map_or(0, |s| s.disk_bytes().0);
        Ok(OffloadTiers {
            queue: IoQueue::new(io, config.nvme_limit),
            committer: Committer::default(),
            writes: WriteState::new(store.is_some()),
            store,
            scratch,
            config,
            lane,
            ram: RamTier::new(split),
            reads: ReadState::default(),
            rows: AbstractRows::default(),
            counts: OffloadStats::default(),
            notices: Notices::default(),
            disk_peak_bytes,
        })
    }

    /// Location of a page.
    pub fn location(&self, page: PageId) -> PageLocation {
        if self.ram.pages.contains_key(&page) || self.reads.prefetched.contains_key(&page) {
            PageLocation::Ram
        } else if self.reads.reading.contains_key(&page) {
            PageLocation::InFlight
        } else if self.is_on_disk(page) {
            PageLocation::Disk
        } else {
            PageLocation::Missing
        }
    }

    /// True if the disk tier has the store of a saved document.
    fn has_saved_store(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.is_saved(0))
    }

    fn is_on_disk(&self, page: PageId) -> bool {
        self.store.as_ref().is_some_and(|s| s.is_present(page))
    }

    /// The stores of the context.
    pub fn store(&self) -> Option<&StoreChain> {
        self.store.as_ref()
    }

    /// The I/O backend in use, and the reason.
    pub fn io_info(&self) -> IoInfo {
        self.queue.info()
    }

    /// Records completions and starts new I/O, without waiting. Call it often.
    pub fn poll_completions(&mut self) {
        self.collect();
        self.start_writes();
        self.start_commit(false);
        self.read_ahead();
        self.queue.submit_waiting();
    }

    /// Current use, peak and budget of both tiers.
    pub fn usage(&self) -> OffloadUsage {
        let disk = self.store.as_ref().map_or(0, |s| s.disk_bytes().0);
        OffloadUsage {
            ram: TierUse { now: self.ram.bytes(), peak: self.ram.peak_bytes(), budget: self.config.ram_budget },
            disk: TierUse { now: Bytes(disk), peak: Bytes(disk.max(self.disk_peak_bytes)), budget: self.config.disk_budget },
        }
    }

    /// Totals since creation.
    pub fn counts(&self) -> OffloadStats {
        OffloadStats { reading: self.reads.clock.total(Instant::now()), ..self.counts }
    }

    /// Bytes moved by these tiers.
    pub fn moved_bytes(&self) -> MovedBytes {
        let OffloadStats { disk_to_ram, ram_to_disk, .. } = self.counts;
        MovedBytes { disk_to_ram, ram_to_disk, ..MovedBytes::default() }
    }

    /// Takes the notices for the user; one per kind of fault.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.notices.drain()
    }

    /// Appends tokens whose pages will be put later.
    pub fn append_tokens(&mut self, ids: &[u32]) {
        if let Some(store) = &mut self.store {
            store.append_tokens(ids);
        }
    }

    /// Drops all tokens after the first `n_tokens`, and every page that needs them. The tokens of a saved document stay
    /// in its store. Waits for writes of the dropped pages.
    pub fn truncate(&mut self, n_tokens: usize) {
        let n_groups = u32::try_from(n_tokens / PAGE_TOKENS as usize).unwrap_or(u32::MAX);
        let is_dropped = |page: &PageId| page.group >= n_groups;
        self.writes.queue.retain(|p| !is_dropped(p));
        while self.queue.is_writing(is_dropped) {
            if !self.wait_for_completion() {
                self.disable_write_back();
                break;
            }
        }
        // A failed write has requeued its page.
        self.writes.queue.retain(|p| !is_dropped(p));
        self.reads.truncate(n_groups);
        self.ram.truncate(n_groups);
        self.rows.truncate(n_groups);
        if let Some(store) = &mut self.store {
            store.rewind(n_tokens);
        }
    }

    /// Maximum number of cached copies.
    pub fn n_resident(&self) -> usize {
        self.ram.split.n_resident
    }

    /// A view of the RAM-resident pages for another thread.
    pub fn ram_pages_view(&self) -> RamPagesView {
        self.ram.pages.view()
    }

    /// Caches these pages before all others, from their next fetch on.
    pub fn pin(&mut self, pages: HashSet<PageId>) {
        self.ram.pin(pages);
    }

    /// Saves all unwritten pages of saved documents, then closes the tiers. Returns their stores, and the I/O for reuse.
    /// A scratch store is removed.
    pub fn close(mut self) -> (Option<StoreChain>, Io) {
        if let Some(store) = self.store.as_ref().filter(|store| store.is_saved(0)) {
            self.writes.queue.retain(|page| store.is_saved(page.group));
            self.flush();
        }
        self.reads.plan = AccessPlan::default();
        while self.wait_for_completion() {}
        if let Some(result) = self.committer.next(TIMEOUT) {
            self.finish_commit(result);
        }
        let OffloadTiers { queue, store, scratch, .. } = self;
        let io = queue.into_io();
        let saved = store.and_then(StoreChain::into_saved);
        drop(scratch);
        (saved, io)
    }

    /// Records a completed transfer. Every transfer is recorded here once.
    fn record_move(&mut self, link: Link, run: PageRun, bytes: u64, began: Instant, cause: Cause) {
        let n_pages = u64::from(run.n_pages);
        if link == Link::DiskToRam {
            self.counts.disk_to_ram += bytes;
            self.counts.n_pages_read += n_pages;
            self.counts.n_reads += 1;
        } else {
            self.counts.ram_to_disk += bytes;
            self.counts.n_pages_written += n_pages;
        }
        let (layer, group, n_pages) = (run.layer, run.first_group, run.n_pages);
        self.lane.span(EventKind::PageMove { link, layer, group, n_pages, bytes, cause }, ns_of(began));
    }

    /// Records a completed wait. Every wait is recorded here once.
    fn record_wait(&mut self, cause: WaitCause, began: Instant) {
        self.counts.add_wait(cause, began.elapsed());
        self.lane.span(EventKind::Wait { cause }, ns_of(began));
    }

    /// Records a fault. Every fault is recorded here once.
    fn fault(&mut self, kind: FaultKind, text: impl FnOnce() -> String) {
        self.lane.instant(EventKind::Fault { kind });
        self.notices.report(kind, text);
    }

    /// Records all completions.
    fn collect(&mut self) {
        let completed = self.queue.completed();
        self.finish(completed);
        while let Some(result) = self.committer.next(Duration::ZERO) {
            self.finish_commit(result);
        }
    }

    fn finish(&mut self, completed: Vec<(PendingIo, IoDone)>) {
        for (op, done) in completed {
            match op.work {
                IoWork::Read(run) => self.finish_read(run, &op, done),
                IoWork::Write(page) => self.finish_write(page, &op, done),
            }
        }
    }

    /// Waits until at least one request completes. False if none is in flight, or the disk does not respond.
    fn wait_for_completion(&mut self) -> bool {
        let Some(completed) = self.queue.wait() else { return false };
        self.finish(completed);
        true
    }
}
