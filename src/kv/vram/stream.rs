//! Pages that have no frame, on their way to attention: batches in the order of layers, one slot each.
//!
//! ```text
//! begin_pass ─► batches ─► Transfer ─► next_filled ─► record_slot ─► attention, and a frame where one is free
//! ```
//! Owner: the engine thread. The stream is cyclic, so that the first layer's pages of the next pass come while the last
//! layer of this one computes; it begins anew only when other pages are wanted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::limits::KV_PAGE_TOKENS;
use crate::gpu::{Gpu, Recorder, Slice};
use crate::kv::error::KvError;
use crate::kv::store::PageId;
use crate::kv::transfer::plan::TransferPlan;
use crate::kv::transfer::{FilledStaging, TransferEvent};
use crate::kv::vram::{Slot, StagedBatch, TransferBatch, VramCache};
use crate::telemetry::{Cause, Event, EventKind, Link, WaitCause, ns_of};

/// How long to wait for an arrival before the device is looked after again.
pub(super) const TIMEOUT: Duration = Duration::from_micros(200);

impl VramCache {
    /// Prepares a pass over tokens from `first_pos` on, which reads complete groups before it: turns the tail's ring so
    /// that the first token has its place, and, where it reads everything, starts the stream of pages that have no frame.
    pub fn begin_pass(&mut self, gpu: &Gpu, first_pos: usize, reads_all: bool) {
        let group = (first_pos / KV_PAGE_TOKENS) as u32;
        let behind = group.wrapping_sub(self.tail.first_group) as usize;
        if behind != 0 {
            // Complete pages make room at the end; the partial one behind them becomes the first.
            let n = self.tail.order.len();
            self.tail.order.rotate_left(behind.min(n) % n);
            self.tail.first_group = group;
            let table = self.spec.table(&self.tail.order, self.tail_blocks());
            gpu.write(&self.tail.table, bytemuck::cast_slice(&table));
        }
        if !self.has_offload || !reads_all {
            return;
        }
        self.residency.release_compressed();
        let mut batches = Vec::new();
        for layer in 0..self.spec.n_layer {
            for groups in self.residency.missing(layer, group).chunks(self.plan.slot_pages) {
                batches.push(TransferBatch { layer: layer as u32, groups: groups.to_vec(), is_compressed: false });
            }
        }
        let unbroken = self.next_batch == self.stream.len();
        if self.synchronous || !unbroken || batches != self.stream {
            self.stream = batches;
            if !self.synchronous {
                self.start_stream(TransferPlan { batches: self.stream.clone(), cyclic: true, ..TransferPlan::default() });
            }
        }
        self.next_batch = 0;
    }

    /// Pages in each batch that a layer's attention waits for, in order.
    pub fn batches_of(&self, layer: usize) -> Vec<usize> {
        if !self.has_offload {
            return Vec::new();
        }
        self.stream.iter().filter(|b| b.layer as usize == layer).map(|b| b.groups.len()).collect()
    }

    /// The pages of a layer in the order in which reading everything comes to them: those in frames, then the stream's.
    pub fn pages_in_order(&self, layer: usize) -> Vec<u32> {
        let framed = self.residency.groups_in_order(layer);
        let streamed =
            self.stream.iter().filter(|b| self.has_offload && b.layer as usize == layer).flat_map(|b| b.groups.iter().copied());
        framed.chain(streamed).collect()
    }

    /// The next batch of the stream is there already.
    ///
    /// # Errors
    /// What the tiers below failed with, or a lost device.
    pub fn is_next_filled(&mut self, gpu: &Gpu) -> Result<bool, KvError> {
        while self.ahead.is_empty() && self.receive(gpu, Duration::ZERO)? {}
        Ok(!self.ahead.is_empty())
    }

    /// Waits for the next batch of the stream.
    ///
    /// # Errors
    /// [`KvError::Missing`] where a page must be computed again, or what the tiers below failed with, or a lost device.
    pub fn next_filled(&mut self, gpu: &Gpu) -> Result<StagedBatch, KvError> {
        self.next_filled_for(gpu, Cause::Attention)
    }

    pub(super) fn next_filled_for(&mut self, gpu: &Gpu, cause: Cause) -> Result<StagedBatch, KvError> {
        let Some(batch) = self.stream.get(self.next_batch).cloned() else { return Err(KvError::TransferGone) };
        let (began, is_here) = (Instant::now(), !self.ahead.is_empty());
        let mut wanted = self.next_batch;
        if self.synchronous {
            // Nothing is on its way before it is asked for.
            wanted = 0;
            self.start_stream(TransferPlan { batches: vec![batch.clone()], ..TransferPlan::default() });
        }
        loop {
            if let Some(filled) = self.ahead.pop_front() {
                debug_assert_eq!(filled.index, wanted, "batches arrive in order");
                self.next_batch += 1;
                if !is_here {
                    self.engine_lane.span(EventKind::Wait { cause: WaitCause::Pages }, ns_of(began));
                }
                self.spent.note(began.elapsed(), &batch, &filled, self.spec.page_bytes());
                self.count_fetched(&batch, filled, cause);
                return Ok(StagedBatch { slot: filled.slot, batch });
            }
            if let Some(group) = self.lost.take() {
                return Err(KvError::Missing(group));
            }
            self.receive(gpu, TIMEOUT)?;
        }
    }

    /// What attention reads has moved; what was on its way for a token that never came has not.
    fn count_fetched(&mut self, batch: &TransferBatch, filled: FilledStaging, cause: Cause) {
        let n_pages = batch.groups.len() as u32;
        let (link, layer, bytes) = (Link::RamToVram, batch.layer, u64::from(n_pages) * batch.page_bytes(&self.spec));
        let group = batch.groups.first().copied().unwrap_or_default();
        self.counts.fetched += u64::from(n_pages);
        self.moved.ram_to_vram += bytes;
        let kind = EventKind::PageMove { link, layer, group, n_pages, bytes, cause };
        self.lane.record(Event::span(kind, filled.began_ns, filled.ended_ns));
    }

    /// Waits up to `patience` for an arrival and takes it; false where none came.
    pub(super) fn receive(&mut self, gpu: &Gpu, patience: Duration) -> Result<bool, KvError> {
        gpu.poll()?;
        match self.transfer.arrival(patience)? {
            None => return Ok(false),
            Some(TransferEvent::FilledStaging(filled)) if filled.epoch == self.epoch => self.ahead.push_back(filled),
            Some(TransferEvent::FilledStaging(filled)) => self.transfer.return_slot(filled.slot),
            Some(TransferEvent::Missing { epoch, page }) if epoch == self.epoch => self.lost = Some(page.group),
            Some(TransferEvent::Emptied(i)) => {
                if let Some(stage) = &mut self.stage {
                    stage.readbacks[i].close();
                    stage.free_readbacks.push_back(i);
                }
            }
            Some(TransferEvent::Failed(error)) => return Err(error),
            Some(TransferEvent::Notice(notice)) => self.notices.push(notice),
            Some(TransferEvent::Missing { .. }) => {}
        }
        Ok(true)
    }

    /// Begins a new stream; what was on its way for the old one goes back.
    pub(super) fn start_stream(&mut self, plan: TransferPlan) {
        self.epoch += 1;
        self.lost = None;
        for filled in self.ahead.drain(..) {
            self.transfer.return_slot(filled.slot);
        }
        self.transfer.plan(self.epoch, Arc::new(plan));
    }

    pub(super) fn cancel_stream(&mut self) {
        self.stream.clear();
        self.next_batch = 0;
        self.start_stream(TransferPlan::default());
    }

    /// Records the way of a filled slot onto the device: to the slot's own place there, and to frames where some are free.
    pub fn record_slot(&mut self, recorder: &mut Recorder, filled: &StagedBatch) {
        let slot = self.stage.as_ref().and_then(|s| s.slots.get(filled.slot));
        if let Some(offset) = slot.map(|slot| slot.pages.offset) {
            self.record_at(recorder, filled, offset);
        }
    }

    /// The same to page `at` of the area of all slots.
    pub fn record_area(&mut self, recorder: &mut Recorder, filled: &StagedBatch, at: usize) {
        self.record_at(recorder, filled, at as u64 * self.spec.page_bytes());
    }

    fn record_at(&mut self, recorder: &mut Recorder, filled: &StagedBatch, offset: u64) {
        let Some(from) = self.record_plain(recorder, filled, offset) else { return };
        if let Some(stage) = self.stage.as_ref().filter(|_| !filled.batch.is_compressed) {
            recorder.copy(&from, &stage.area.buffer.slice(offset, from.size));
        }
        let settled = self.record_to_frames(recorder, filled, &from).to_vec();
        let settled = settled.into_iter().map(|group| PageId::kv(filled.batch.layer, group)).collect::<Vec<_>>();
        // Where attention chooses, it may leave again.
        if !self.is_selective() && !settled.is_empty() {
            self.transfer.durable(settled);
        }
    }

    /// The pages of a filled slot as attention reads them: as they came, or unpacked to byte `offset` of the area of all slots.
    pub(super) fn record_plain(&self, recorder: &mut Recorder, filled: &StagedBatch, offset: u64) -> Option<Slice> {
        let stage = self.stage.as_ref()?;
        let Slot { upload, .. } = stage.slots.get(filled.slot)?;
        upload.close();
        let n_pages = filled.batch.groups.len();
        let n_bytes = n_pages as u64 * self.spec.page_bytes();
        if !filled.batch.is_compressed {
            return Some(upload.slice(0, n_bytes));
        }
        stage.record_dequantize(recorder, upload, offset / self.spec.page_bytes(), n_pages);
        Some(stage.area.buffer.slice(offset, n_bytes))
    }

    /// Records copies of the pages of a slot, which lie one after the other in `from`, to free frames of their layer; the
    /// groups that found one, which are the first.
    pub(super) fn record_to_frames<'a>(&mut self, recorder: &mut Recorder, filled: &'a StagedBatch, from: &Slice) -> &'a [u32] {
        let layer = filled.batch.layer as usize;
        let page = self.spec.page_bytes();
        let groups = &filled.batch.groups;
        for (i, group) in groups.iter().enumerate() {
            let Some(frame) = self.residency.allocate(layer, *group) else { return &groups[..i] };
            recorder.copy(&from.buffer.slice(from.offset + i as u64 * page, page), &self.frame_slice(layer, frame as usize));
            if filled.batch.is_compressed {
                self.residency.set_compressed(layer, *group);
            }
        }
        groups
    }

    /// The slot's copies were submitted: it may be filled again when they are done.
    pub fn slot_submitted(&self, filled: &StagedBatch) {
        if let Some(slot) = self.stage.as_ref().and_then(|s| s.slots.get(filled.slot)) {
            self.transfer.map_slot(filled.slot, &slot.upload);
        }
    }
}
