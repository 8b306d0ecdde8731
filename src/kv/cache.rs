//! The KV cache of one context: what of it is in VRAM, and how the rest comes by.
//!
//! ```text
//! new tokens ─► tail (ring of pages, one order for all layers) ─ seal ─► frame of the pool, if one is free
//!                                                                  └──► readback ─► Lower, if it has no frame or is saved
//! attention of a layer ◄─ pool segments ◄─ tail ◄─ slots, one batch after the other ◄─ Transfer ◄─ Lower
//! ```
//! Owner: the engine thread. 1. Growing adds segments and moves nothing. 2. Bytes never pass the budget: [`VramPlan`] says
//! what is spent on what before anything is allocated. 3. Where a page is changes through [`Residency`] alone. 4. Which
//! tokens are valid is known to whoever runs the model; this knows complete groups of 64.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::error::KvError;
use super::layout::{BLOCKS_PER_PAGE, KvSpec, SegmentShape, VramPlan, plan_pool};
use super::lower::{Keep, Lower};
use super::residency::Residency;
use super::store::{Io, PageId};
use super::transfer::{Arrival, Batch, Filled, LowerReport, Outgoing, StreamPlan, Transfer};
use crate::base::limits::KV_PAGE_TOKENS;
use crate::base::{MovedBytes, PageCounts};
use crate::gpu::kernels::seal_pages::SealPages;
use crate::gpu::{Binding, Gpu, HostBuffer, Recorder, Slice};
use crate::telemetry::{Cause, Event, EventKind, Hub, Lane, Link};

/// Readback buffers: one is written by the device while the others are emptied.
const N_READBACKS: usize = 3;
/// How long to wait for an arrival before the device is looked after again.
const PATIENCE: Duration = Duration::from_micros(200);

/// Pages of one layer with their block table.
pub struct Paged {
    /// K and V
    pub pages: Slice,
    /// block table u32 `[G, n_blocks]`
    pub table: Slice,
}

/// New tokens of every layer.
pub struct Tail {
    layers: Vec<Slice>,
    /// block table u32 `[G, n_blocks]` of all layers
    pub table: Slice,
    /// physical pages in logical order
    order: Vec<usize>,
    /// group of the first logical page
    first_group: u32,
}

/// A slot: the host's end and the device's.
struct Slot {
    upload: HostBuffer,
    pages: Slice,
}

struct Stage {
    slots: Vec<Slot>,
    table: Slice,
    readbacks: Vec<HostBuffer>,
    free_readbacks: VecDeque<usize>,
}

/// What arrived for the batch that attention wants next.
pub struct FilledSlot {
    /// which slot
    pub slot: usize,
    batch: Batch,
}

/// The cache of one context.
pub struct KvCache {
    spec: KvSpec,
    limit: usize,
    plan: VramPlan,
    tail: Tail,
    shapes: Vec<SegmentShape>,
    /// `[segment][layer]`
    pool: Vec<Vec<Paged>>,
    /// where quantised pages are made
    scratch: Option<Slice>,
    stage: Option<Stage>,
    residency: Residency,
    n_sealed: u32,
    /// groups of the document, which are written to its store
    saved_groups: u32,
    /// tokens of the document in the store
    n_document_tokens: usize,
    /// tokens that the store knows of
    n_tokens_below: usize,
    transfer: Transfer,
    lane: Lane,
    has_lower: bool,
    epoch: u64,
    /// batches that attention waits for, in order
    stream: Vec<Batch>,
    /// next batch of the stream that attention wants
    next_batch: usize,
    /// filled slots that attention has not come to
    ahead: VecDeque<Filled>,
    /// group that the stream stopped at because a page of it is not whole
    lost: Option<u32>,
    synchronous: bool,
    peak_bytes: u64,
    /// uploads and readbacks since the start
    moved: MovedBytes,
    counts: PageCounts,
    notices: Vec<String>,
}

impl KvCache {
    /// An empty cache by `plan`, with the tail allocated.
    ///
    /// # Errors
    /// Out of VRAM, a lost device, no thread.
    pub fn new(
        gpu: &Gpu,
        spec: KvSpec,
        limit: usize,
        plan: VramPlan,
        pcie: Option<u64>,
        synchronous: bool,
        hub: &Hub,
    ) -> Result<KvCache, KvError> {
        let bytes = plan.tail_pages as u64 * spec.tail_page_bytes();
        let layers = (0..spec.n_layer).map(|_| Ok(gpu.buffer("KV tail", bytes)?.all())).collect::<Result<_, KvError>>()?;
        let table = gpu.buffer("KV tail table", spec.table_bytes(plan.tail_pages))?.all();
        let order: Vec<usize> = (0..plan.tail_pages).collect();
        gpu.upload(&table, bytemuck::cast_slice(&spec.table(&order, plan.tail_pages * BLOCKS_PER_PAGE)))?;
        let scratch = match spec.sealed.is_quantised() {
            true => Some(gpu.buffer("sealed pages", plan.tail_pages as u64 * spec.page_bytes())?.all()),
            false => None,
        };
        let transfer = Transfer::start(spec.page_bytes(), pcie, hub).map_err(|e| KvError::NoThread(e.to_string()))?;
        let mut cache = KvCache {
            spec,
            limit,
            tail: Tail { layers, table, order, first_group: 0 },
            shapes: Vec::new(),
            pool: Vec::new(),
            scratch,
            stage: None,
            residency: Residency::new(spec.n_layer, plan.max_frames),
            plan,
            n_sealed: 0,
            saved_groups: 0,
            n_document_tokens: 0,
            n_tokens_below: 0,
            transfer,
            lane: hub.lane("transfer"),
            has_lower: false,
            epoch: 0,
            stream: Vec::new(),
            next_batch: 0,
            ahead: VecDeque::new(),
            lost: None,
            synchronous,
            peak_bytes: 0,
            moved: MovedBytes::default(),
            counts: PageCounts::default(),
            notices: Vec::new(),
        };
        cache.peak_bytes = cache.bytes();
        Ok(cache)
    }

    /// Shape of what is stored.
    pub fn spec(&self) -> &KvSpec {
        &self.spec
    }

    /// What the budget is spent on.
    pub fn plan(&self) -> &VramPlan {
        &self.plan
    }

    /// Tokens that may be stored at most.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes allocated now.
    pub fn bytes(&self) -> u64 {
        let frames: u64 = self.shapes.iter().map(|s| s.n_frames as u64 * VramPlan::frame_bytes(&self.spec)).sum();
        let scratch = self.scratch.as_ref().map_or(0, |s| s.size);
        let stage = if self.stage.is_some() { self.plan.slot_bytes(&self.spec) - scratch } else { 0 };
        self.plan.tail_bytes(&self.spec) + frames + scratch + stage
    }

    /// Most bytes that were ever allocated.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Uploads and readbacks so far.
    pub fn moved(&self) -> MovedBytes {
        self.moved
    }

    /// Pages that attention read so far, by where they were.
    pub fn counts(&self) -> PageCounts {
        self.counts
    }

    /// A page of the group is damaged below: it is going to be computed again, and saved again.
    pub fn lose_group(&self, group: u32) {
        self.transfer.lose_group(group);
    }

    /// One group was computed again.
    pub fn count_recomputed(&mut self) {
        self.counts.recomputed += self.spec.n_layer as u64;
    }

    /// What the user should know, once.
    pub fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Complete groups.
    pub fn n_sealed(&self) -> u32 {
        self.n_sealed
    }

    /// Segments of the pool, in order.
    pub fn shapes(&self) -> &[SegmentShape] {
        &self.shapes
    }

    /// Buffers of a segment in a layer.
    pub fn segment(&self, segment_idx: usize, layer_idx: usize) -> &Paged {
        &self.pool[segment_idx][layer_idx]
    }

    /// The new tokens of a layer, and the table of all layers.
    pub fn tail(&self, layer_idx: usize) -> (&Slice, &Slice) {
        (&self.tail.layers[layer_idx], &self.tail.table)
    }

    /// Blocks of one KV head in the tail's table.
    pub fn tail_blocks(&self) -> usize {
        self.plan.tail_pages * BLOCKS_PER_PAGE
    }

    /// Where quantised pages are made, one for each page of the tail.
    pub fn scratch(&self) -> Option<&Slice> {
        self.scratch.as_ref()
    }

    /// The device's end of slot `i`, with the table of all slots; none before they are needed.
    pub fn slot(&self, i: usize) -> Option<(&Slice, &Slice)> {
        self.stage.as_ref().and_then(|s| Some((&s.slots.get(i)?.pages, &s.table)))
    }

    /// Bytes of the readback buffers, which are RAM.
    pub fn readback_bytes(&self) -> u64 {
        (N_READBACKS * self.plan.tail_pages) as u64 * self.spec.page_bytes()
    }

    /// Bytes of the readback buffers that exist.
    pub fn staging_bytes(&self) -> u64 {
        if self.stage.is_some() { self.readback_bytes() } else { 0 }
    }

    /// Groups of a context of `n_tokens` that find no frame.
    pub fn groups_below(&self, n_tokens: usize) -> u64 {
        (n_tokens / KV_PAGE_TOKENS).saturating_sub(self.residency.max_frames()) as u64
    }

    /// Tokens that a chunk at `pos` may have: what the tail has room for. Where complete pages are rounded, a chunk ends with
    /// its group, so that what a token sees rounded does not depend on how the context was cut into chunks.
    pub fn room_at(&self, pos: usize) -> usize {
        let n_pages = if self.spec.sealed.is_quantised() { 1 } else { self.plan.tail_pages };
        n_pages * KV_PAGE_TOKENS - pos % KV_PAGE_TOKENS
    }

    /// Makes room in VRAM for `n_tokens` in all, as far as the plan goes. True when segments were added (bind groups must
    /// follow). A device that has less memory than the plan trusted it with makes the pool smaller, and says so.
    ///
    /// # Errors
    /// Over the limit, a lost device.
    pub fn reserve(&mut self, gpu: &Gpu, n_tokens: usize) -> Result<bool, KvError> {
        if n_tokens > self.limit {
            return Err(KvError::OverLimit { wanted: n_tokens, limit: self.limit });
        }
        let max_frames = self.residency.max_frames();
        let shapes = plan_pool(&self.spec, n_tokens / KV_PAGE_TOKENS, max_frames, gpu.max_binding_bytes());
        let before = self.shapes.len();
        for shape in shapes.into_iter().skip(before) {
            let layers = (0..self.spec.n_layer).map(|_| self.allocate(gpu, shape)).collect::<Result<Vec<_>, _>>();
            match layers {
                Ok(layers) => {
                    self.pool.push(layers);
                    self.shapes.push(shape);
                    self.peak_bytes = self.peak_bytes.max(self.bytes());
                }
                Err(error @ KvError::Gpu(crate::gpu::GpuError::OutOfMemory { .. })) => {
                    self.residency.shrink_to(shape.first_frame);
                    self.notices.push(format!("{error}; the KV cache goes on in RAM and on the disk"));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.shapes.len() > before)
    }

    fn allocate(&self, gpu: &Gpu, shape: SegmentShape) -> Result<Paged, KvError> {
        let pages = gpu.buffer("KV pages", shape.n_frames as u64 * self.spec.page_bytes())?.all();
        let table = gpu.buffer("KV block table", self.spec.table_bytes(shape.n_frames))?.all();
        let identity: Vec<usize> = (0..shape.n_frames).collect();
        gpu.upload(&table, bytemuck::cast_slice(&self.spec.table(&identity, shape.n_blocks())))?;
        Ok(Paged { pages, table })
    }

    /// Makes slots and readback buffers, once.
    fn make_stage(&mut self, gpu: &Gpu) -> Result<(), KvError> {
        if self.stage.is_some() {
            return Ok(());
        }
        let bytes = self.plan.slot_pages as u64 * self.spec.page_bytes();
        let mut slots = Vec::new();
        for i in 0..self.plan.n_slots {
            let slot = Slot { upload: gpu.upload_buffer(bytes)?, pages: gpu.buffer("KV slot", bytes)?.all() };
            self.transfer.map_slot(i, &slot.upload);
            slots.push(slot);
        }
        let table = gpu.buffer("KV slot table", self.spec.table_bytes(self.plan.slot_pages))?.all();
        let identity: Vec<usize> = (0..self.plan.slot_pages).collect();
        gpu.upload(&table, bytemuck::cast_slice(&self.spec.table(&identity, self.plan.slot_pages * BLOCKS_PER_PAGE)))?;
        let readback = self.plan.tail_pages as u64 * self.spec.page_bytes();
        let readbacks: Vec<HostBuffer> =
            (0..N_READBACKS).map(|_| gpu.host_readback_buffer(readback)).collect::<Result<_, _>>()?;
        self.transfer.buffers(slots.iter().map(|s| s.upload.clone()).collect(), readbacks.clone());
        gpu.poll()?;
        self.stage = Some(Stage { slots, table, readbacks, free_readbacks: (0..N_READBACKS).collect() });
        self.peak_bytes = self.peak_bytes.max(self.bytes());
        Ok(())
    }

    /// Puts RAM, and a store where there is one, below the context as it is, which knows of `n_tokens` already. Slots exist
    /// afterwards, whose bind groups must follow.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub fn open_lower(&mut self, gpu: &Gpu, lower: Lower, n_tokens: usize) -> Result<(), KvError> {
        self.make_stage(gpu)?;
        self.transfer.open(lower);
        self.has_lower = true;
        self.n_tokens_below = n_tokens;
        Ok(())
    }

    /// Begins the context anew with a document, of which `n_present` groups are in the store already; the others of its
    /// `n_tokens` are written to it.
    pub fn begin_document(&mut self, n_present: u32, n_tokens: usize) {
        self.n_sealed = n_present;
        self.n_document_tokens = n_tokens;
        self.saved_groups = (n_tokens / KV_PAGE_TOKENS) as u32;
    }

    /// There are tiers below.
    pub fn has_lower(&self) -> bool {
        self.has_lower
    }

    /// Forgets the context and closes what is below it; the I/O, for the next.
    pub fn close_lower(&mut self, gpu: &Gpu) -> Option<Io> {
        let mut io = None;
        if self.has_lower {
            // What a lost device cannot hand over any more will be computed again.
            let _ = self.empty_readbacks(gpu);
            io = self.transfer.close();
            self.has_lower = false;
        }
        (self.saved_groups, self.n_document_tokens, self.n_tokens_below, self.n_sealed) = (0, 0, 0, 0);
        self.residency.truncate(0);
        self.forget_stream();
        io
    }

    /// What is below, as of a moment ago.
    pub fn report(&self) -> LowerReport {
        if self.has_lower { self.transfer.report() } else { LowerReport::default() }
    }

    /// The report counts everything up to now.
    pub fn refresh_report(&self) {
        if self.has_lower {
            self.transfer.look();
        }
    }

    /// Waits until everything below is written; false where something could not be.
    ///
    /// # Errors
    /// What the tiers below failed with, or a lost device.
    pub fn flush_lower(&mut self, gpu: &Gpu) -> Result<bool, KvError> {
        if !self.has_lower {
            return Ok(true);
        }
        self.empty_readbacks(gpu)?;
        let flushed = self.transfer.flush();
        // What it has to say is there now.
        self.hear(gpu)?;
        Ok(flushed)
    }

    fn empty_readbacks(&mut self, gpu: &Gpu) -> Result<(), KvError> {
        while self.stage.as_ref().is_some_and(|s| s.free_readbacks.len() < s.readbacks.len()) {
            self.hear(gpu)?;
        }
        Ok(())
    }

    /// `chunk` at `pos` is part of the context now: the store's header names its tokens before pages of them come.
    pub fn append_tokens(&mut self, pos: usize, chunk: &[u32]) {
        let new = chunk.get(self.n_tokens_below.saturating_sub(pos)..).unwrap_or_default();
        if self.has_lower && !new.is_empty() {
            self.transfer.append_tokens(new);
            self.n_tokens_below += new.len();
        }
    }

    /// Forgets all tokens from `n_tokens` on.
    pub fn truncate(&mut self, n_tokens: usize) {
        let n_groups = (n_tokens / KV_PAGE_TOKENS) as u32;
        if self.has_lower && n_tokens < self.n_tokens_below {
            self.transfer.truncate(n_tokens);
            // A document's own tokens stay below.
            self.n_tokens_below = n_tokens.max(self.n_document_tokens);
        }
        if n_groups < self.n_sealed {
            self.n_sealed = n_groups;
            self.residency.truncate(n_groups);
            self.forget_stream();
        }
    }

    fn forget_stream(&mut self) {
        self.stream.clear();
        self.next_batch = 0;
        self.start_stream(StreamPlan::default());
    }

    /// Prepares a pass over tokens from `first_pos` on, which reads all complete groups before it: turns the tail's ring so
    /// that the first token has its place, and starts the stream of pages that have no frame.
    pub fn begin_pass(&mut self, gpu: &Gpu, first_pos: usize) {
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
        if !self.has_lower {
            return;
        }
        let mut batches = Vec::new();
        for layer in 0..self.spec.n_layer {
            for groups in self.residency.missing(layer, group).chunks(self.plan.slot_pages) {
                batches.push(Batch { layer: layer as u32, groups: groups.to_vec() });
            }
        }
        let unbroken = self.next_batch == self.stream.len();
        if self.synchronous || !unbroken || batches != self.stream {
            self.stream = batches;
            if !self.synchronous {
                self.start_stream(StreamPlan { batches: self.stream.clone(), cyclic: true });
            }
        }
        self.next_batch = 0;
    }

    /// Pages of a layer that are in the pool, by segment: segment and number of pages. Tables follow where frames in use
    /// are not the first ones.
    pub fn resident_runs(&mut self, gpu: &Gpu, layer: usize) -> Vec<(usize, usize)> {
        let mut runs = Vec::new();
        let mut rest = self.residency.n_resident(layer);
        self.counts.resident += rest as u64;
        for (segment_idx, shape) in self.shapes.iter().enumerate() {
            if rest == 0 {
                break;
            }
            let used = self.residency.used_in(layer, shape.first_frame, shape.n_frames);
            if used.last().is_some_and(|last| last + 1 != used.len()) {
                let table = self.spec.table(&used, shape.n_blocks());
                gpu.write(&self.pool[segment_idx][layer].table, bytemuck::cast_slice(&table));
            }
            rest -= used.len();
            if !used.is_empty() {
                runs.push((segment_idx, used.len()));
            }
        }
        runs
    }

    /// Pages in each batch that a layer's attention waits for, in order.
    pub fn batches_of(&self, layer: usize) -> Vec<usize> {
        if !self.has_lower {
            return Vec::new();
        }
        self.stream.iter().filter(|b| b.layer as usize == layer).map(|b| b.groups.len()).collect()
    }

    /// Waits for the next batch of the stream.
    ///
    /// # Errors
    /// [`KvError::Missing`] where a page must be computed again, or what the tiers below failed with, or a lost device.
    pub fn next_filled(&mut self, gpu: &Gpu) -> Result<FilledSlot, KvError> {
        let Some(batch) = self.stream.get(self.next_batch).cloned() else { return Err(KvError::TransferGone) };
        let mut wanted = self.next_batch;
        if self.synchronous {
            // Nothing is on its way before it is asked for.
            wanted = 0;
            self.start_stream(StreamPlan { batches: vec![batch.clone()], cyclic: false });
        }
        loop {
            if let Some(filled) = self.ahead.pop_front() {
                debug_assert_eq!(filled.index, wanted, "batches arrive in order");
                self.next_batch += 1;
                self.count_fetched(&batch, filled);
                return Ok(FilledSlot { slot: filled.slot, batch });
            }
            if let Some(group) = self.lost.take() {
                return Err(KvError::Missing(group));
            }
            self.hear(gpu)?;
        }
    }

    /// What attention reads has moved; what was on its way for a token that never came has not.
    fn count_fetched(&mut self, batch: &Batch, filled: Filled) {
        let n_pages = batch.groups.len() as u32;
        let (link, layer, bytes) = (Link::RamToVram, batch.layer, u64::from(n_pages) * self.spec.page_bytes());
        let group = batch.groups.first().copied().unwrap_or_default();
        self.counts.fetched += u64::from(n_pages);
        self.moved.ram_to_vram += bytes;
        let kind = EventKind::PageMove { link, layer, group, n_pages, bytes, cause: Cause::Attention };
        self.lane.record(Event::span(kind, filled.began_ns, filled.ended_ns));
    }

    /// Waits a moment for an arrival and takes it.
    fn hear(&mut self, gpu: &Gpu) -> Result<(), KvError> {
        gpu.poll()?;
        match self.transfer.arrival(PATIENCE)? {
            Some(Arrival::Filled(filled)) if filled.epoch == self.epoch => self.ahead.push_back(filled),
            Some(Arrival::Filled(filled)) => self.transfer.return_slot(filled.slot),
            Some(Arrival::Missing { epoch, page }) if epoch == self.epoch => self.lost = Some(page.group),
            Some(Arrival::Emptied(i)) => {
                if let Some(stage) = &mut self.stage {
                    stage.readbacks[i].close();
                    stage.free_readbacks.push_back(i);
                }
            }
            Some(Arrival::Failed(error)) => return Err(error),
            Some(Arrival::Notice(notice)) => self.notices.push(notice),
            Some(Arrival::Missing { .. }) | None => {}
        }
        Ok(())
    }

    /// Begins a new stream; what was on its way for the old one goes back.
    fn start_stream(&mut self, plan: StreamPlan) {
        self.epoch += 1;
        self.lost = None;
        for filled in self.ahead.drain(..) {
            self.transfer.return_slot(filled.slot);
        }
        self.transfer.plan(self.epoch, Arc::new(plan));
    }

    /// Records the way of a filled slot onto the device: to where attention reads it, and to frames where some are free.
    pub fn record_slot(&mut self, recorder: &mut Recorder, filled: &FilledSlot) {
        let Some(slot) = self.stage.as_ref().and_then(|s| s.slots.get(filled.slot)) else { return };
        slot.upload.close();
        let page = self.spec.page_bytes();
        let n_bytes = filled.batch.groups.len() as u64 * page;
        recorder.copy(&slot.upload.slice(0, n_bytes), &slot.pages.buffer.slice(0, n_bytes));
        let layer = filled.batch.layer as usize;
        for (i, group) in filled.batch.groups.iter().enumerate() {
            if let Some(frame) = self.residency.allocate(layer, *group) {
                let to = self.frame_slice(layer, frame as usize);
                recorder.copy(&slot.upload.slice(i as u64 * page, page), &to);
            }
        }
    }

    /// The slot's copies were submitted: it may be filled again when they are done.
    pub fn slot_submitted(&self, filled: &FilledSlot) {
        if let Some(slot) = self.stage.as_ref().and_then(|s| s.slots.get(filled.slot)) {
            self.transfer.map_slot(filled.slot, &slot.upload);
        }
    }

    fn frame_slice(&self, layer: usize, frame: usize) -> Slice {
        let segment_idx = self.shapes.partition_point(|s| s.end_frame() <= frame);
        let first = self.shapes[segment_idx].first_frame;
        let page = self.spec.page_bytes();
        self.pool[segment_idx][layer].pages.buffer.slice((frame - first) as u64 * page, page)
    }

    /// Records how the pages of a layer that tokens up to `end` complete leave the tail. What was recorded for the tiers
    /// below must be handed to [`KvCache::readback_submitted`] after the next submit.
    ///
    /// # Errors
    /// What the tiers below failed with, or a lost device.
    pub fn record_seal(
        &mut self,
        gpu: &Gpu,
        recorder: &mut Recorder,
        layer: usize,
        end: usize,
        sealer: Option<(&SealPages, &Binding)>,
    ) -> Result<Option<(usize, Vec<Outgoing>)>, KvError> {
        let end_group = (end / KV_PAGE_TOKENS) as u32;
        let mut out: Option<(usize, Vec<Outgoing>)> = None;
        for group in self.tail.first_group..end_group {
            let physical = self.tail.order[(group - self.tail.first_group) as usize];
            let page = self.spec.page_bytes();
            let offset = physical as u64 * page;
            let source = match (sealer, &self.scratch) {
                (Some((seal, binding)), Some(scratch)) => {
                    seal.record(recorder, binding, physical, physical, 1);
                    scratch.buffer.slice(offset, page)
                }
                _ => self.tail.layers[layer].buffer.slice(offset, page),
            };
            let frame = self.residency.allocate(layer, group);
            if let Some(frame) = frame {
                let to = self.frame_slice(layer, frame as usize);
                recorder.copy(&source, &to);
            }
            if frame.is_none() || group < self.saved_groups {
                if !self.has_lower {
                    return Err(KvError::NoTierBelow);
                }
                let keep = if frame.is_some() { Keep::DiskOnly } else { Keep::Ram };
                let readback = match &out {
                    Some((readback, _)) => *readback,
                    None => self.free_readback(gpu)?,
                };
                let pages = &mut out.get_or_insert((readback, Vec::new())).1;
                let offset = pages.len() as u64 * page;
                pages.push(Outgoing { page: PageId::kv(layer as u32, group), offset, keep });
                if let Some(stage) = &self.stage {
                    recorder.copy(&source, &stage.readbacks[readback].slice(offset, page));
                }
                self.moved.vram_to_ram += page;
            }
        }
        Ok(out)
    }

    fn free_readback(&mut self, gpu: &Gpu) -> Result<usize, KvError> {
        loop {
            if let Some(i) = self.stage.as_mut().and_then(|s| s.free_readbacks.pop_front()) {
                return Ok(i);
            }
            self.hear(gpu)?;
        }
    }

    /// The copies into a readback buffer were submitted.
    pub fn readback_submitted(&self, readback: usize, pages: Vec<Outgoing>) {
        if let Some(stage) = &self.stage {
            self.transfer.map_readback(readback, &stage.readbacks[readback], pages);
        }
    }

    /// Every layer has sealed what tokens up to `end` complete.
    pub fn end_pass(&mut self, end: usize) {
        self.n_sealed = self.n_sealed.max((end / KV_PAGE_TOKENS) as u32);
    }
}
