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

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use super::abstracts::abstract_of;
use super::batches::{Batch, StreamPlan};
use super::error::KvError;
use super::layout::KvSpec;
use super::lower::link::VirtualLink;
use super::lower::{Keep, Lower, LowerCounts, LowerError, LowerUse};
use super::store::{Io, PageId, Store};
use crate::gpu::HostBuffer;
use crate::telemetry::{self, Cause, EventKind, Hub, Lane, Link, WaitCause};

/// How long to sleep where there is nothing to do but to look after reads and writes.
const IDLE: Duration = Duration::from_millis(2);

/// How old a report may be.
const REPORT_EVERY: Duration = Duration::from_millis(50);

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

struct Mover {
    messages: Receiver<Message>,
    arrivals: Sender<Arrival>,
    spec: KvSpec,
    page_bytes: u64,
    lower: Option<Box<Lower>>,
    slots: Vec<HostBuffer>,
    readbacks: Vec<HostBuffer>,
    /// slots that are mapped and empty
    free: VecDeque<usize>,
    plan: Arc<StreamPlan>,
    epoch: u64,
    /// next batch of the plan
    next: usize,
    link: VirtualLink,
    lane: Lane,
    report: Arc<Mutex<LowerReport>>,
    reported: Instant,
}

impl Mover {
    fn run(mut self) {
        loop {
            let can_fill = self.next < self.plan.batches.len() && !self.free.is_empty() && self.lower.is_some();
            let message = match can_fill {
                true => self.messages.try_recv().map_err(|e| e.is_disconnected()),
                false => self.messages.recv_timeout(IDLE).map_err(|e| e == RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::End) => return,
                Ok(message) => {
                    self.handle(message);
                    continue;
                }
                Err(true) => return,
                Err(false) => {}
            }
            if let Some(lower) = &mut self.lower {
                lower.pump();
            }
            self.tell_faults();
            if self.reported.elapsed() >= REPORT_EVERY {
                self.write_report();
            }
            if can_fill && !self.fill() {
                return;
            }
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Open(lower) => {
                self.lower = Some(lower);
                self.write_report();
            }
            Message::Close(done) => {
                self.plan = Arc::default();
                self.tell_faults();
                let _ = done.send(self.lower.take().map(|lower| lower.close().1));
            }
            Message::Buffers { slots, readbacks } => (self.slots, self.readbacks) = (slots, readbacks),
            Message::Plan { epoch, plan } => {
                (self.epoch, self.next) = (epoch, 0);
                if let Some(lower) = &mut self.lower {
                    let pages: Vec<PageId> =
                        plan.batches.iter().flat_map(Batch::pages).chain(plan.ahead.iter().copied()).collect();
                    match plan.cyclic {
                        true => lower.plan(&pages, true),
                        // One after the other: nothing is read before it is asked for.
                        false => lower.request(&pages),
                    }
                }
                self.plan = plan;
            }
            Message::SlotMapped(slot) => self.free.push_back(slot),
            Message::ReadbackMapped(readback, pages) => self.put(readback, &pages),
            Message::Append(tokens) => {
                if let Some(lower) = &mut self.lower {
                    lower.append_tokens(&tokens);
                }
            }
            Message::Truncate(n_tokens) => {
                if let Some(lower) = &mut self.lower {
                    lower.truncate(n_tokens);
                }
            }
            Message::Lose(group) => {
                if let Some(lower) = &mut self.lower {
                    lower.lose_group(group);
                }
            }
            Message::Settled(pages) => {
                if let Some(lower) = &mut self.lower {
                    pages.iter().for_each(|page| lower.keep(*page, Keep::DiskOnly));
                }
            }
            Message::Prefer(pages) => {
                if let Some(lower) = &mut self.lower {
                    lower.prefer(pages);
                }
            }
            Message::Flush(done) => {
                let flushed = self.lower.as_mut().is_none_or(|lower| lower.flush());
                self.tell_faults();
                self.write_report();
                let _ = done.send(flushed);
            }
            Message::Report(done) => {
                self.write_report();
                let _ = done.send(());
            }
            Message::End => {}
        }
    }

    /// Passes on what the tiers have to say.
    fn tell_faults(&mut self) {
        for notice in self.lower.as_mut().map(|l| l.faults()).unwrap_or_default() {
            let _ = self.arrivals.send(Arrival::Notice(notice.text));
        }
    }

    fn write_report(&mut self) {
        self.reported = Instant::now();
        let report = self.lower.as_ref().map(|l| LowerReport::of(l)).unwrap_or_default();
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }

    fn put(&mut self, readback: usize, pages: &[Outgoing]) {
        let Some(lower) = &mut self.lower else {
            let _ = self.arrivals.send(Arrival::Emptied(readback));
            return;
        };
        let buffer = &self.readbacks[readback];
        let mut result = Ok(());
        for out in pages {
            let began_ns = telemetry::now();
            let read = buffer.read(out.offset, self.page_bytes, |bytes| {
                if lower.keeps_abstracts() {
                    lower.put_abstract(out.page, &abstract_of(&self.spec, bytes));
                }
                lower.put(out.page, bytes, out.keep)
            });
            result = match read {
                Ok(put) => put,
                Err(error) => {
                    let _ = self.arrivals.send(Arrival::Failed(error.into()));
                    return;
                }
            };
            if result.is_err() {
                break;
            }
            let PageId { layer, group, .. } = out.page;
            let cause = if out.keep == Keep::Ram { Cause::Spill } else { Cause::WriteBehind };
            let (link, bytes) = (Link::VramToRam, self.page_bytes);
            self.lane.span(EventKind::PageMove { link, layer, group, n_pages: 1, bytes, cause }, began_ns);
        }
        self.tell_faults();
        if let Err(error) = result {
            let _ = self.arrivals.send(Arrival::Failed(error.into()));
        }
        let _ = self.arrivals.send(Arrival::Emptied(readback));
    }

    /// Fills the next slot. False when nobody listens any more.
    fn fill(&mut self) -> bool {
        let (Some(lower), Some(slot)) = (&mut self.lower, self.free.pop_front()) else { return true };
        let (epoch, index) = (self.epoch, self.next);
        let batch = &self.plan.batches[index];
        let began_ns = telemetry::now();
        for (i, page) in batch.pages().enumerate() {
            let filled = match lower.take(page) {
                Ok(bytes) => self.slots[slot].write(i as u64 * self.page_bytes, &bytes).map_err(KvError::from),
                Err(LowerError::Missing(page)) => {
                    self.free.push_front(slot);
                    self.next = usize::MAX;
                    return self.arrivals.send(Arrival::Missing { epoch, page }).is_ok();
                }
                Err(error) => Err(error.into()),
            };
            if let Err(error) = filled {
                self.free.push_front(slot);
                self.next = usize::MAX;
                return self.arrivals.send(Arrival::Failed(error)).is_ok();
            }
        }
        let arrives = self.link.carry(Instant::now(), batch.groups.len() as u64 * self.page_bytes);
        let waits = telemetry::now();
        if let Some(rest) = arrives.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) {
            std::thread::sleep(rest);
            self.lane.span(EventKind::Wait { cause: WaitCause::LinkLimit }, waits);
        }
        self.next += 1;
        if self.plan.cyclic && self.next == self.plan.batches.len() {
            self.next = 0;
        }
        let filled = Filled { epoch, index, slot, began_ns, ended_ns: telemetry::now() };
        self.arrivals.send(Arrival::Filled(filled)).is_ok()
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
