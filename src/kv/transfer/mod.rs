//! The thread between VRAM and the tiers fetching: it fills upload buffers ahead of the engine and empties readback buffers
//! behind it.
//!
//! ```text
//! engine ─ plan: batches in the order that attention will read them ─► fill slot 0, 1, 2 ─► FilledStaging ─► engine: copy, attend
//!    ▲                                                                      ▲ OffloadTiers: RAM, disk                     │
//!    └─ Emptied ◄─ put pages into OffloadTiers ◄─ ReadbackMapped                   └──────── SlotMapped ◄─ device is done ┘
//! ```
//! 1. A slot belongs to this thread from `SlotMapped` until `FilledStaging`, a readback buffer from `ReadbackMapped` until
//!    `Emptied`; in between they belong to the engine and the device. So at most `n_slots` batches are ahead.
//! 2. A plan that wraps begins again after its last batch: the next token reads what this one read, and its first pages are
//!    on their way before it begins.
//! 3. A page that cannot be had is reported, never replaced by other bytes; the plan ends there.
//! 4. Both queues are bounded by the buffers: each message answers for one of them, or is waited for.
//!
//! Owner thread: `strata-transfer`, which owns [`OffloadTiers`] as well. It is a thread of its own because a software device works
//! inside of the engine's submit, and because copying into mapped memory takes a core's time.

pub mod plan;
mod worker;

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use crate::gpu::StagingBuffer;
use crate::kv::bandwidth_limit::BandwidthLimit;
use crate::kv::error::KvError;
use crate::kv::layout::KvSpec;
use crate::kv::occupancy::TierOccupancy;
use crate::kv::offload::{OffloadStats, OffloadTiers, OffloadUsage, Retention};
use crate::kv::store::{Io, PageId, PageStore};
use crate::telemetry::Hub;
use plan::TransferPlan;
use worker::TransferWorker;

/// A page in a readback buffer, to be kept fetching.
#[derive(Debug, Clone, Copy)]
pub struct PageReadback {
    /// which
    pub page: PageId,
    /// where in the buffer, bytes
    pub offset: u64,
    /// in RAM as well, or only on the disk
    pub keep: Retention,
}

enum Message {
    Open(Box<OffloadTiers>),
    Close(Sender<Option<Io>>),
    Buffers { slots: Vec<StagingBuffer>, readbacks: Vec<StagingBuffer> },
    Plan { epoch: u64, plan: Arc<TransferPlan> },
    SlotMapped(usize),
    ReadbackMapped(usize, Vec<PageReadback>),
    Append(Vec<u32>),
    Truncate(usize),
    Durable(Vec<PageId>),
    Pin(HashSet<PageId>),
    Invalidate(u32),
    Flush(Sender<bool>),
    Report(Sender<()>),
    TierOccupancy(Box<TierOccupancy>, Sender<Box<TierOccupancy>>),
    End,
}

/// What is fetching, and what it has done since it was opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct OffloadReport {
    /// bytes in use
    pub usage: OffloadUsage,
    /// totals
    pub counts: OffloadStats,
    /// page groups from the first that the store has whole
    pub n_saved_groups: u32,
    /// bytes of the store
    pub store_bytes: u64,
    /// pages bypass the page cache
    pub is_direct: bool,
    /// pages of which RAM has room for copies
    pub n_resident: usize,
}

/// A batch of a plan in its slot.
#[derive(Debug, Clone, Copy)]
pub struct FilledStaging {
    /// of the plan
    pub epoch: u64,
    /// position in it
    pub index: usize,
    /// which slot
    pub slot: usize,
    /// when filling it began
    pub began_ns: u64,
    /// when it was full
    pub ended_ns: u64,
    /// of that, time until RAM had the pages
    pub fetching: Duration,
    /// of that, time on the link
    pub transferring: Duration,
}

/// What the thread has to say.
#[derive(Debug)]
pub enum TransferEvent {
    /// the next batch of the plan lies in a slot
    FilledStaging(FilledStaging),
    /// a readback buffer may be closed and used again
    Emptied(usize),
    /// a page of the plan is not whole and must be computed again
    Missing {
        /// of the plan
        epoch: u64,
        /// which page
        page: PageId,
    },
    /// neither RAM nor disk takes any more, or the disk failed
    Failed(KvError),
    /// something the user should know
    Notice(String),
}

/// The engine's end.
pub struct Transfer {
    to: Sender<Message>,
    from: Receiver<TransferEvent>,
    report: Arc<Mutex<OffloadReport>>,
    thread: Option<JoinHandle<()>>,
}

impl Transfer {
    /// Starts the thread. Uploads are held to `pcie` bytes per second.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start(spec: KvSpec, pcie: Option<u64>, hub: &Hub) -> std::io::Result<Transfer> {
        let (to, messages) = unbounded();
        let (arrivals, from) = unbounded();
        let report = Arc::new(Mutex::new(OffloadReport::default()));
        let mover = TransferWorker {
            messages,
            arrivals,
            spec,
            page_bytes: spec.page_bytes(),
            offload: None,
            slots: Vec::new(),
            readbacks: Vec::new(),
            packed: Vec::new(),
            free: VecDeque::new(),
            plan: Arc::new(TransferPlan::default()),
            epoch: 0,
            next: 0,
            link: BandwidthLimit::new(pcie),
            lane: hub.lane("transfer"),
            report: report.clone(),
            reported: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("strata-transfer".into()).spawn(move || mover.run())?;
        Ok(Transfer { to, from, report, thread: Some(thread) })
    }

    fn send(&self, message: Message) {
        // The thread ends only with this handle; were it gone, the next wait would say so.
        let _ = self.to.send(message);
    }

    /// Puts `offload` under the context, in place of nothing.
    pub fn open(&self, offload: OffloadTiers) {
        self.send(Message::Open(Box::new(offload)));
    }

    /// Writes out what is on its way and closes what is fetching the context; the I/O, for the next.
    pub fn close(&self) -> Option<Io> {
        let (done, wait) = bounded(1);
        self.send(Message::Close(done));
        wait.recv().ok().flatten()
    }

    /// The buffers of both directions: slots that are not mapped yet, and readbacks that are not in use.
    pub fn buffers(&self, slots: Vec<StagingBuffer>, readbacks: Vec<StagingBuffer>) {
        self.send(Message::Buffers { slots, readbacks });
    }

    /// Begins a new plan; what was filled for an older one arrives all the same, with its epoch.
    pub fn plan(&self, epoch: u64, plan: Arc<TransferPlan>) {
        self.send(Message::Plan { epoch, plan });
    }

    /// Maps a slot as soon as the device is done with it, and hands it over.
    pub fn map_slot(&self, slot: usize, buffer: &StagingBuffer) {
        let to = self.to.clone();
        buffer.map(move |mapped| {
            if mapped {
                let _ = to.send(Message::SlotMapped(slot));
            }
        });
    }

    /// Hands a slot over that is mapped still, because its batch was not wanted.
    pub fn return_slot(&self, slot: usize) {
        self.send(Message::SlotMapped(slot));
    }

    /// Maps a readback buffer as soon as the device has written it, and hands it over.
    pub fn map_readback(&self, readback: usize, buffer: &StagingBuffer, pages: Vec<PageReadback>) {
        let to = self.to.clone();
        buffer.map(move |mapped| {
            if mapped {
                let _ = to.send(Message::ReadbackMapped(readback, pages));
            }
        });
    }

    /// Tokens were added after the last.
    pub fn append_tokens(&self, tokens: &[u32]) {
        self.send(Message::Append(tokens.to_vec()));
    }

    /// Keeps copies of these pages in RAM before all others.
    pub fn pin(&self, pages: HashSet<PageId>) {
        self.send(Message::Pin(pages));
    }

    /// These pages stay in VRAM: RAM needs no copies of them.
    pub fn durable(&self, pages: Vec<PageId>) {
        self.send(Message::Durable(pages));
    }

    /// Tokens from `n_tokens` on are not the context's any more.
    pub fn truncate(&self, n_tokens: usize) {
        self.send(Message::Truncate(n_tokens));
    }

    /// A group has to be computed and written again.
    pub fn invalidate_group(&self, group: u32) {
        self.send(Message::Invalidate(group));
    }

    /// Waits until everything that was handed over is written and committed; false where something could not be.
    pub fn flush(&self) -> bool {
        let (done, wait) = bounded(1);
        self.send(Message::Flush(done));
        wait.recv().unwrap_or(false)
    }

    /// What is fetching, as of the last flush or [`Transfer::look`], or a moment ago.
    pub fn report(&self) -> OffloadReport {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings the report up to date.
    pub fn look(&self) {
        let (done, wait) = bounded(1);
        self.send(Message::Report(done));
        let _ = wait.recv();
    }

    /// `occupancy` with what is fetching.
    pub fn occupancy(&self, occupancy: TierOccupancy) -> TierOccupancy {
        let (done, wait) = bounded(1);
        let empty = TierOccupancy::new(occupancy.n_layer, occupancy.n_pages);
        self.send(Message::TierOccupancy(Box::new(occupancy), done));
        wait.recv().map_or(empty, |occupancy| *occupancy)
    }

    /// The next arrival, waiting up to `patience`.
    ///
    /// # Errors
    /// Where the thread is gone.
    pub fn arrival(&self, patience: Duration) -> Result<Option<TransferEvent>, KvError> {
        match self.from.recv_timeout(patience) {
            Ok(arrival) => Ok(Some(arrival)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(KvError::TransferGone),
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        // The callbacks of buffers that are never mapped again hold senders, so an end must be said.
        self.close();
        self.send(Message::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl OffloadReport {
    fn of(offload: &OffloadTiers) -> OffloadReport {
        let store = offload.store();
        OffloadReport {
            usage: offload.usage(),
            counts: offload.counts(),
            n_saved_groups: store.map_or(0, PageStore::n_complete_prefix),
            store_bytes: store.map_or(0, |s| s.disk_bytes().0),
            is_direct: store.and_then(PageStore::is_direct).unwrap_or(false),
            n_resident: offload.n_resident(),
        }
    }
}
