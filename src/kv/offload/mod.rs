//! The two tiers below VRAM: copies of pages in RAM, and the store on the disk, read ahead and written behind.
//!
//! ```text
//! VRAM ─ put ─► slab in RAM ─ write-behind ─► store ─ commit (its own thread) ─► safe
//!                  │ stays as a copy, while it is among the first groups and the budget allows
//! VRAM ◄─ take ─ copy in RAM │ run read ahead along the plan ◄─ Io ─ store
//! ```
//! 1. All slabs together never pass the RAM budget, the store's files never pass the disk budget.
//! 2. A page leaves RAM only when the disk has it, or the caller said that it has it itself ([`Retention::OnDiskOnly`]).
//! 3. A page is written once; only groups of which a page was found damaged are written again.
//! 4. What is handed out fits its checksum, or never left RAM. What cannot be had whole is [missing](OffloadError::Missing):
//!    the caller computes it again and puts it again.
//! 5. A fault of the disk is told once as a [`Notice`] and ends saving, never the answer: RAM goes on while it has room.
//! 6. The copies kept are those that the caller prefers, then those of the first groups: attention reads all pages in the same order in every step, so any fixed
//!    set is read from the disk less often than what was used last, and the first groups are the same share of every layer.
//!
//! Owner thread: the engine. Nothing waits but `take`, `flush`, `truncate`, `close`, and `put` where RAM is full of pages not
//! yet written; every wait ends, and is counted with its cause.
//!
//! Units: bytes; pages of 64 tokens of one layer, keys and values.
//!
//! Limits: one size of page; activation pages are not kept here yet.
//!
//! Source: keeping a fixed set under a cyclic scan is Belady's choice for it; write-once replica and budgets as in
//! the architecture's invariants 2, 3 and 5.

mod abstract_rows;
mod access_plan;
mod committer;
mod config;
mod error;
mod occupancy;
mod ram_pages;
mod read_ahead;
mod scratch;
mod stats;
mod write_back;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::{Bytes, MovedBytes};
use crate::kv::store::{Io, IoDone, IoInfo, IoRequest, PAGE_TOKENS, PageId, PageKind, PageRun, PageStore, Slab, SlabPool};
use crate::telemetry::{Cause, EventKind, EventLane, FaultKind, Link, WaitCause, ns_of};

pub use config::OffloadConfig;
pub use error::OffloadError;
pub use ram_pages::RamPagesView;
pub use scratch::{SCRATCH_PREFIX, Scratch, remove_stale_scratch, scratch};
pub use stats::{Notice, OffloadStats, OffloadUsage, TierUse, WaitTotal};

use crate::kv::bandwidth_limit::BandwidthLimit;
use access_plan::AccessPlan;
use committer::Committer;
use config::RamSplit;
use ram_pages::RamPages;
use scratch::ScratchFolder;
use stats::{BusyClock, Notices};

/// Longest time without any answer of the disk, after which a wait is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The disk tier.
#[derive(Debug)]
pub enum DiskBacking {
    /// there is none: RAM only
    None,
    /// a saved document, which stays
    Saved(PageStore),
    /// for this context only
    Scratch(Scratch),
}

/// What becomes of the RAM copy of a page once the disk has the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// the page is not in VRAM: it stays in RAM while it is among the first groups that fit
    InRam,
    /// the page is in VRAM as well: no copy stays. Where nothing can be written the page is held only while RAM has room
    OnDiskOnly,
}

/// Where the nearest copy below VRAM is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageLocation {
    /// in RAM: `take` will not wait
    Ram,
    /// being read
    OnItsWay,
    /// on the disk
    Disk,
    /// nowhere
    Missing,
}

/// The payload of a page; keeps its slab from being used for anything else, so it should not be held for long.
#[derive(Debug, Clone)]
pub struct PageBytes {
    slab: Arc<Slab>,
    offset: usize,
    len: usize,
}

impl Deref for PageBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.slab.get(self.offset..).and_then(|rest| rest.get(..self.len)).unwrap_or_default()
    }
}

/// Which copies are kept longest: pinned ones, then the first groups.
type Rank = (bool, u32);

/// What an I/O request is about.
#[derive(Debug, Clone, Copy)]
enum IoWork {
    Read(PageRun),
    Write(PageId),
}

/// An I/O request under way.
#[derive(Debug)]
struct PendingIo {
    work: IoWork,
    cause: Cause,
    began: Instant,
    /// when the link, as slow as it pretends to be, has carried it
    arrives_at: Instant,
}

/// The tiers below VRAM, of one context.
#[derive(Debug)]
pub struct OffloadTiers {
    /// Dropped first, so that nothing is under way when the files are closed.
    io: Io,
    committer: Committer,
    store: Option<PageStore>,
    scratch: Option<ScratchFolder>,
    config: OffloadConfig,
    split: RamSplit,
    lane: EventLane,
    resident_pool: SlabPool,
    read_ahead_pool: SlabPool,
    /// pages in slabs of their own: copies, and what is not written yet
    ram_pages: RamPages,
    /// copies of what the disk has, by rank
    copies: BTreeSet<(Rank, PageId)>,
    /// pages to keep before all others
    pinned: HashSet<PageId>,
    /// read, and not asked for yet
    ready: HashMap<PageId, PageBytes>,
    /// on their way, and still wanted
    reading: HashMap<PageId, u64>,
    /// of runs that failed: each is read alone, so that only what is damaged is lost
    alone: HashSet<PageId>,
    plan: AccessPlan,
    /// put and not written yet, oldest first
    to_write: VecDeque<PageId>,
    n_writing: usize,
    ops: HashMap<u64, PendingIo>,
    next_tag: u64,
    /// requests that the queue had no room for
    to_submit: VecDeque<IoRequest>,
    /// done, but not carried by the link yet
    delayed: Vec<IoDone>,
    link: BandwidthLimit,
    saving: write_back::WriteBackState,
    rows: abstract_rows::AbstractRows,
    counts: OffloadStats,
    reading_clock: BusyClock,
    notices: Notices,
    ram_peak_bytes: u64,
    disk_peak_bytes: u64,
}

impl OffloadTiers {
    /// Sets the tiers up. A store's pages are on the disk from the start.
    ///
    /// # Errors
    /// [`OffloadError::TooSmall`], [`OffloadError::OtherShape`].
    pub fn new(config: OffloadConfig, io: Io, backing: DiskBacking, lane: EventLane) -> Result<Self, OffloadError> {
        let (store, scratch) = match backing {
            DiskBacking::None => (None, None),
            DiskBacking::Saved(store) => (Some(store), None),
            DiskBacking::Scratch(Scratch { store, folder }) => (Some(store), Some(folder)),
        };
        if let Some(geometry) = store.as_ref().map(PageStore::geometry) {
            let (got, expected) = (Bytes(geometry.payload_of(PageKind::Kv)), Bytes(config.page_bytes));
            let (got_layers, n_layer) = (geometry.n_layer, config.n_layer);
            if (got, got_layers) != (expected, n_layer) {
                return Err(OffloadError::OtherShape { got, expected, got_layers, n_layer });
            }
        }
        let split = RamSplit::new(&config, store.as_ref().map(|s| s.geometry().extent_groups))?;
        let disk_peak_bytes = store.as_ref().map_or(0, |s| s.disk_bytes().0);
        Ok(OffloadTiers {
            io,
            committer: Committer::default(),
            saving: write_back::WriteBackState::new(store.is_some()),
            rows: abstract_rows::AbstractRows::default(),
            store,
            scratch,
            split,
            lane,
            resident_pool: SlabPool::new(split.resident_budget()),
            read_ahead_pool: SlabPool::new(split.read_ahead_budget()),
            ram_pages: RamPages::default(),
            copies: BTreeSet::new(),
            pinned: HashSet::new(),
            ready: HashMap::new(),
            reading: HashMap::new(),
            alone: HashSet::new(),
            plan: AccessPlan::default(),
            to_write: VecDeque::new(),
            n_writing: 0,
            ops: HashMap::new(),
            next_tag: 0,
            to_submit: VecDeque::new(),
            delayed: Vec::new(),
            link: BandwidthLimit::new(config.nvme_limit),
            config,
            counts: OffloadStats::default(),
            reading_clock: BusyClock::default(),
            notices: Notices::default(),
            ram_peak_bytes: 0,
            disk_peak_bytes,
        })
    }

    /// Where a page is.
    pub fn has(&self, page: PageId) -> PageLocation {
        if self.ram_pages.contains_key(&page) || self.ready.contains_key(&page) {
            PageLocation::Ram
        } else if self.reading.contains_key(&page) {
            PageLocation::OnItsWay
        } else if self.is_on_disk(page) {
            PageLocation::Disk
        } else {
            PageLocation::Missing
        }
    }

    fn is_on_disk(&self, page: PageId) -> bool {
        self.store.as_ref().is_some_and(|s| s.is_present(page))
    }

    /// The store, for what it knows of the document.
    pub fn store(&self) -> Option<&PageStore> {
        self.store.as_ref()
    }

    /// Which backend does the I/O, and why.
    pub fn io_info(&self) -> IoInfo {
        self.io.info()
    }

    /// Does what can be done without waiting: notes what has ended, begins what may begin. Best called often.
    pub fn poll_completions(&mut self) {
        self.collect();
        self.start_writes();
        self.start_commit(false);
        self.read_ahead();
        self.submit_waiting();
    }

    /// What is in use, what was at most, what may be.
    pub fn usage(&self) -> OffloadUsage {
        let (kept, transit) = (self.resident_pool.usage(), self.read_ahead_pool.usage());
        let disk = self.store.as_ref().map_or(0, |s| s.disk_bytes().0);
        OffloadUsage {
            ram: TierUse {
                now: Bytes(kept.in_use.0 + transit.in_use.0),
                peak: Bytes(self.ram_peak_bytes),
                budget: self.config.ram_budget,
            },
            disk: TierUse { now: Bytes(disk), peak: Bytes(disk.max(self.disk_peak_bytes)), budget: self.config.disk_budget },
        }
    }

    /// Totals since the beginning.
    pub fn counts(&self) -> OffloadStats {
        OffloadStats { reading: self.reading_clock.total(Instant::now()), ..self.counts }
    }

    /// The part of these tiers in all that moved.
    pub fn moved_bytes(&self) -> MovedBytes {
        let OffloadStats { disk_to_ram, ram_to_disk, .. } = self.counts;
        MovedBytes { disk_to_ram, ram_to_disk, ..MovedBytes::default() }
    }

    /// What the user should be told; each kind of fault once.
    pub fn faults(&mut self) -> Vec<Notice> {
        self.notices.drain()
    }

    /// Tokens after the last, of which pages will come.
    pub fn append_tokens(&mut self, ids: &[u32]) {
        if let Some(store) = &mut self.store {
            store.append_tokens(ids);
        }
    }

    /// Forgets all but the first `n_tokens`, and every page that needs more. A saved document's own tokens stay in its store.
    /// Waits for writes of such pages.
    pub fn truncate(&mut self, n_tokens: usize) {
        let n_groups = u32::try_from(n_tokens / PAGE_TOKENS as usize).unwrap_or(u32::MAX);
        let is_gone = |page: &PageId| page.group >= n_groups;
        self.to_write.retain(|p| !is_gone(p));
        let being_written = |op: &PendingIo| matches!(op.work, IoWork::Write(page) if is_gone(&page));
        while self.ops.values().any(being_written) {
            if !self.wait_for_end() {
                self.disable_write_back();
                break;
            }
        }
        // A write that failed has put its page back.
        self.to_write.retain(|p| !is_gone(p));
        let gone: Vec<u64> = self.reading.iter().filter(|(p, _)| is_gone(p)).map(|(_, tag)| *tag).collect();
        self.reading.retain(|_, tag| !gone.contains(tag));
        self.ready.retain(|p, _| !is_gone(p));
        self.ram_pages.retain(|p| !is_gone(p));
        self.copies.retain(|(_, p)| !is_gone(p));
        self.alone.retain(|p| !is_gone(p));
        self.plan.truncate(n_groups);
        self.rows.truncate(n_groups);
        if let Some(store) = &mut self.store {
            store.rewind(n_tokens);
        }
    }

    /// Pages of which there is room for copies.
    pub fn n_resident(&self) -> usize {
        self.split.n_resident
    }

    /// Keeps copies of these pages before all others, from when they next pass.
    pub fn pin(&mut self, pages: HashSet<PageId>) {
        self.pinned = pages;
        let copies = std::mem::take(&mut self.copies);
        self.copies = copies.into_iter().map(|(_, page)| (self.rank(page), page)).collect();
    }

    fn rank(&self, page: PageId) -> Rank {
        (!self.pinned.contains(&page), page.group)
    }

    /// Closes the tiers: everything that can be saved is saved first. The saved document's store, and the I/O for the next.
    /// A scratch store is gone.
    pub fn close(mut self) -> (Option<PageStore>, Io) {
        if self.scratch.is_none() {
            self.flush();
        }
        self.plan = AccessPlan::default();
        while !self.ops.is_empty() && self.wait_for_end() {}
        if let Some(result) = self.committer.next(PATIENCE) {
            self.finish_commit(result);
        }
        let OffloadTiers { io, store, scratch, .. } = self;
        match scratch {
            None => (store, io),
            Some(folder) => {
                drop((store, folder));
                (None, io)
            }
        }
    }

    /// Every movement passes here once, when it has ended.
    fn moved(&mut self, link: Link, run: PageRun, bytes: u64, began: Instant, cause: Cause) {
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

    /// Every wait passes here once, when it has ended.
    fn waited(&mut self, cause: WaitCause, began: Instant) {
        self.counts.add_wait(cause, began.elapsed());
        self.lane.span(EventKind::Wait { cause }, ns_of(began));
    }

    /// Every fault passes here once.
    fn fault(&mut self, kind: FaultKind, text: impl FnOnce() -> String) {
        self.lane.instant(EventKind::Fault { kind });
        self.notices.tell(kind, text);
    }

    /// Gives a request to the I/O threads, and notes what it is about.
    fn submit(&mut self, request: IoRequest, work: IoWork, cause: Cause) {
        let began = Instant::now();
        let arrives_at = self.link.delay_for(began, request.len as u64);
        self.ops.insert(request.tag, PendingIo { work, cause, began, arrives_at });
        self.to_submit.push_back(request);
        self.submit_waiting();
    }

    fn submit_waiting(&mut self) {
        while let Some(request) = self.to_submit.pop_front() {
            if let Err(back) = self.io.submit(request) {
                self.to_submit.push_front(*back);
                break;
            }
        }
    }

    fn page_slab(&mut self) -> Option<Slab> {
        let slab = self.resident_pool.take(self.split.slot_bytes).ok();
        self.record_ram_peak();
        slab
    }

    fn run_slab(&mut self) -> Option<Slab> {
        let slab = self.read_ahead_pool.take(self.split.run_bytes()).ok();
        self.record_ram_peak();
        slab
    }

    /// Memory is mapped only when a slab is taken, so this misses nothing.
    fn record_ram_peak(&mut self) {
        let mapped = self.resident_pool.usage().mapped.0 + self.read_ahead_pool.usage().mapped.0;
        self.ram_peak_bytes = self.ram_peak_bytes.max(mapped);
    }

    fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    /// Notes whatever has ended.
    fn collect(&mut self) {
        while let Some(done) = self.io.try_next() {
            self.delayed.push(done);
        }
        self.release(Instant::now());
        while let Some(result) = self.committer.next(Duration::ZERO) {
            self.finish_commit(result);
        }
    }

    /// When the link has carried what the disk has done.
    fn arrives_at(&self, done: &IoDone) -> Option<Instant> {
        self.ops.get(&done.tag).map(|op| op.arrives_at)
    }

    fn release(&mut self, now: Instant) {
        if self.delayed.is_empty() {
            return;
        }
        let (carried, rest) =
            std::mem::take(&mut self.delayed).into_iter().partition(|done| self.arrives_at(done).is_none_or(|at| at <= now));
        self.delayed = rest;
        let carried: Vec<IoDone> = carried;
        for done in carried {
            let Some(op) = self.ops.remove(&done.tag) else { continue };
            match op.work {
                IoWork::Read(run) => self.finish_read(run, &op, done),
                IoWork::Write(page) => self.finish_write(page, &op, done),
            }
        }
    }

    /// Waits until at least one request has ended; false where none is under way, or the disk does not answer.
    fn wait_for_end(&mut self) -> bool {
        if self.ops.is_empty() {
            return false;
        }
        self.submit_waiting();
        let n_before = self.ops.len();
        let began = Instant::now();
        while self.ops.len() == n_before {
            let now = Instant::now();
            let carried = self.delayed.iter().filter_map(|d| self.arrives_at(d)).min();
            let timeout = carried.map_or(PATIENCE, |at| at.saturating_duration_since(now));
            if self.delayed.len() == n_before {
                std::thread::sleep(timeout);
            } else if let Some(done) = self.io.next(timeout) {
                self.delayed.push(done);
            } else if carried.is_none() && began.elapsed() >= PATIENCE {
                return false;
            }
            self.release(Instant::now());
        }
        true
    }
}
