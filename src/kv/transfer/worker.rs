//! Transfer worker: owns the offload tiers, handles messages of the engine, and fills staging buffers along the plan.
//!
//! Owner thread: `strata-transfer`. Waits only for messages, for pages of the plan, and for a simulated bandwidth
//! limit.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use crate::gpu::{StagingBuffer, TransferQueue};
use crate::kv::bandwidth_limit::BandwidthLimit;
use crate::kv::error::KvError;
use crate::kv::offload::{OffloadError, OffloadTiers, Retention};
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
    pub link: BandwidthLimit,
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
        let (Some(offload), Some(slot)) = (&mut self.offload, self.free.pop_front()) else { return true };
        let (epoch, index) = (self.epoch, self.next);
        let batch = &self.plan.batches[index];
        let began_ns = telemetry::now();
        let page_bytes = batch.page_bytes(&self.spec);
        let (mut fetching, mut transferring) = (Duration::ZERO, Duration::ZERO);
        for (i, page) in batch.pages().enumerate() {
            let began = Instant::now();
            let fetched = offload.fetch(page);
            fetching += began.elapsed();
            let filled = match fetched {
                Ok(bytes) => {
                    let bytes = match batch.is_compressed {
                        true => {
                            self.compressed.resize(page_bytes as usize, 0);
                            quantize_page(&bytes, self.spec.n_kv_head, self.spec.head_dim, &mut self.compressed);
                            &self.compressed
                        }
                        false => &*bytes,
                    };
                    let began = Instant::now();
                    let written = self.slots[slot].write(i as u64 * page_bytes, bytes);
                    transferring += began.elapsed();
                    written.map_err(KvError::from)
                }
                Err(OffloadError::Missing(page)) => {
                    self.free.push_front(slot);
                    self.next = usize::MAX;
                    return self.events.send(TransferEvent::Missing { epoch, page }).is_ok();
                }
                Err(error) => Err(error.into()),
            };
            if let Err(error) = filled {
                self.free.push_front(slot);
                self.next = usize::MAX;
                return self.events.send(TransferEvent::Failed(error)).is_ok();
            }
        }
        if let Some(queue) = &mut self.queue {
            let began = Instant::now();
            let sent = self.slots[slot].send(queue, batch.groups.len() as u64 * page_bytes);
            transferring += began.elapsed();
            if let Err(error) = sent {
                self.free.push_front(slot);
                self.next = usize::MAX;
                return self.events.send(TransferEvent::Failed(error.into())).is_ok();
            }
        }
        let arrives_at = self.link.delay_for(Instant::now(), batch.groups.len() as u64 * page_bytes);
        let wait_began_ns = telemetry::now();
        if let Some(remaining) = arrives_at.checked_duration_since(Instant::now()).filter(|remaining| !remaining.is_zero()) {
            std::thread::sleep(remaining);
            transferring += remaining;
            self.lane.span(EventKind::Wait { cause: WaitCause::LinkLimit }, wait_began_ns);
        }
        self.next += 1;
        if self.plan.cyclic && self.next == self.plan.batches.len() {
            self.next = 0;
        }
        let filled = FilledStaging { epoch, index, slot, began_ns, ended_ns: telemetry::now(), fetching, transferring };
        self.events.send(TransferEvent::FilledStaging(filled)).is_ok()
    }
}
