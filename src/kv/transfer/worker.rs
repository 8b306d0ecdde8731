//! Transfer worker: owns the offload tiers, handles messages of the engine, and fills staging buffers along the plan.
//!
//! Owner thread: `strata-transfer`. Waits only for messages, for pages of the plan, and for a simulated bandwidth
//! limit.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use crate::gpu::{HostSource, StagingBuffer, TransferQueue, is_divided};
use crate::kv::bandwidth_limit::SharedLimit;
use crate::kv::error::KvError;
use crate::kv::offload::{OffloadError, OffloadTiers, PageBytes, PageLocation, Retention};
use crate::kv::policy::leoam::abstracts::abstract_of;
use crate::kv::quantize_page::quantize_page;
use crate::kv::spec::KvSpec;
use crate::kv::store::PageId;
use crate::kv::transfer::messages::{FilledStaging, Message, PageReadback, TransferEvent};
use crate::kv::transfer::plan::{TransferBatch, TransferPlan};
use crate::kv::transfer::report::OffloadReport;
use crate::telemetry::{self, Cause, EventKind, EventLane, Link, WaitCause};

/// Interval for polling I/O completions while idle.
const IDLE: Duration = Duration::from_millis(2);

/// Maximum age of the report.
const REPORT_EVERY: Duration = Duration::from_millis(50);

pub(super) struct TransferWorker {
    pub messages: Receiver<Message>,
    pub events: Sender<TransferEvent>,
    pub spec: KvSpec,
    pub page_bytes: u64,
    pub offload: Option<Box<OffloadTiers>>,
    pub slots: Vec<StagingBuffer>,
    pub readbacks: Vec<StagingBuffer>,
    /// sends filled staging buffers to VRAM
    pub queue: Option<TransferQueue>,
    /// compression buffer of one page
    pub compressed: Vec<u8>,
    /// mapped, empty staging buffers
    pub free: VecDeque<usize>,
    pub plan: Arc<TransferPlan>,
    pub epoch: u64,
    /// next batch of the plan
    pub next: usize,
    /// simulated limit, which the engine thread shares
    pub link: SharedLimit,
    pub lane: EventLane,
    pub report: Arc<Mutex<OffloadReport>>,
    pub reported_at: Instant,
}

impl TransferWorker {
    pub fn run(mut self) {
        loop {
            let can_fill = self.next < self.plan.batches.len() && !self.free.is_empty() && self.offload.is_some();
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
            if let Some(offload) = &mut self.offload {
                offload.poll_completions();
            }
            self.report_faults();
            if self.reported_at.elapsed() >= REPORT_EVERY {
                self.write_report();
            }
            if can_fill && !self.fill() {
                return;
            }
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Open(offload) => {
                self.offload = Some(offload);
                self.write_report();
            }
            Message::Close(done) => {
                self.plan = Arc::default();
                self.report_faults();
                let _ = done.send(self.offload.take().map(|offload| offload.close().1));
            }
            Message::Buffers { slots, readbacks, queue } => {
                (self.slots, self.readbacks, self.queue) = (slots, readbacks, queue);
            }
            Message::Plan { epoch, plan } => {
                (self.epoch, self.next) = (epoch, 0);
                if let Some(offload) = &mut self.offload {
                    let pages: Vec<PageId> =
                        plan.batches.iter().flat_map(TransferBatch::pages).chain(plan.read_ahead.iter().copied()).collect();
                    match plan.cyclic {
                        true => offload.plan(&pages, true),
                        // Layers in sequence: nothing is read before it is requested.
                        false => offload.request(&pages),
                    }
                }
                self.plan = plan;
            }
            Message::SlotMapped(slot) => self.free.push_back(slot),
            Message::ReadbackMapped(readback, pages) => self.put(readback, &pages),
            Message::Append(tokens) => {
                if let Some(offload) = &mut self.offload {
                    offload.append_tokens(&tokens);
                }
            }
            Message::Truncate(n_tokens) => {
                if let Some(offload) = &mut self.offload {
                    offload.truncate(n_tokens);
                }
            }
            Message::Invalidate(group) => {
                if let Some(offload) = &mut self.offload {
                    offload.invalidate_group(group);
                }
            }
            Message::DropRamCopies(pages) => {
                if let Some(offload) = &mut self.offload {
                    pages.iter().for_each(|page| offload.set_retention(*page, Retention::OnDiskOnly));
                }
            }
            Message::Pin(pages) => {
                if let Some(offload) = &mut self.offload {
                    offload.pin(pages);
                }
            }
            Message::PageIn(pages, done) => {
                let paged_in = self.offload.as_mut().map_or(Ok(None), |offload| offload.page_in(&pages));
                self.report_faults();
                let _ = done.send(paged_in);
            }
            Message::Flush(done) => {
                let flushed = self.offload.as_mut().is_none_or(|offload| offload.flush());
                self.report_faults();
                self.write_report();
                let _ = done.send(flushed);
            }
            Message::Report(done) => {
                self.write_report();
                let _ = done.send(());
            }
            Message::TierOccupancy(mut occupancy, done) => {
                if let Some(offload) = &self.offload {
                    offload.count_into(&mut occupancy);
                }
                // The report has the same state as the occupancy.
                self.write_report();
                let _ = done.send(occupancy);
            }
            Message::End => {}
        }
    }

    /// Forwards the notices of the tiers.
    fn report_faults(&mut self) {
        for notice in self.offload.as_mut().map(|l| l.take_notices()).unwrap_or_default() {
            let _ = self.events.send(TransferEvent::Notice(notice.text));
        }
    }

    fn write_report(&mut self) {
        self.reported_at = Instant::now();
        // Memory that the RAM tier gave up is not kept for the device.
        if let Some(queue) = &mut self.queue {
            queue.release_unused();
        }
        let report = self.offload.as_ref().map(|l| OffloadReport::of(l)).unwrap_or_default();
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }

    fn put(&mut self, readback: usize, pages: &[PageReadback]) {
        let Some(offload) = &mut self.offload else {
            let _ = self.events.send(TransferEvent::Emptied(readback));
            return;
        };
        let buffer = &self.readbacks[readback];
        let mut result = Ok(());
        for out in pages {
            let began_ns = telemetry::now();
            let read = buffer.read(out.offset, self.page_bytes, |bytes| {
                if offload.saves_abstracts() {
                    offload.put_abstract(out.page, &abstract_of(&self.spec, bytes));
                }
                offload.put(out.page, bytes, out.retention)
            });
            result = match read {
                Ok(put) => put,
                Err(error) => {
                    let _ = self.events.send(TransferEvent::Failed(error.into()));
                    return;
                }
            };
            if result.is_err() {
                break;
            }
            let PageId { layer, group, .. } = out.page;
            let cause = if out.retention == Retention::InRam { Cause::Spill } else { Cause::WriteBack };
            let (link, bytes) = (Link::VramToRam, self.page_bytes);
            self.lane.span(EventKind::PageMove { link, layer, group, n_pages: 1, bytes, cause }, began_ns);
        }
        self.report_faults();
        if let Err(error) = result {
            let _ = self.events.send(TransferEvent::Failed(error.into()));
        }
        let _ = self.events.send(TransferEvent::Emptied(readback));
    }

    /// Fills the next staging buffer. False if the engine is gone.
    fn fill(&mut self) -> bool {
        if self.offload.is_none() {
            return true;
        }
        let Some(slot) = self.free.pop_front() else { return true };
        let (epoch, index, plan) = (self.epoch, self.next, self.plan.clone());
        let batch = &plan.batches[index];
        let began_ns = telemetry::now();
        let FillTime { fetching, mut transferring } = match self.write_pages(slot, batch) {
            Ok(time) => time,
            Err(event) => {
                self.free.push_front(slot);
                self.next = usize::MAX;
                return self.events.send(event).is_ok();
            }
        };
        let n_bytes = batch.groups.len() as u64 * batch.page_bytes(&self.spec);
        let wait_began_ns = telemetry::now();
        if let Some(waited) = self.link.wait_for(n_bytes) {
            transferring += waited;
            self.lane.span(EventKind::Wait { cause: WaitCause::LinkLimit }, wait_began_ns);
        }
        self.next += 1;
        if self.plan.cyclic && self.next == self.plan.batches.len() {
            self.next = 0;
        }
        let filled = FilledStaging { epoch, index, slot, began_ns, ended_ns: telemetry::now(), fetching, transferring };
        self.events.send(TransferEvent::FilledStaging(filled)).is_ok()
    }

    /// Fetches the pages of a batch, writes them to a staging buffer, and sends that if there is a queue for it.
    ///
    /// # Errors
    /// The event for the engine: a missing page, or a failure.
    fn write_pages(&mut self, slot: usize, batch: &TransferBatch) -> Result<FillTime, TransferEvent> {
        let Some(offload) = &mut self.offload else { return Ok(FillTime::default()) };
        let failed = |error: KvError| TransferEvent::Failed(error);
        let page_bytes = batch.page_bytes(&self.spec);
        let n_bytes = batch.groups.len() as u64 * page_bytes;
        let imports = self.queue.as_ref().is_some_and(TransferQueue::imports);
        let gathers = !batch.is_compressed && (imports || is_divided(n_bytes));
        let mut time = FillTime::default();
        // Pages that the device copies from where they are, or that several threads write together; the last is before page `i`.
        let mut gathered: Vec<PageBytes> = Vec::new();
        let write_gathered = |gathered: &mut Vec<PageBytes>, end: usize, time: &mut FillTime| {
            let began = Instant::now();
            let rows: Vec<&[u8]> = gathered.iter().map(|page| &**page).collect();
            let first = (end - rows.len()) as u64 * page_bytes;
            let written = if rows.is_empty() { Ok(()) } else { self.slots[slot].write_rows(first, &rows, page_bytes as usize) };
            gathered.clear();
            time.transferring += began.elapsed();
            written.map_err(|error| failed(error.into()))
        };
        for (i, page) in batch.pages().enumerate() {
            // A fetch that waits may need the memory of pages that are held.
            if offload.location(page) != PageLocation::Ram {
                write_gathered(&mut gathered, i, &mut time)?;
            }
            let began = Instant::now();
            let fetched = offload.fetch(page);
            time.fetching += began.elapsed();
            let bytes = fetched.map_err(|error| match error {
                OffloadError::Missing(page) => TransferEvent::Missing { epoch: self.epoch, page },
                error => failed(error.into()),
            })?;
            if gathers {
                gathered.push(bytes);
                continue;
            }
            let bytes = match batch.is_compressed {
                true => {
                    self.compressed.resize(page_bytes as usize, 0);
                    quantize_page(&bytes, self.spec.n_kv_head, self.spec.head_dim, &mut self.compressed);
                    &self.compressed
                }
                false => &*bytes,
            };
            let began = Instant::now();
            self.slots[slot].write(i as u64 * page_bytes, bytes).map_err(|error| failed(error.into()))?;
            time.transferring += began.elapsed();
        }
        if let Some(queue) = self.queue.as_mut().filter(|_| gathered.len() == batch.groups.len()) {
            let began = Instant::now();
            let sources: Vec<HostSource> = gathered.iter().map(PageBytes::source).collect();
            let is_sent = self.slots[slot].send_from(queue, &sources).map_err(|error| failed(error.into()))?;
            time.transferring += began.elapsed();
            if is_sent {
                return Ok(time);
            }
        }
        write_gathered(&mut gathered, batch.groups.len(), &mut time)?;
        if let Some(queue) = &mut self.queue {
            let began = Instant::now();
            self.slots[slot].send(queue, n_bytes).map_err(|error| failed(error.into()))?;
            time.transferring += began.elapsed();
        }
        Ok(time)
    }
}

/// Time that filling a staging buffer took.
#[derive(Debug, Clone, Copy, Default)]
struct FillTime {
    /// until the pages were in RAM
    fetching: Duration,
    /// on the link
    transferring: Duration,
}
