//! The thread that owns the tiers fetching VRAM: handles what the engine says, fills slots along the plan in between.
//!
//! Owner thread: `strata-transfer`. Waits only for messages, for pages of the plan, and for a link that is slow on purpose.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use crate::gpu::StagingBuffer;
use crate::kv::bandwidth_limit::BandwidthLimit;
use crate::kv::error::KvError;
use crate::kv::layout::KvSpec;
use crate::kv::offload::{OffloadError, OffloadTiers, Retention};
use crate::kv::policy::leoam::abstracts::abstract_of;
use crate::kv::quantize_page::quantize_page;
use crate::kv::store::PageId;
use crate::kv::transfer::plan::{TransferBatch, TransferPlan};
use crate::kv::transfer::{FilledStaging, Message, OffloadReport, PageReadback, TransferEvent};
use crate::telemetry::{self, Cause, EventKind, EventLane, Link, WaitCause};

/// How long to sleep where there is nothing to do but to look after reads and writes.
const IDLE: Duration = Duration::from_millis(2);

/// How old a report may be.
const REPORT_EVERY: Duration = Duration::from_millis(50);

pub(super) struct TransferWorker {
    pub messages: Receiver<Message>,
    pub arrivals: Sender<TransferEvent>,
    pub spec: KvSpec,
    pub page_bytes: u64,
    pub offload: Option<Box<OffloadTiers>>,
    pub slots: Vec<StagingBuffer>,
    pub readbacks: Vec<StagingBuffer>,
    /// a page on its way to a slot
    pub packed: Vec<u8>,
    /// slots that are mapped and empty
    pub free: VecDeque<usize>,
    pub plan: Arc<TransferPlan>,
    pub epoch: u64,
    /// next batch of the plan
    pub next: usize,
    pub link: BandwidthLimit,
    pub lane: EventLane,
    pub report: Arc<Mutex<OffloadReport>>,
    pub reported: Instant,
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
            Message::Open(offload) => {
                self.offload = Some(offload);
                self.write_report();
            }
            Message::Close(done) => {
                self.plan = Arc::default();
                self.report_faults();
                let _ = done.send(self.offload.take().map(|offload| offload.close().1));
            }
            Message::Buffers { slots, readbacks } => (self.slots, self.readbacks) = (slots, readbacks),
            Message::Plan { epoch, plan } => {
                (self.epoch, self.next) = (epoch, 0);
                if let Some(offload) = &mut self.offload {
                    let pages: Vec<PageId> =
                        plan.batches.iter().flat_map(TransferBatch::pages).chain(plan.ahead.iter().copied()).collect();
                    match plan.cyclic {
                        true => offload.plan(&pages, true),
                        // One after the other: nothing is read before it is asked for.
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
            Message::Durable(pages) => {
                if let Some(offload) = &mut self.offload {
                    pages.iter().for_each(|page| offload.keep(*page, Retention::OnDiskOnly));
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
                // What is told of the tiers next is of the same moment.
                self.write_report();
                let _ = done.send(occupancy);
            }
            Message::End => {}
        }
    }

    /// Passes on what the tiers have to say.
    fn report_faults(&mut self) {
        for notice in self.offload.as_mut().map(|l| l.faults()).unwrap_or_default() {
            let _ = self.arrivals.send(TransferEvent::Notice(notice.text));
        }
    }

    fn write_report(&mut self) {
        self.reported = Instant::now();
        let report = self.offload.as_ref().map(|l| OffloadReport::of(l)).unwrap_or_default();
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }

    fn put(&mut self, readback: usize, pages: &[PageReadback]) {
        let Some(offload) = &mut self.offload else {
            let _ = self.arrivals.send(TransferEvent::Emptied(readback));
            return;
        };
        let buffer = &self.readbacks[readback];
        let mut result = Ok(());
        for out in pages {
            let began_ns = telemetry::now();
            let read = buffer.read(out.offset, self.page_bytes, |bytes| {
                if offload.keeps_abstracts() {
                    offload.put_abstract(out.page, &abstract_of(&self.spec, bytes));
                }
                offload.put(out.page, bytes, out.keep)
            });
            result = match read {
                Ok(put) => put,
                Err(error) => {
                    let _ = self.arrivals.send(TransferEvent::Failed(error.into()));
                    return;
                }
            };
            if result.is_err() {
                break;
            }
            let PageId { layer, group, .. } = out.page;
            let cause = if out.keep == Retention::InRam { Cause::Spill } else { Cause::WriteBack };
            let (link, bytes) = (Link::VramToRam, self.page_bytes);
            self.lane.span(EventKind::PageMove { link, layer, group, n_pages: 1, bytes, cause }, began_ns);
        }
        self.report_faults();
        if let Err(error) = result {
            let _ = self.arrivals.send(TransferEvent::Failed(error.into()));
        }
        let _ = self.arrivals.send(TransferEvent::Emptied(readback));
    }

    /// Fills the next slot. False when nobody listens any more.
    fn fill(&mut self) -> bool {
        let (Some(offload), Some(slot)) = (&mut self.offload, self.free.pop_front()) else { return true };
        let (epoch, index) = (self.epoch, self.next);
        let batch = &self.plan.batches[index];
        let began_ns = telemetry::now();
        let page_bytes = batch.page_bytes(&self.spec);
        let (mut fetching, mut transferring) = (Duration::ZERO, Duration::ZERO);
        for (i, page) in batch.pages().enumerate() {
            let began = Instant::now();
            let taken = offload.take(page);
            fetching += began.elapsed();
            let filled = match taken {
                Ok(bytes) => {
                    let bytes = match batch.is_compressed {
                        true => {
                            self.packed.resize(page_bytes as usize, 0);
                            quantize_page(&bytes, self.spec.n_kv_head, self.spec.head_dim, &mut self.packed);
                            &self.packed
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
                    return self.arrivals.send(TransferEvent::Missing { epoch, page }).is_ok();
                }
                Err(error) => Err(error.into()),
            };
            if let Err(error) = filled {
                self.free.push_front(slot);
                self.next = usize::MAX;
                return self.arrivals.send(TransferEvent::Failed(error)).is_ok();
            }
        }
        let arrives = self.link.delay_for(Instant::now(), batch.groups.len() as u64 * page_bytes);
        let waits = telemetry::now();
        if let Some(rest) = arrives.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) {
            std::thread::sleep(rest);
            transferring += rest;
            self.lane.span(EventKind::Wait { cause: WaitCause::LinkLimit }, waits);
        }
        self.next += 1;
        if self.plan.cyclic && self.next == self.plan.batches.len() {
            self.next = 0;
        }
        let filled = FilledStaging { epoch, index, slot, began_ns, ended_ns: telemetry::now(), fetching, transferring };
        self.arrivals.send(TransferEvent::FilledStaging(filled)).is_ok()
    }
}
