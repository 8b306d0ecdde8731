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
use crate::kv::store::{Io, IoDone, IoInfo, IoRequest, PAGE_TOKENS, PageId, PageKind, PageRun, Slab, SlabPool, StoreChain};
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

/// A wait fails if the disk completes nothing for this long.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Backing of the disk tier.
#[derive(Debug)]
pub enum DiskBacking {
    /// no disk tier, RAM only
    None,
    /// saved documents; their stores remain
    Saved(StoreChain),
    /// a scratch store for this context only
    Scratch(Scratch),
}

/// Retention of the RAM copy of a page, once the disk has the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// the page is not in VRAM: the copy stays if its group is among the first that fit
    InRam,
    /// the page is also in VRAM: the copy is dropped. If nothing can be written, it stays only while RAM has room
    OnDiskOnly,
}

/// Location of the nearest offloaded copy of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageLocation {
    /// in RAM: `fetch` does not wait
    Ram,
    /// being read from disk
    InFlight,
    /// on disk
    Disk,
    /// in no tier
    Missing,
}

/// Payload of a page. It keeps its slab in use, so drop it soon.
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

/// Order of the RAM copies: pinned pages, then the first groups. The last one is evicted first.
type Rank = (bool, u32);

/// Subject of an I/O request.
#[derive(Debug, Clone, Copy)]
enum IoWork {
    Read(PageRun),
    Write(PageId),
}

/// An I/O request in flight.
#[derive(Debug)]
struct PendingIo {
    work: IoWork,
    cause: Cause,
    began: Instant,
    /// time at which the bandwidth limit lets it complete
    arrives_at: Instant,
}

/// Offload tiers of one context.
#[derive(Debug)]
pub struct OffloadTiers {
    /// Dropped first, so that no I/O is in flight when the files are closed.
    io: Io,
    committer: Committer,
    store: Option<StoreChain>,
    scratch: Option<ScratchFolder>,
    config: OffloadConfig,
    split: RamSplit,
    lane: EventLane,
    resident_pool: SlabPool,
    read_ahead_pool: SlabPool,
    /// pages with their own slab: cached copies, and unwritten pages
    ram_pages: RamPages,
    /// cached copies of pages on disk, by rank
    copies: BTreeSet<(Rank, PageId)>,
    /// pages whose copies are evicted last
    pinned: HashSet<PageId>,
    /// read ahead, not fetched yet
    prefetched: HashMap<PageId, PageBytes>,
    /// reads in flight that are still needed, with their tags
    reading: HashMap<PageId, u64>,
    /// pages of failed runs: each is read singly, so that only the corrupt ones are lost
    read_singly: HashSet<PageId>,
    plan: AccessPlan,
    /// unwritten pages, oldest first
    write_queue: VecDeque<PageId>,
    n_writing: usize,
    pending_io: HashMap<u64, PendingIo>,
    next_tag: u64,
    /// requests waiting for room in the I/O queue
    to_submit: VecDeque<IoRequest>,
    /// completed, but delayed by the bandwidth limit
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
    /// Creates the tiers. The pages of a saved store are on disk from the start.
    ///
    /// # Errors
    /// [`OffloadError::TooSmall`], [`OffloadError::ShapeMismatch`].
    pub fn new(config: OffloadConfig, io: Io, backing: DiskBacking, lane: EventLane) -> Result<Self, OffloadError> {
        let (store, scratch) = match backing {
            DiskBacking::None => (None, None),
            DiskBacking::Saved(store) => (Some(store), None),
            DiskBacking::Scratch(Scratch { store, folder }) => (Some(store.into()), Some(folder)),
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
            prefetched: HashMap::new(),
            reading: HashMap::new(),
            read_singly: HashSet::new(),
            plan: AccessPlan::default(),
            write_queue: VecDeque::new(),
            n_writing: 0,
            pending_io: HashMap::new(),
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

    /// Location of a page.
    pub fn location(&self, page: PageId) -> PageLocation {
        if self.ram_pages.contains_key(&page) || self.prefetched.contains_key(&page) {
            PageLocation::Ram
        } else if self.reading.contains_key(&page) {
            PageLocation::InFlight
        } else if self.is_on_disk(page) {
            PageLocation::Disk
        } else {
            PageLocation::Missing
        }
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
        self.io.info()
    }

    /// Records completions and starts new I/O, without waiting. Call it often.
    pub fn poll_completions(&mut self) {
        self.collect();
        self.start_writes();
        self.start_commit(false);
        self.read_ahead();
        self.submit_waiting();
    }

    /// Current use, peak and budget of both tiers.
    pub fn usage(&self) -> OffloadUsage {
        let (resident, read_ahead) = (self.resident_pool.usage(), self.read_ahead_pool.usage());
        let disk = self.store.as_ref().map_or(0, |s| s.disk_bytes().0);
        OffloadUsage {
            ram: TierUse {
                now: Bytes(resident.in_use.0 + read_ahead.in_use.0),
                peak: Bytes(self.ram_peak_bytes),
                budget: self.config.ram_budget,
            },
            disk: TierUse { now: Bytes(disk), peak: Bytes(disk.max(self.disk_peak_bytes)), budget: self.config.disk_budget },
        }
    }

    /// Totals since creation.
    pub fn counts(&self) -> OffloadStats {
        OffloadStats { reading: self.reading_clock.total(Instant::now()), ..self.counts }
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
        self.write_queue.retain(|p| !is_dropped(p));
        let being_written = |op: &PendingIo| matches!(op.work, IoWork::Write(page) if is_dropped(&page));
        while self.pending_io.values().any(being_written) {
            if !self.wait_for_completion() {
                self.disable_write_back();
                break;
            }
        }
        // A failed write has requeued its page.
        self.write_queue.retain(|p| !is_dropped(p));
        let dropped_tags: Vec<u64> = self.reading.iter().filter(|(p, _)| is_dropped(p)).map(|(_, tag)| *tag).collect();
        self.reading.retain(|_, tag| !dropped_tags.contains(tag));
        self.prefetched.retain(|p, _| !is_dropped(p));
        self.ram_pages.retain(|p| !is_dropped(p));
        self.copies.retain(|(_, p)| !is_dropped(p));
        self.read_singly.retain(|p| !is_dropped(p));
        self.plan.truncate(n_groups);
        self.rows.truncate(n_groups);
        if let Some(store) = &mut self.store {
            store.rewind(n_tokens);
        }
    }

    /// Maximum number of cached copies.
    pub fn n_resident(&self) -> usize {
        self.split.n_resident
    }

    /// Caches these pages before all others, from their next fetch on.
    pub fn pin(&mut self, pages: HashSet<PageId>) {
        self.pinned = pages;
        let copies = std::mem::take(&mut self.copies);
        self.copies = copies.into_iter().map(|(_, page)| (self.rank(page), page)).collect();
    }

    fn rank(&self, page: PageId) -> Rank {
        (!self.pinned.contains(&page), page.group)
    }

    /// Saves all unwritten pages, then closes the tiers. Returns the stores of saved documents, and the I/O for reuse.
    /// A scratch store is removed.
    pub fn close(mut self) -> (Option<StoreChain>, Io) {
        if self.scratch.is_none() {
            self.flush();
        }
        self.plan = AccessPlan::default();
        while !self.pending_io.is_empty() && self.wait_for_completion() {}
        if let Some(result) = self.committer.next(TIMEOUT) {
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

    /// Submits a request to the I/O threads, and records its subject.
    fn submit(&mut self, request: IoRequest, work: IoWork, cause: Cause) {
        let began = Instant::now();
        let arrives_at = self.link.delay_for(began, request.len as u64);
        self.pending_io.insert(request.tag, PendingIo { work, cause, began, arrives_at });
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

    /// Memory is mapped only when a slab is taken, so this misses no peak.
    fn record_ram_peak(&mut self) {
        let mapped = self.resident_pool.usage().mapped.0 + self.read_ahead_pool.usage().mapped.0;
        self.ram_peak_bytes = self.ram_peak_bytes.max(mapped);
    }

    fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    /// Records all completions.
    fn collect(&mut self) {
        while let Some(done) = self.io.try_next() {
            self.delayed.push(done);
        }
        self.release(Instant::now());
        while let Some(result) = self.committer.next(Duration::ZERO) {
            self.finish_commit(result);
        }
    }

    /// Time at which the bandwidth limit lets a completion through.
    fn arrives_at(&self, done: &IoDone) -> Option<Instant> {
        self.pending_io.get(&done.tag).map(|op| op.arrives_at)
    }

    fn release(&mut self, now: Instant) {
        if self.delayed.is_empty() {
            return;
        }
        let (completed, rest) =
            std::mem::take(&mut self.delayed).into_iter().partition(|done| self.arrives_at(done).is_none_or(|at| at <= now));
        self.delayed = rest;
        let completed: Vec<IoDone> = completed;
        for done in completed {
            let Some(op) = self.pending_io.remove(&done.tag) else { continue };
            match op.work {
                IoWork::Read(run) => self.finish_read(run, &op, done),
                IoWork::Write(page) => self.finish_write(page, &op, done),
            }
        }
    }

    /// Waits until at least one request completes. False if none is in flight, or the disk does not respond.
    fn wait_for_completion(&mut self) -> bool {
        if self.pending_io.is_empty() {
            return false;
        }
        self.submit_waiting();
        let n_before = self.pending_io.len();
        let began = Instant::now();
        while self.pending_io.len() == n_before {
            let now = Instant::now();
            let next_arrival = self.delayed.iter().filter_map(|d| self.arrives_at(d)).min();
            let timeout = next_arrival.map_or(TIMEOUT, |at| at.saturating_duration_since(now));
            if self.delayed.len() == n_before {
                std::thread::sleep(timeout);
            } else if let Some(done) = self.io.next(timeout) {
                self.delayed.push(done);
            } else if next_arrival.is_none() && began.elapsed() >= TIMEOUT {
                return false;
            }
            self.release(Instant::now());
        }
        true
    }
}
