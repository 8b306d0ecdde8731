//! The thread between VRAM and the tiers below: it fills upload buffers ahead of the engine and empties readback buffers
//! behind it.
//!
//! ```text
//! engine ─ plan: batches in the order that attention will read them ─► fill slot 0, 1, 2 ─► Filled ─► engine: copy, attend
//!    ▲                                                                      ▲ Lower: RAM, disk                     │
//!    └─ Emptied ◄─ put pages into Lower ◄─ ReadbackMapped                   └──────── SlotMapped ◄─ device is done ┘
//! ```
//! 1. A slot belongs to this thread from `SlotMapped` until `Filled`, a readback buffer from `ReadbackMapped` until
//!    `Emptied`; in between they belong to the engine and the device. So at most `n_slots` batches are ahead.
//! 2. A plan that wraps begins again after its last batch: the next token reads what this one read, and its first pages are
//!    on their way before it begins.
//! 3. A page that cannot be had is reported, never replaced by other bytes; the plan ends there.
//! 4. Both queues are bounded by the buffers: each message answers for one of them, or is waited for.
//!
//! Owner thread: `strata-transfer`, which owns [`Lower`] as well. It is a thread of its own because a software device works
//! inside of the engine's submit, and because copying into mapped memory takes a core's time.

mod mover;

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use super::batches::StreamPlan;
use super::census::Census;
use super::error::KvError;
use super::layout::KvSpec;
use super::lower::link::VirtualLink;
use super::lower::{Keep, Lower, LowerCounts, LowerUse};
use super::store::{Io, PageId, Store};
use crate::gpu::HostBuffer;
use crate::telemetry::Hub;
use mover::Mover;

/// A page in a readback buffer, to be kept below.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing {
    /// which
    pub page: PageId,
    /// where in the buffer, bytes
    pub offset: u64,
    /// in RAM as well, or only on the disk
    pub keep: Keep,
}

enum Message {
    Open(Box<Lower>),
    Close(Sender<Option<Io>>),
    Buffers { slots: Vec<HostBuffer>, readbacks: Vec<HostBuffer> },
    Plan { epoch: u64, plan: Arc<StreamPlan> },
    SlotMapped(usize),
    ReadbackMapped(usize, Vec<Outgoing>),
    Append(Vec<u32>),
    Truncate(usize),
    Settled(Vec<PageId>),
    Prefer(HashSet<PageId>),
    Lose(u32),
    Flush(Sender<bool>),
    Report(Sender<()>),
    Census(Box<Census>, Sender<Box<Census>>),
    End,
}

/// What is below, and what it has done since it was opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct LowerReport {
    /// bytes in use
    pub usage: LowerUse,
    /// totals
    pub counts: LowerCounts,
    /// page groups from the first that the store has whole
    pub n_saved_groups: u32,
    /// bytes of the store
    pub store_bytes: u64,
    /// pages bypass the page cache
    pub is_direct: bool,
    /// pages of which RAM has room for copies
    pub n_kept: usize,
}

/// A batch of a plan in its slot.
#[derive(Debug, Clone, Copy)]
pub struct Filled {
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
    pub below: Duration,
    /// of that, time on the link
    pub carrying: Duration,
}

/// What the thread has to say.
#[derive(Debug)]
pub enum Arrival {
    /// the next batch of the plan lies in a slot
    Filled(Filled),
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
    from: Receiver<Arrival>,
    report: Arc<Mutex<LowerReport>>,
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
        let report = Arc::new(Mutex::new(LowerReport::default()));
        let mover = Mover {
            messages,
            arrivals,
            spec,
            page_bytes: spec.page_bytes(),
            lower: None,
            slots: Vec::new(),
            readbacks: Vec::new(),
            packed: Vec::new(),
            free: VecDeque::new(),
            plan: Arc::new(StreamPlan::default()),
            epoch: 0,
            next: 0,
            link: VirtualLink::new(pcie),
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

    /// Puts `lower` under the context, in place of nothing.
    pub fn open(&self, lower: Lower) {
        self.send(Message::Open(Box::new(lower)));
    }

    /// Writes out what is on its way and closes what is below the context; the I/O, for the next.
    pub fn close(&self) -> Option<Io> {
        let (done, wait) = bounded(1);
        self.send(Message::Close(done));
        wait.recv().ok().flatten()
    }

    /// The buffers of both directions: slots that are not mapped yet, and readbacks that are not in use.
    pub fn buffers(&self, slots: Vec<HostBuffer>, readbacks: Vec<HostBuffer>) {
        self.send(Message::Buffers { slots, readbacks });
    }

    /// Begins a new plan; what was filled for an older one arrives all the same, with its epoch.
    pub fn plan(&self, epoch: u64, plan: Arc<StreamPlan>) {
        self.send(Message::Plan { epoch, plan });
    }

    /// Maps a slot as soon as the device is done with it, and hands it over.
    pub fn map_slot(&self, slot: usize, buffer: &HostBuffer) {
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
    pub fn map_readback(&self, readback: usize, buffer: &HostBuffer, pages: Vec<Outgoing>) {
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
    pub fn prefer(&self, pages: HashSet<PageId>) {
        self.send(Message::Prefer(pages));
    }

    /// These pages stay in VRAM: RAM needs no copies of them.
    pub fn settled(&self, pages: Vec<PageId>) {
        self.send(Message::Settled(pages));
    }

    /// Tokens from `n_tokens` on are not the context's any more.
    pub fn truncate(&self, n_tokens: usize) {
        self.send(Message::Truncate(n_tokens));
    }

    /// A group has to be computed and written again.
    pub fn lose_group(&self, group: u32) {
        self.send(Message::Lose(group));
    }

    /// Waits until everything that was handed over is written and committed; false where something could not be.
    pub fn flush(&self) -> bool {
        let (done, wait) = bounded(1);
        self.send(Message::Flush(done));
        wait.recv().unwrap_or(false)
    }

    /// What is below, as of the last flush or [`Transfer::look`], or a moment ago.
    pub fn report(&self) -> LowerReport {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings the report up to date.
    pub fn look(&self) {
        let (done, wait) = bounded(1);
        self.send(Message::Report(done));
        let _ = wait.recv();
    }

    /// `census` with what is below.
    pub fn census(&self, census: Census) -> Census {
        let (done, wait) = bounded(1);
        let empty = Census::new(census.n_layer, census.n_pages);
        self.send(Message::Census(Box::new(census), done));
        wait.recv().map_or(empty, |census| *census)
    }

    /// The next arrival, waiting up to `patience`.
    ///
    /// # Errors
    /// Where the thread is gone.
    pub fn arrival(&self, patience: Duration) -> Result<Option<Arrival>, KvError> {
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

impl LowerReport {
    fn of(lower: &Lower) -> LowerReport {
        let store = lower.store();
        LowerReport {
            usage: lower.usage(),
            counts: lower.counts(),
            n_saved_groups: store.map_or(0, Store::n_complete_prefix),
            store_bytes: store.map_or(0, |s| s.disk_bytes().0),
            is_direct: store.and_then(Store::is_direct).unwrap_or(false),
            n_kept: lower.n_kept(),
        }
    }
}
