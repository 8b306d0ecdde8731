//! Transfer thread between VRAM and the offload tiers: fills staging buffers before the engine needs them, and drains
//! readback buffers.
//!
//! ```text
//! engine ─ plan: batches in the order of attention ─► fill staging buffer 0, 1, 2 ─► FilledStaging ─► engine: copy, attend
//!    ▲                                                       ▲ OffloadTiers: RAM, disk                         │
//!    └─ Emptied ◄─ put pages into OffloadTiers ◄─ ReadbackMapped      └────── SlotMapped ◄─ GPU has copied it ─┘
//! ```
//! 1. A staging buffer belongs to this thread from `SlotMapped` until `FilledStaging`, a readback buffer from
//!    `ReadbackMapped` until `Emptied`. Otherwise they belong to the engine and the GPU. So at most `n_slots` batches
//!    are ahead.
//! 2. A cyclic plan restarts after its last batch: the next token reads the same pages, and the first of them are
//!    transferred before it begins.
//! 3. A missing page is reported, never replaced by other bytes. The plan ends there.
//! 4. With a transfer queue of its own, this thread also copies a filled buffer to VRAM, beside the kernels, and reports it
//!    when it is there.
//! 5. The buffers bound both queues: each message belongs to one of them, or the sender waits for its answer.
//!
//! Owner thread: `strata-transfer`, which also owns [`OffloadTiers`]. It is a separate thread because a software GPU
//! computes inside the submit of the engine, and because copying into mapped memory occupies a core.

mod messages;
pub mod plan;
mod report;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use crate::gpu::{StagingBuffer, TransferQueue};
use crate::kv::bandwidth_limit::SharedLimit;
use crate::kv::error::KvError;
use crate::kv::occupancy::TierOccupancy;
use crate::kv::offload::{OffloadError, OffloadTiers, PageBytes};
use crate::kv::spec::KvSpec;
use crate::kv::store::{Io, PageId};
use crate::telemetry::Hub;
use messages::Message;
use plan::TransferPlan;
use worker::TransferWorker;

pub use messages::{FilledStaging, PageReadback, TransferEvent};
pub use report::OffloadReport;

/// Handle of the engine to the transfer thread.
pub struct Transfer {
    to: Sender<Message>,
    from: Receiver<TransferEvent>,
    report: Arc<Mutex<OffloadReport>>,
    link: SharedLimit,
    thread: Option<JoinHandle<()>>,
}

impl Transfer {
    /// Starts the thread. Uploads are limited to `pcie` bytes per second.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(spec: KvSpec, pcie: Option<u64>, hub: &Hub) -> std::io::Result<Transfer> {
        let (to, messages) = unbounded();
        let (events, from) = unbounded();
        let report = Arc::new(Mutex::new(OffloadReport::default()));
        let link = SharedLimit::new(pcie);
        let worker = TransferWorker {
            messages,
            events,
            spec,
            page_bytes: spec.page_bytes(),
            offload: None,
            slots: Vec::new(),
            readbacks: Vec::new(),
            queue: None,
            compressed: Vec::new(),
            free: VecDeque::new(),
            plan: Arc::new(TransferPlan::default()),
            epoch: 0,
            next: 0,
            link: link.clone(),
            lane: hub.lane("transfer"),
            report: report.clone(),
            reported_at: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("strata-transfer".into()).spawn(move || worker.run())?;
        Ok(Transfer { to, from, report, link, thread: Some(thread) })
    }

    fn send(&self, message: Message) {
        // The thread ends only with this handle. If it were gone, the next wait would fail.
        let _ = self.to.send(message);
    }

    /// Simulated limit of the link.
    pub(in crate::kv) fn link(&self) -> &SharedLimit {
        &self.link
    }

    /// Opens offload tiers for the context. No tiers may be open.
    pub fn open(&self, offload: OffloadTiers) {
        self.send(Message::Open(Box::new(offload)));
    }

    /// Saves all offloaded pages and closes the tiers. Returns the I/O for reuse.
    pub fn close(&self) -> Option<Io> {
        let (done, wait) = bounded(1);
        self.send(Message::Close(done));
        wait.recv().ok().flatten()
    }

    /// Sets the buffers of both directions: unmapped staging buffers, and unused readback buffers. The staging buffers are
    /// sent by `queue`, if there is one.
    pub fn buffers(&self, slots: Vec<StagingBuffer>, readbacks: Vec<StagingBuffer>, queue: Option<TransferQueue>) {
        self.send(Message::Buffers { slots, readbacks, queue });
    }

    /// Starts a new plan. Batches of an older plan may still arrive, with their epoch.
    pub fn plan(&self, epoch: u64, plan: Arc<TransferPlan>) {
        self.send(Message::Plan { epoch, plan });
    }

    /// Maps a staging buffer once the GPU has copied it, and passes it to the thread.
    pub fn map_slot(&self, slot: usize, buffer: &StagingBuffer) {
        let to = self.to.clone();
        buffer.map(move |mapped| {
            if mapped {
                let _ = to.send(Message::SlotMapped(slot));
            }
        });
    }

    /// Returns a staging buffer that is still mapped, because its batch is not needed.
    pub fn return_slot(&self, slot: usize) {
        self.send(Message::SlotMapped(slot));
    }

    /// Maps a readback buffer once the GPU has written it, and passes it to the thread.
    pub fn map_readback(&self, readback: usize, buffer: &StagingBuffer, pages: Vec<PageReadback>) {
        let to = self.to.clone();
        buffer.map(move |mapped| {
            if mapped {
                let _ = to.send(Message::ReadbackMapped(readback, pages));
            }
        });
    }

    /// Appends tokens.
    pub fn append_tokens(&self, tokens: &[u32]) {
        self.send(Message::Append(tokens.to_vec()));
    }

    /// Caches copies of these pages in RAM before all others.
    pub fn pin(&self, pages: HashSet<PageId>) {
        self.send(Message::Pin(pages));
    }

    /// Slabs in RAM of these pages, in order, which are read from disk if they are not there. None if RAM cannot hold all of them
    /// at once. Waits.
    ///
    /// # Errors
    /// [`KvError::Missing`] if a page must be recomputed, an error of the offload tiers, the end of the thread.
    pub fn page_in(&self, pages: Vec<PageId>) -> Result<Option<Vec<PageBytes>>, KvError> {
        let (done, wait) = bounded(1);
        self.send(Message::PageIn(pages, done));
        wait.recv().map_err(|_| KvError::TransferGone)?.map_err(|error| match error {
            OffloadError::Missing(page) => KvError::Missing(page.group),
            error => error.into(),
        })
    }

    /// These pages stay in VRAM, so RAM need not cache them.
    pub fn drop_ram_copies(&self, pages: Vec<PageId>) {
        self.send(Message::DropRamCopies(pages));
    }

    /// Drops the tokens from `n_tokens` on.
    pub fn truncate(&self, n_tokens: usize) {
        self.send(Message::Truncate(n_tokens));
    }

    /// Invalidates a group that must be recomputed and saved again.
    pub fn invalidate_group(&self, group: u32) {
        self.send(Message::Invalidate(group));
    }

    /// Waits until all offloaded pages are written and committed. False if some could not be.
    pub fn flush(&self) -> bool {
        let (done, wait) = bounded(1);
        self.send(Message::Flush(done));
        wait.recv().unwrap_or(false)
    }

    /// State of the offload tiers, at most a moment old, or as of the last flush or [`Transfer::refresh_report`].
    pub fn report(&self) -> OffloadReport {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the report.
    pub fn refresh_report(&self) {
        let (done, wait) = bounded(1);
        self.send(Message::Report(done));
        let _ = wait.recv();
    }

    /// Adds the offload tiers to `occupancy`.
    pub fn occupancy(&self, occupancy: TierOccupancy) -> TierOccupancy {
        let (done, wait) = bounded(1);
        let empty = TierOccupancy::new(occupancy.n_layer, occupancy.n_pages);
        self.send(Message::TierOccupancy(Box::new(occupancy), done));
        wait.recv().map_or(empty, |occupancy| *occupancy)
    }

    /// The next event. Waits at most `timeout`.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn next_event(&self, timeout: Duration) -> Result<Option<TransferEvent>, KvError> {
        match self.from.recv_timeout(timeout) {
            Ok(next_event) => Ok(Some(next_event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(KvError::TransferGone),
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        // Callbacks of buffers that are never mapped again hold senders, so the thread needs an explicit end.
        self.close();
        self.send(Message::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
