//! Page stream: pages without a frame reach attention in batches, in layer order, one staging buffer per batch.
//!
//! ```text
//! begin_pass ─► batches ─► Transfer ─► next_filled ─► record_slot ─► attention, and a frame if one is free
//! ```
//! Owner: the engine thread. The stream is cyclic: while the last layer computes, the pages of the first layer of the
//! next pass are already transferred. It restarts only if other pages are needed.

use std::time::{Duration, Instant};

use crate::base::limits::KV_PAGE_TOKENS;
use crate::gpu::{Gpu, Recorder, Slice};
use crate::kv::error::KvError;
use crate::kv::store::PageId;
use crate::kv::transfer::plan::TransferPlan;
use crate::kv::transfer::{FilledStaging, TransferEvent};
use crate::kv::vram::staging::Slot;
use crate::kv::vram::{StagedBatch, TransferBatch, VramCache};
use crate::telemetry::{Cause, Event, EventKind, Link, WaitCause, ns_of};

/// Maximum wait for an event before the GPU is polled again.
pub(super) const TIMEOUT: Duration = Duration::from_micros(200);

impl VramCache {
    /// Prepares a pass over tokens from `first_pos` on, which reads the complete groups before it. Rotates the tail to
    /// the first token. If the pass reads every page, starts the stream of pages without a frame.
    pub fn begin_pass(&mut self, gpu: &Gpu, first_pos: usize, reads_all: bool) {
        let group = (first_pos / KV_PAGE_TOKENS) as u32;
        let n_shift = group.wrapping_sub(self.tail.first_group) as usize;
        if n_shift != 0 {
            // Complete pages are reused at the end of the ring; the partial page after them becomes the first.
            let n = self.tail.order.len();
            self.tail.order.rotate_left(n_shift.min(n) % n);
            self.tail.first_group = group;
            let table = self.spec.table(&self.tail.order, self.tail_blocks());
            gpu.write(&self.tail.table, bytemuck::cast_slice(&table));
        }
        if !self.has_offload() || !reads_all {
            return;
        }
        self.residency.release_compressed();
        let mut batches = Vec::new();
        for layer in 0..self.spec.n_layer {
            for groups in self.residency.missing(layer, group).chunks(self.plan.slot_pages) {
                batches.push(TransferBatch { layer: layer as u32, groups: groups.to_vec(), is_compressed: false });
            }
        }
        let is_complete = self.stream.next == self.stream.batches.len();
        if self.stream.is_synchronous || !is_complete || batches != self.stream.batches {
            self.stream.batches = batches;
            if !self.stream.is_synchronous {
                self.start_stream(TransferPlan { batches: self.stream.batches.clone(), cyclic: true, ..TransferPlan::default() });
            }
        }
        self.stream.next = 0;
    }

    /// Number of pages of each batch that the attention of a layer waits for, in order.
    pub fn batches_of(&self, layer: usize) -> Vec<usize> {
        if !self.has_offload() {
            return Vec::new();
        }
        self.stream.of_layer(layer).map(|b| b.groups.len()).collect()
    }

    /// True if the next batch of the stream has arrived.
    ///
    /// # Errors
    /// An error of the offload tiers, or a lost GPU.
    pub fn is_next_filled(&mut self, gpu: &Gpu) -> Result<bool, KvError> {
        while self.stream.arrived.is_empty() && self.receive(gpu, Duration::ZERO)? {}
        Ok(!self.stream.arrived.is_empty())
    }

    /// Waits for the next batch of the stream.
    ///
    /// # Errors
    /// [`KvError::Missing`] if a page must be recomputed, an error of the offload tiers, or a lost GPU.
    pub fn next_filled(&mut self, gpu: &Gpu) -> Result<StagedBatch, KvError> {
        self.next_filled_for(gpu, Cause::Attention)
    }

    pub(super) fn next_filled_for(&mut self, gpu: &Gpu, cause: Cause) -> Result<StagedBatch, KvError> {
        let Some(batch) = self.stream.next_batch().cloned() else { return Err(KvError::TransferGone) };
        let (began, has_arrived) = (Instant::now(), !self.stream.arrived.is_empty());
        let mut expected_index = self.stream.next;
        if self.stream.is_synchronous {
            // Without overlap, a batch is transferred only when it is needed.
            expected_index = 0;
            self.start_stream(TransferPlan { batches: vec![batch.clone()], ..TransferPlan::default() });
        }
        loop {
            if let Some(filled) = self.stream.arrived.pop_front() {
                debug_assert_eq!(filled.index, expected_index, "batches arrive in order");
                self.stream.next += 1;
                if !has_arrived {
                    self.engine_lane.span(EventKind::Wait { cause: WaitCause::Pages }, ns_of(began));
                }
                self.stream.cost.add(began.elapsed(), &batch, &filled, self.spec.page_bytes());
                self.count_fetched(&batch, filled, cause);
                return Ok(StagedBatch { slot: filled.slot, batch });
            }
            if let Some(group) = self.stream.missing_group.take() {
                return Err(KvError::Missing(group));
            }
            self.receive(gpu, TIMEOUT)?;
        }
    }

    /// Counts a batch that attention reads. Transfers for a cancelled token are not counted.
    fn count_fetched(&mut self, batch: &TransferBatch, filled: FilledStaging, cause: Cause) {
        let n_pages = batch.groups.len() as u32;
        let (link, layer, bytes) = (Link::RamToVram, batch.layer, u64::from(n_pages) * batch.page_bytes(&self.spec));
        let group = batch.groups.first().copied().unwrap_or_default();
        self.counts.fetched += u64::from(n_pages);
        self.moved.ram_to_vram += bytes;
        let kind = EventKind::PageMove { link, layer, group, n_pages, bytes, cause };
        self.lane.record(Event::span(kind, filled.began_ns, filled.ended_ns));
    }

    /// Waits at most `timeout` for one event and handles it. False if none arrived.
    pub(super) fn receive(&mut self, gpu: &Gpu, timeout: Duration) -> Result<bool, KvError> {
        gpu.poll()?;
        match self.offload.transfer.next_event(timeout)? {
            None => return Ok(false),
            Some(TransferEvent::FilledStaging(filled)) if filled.epoch == self.stream.epoch => {
                self.stream.arrived.push_back(filled);
            }
            Some(TransferEvent::FilledStaging(filled)) => self.offload.transfer.return_slot(filled.slot),
            Some(TransferEvent::Missing { epoch, page }) if epoch == self.stream.epoch => {
                self.stream.missing_group = Some(page.group);
            }
            Some(TransferEvent::Emptied(i)) => {
                if let Some(staging) = &mut self.staging {
                    staging.readbacks[i].close();
                    staging.free_readbacks.push_back(i);
                }
            }
            Some(TransferEvent::Failed(error)) => return Err(error),
            Some(TransferEvent::Notice(notice)) => self.notices.push(notice),
            Some(TransferEvent::Missing { .. }) => {}
        }
        Ok(true)
    }

    /// Starts a new stream, and returns the filled staging buffers of the old one.
    pub(super) fn start_stream(&mut self, plan: TransferPlan) {
        self.stream.start(plan, &self.offload.transfer);
    }

    pub(super) fn cancel_stream(&mut self) {
        self.stream.batches.clear();
        self.stream.next = 0;
        self.start_stream(TransferPlan::default());
    }

    /// Records the copies of a filled staging buffer: to its GPU range, and to free frames.
    pub fn record_slot(&mut self, recorder: &mut Recorder, filled: &StagedBatch) {
        let slot = self.staging.as_ref().and_then(|s| s.slots.get(filled.slot));
        if let Some(offset) = slot.map(|slot| slot.pages.offset) {
            self.record_at(recorder, filled, offset);
        }
    }

    /// Same as [`VramCache::record_slot`], but to page `at` of the staging pool.
    pub fn record_to_staging(&mut self, recorder: &mut Recorder, filled: &StagedBatch, at: usize) {
        self.record_at(recorder, filled, at as u64 * self.spec.page_bytes());
    }

    fn record_at(&mut self, recorder: &mut Recorder, filled: &StagedBatch, offset: u64) {
        let Some(from) = self.record_uncompressed(recorder, filled, offset) else { return };
        if let Some(staging) = self.staging.as_ref().filter(|_| !filled.batch.is_compressed) {
            recorder.copy(&from, &staging.buffer.buffer.slice(offset, from.size));
        }
        let resident = self.record_to_frames(recorder, filled, &from).to_vec();
        let resident = resident.into_iter().map(|group| PageId::kv(filled.batch.layer, group)).collect::<Vec<_>>();
        // With selective attention, the page may be evicted again.
        if !self.is_selective() && !resident.is_empty() {
            self.offload.transfer.drop_ram_copies(resident);
        }
    }

    /// The uncompressed pages of a filled staging buffer: as transferred, or dequantized to byte `offset` of the
    /// staging pool.
    pub(super) fn record_uncompressed(&self, recorder: &mut Recorder, filled: &StagedBatch, offset: u64) -> Option<Slice> {
        let staging = self.staging.as_ref()?;
        let Slot { upload, .. } = staging.slots.get(filled.slot)?;
        upload.close();
        let n_pages = filled.batch.groups.len();
        let n_bytes = n_pages as u64 * self.spec.page_bytes();
        if !filled.batch.is_compressed {
            return Some(upload.slice(0, n_bytes));
        }
        staging.record_dequantize(recorder, upload, offset / self.spec.page_bytes(), n_pages);
        Some(staging.buffer.buffer.slice(offset, n_bytes))
    }

    /// Records copies of the pages of a batch, contiguous in `from`, to free frames of their layer. Returns the groups
    /// that got a frame, a prefix of the batch.
    pub(super) fn record_to_frames<'a>(&mut self, recorder: &mut Recorder, filled: &'a StagedBatch, from: &Slice) -> &'a [u32] {
        let layer = filled.batch.layer as usize;
        let page = self.spec.page_bytes();
        let groups = &filled.batch.groups;
        for (i, group) in groups.iter().enumerate() {
            let Some(frame) = self.residency.allocate(layer, *group) else { return &groups[..i] };
            recorder.copy(
                &from.buffer.slice(from.offset + i as u64 * page, page),
                &self.pool.frame(&self.spec, layer, frame as usize),
            );
            if filled.batch.is_compressed {
                self.residency.set_compressed(layer, *group);
            }
        }
        groups
    }

    /// Must be called after the copies of a staging buffer were submitted; it is refilled when they are done.
    pub fn slot_submitted(&self, filled: &StagedBatch) {
        if let Some(slot) = self.staging.as_ref().and_then(|s| s.slots.get(filled.slot)) {
            self.offload.transfer.map_slot(filled.slot, &slot.upload);
        }
    }
}
