//! VRAM cache: the KV pages of one context in VRAM, and the staging buffers for offloaded pages.
//!
//! ```text
//! new tokens ─► tail (ring of pages, one order for all layers) ─ seal ─► frame of the pool, if one is free
//!                                                                  └──► readback ─► OffloadTiers, if without a frame or saved
//! attention of a layer ◄─ pool segments ◄─ tail ◄─┬─ staging buffers, one batch each ◄─ Transfer ◄─ OffloadTiers
//!                                                 └─ or pages in RAM, where they are (in_place.rs)
//! ```
//! Owner: the engine thread.
//! 1. Growing adds segments and moves nothing.
//! 2. Allocations never exceed the budget: [`VramPlan`] divides it before anything is allocated.
//! 3. Only [`Residency`] changes which page has a frame.
//! 4. The cache counts complete groups of 64 tokens; its user tracks the valid tokens.

mod batch_reserve;
mod frame_pool;
mod in_place;
mod int4_transfer;
mod occupancy;
mod offload_link;
mod offload_state;
mod page_stream;
mod paging;
mod promotion;
mod ram_places;
mod seal;
mod selected;
mod staging;
mod stream;

pub use frame_pool::PagedBuffer;
pub use int4_transfer::CodecRates;
pub use page_stream::StreamCost;
pub use promotion::PageSwap;
pub use ram_places::{RamRun, RamSegment};
pub use selected::{BlockTable, RamKeys, SelectedStream};

use crate::base::limits::KV_PAGE_TOKENS;
use crate::base::{MovedBytes, PageCounts};
use crate::gpu::{Gpu, Slice};
use crate::kv::error::KvError;
use crate::kv::layout::{SegmentShape, VramPlan, plan_pool};
use crate::kv::residency::Residency;
use crate::kv::spec::{BLOCKS_PER_PAGE, KvSpec};
use crate::kv::transfer::Transfer;
use crate::kv::transfer::plan::TransferBatch;
use crate::telemetry::{ENGINE_LANE, EventLane, Hub};
use frame_pool::FramePool;
use offload_state::OffloadState;
use page_stream::PageStream;
use staging::{N_READBACKS, StagingPool, UploadPlaces};

/// The new tokens of every layer.
pub struct Tail {
    layers: Vec<Slice>,
    /// block table u32 `[G, n_blocks]` of all layers
    pub table: Slice,
    /// physical pages in logical order
    order: Vec<usize>,
    /// group of the first logical page
    first_group: u32,
}

/// A transferred batch that attention reads next.
pub struct StagedBatch {
    /// index of the staging buffer
    pub slot: usize,
    batch: TransferBatch,
}

impl StagedBatch {
    /// Groups of its pages.
    pub fn groups(&self) -> &[u32] {
        &self.batch.groups
    }
}

/// The KV cache of one context in VRAM.
pub struct VramCache {
    spec: KvSpec,
    limit: usize,
    plan: VramPlan,
    uploads: UploadPlaces,
    tail: Tail,
    pool: FramePool,
    /// output buffer of quantized pages
    scratch: Option<Slice>,
    /// page abstracts of each layer, f16 `[P, G, 2, D]`; empty if attention always reads every page
    abstracts: Vec<Slice>,
    staging: Option<StagingPool>,
    residency: Residency,
    n_sealed: u32,
    offload: OffloadState,
    lane: EventLane,
    /// event lane of the engine thread
    engine_lane: EventLane,
    stream: PageStream,
    /// bytes of the tails of a batch of sequences
    tails_bytes: u64,
    peak_bytes: u64,
    /// bytes uploaded and read back
    moved: MovedBytes,
    counts: PageCounts,
    notices: Vec<String>,
}

impl VramCache {
    /// Creates an empty cache, with the tail of `plan` allocated.
    ///
    /// # Errors
    /// Out of VRAM, a lost GPU, no thread.
    pub fn new(
        gpu: &Gpu,
        spec: KvSpec,
        limit: usize,
        plan: VramPlan,
        pcie: Option<u64>,
        synchronous: bool,
        hub: &Hub,
    ) -> Result<VramCache, KvError> {
        let bytes = plan.tail_pages as u64 * spec.tail_page_bytes();
        let layers = (0..spec.n_layer).map(|_| Ok(gpu.buffer("KV tail", bytes)?.all())).collect::<Result<_, KvError>>()?;
        let table = gpu.buffer("KV tail table", spec.table_bytes(plan.tail_pages))?.all();
        let order: Vec<usize> = (0..plan.tail_pages).collect();
        gpu.upload(&table, bytemuck::cast_slice(&spec.table(&order, plan.tail_pages * BLOCKS_PER_PAGE)))?;
        let scratch = match spec.sealed.is_quantized() {
            true => Some(gpu.buffer("sealed pages", plan.tail_pages as u64 * spec.page_bytes())?.all()),
            false => None,
        };
        let abstract_bytes = plan.abstract_bytes(&spec) / spec.n_layer.max(1) as u64;
        let abstracts = match plan.n_abstracts {
            0 => Vec::new(),
            _ => (0..spec.n_layer).map(|_| Ok(gpu.buffer("abstracts", abstract_bytes)?.all())).collect::<Result<_, KvError>>()?,
        };
        let transfer = Transfer::start(spec, pcie, hub).map_err(|e| KvError::NoThread(e.to_string()))?;
        let mut cache = VramCache {
            spec,
            limit,
            uploads: UploadPlaces::of(gpu),
            tail: Tail { layers, table, order, first_group: 0 },
            pool: FramePool::default(),
            scratch,
            abstracts,
            staging: None,
            residency: Residency::new(spec.n_layer, plan.max_frames),
            plan,
            n_sealed: 0,
            offload: OffloadState::new(transfer),
            lane: hub.lane("transfer"),
            engine_lane: hub.lane(ENGINE_LANE),
            stream: PageStream::new(synchronous),
            tails_bytes: 0,
            peak_bytes: 0,
            moved: MovedBytes::default(),
            counts: PageCounts::default(),
            notices: Vec::new(),
        };
        cache.peak_bytes = cache.bytes();
        Ok(cache)
    }

    /// Shape of the stored pages.
    pub fn spec(&self) -> &KvSpec {
        &self.spec
    }

    /// Division of the VRAM budget.
    pub fn plan(&self) -> &VramPlan {
        &self.plan
    }

    /// Maximum number of tokens.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> u64 {
        let frames = self.pool.bytes(&self.spec);
        let scratch = self.scratch.as_ref().map_or(0, |s| s.size);
        let not_there = if self.uploads.in_vram { 0 } else { self.plan.upload_bytes(&self.spec) };
        let staging = if self.staging.is_some() { self.plan.slot_bytes(&self.spec) - scratch - not_there } else { 0 };
        self.plan.tail_bytes(&self.spec) + self.plan.abstract_bytes(&self.spec) + frames + scratch + staging + self.tails_bytes
    }

    /// Most bytes ever allocated at once.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Bytes uploaded and read back.
    pub fn moved(&self) -> MovedBytes {
        self.moved
    }

    /// Pages read by attention, by their location.
    pub fn counts(&self) -> PageCounts {
        self.counts
    }

    /// Marks a group as corrupt in the offload tiers, so that it is saved again after recomputation.
    pub fn invalidate_group(&self, group: u32) {
        self.offload.transfer.invalidate_group(group);
    }

    /// Counts one recomputed group.
    pub fn count_recomputed(&mut self) {
        self.counts.recomputed += self.spec.n_layer as u64;
    }

    /// Takes the notices for the user.
    pub fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Number of complete groups.
    pub fn n_sealed(&self) -> u32 {
        self.n_sealed
    }

    /// Segments of the pool, in order.
    pub fn shapes(&self) -> &[SegmentShape] {
        self.pool.shapes()
    }

    /// Pages and block table of a segment in a layer.
    pub fn segment(&self, segment_idx: usize, layer_idx: usize) -> &PagedBuffer {
        self.pool.segment(segment_idx, layer_idx)
    }

    /// Tail pages of a layer, and the block table of all layers.
    pub fn tail(&self, layer_idx: usize) -> (&Slice, &Slice) {
        (&self.tail.layers[layer_idx], &self.tail.table)
    }

    /// Blocks per KV head in the table of the tail.
    pub fn tail_blocks(&self) -> usize {
        self.plan.tail_pages * BLOCKS_PER_PAGE
    }

    /// Output buffer of quantized pages, one page for each page of the tail.
    pub fn scratch(&self) -> Option<&Slice> {
        self.scratch.as_ref()
    }

    /// GPU range of staging buffer `i`, and the table of all of them. None before they are needed.
    pub fn slot(&self, i: usize) -> Option<(&Slice, &Slice)> {
        self.staging.as_ref().and_then(|s| Some((&s.slots.get(i)?.pages, &s.table)))
    }

    /// GPU ranges of all staging buffers, contiguous. None before they are needed.
    pub fn staging_slice(&self) -> Option<&Slice> {
        self.staging.as_ref().map(|s| &s.buffer)
    }

    /// Bytes of the staging buffers that are in RAM: readback buffers, and upload buffers in host memory.
    pub fn ram_buffer_bytes(&self) -> u64 {
        let readbacks = (N_READBACKS * self.plan.tail_pages) as u64 * self.spec.page_bytes();
        readbacks + if self.uploads.in_ram { self.plan.upload_bytes(&self.spec) } else { 0 }
    }

    /// Same, once they are allocated.
    pub fn staging_bytes(&self) -> u64 {
        if self.staging.is_some() { self.ram_buffer_bytes() } else { 0 }
    }

    /// Groups without a frame in a context of `n_tokens`.
    pub fn offloaded_groups(&self, n_tokens: usize) -> u64 {
        (n_tokens / KV_PAGE_TOKENS).saturating_sub(self.residency.max_frames()) as u64
    }

    /// Maximum tokens of a chunk at `pos`, given the room in the tail. If complete pages are quantized, a chunk ends
    /// with its group. So the tokens that a query reads quantized do not depend on the chunk sizes.
    pub fn room_at(&self, pos: usize) -> usize {
        let n_pages = if self.spec.sealed.is_quantized() { 1 } else { self.plan.tail_pages };
        n_pages * KV_PAGE_TOKENS - pos % KV_PAGE_TOKENS
    }

    /// Allocates pool segments for `n_tokens` in total, within the plan. True if segments were added; then bind groups
    /// must be created. If the GPU has less memory than planned, the pool shrinks and a notice is issued.
    ///
    /// # Errors
    /// Over the token limit, or a lost GPU.
    pub fn reserve(&mut self, gpu: &Gpu, n_tokens: usize) -> Result<bool, KvError> {
        if n_tokens > self.limit {
            return Err(KvError::OverLimit { wanted: n_tokens, limit: self.limit });
        }
        let max_frames = self.residency.max_frames();
        let shapes = plan_pool(&self.spec, n_tokens / KV_PAGE_TOKENS, max_frames, gpu.max_binding_bytes());
        let n_before = self.shapes().len();
        for shape in shapes.into_iter().skip(n_before) {
            match self.pool.grow(gpu, &self.spec, shape) {
                Ok(()) => self.peak_bytes = self.peak_bytes.max(self.bytes()),
                Err(error @ KvError::Gpu(crate::gpu::GpuError::OutOfMemory { .. })) => {
                    self.residency.shrink_to(shape.first_frame);
                    self.notices.push(format!("{error}; the KV cache continues in RAM and on disk"));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.shapes().len() > n_before)
    }

    /// Drops all tokens from `n_tokens` on.
    pub fn truncate(&mut self, n_tokens: usize) {
        let n_groups = (n_tokens / KV_PAGE_TOKENS) as u32;
        self.offload.truncate(n_tokens);
        if n_groups < self.n_sealed {
            self.n_sealed = n_groups;
            self.residency.truncate(n_groups);
            self.cancel_stream();
        }
    }

    /// Resident pages of a layer, as segment and number of pages. Rewrites the block table of a segment if its used
    /// frames are not the first ones.
    pub fn resident_runs(&mut self, gpu: &Gpu, layer: usize) -> Vec<(usize, usize)> {
        let mut runs = Vec::new();
        let mut rest = self.residency.n_resident(layer);
        self.counts.resident += rest as u64;
        for segment_idx in 0..self.shapes().len() {
            let shape = self.shapes()[segment_idx];
            if rest == 0 {
                break;
            }
            let used = self.residency.used_in(layer, shape.first_frame, shape.n_frames);
            let is_prefix = used.last().is_none_or(|last| last + 1 == used.len());
            let order = (!is_prefix).then_some(used.as_slice());
            self.pool.set_order(gpu, &self.spec, (segment_idx, layer), order);
            rest -= used.len();
            if !used.is_empty() {
                runs.push((segment_idx, used.len()));
            }
        }
        runs
    }
}
