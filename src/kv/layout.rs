//! Cache layout: division of a VRAM budget, growth of the pool. Pure.
//!
//! ```text
//! VRAM budget ─► tail (new tokens, tail format) + staging buffers (pages in transfer) + pool of frames (complete pages)
//! pool  ─► segments of one layer: 32 │ 32 │ 64 │ 128 ... frames (each doubles the total, none exceeds a binding)
//! ```

use crate::base::limits::{KV_FIRST_SEGMENT_TOKENS, KV_PAGE_TOKENS};
use crate::kv::policy::leoam::abstracts::abstract_bytes;
use crate::kv::spec::{BLOCKS_PER_PAGE, KvSpec};

/// Default size of a staging buffer, bytes.
const SLOT_BYTES: u64 = 4 << 20;
/// Bindings begin at multiples of this on every GPU.
pub(super) const BINDING_ALIGN_BYTES: u64 = 256;
/// Maximum pages per staging buffer.
const MAX_SLOT_PAGES: u64 = 64;
/// Target number of staging buffers: one is read by the GPU, one is full, one is being filled.
const MAX_SLOTS: usize = 3;
/// Minimum number of staging buffers.
const MIN_SLOTS: usize = 2;
/// Minimum pages of the tail: a partial page, and one to fill.
const MIN_TAIL_PAGES: usize = 2;

/// Division of a VRAM budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VramPlan {
    /// tail pages per layer
    pub tail_pages: usize,
    /// pages per staging buffer
    pub slot_pages: usize,
    /// number of staging buffers, shared by all layers
    pub n_slots: usize,
    /// frames of the pool of each layer
    pub max_frames: usize,
    /// pages per layer with an abstract in VRAM
    pub n_abstracts: usize,
}

/// Frames of one pool segment, the same in every layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentShape {
    /// first frame in it
    pub first_frame: usize,
    /// number of frames
    pub n_frames: usize,
}

impl VramPlan {
    /// Divides `budget` (unlimited if none) for a context of `limit` tokens, prefilled in chunks of up to `max_chunk`.
    /// Includes abstracts of all pages if `with_abstracts`.
    ///
    /// # Errors
    /// The minimum budget in bytes.
    pub fn new(
        spec: &KvSpec,
        limit: usize,
        max_chunk: usize,
        budget: Option<u64>,
        with_abstracts: bool,
    ) -> Result<VramPlan, u64> {
        let all_frames = limit / KV_PAGE_TOKENS;
        let n_abstracts = if with_abstracts { all_frames } else { 0 };
        let page = spec.page_bytes();
        let tail_pages = (max_chunk.div_ceil(KV_PAGE_TOKENS) + 1).max(MIN_TAIL_PAGES);
        let slot_pages = (SLOT_BYTES / page).clamp(1, MAX_SLOT_PAGES) as usize;
        let full = VramPlan { tail_pages, slot_pages, n_slots: MAX_SLOTS, max_frames: all_frames, n_abstracts };
        let Some(budget) = budget.filter(|b| *b < full.bytes(spec)) else { return Ok(full) };
        let minimum = VramPlan { tail_pages: MIN_TAIL_PAGES, slot_pages: 1, n_slots: MIN_SLOTS, max_frames: 0, n_abstracts };
        if budget < minimum.bytes(spec) {
            return Err(minimum.bytes(spec));
        }
        // The tail gets a quarter, the staging buffers half of the rest until they are large enough, and resident pages
        // the remainder. A resident page saves its transfer; a large staging buffer saves a submit per page. With
        // selective attention most read pages stay resident, so the staging buffers get only a quarter.
        let per_tail_page = spec.n_layer as u64 * spec.tail_page_bytes();
        let tail_pages = ((budget / 4 / per_tail_page) as usize).clamp(MIN_TAIL_PAGES, tail_pages);
        let used_bytes = tail_pages as u64 * per_tail_page + minimum.abstract_bytes(spec);
        let slot_share = if with_abstracts { 4 } else { 2 };
        let slot_budget = budget.saturating_sub(used_bytes) / slot_share / (2 * page);
        let n_slots = if slot_budget >= MAX_SLOTS as u64 { MAX_SLOTS } else { MIN_SLOTS };
        let slot_pages = (slot_budget as usize / n_slots).clamp(1, slot_pages);
        let mut plan = VramPlan { tail_pages, slot_pages, n_slots, max_frames: 0, n_abstracts };
        if plan.bytes(spec) > budget {
            plan = minimum;
        }
        plan.max_frames = (((budget - plan.bytes(spec)) / Self::frame_bytes(spec)) as usize).min(all_frames);
        Ok(plan)
    }

    /// Bytes of one frame in every layer, with its part of the tables.
    pub fn frame_bytes(spec: &KvSpec) -> u64 {
        spec.n_layer as u64 * (spec.page_bytes() + spec.table_bytes(1))
    }

    /// Bytes of the tails and their table.
    pub fn tail_bytes(&self, spec: &KvSpec) -> u64 {
        self.tail_pages as u64 * spec.n_layer as u64 * spec.tail_page_bytes() + spec.table_bytes(self.tail_pages)
    }

    /// Bytes of the staging buffers: each has an upload buffer and a GPU range. Includes the output buffer of quantized
    /// pages, and the codes of one buffer of compressed pages.
    pub fn slot_bytes(&self, spec: &KvSpec) -> u64 {
        let scratch = if spec.sealed.is_quantized() { self.tail_pages as u64 * spec.page_bytes() } else { 0 };
        let int4_bytes = spec.int4_page_bytes().filter(|_| self.n_abstracts > 0).unwrap_or(0) * self.slot_pages as u64;
        let bytes = self.slot_pages as u64 * spec.page_bytes();
        self.n_slots as u64 * (bytes + bytes.next_multiple_of(BINDING_ALIGN_BYTES))
            + spec.table_bytes(self.slot_pages)
            + scratch
            + int4_bytes
    }

    /// Bytes of the upload buffers alone.
    pub fn upload_bytes(&self, spec: &KvSpec) -> u64 {
        (self.n_slots * self.slot_pages) as u64 * spec.page_bytes()
    }

    /// Bytes of the abstracts of all layers.
    pub fn abstract_bytes(&self, spec: &KvSpec) -> u64 {
        (self.n_abstracts * spec.n_layer * abstract_bytes(spec)) as u64
    }

    /// Bytes of all allocations of the plan.
    pub fn bytes(&self, spec: &KvSpec) -> u64 {
        self.tail_bytes(spec)
            + self.slot_bytes(spec)
            + self.abstract_bytes(spec)
            + self.max_frames as u64 * Self::frame_bytes(spec)
    }
}

impl SegmentShape {
    /// One past the last frame.
    pub fn end_frame(&self) -> usize {
        self.first_frame + self.n_frames
    }

    /// Logical blocks per KV head.
    pub fn n_blocks(&self) -> usize {
        self.n_frames * BLOCKS_PER_PAGE
    }
}

/// The segments for `n_frames`, if the pool may grow to `max_frames` and a binding to `max_binding_bytes`.
pub fn plan_pool(spec: &KvSpec, n_frames: usize, max_frames: usize, max_binding_bytes: u64) -> Vec<SegmentShape> {
    let max_frames_per_binding = (max_binding_bytes / spec.page_bytes().max(1)).max(1) as usize;
    let mut segments = Vec::new();
    let mut total = 0;
    while total < n_frames.min(max_frames) {
        let size = total.max(KV_FIRST_SEGMENT_TOKENS / KV_PAGE_TOKENS).min(max_frames_per_binding).min(max_frames - total);
        segments.push(SegmentShape { first_frame: total, n_frames: size });
        total += size;
    }
    segments
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gpu::kernels::KvFormat;

    const SPEC: KvSpec = KvSpec { n_layer: 6, n_kv_head: 2, head_dim: 64, work: KvFormat::F16, sealed: KvFormat::F16 };

    #[test]
    fn pool_covers_the_frames_without_gaps_and_within_a_binding() {
        for (n, max, binding) in [(1, 100, 1 << 27), (500, 2048, 1 << 27), (2048, 2048, 1 << 20), (1, 1, 1 << 12)] {
            let segments = plan_pool(&SPEC, n, max, binding);
            let mut end = 0;
            for s in &segments {
                assert_eq!(s.first_frame, end);
                assert!(s.n_frames > 0 && s.n_frames as u64 * SPEC.page_bytes() <= binding.max(SPEC.page_bytes()));
                end = s.end_frame();
            }
            assert!(end >= n && end <= max, "{end} for {n} of {max}");
        }
        // Doubling: a long context has few segments, so few dispatches.
        assert!(plan_pool(&SPEC, 2048, 2048, 1 << 30).len() <= 7);
    }

    #[test]
    fn pool_grows_by_adding_segments() {
        let long = plan_pool(&SPEC, 1000, 2048, 1 << 27);
        for n in [1, 32, 33, 140, 700] {
            let short = plan_pool(&SPEC, n, 2048, 1 << 27);
            assert_eq!(short[..], long[..short.len()]);
        }
    }

    proptest! {
        #[test]
        fn vram_plan_never_exceeds_its_budget(
            budget in 0u64..64 << 20, limit in 1usize..200_000, max_chunk in 16usize..512,
            sealed in prop::sample::select(vec![KvFormat::F16, KvFormat::Q8, KvFormat::Q4]), with_abstracts: bool,
        ) {
            let spec = KvSpec { sealed, ..SPEC };
            match VramPlan::new(&spec, limit, max_chunk, Some(budget), with_abstracts) {
                Ok(plan) => {
                    prop_assert!(plan.bytes(&spec) <= budget);
                    prop_assert!(plan.tail_pages >= 2 && plan.slot_pages >= 1 && plan.n_slots >= 2);
                    prop_assert!(plan.max_frames <= limit / KV_PAGE_TOKENS);
                }
                Err(minimum) => {
                    prop_assert!(budget < minimum);
                    prop_assert!(VramPlan::new(&spec, limit, max_chunk, Some(minimum), with_abstracts).is_ok());
                }
            }
        }
    }

    #[test]
    fn vram_plan_without_a_budget_fits_the_whole_context() {
        let plan = VramPlan::new(&SPEC, 131_072, 512, None, false).unwrap();
        assert_eq!((plan.max_frames, plan.tail_pages, plan.n_slots), (2048, 9, 3));
        let plan = VramPlan::new(&SPEC, 131_072, 512, Some(40 << 20), true).unwrap();
        assert!(plan.max_frames > 100 && plan.max_frames < 213, "{plan:?}");
    }
}
