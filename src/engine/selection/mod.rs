//! Selective attention of decode steps: a policy selects by the scores of page abstracts, and attention reads the selection.
//!
//! ```text
//! q ──────────► page bounds, token scores ─┬─ readback ─► policy of each sequence ─► blocks per KV head, pages to fetch
//!                                          │     └─ q · keys in RAM ─┘
//! q of l + 1, estimated ─► page bounds ────┘                └─► prefetch of layer l + 1, while l computes
//! merge ◄─ blocks in staging buffers ◄─ tails (always read) ◄─ blocks in frames ◄─ fetched pages
//! ```
//! 1. The policy uses no buffer: bounds, scores and tiers in, a selection out. 2. New tokens are always read. 3. Prefill and
//!    exact answers do not use it. 4. Each layer waits for the GPU once, and once more for unpredicted candidates.
//!
//! Owner: the engine thread. Shapes: H query heads, G KV heads, P complete pages.
//!
//! Source: LeoAM §4.2, LeoAM §4.3; its baselines, LeoAM §6.1.

mod device_selection;
mod device_step;
pub(in crate::engine) mod fetch;
mod lookahead;
mod overlap;
pub(in crate::engine) mod page_attention;
pub(in crate::engine) mod page_attention_meter;
mod paged_step;
mod promotion;
pub(in crate::engine) mod selected_ops;
pub(in crate::engine) mod sequence_policy;
mod stats;
pub(in crate::engine) mod step;
pub(in crate::engine) mod token_scorer;

use crate::base::ModelDims;
use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::error::EngineError;
use crate::engine::runner::device_parts::DeviceParts;
use crate::gpu::kernels::attention_decode::AttentionDecode;
use crate::gpu::kernels::page_abstracts::PageAbstracts;
use crate::gpu::kernels::page_bounds::PageBoundsKernel;
use crate::gpu::kernels::qk_scores::QkScores;
use crate::gpu::{Binding, Buffer, Gpu, Recorder, SelectionCosts, Slice};
use crate::kv::policy::access_frequency::FrequencyTable;
use crate::kv::policy::{Lookahead, PolicySpec, selection_pays};
use crate::kv::{KvSpec, VramCache};
use crate::telemetry::{ENGINE_LANE, EventLane, Hub};
use device_selection::{DeviceCounters, DeviceSelection};
use lookahead::{LookaheadOps, Prefetched};
use overlap::OverlapController;
use selected_ops::SelectedOps;
use sequence_policy::SequencePolicy;
pub(in crate::engine) use stats::SelectionStats;
use token_scorer::{Scorer, TailScores};

/// Half-life of access frequency counts, steps.
pub(in crate::engine) const HALF_LIFE_STEPS: usize = 32;
/// Interval between two updates of the pages pinned in RAM, steps.
pub(in crate::engine) const PREFER_EVERY: u64 = 8;

/// Kernels, buffers and shared state of selective attention, for all sequences of a batch.
pub(in crate::engine) struct Selector {
    spec: PolicySpec,
    /// access frequency; RAM keeps the hot pages
    frequency: FrequencyTable,
    decode: AttentionDecode,
    abstracts: PageAbstracts,
    score_pages: PageBoundsKernel,
    scorer: Scorer,
    tail_scores: TailScores,
    rows: RowCapacity,
    bounds: Slice,
    bindings: LayerBindings,
    segments: Vec<SelectedOps>,
    /// over the staging pool; None without offload tiers
    staging_ops: Option<SelectedOps>,
    /// None if no query is estimated
    lookahead: Option<LookaheadOps>,
    /// prefetch of the next layer
    prefetched: Option<Prefetched>,
    /// decode steps since the model was loaded
    clock: u64,
    mass: MeasuredMass,
    overlap: OverlapController,
    device: DeviceSelection,
}

/// Attention mass as measured in a few steps.
struct MeasuredMass {
    /// by layer: mass of every page, as last measured in this answer; empty if never
    pages: Vec<Vec<f32>>,
    lane: EventLane,
}

/// Bind groups of page scoring, by layer.
#[derive(Default)]
struct LayerBindings {
    /// abstracts to bounds
    scores: Vec<Binding>,
    /// tail to abstracts
    abstracts: Vec<Binding>,
}

/// Capacity of the buffers: rows, and tokens of the longest tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RowCapacity {
    n_rows: usize,
    n_tail: usize,
}

/// Capacity of a single answer, whose tail is that of the context.
const ONE_ROW: RowCapacity = RowCapacity { n_rows: 1, n_tail: KV_PAGE_TOKENS };

impl Selector {
    /// Compiles the kernels and creates the buffers for the page capacity of the KV cache.
    ///
    /// # Errors
    /// Invalid parameters of the policy, a kernel that does not compile, out of VRAM, a lost device.
    pub(in crate::engine) fn new(
        gpu: &Gpu,
        parts: DeviceParts<'_>,
        spec: PolicySpec,
        hub: &Hub,
    ) -> Result<Selector, EngineError> {
        spec.check().map_err(|e| EngineError::Policy(e.to_string()))?;
        let (d, kv) = (&parts.model.dims, parts.kv);
        let KvSpec { work, sealed, .. } = *kv.spec();
        let score_pages = PageBoundsKernel::new(gpu, d.n_head, d.n_kv_head, d.head_dim)?;
        let kernel = QkScores::new(gpu, d.n_head, d.n_kv_head, d.head_dim, sealed)?;
        let (bounds, readback) = row_buffers(gpu, parts, (&score_pages, &kernel), ONE_ROW)?;
        let estimates = spec.kind.lookahead() == Lookahead::EstimatedQuery;
        Ok(Selector {
            spec,
            frequency: FrequencyTable::new(d.n_layer, HALF_LIFE_STEPS),
            decode: AttentionDecode::selective(gpu, d.n_head, d.n_kv_head, d.head_dim, sealed, parts.model.attention_precision)?,
            abstracts: PageAbstracts::new(gpu, d.n_kv_head, d.head_dim, work)?,
            bounds,
            scorer: Scorer { kernel, readback },
            tail_scores: TailScores::new(gpu, parts)?,
            rows: ONE_ROW,
            lookahead: if estimates { Some(LookaheadOps::new(gpu, parts, 1)?) } else { None },
            prefetched: None,
            score_pages,
            bindings: LayerBindings::default(),
            segments: Vec::new(),
            staging_ops: None,
            clock: 0,
            mass: MeasuredMass { pages: Vec::new(), lane: hub.lane(ENGINE_LANE) },
            overlap: OverlapController::new(hub),
            device: DeviceSelection::new(gpu, parts)?,
        })
    }

    /// Drops the access frequency of pages after `n_tokens` tokens.
    pub(in crate::engine) fn truncate(&mut self, n_tokens: usize) {
        self.frequency.truncate(n_tokens / KV_PAGE_TOKENS);
    }

    /// Begins a batch: resets the access frequency, which all of its sequences share.
    pub(in crate::engine) fn begin_batch(&mut self, dims: &ModelDims) {
        self.frequency = FrequencyTable::new(dims.n_layer, HALF_LIFE_STEPS);
        // Steps of a batch are numbered from 1, those of a single answer from 0: pages are pinned by step number.
        self.clock += 1;
    }

    /// Policy state of an answer of up to `n_steps` tokens.
    ///
    /// # Errors
    /// Invalid parameters of the policy.
    pub(in crate::engine) fn begin_answer(&mut self, n_steps: usize, dims: &ModelDims) -> Result<SequencePolicy, EngineError> {
        self.overlap.pause();
        self.prefetched = None;
        self.mass.pages.clear();
        self.device.forget();
        SequencePolicy::new(self.spec, n_steps, dims)
    }

    /// The policy of an answer of `n_steps` over the first `n_pages`: layers in which reading everything is faster do so. None if
    /// all of them do. Only layers with all pages in VRAM until the end, unless the selection is forced.
    pub(in crate::engine) fn with_costs(
        &mut self,
        mut policy: SequencePolicy,
        costs: Option<&SelectionCosts>,
        kv: &VramCache,
        n_pages: usize,
        n_steps: usize,
    ) -> Option<SequencePolicy> {
        let n_layers = kv.spec().n_layer;
        let n_last = n_pages + n_steps.div_ceil(KV_PAGE_TOKENS);
        let stays = n_last <= kv.plan().max_frames && (0..n_layers).all(|layer| kv.is_all_resident(layer, n_pages as u32));
        if stays && !self.spec.is_forced && n_pages > 0 {
            let reads_all = |layer| policy.device_sizes(layer, n_pages).is_some_and(|s| !selection_pays(costs, kv.spec(), &s));
            policy.exact_layers = (0..n_layers).map(reads_all).collect();
        }
        let reads_all = !policy.exact_layers.is_empty() && policy.exact_layers.iter().all(|reads_all| *reads_all);
        self.device.reads_all = reads_all;
        (!reads_all).then_some(policy)
    }

    /// True if the GPU selected in the last step without any readback.
    pub(in crate::engine) fn selects_on_device(&self) -> bool {
        self.device.is_active && !self.device.is_paged
    }

    /// True if the GPU can select for the policy.
    pub(in crate::engine) fn selects_by_kernels(&self) -> bool {
        self.spec.policy().is_ok_and(|policy| policy.device_sizes(0, 1).is_some())
    }

    /// True if the last answer reads everything because that is faster.
    pub(in crate::engine) fn reads_all(&self) -> bool {
        self.device.reads_all
    }

    /// Reserves buffers for `n_rows` sequences with tails of up to `n_tail` tokens. A new size drops all bind groups.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub(in crate::engine) fn reserve_rows(
        &mut self,
        gpu: &Gpu,
        parts: DeviceParts<'_>,
        n_rows: usize,
        n_tail: usize,
    ) -> Result<(), EngineError> {
        let rows = RowCapacity { n_rows, n_tail: n_tail.max(KV_PAGE_TOKENS) };
        if rows != self.rows {
            (self.bounds, self.scorer.readback) = row_buffers(gpu, parts, (&self.score_pages, &self.scorer.kernel), rows)?;
            if self.lookahead.is_some() {
                self.lookahead = Some(LookaheadOps::new(gpu, parts, n_rows)?);
            }
            self.rows = rows;
            self.bindings.scores.clear();
            self.bindings.abstracts.clear();
            self.unbind();
        }
        Ok(())
    }

    /// Attention mass of every page by layer, as last measured in this answer. Empty if never.
    pub(in crate::engine) fn page_mass(&self) -> &[Vec<f32>] {
        &self.mass.pages
    }

    /// Counters of the GPU for this answer. None if it has not selected.
    ///
    /// # Errors
    /// A lost device.
    pub(in crate::engine) fn device_counters(
        &mut self,
        gpu: &Gpu,
        kv: &mut VramCache,
    ) -> Result<Option<DeviceCounters>, EngineError> {
        self.device.counters(gpu, kv)
    }

    /// Number of the last decode step.
    pub(in crate::engine) fn last_step(&self) -> u64 {
        self.clock
    }

    /// Counts a decode step.
    pub(in crate::engine) fn end_step(&mut self) {
        self.clock += 1;
    }

    /// Configuration of the policy.
    pub(in crate::engine) fn spec(&self) -> PolicySpec {
        self.spec
    }

    /// Kernel that scores the tokens of tails.
    pub(in crate::engine) fn tail_kernel(&self) -> &QkScores {
        &self.tail_scores.kernel
    }

    /// Drops bind groups of replaced buffers.
    pub(in crate::engine) fn unbind(&mut self) {
        self.segments.clear();
        self.staging_ops = None;
        self.device.unbind();
    }

    /// Records the abstracts of pages of a layer's tail: index in the tail and group of each.
    pub(in crate::engine) fn record_abstracts(
        &self,
        recorder: &mut Recorder,
        layer: usize,
        pages: impl Iterator<Item = (usize, u32)>,
    ) {
        for (physical, group) in pages {
            self.abstracts.record(recorder, &self.bindings.abstracts[layer], physical, group as usize, 1);
        }
    }

    /// Creates the missing bind groups.
    pub(in crate::engine) fn bind(&mut self, gpu: &Gpu, parts: DeviceParts<'_>) -> Result<(), EngineError> {
        let kv = parts.kv;
        for layer in self.bindings.scores.len()..parts.model.dims.n_layer {
            let Some(abstracts) = kv.abstracts(layer) else { break };
            self.bindings.scores.push(self.score_pages.bind(gpu, [&parts.model.act.q, abstracts, &self.bounds])?);
            self.bindings.abstracts.push(self.abstracts.bind(gpu, [kv.tail(layer).0, abstracts])?);
        }
        if let Some(lookahead) = &mut self.lookahead {
            lookahead.bind(gpu, parts, &self.score_pages, &self.bounds)?;
        }
        let kernels = (&self.decode, &self.scorer.kernel);
        for segment in self.segments.len()..kv.shapes().len() {
            self.segments.push(SelectedOps::of_segment(gpu, parts, kernels, self.rows.n_rows, segment)?);
        }
        if self.staging_ops.is_none() {
            self.staging_ops = SelectedOps::of_staging(gpu, parts, kernels, self.rows.n_rows)?;
        }
        let policy = self.spec.policy().map_err(|e| EngineError::Policy(e.to_string()))?;
        let sizes = |layer, n_pages| policy.device_sizes(layer, n_pages);
        self.device.bind(gpu, parts, (&self.decode, &self.score_pages), self.rows.n_rows, sizes)
    }
}

/// Bounds buffer of one layer, and readback buffer of all inputs of a layer's selection: bounds of this layer and the next,
/// queries, scores of tails and of pages. A single answer may score every page of the context, a batch the sealed ones.
fn row_buffers(
    gpu: &Gpu,
    parts: DeviceParts<'_>,
    (score_pages, scorer): (&PageBoundsKernel, &QkScores),
    rows: RowCapacity,
) -> Result<(Slice, Buffer), EngineError> {
    let n_window = parts.kv.plan().n_abstracts.max(1);
    let n_sealed = (parts.kv.n_sealed() as usize).max(1);
    let sizes = |n_rows: usize, n_tail: usize, n_pages: usize| {
        let bounds = n_rows as u64 * score_pages.bounds_bytes(n_pages);
        let scores = scorer.scores_bytes(n_pages * KV_PAGE_TOKENS) + scorer.scores_bytes(n_tail + 1);
        let query = (parts.model.dims.q_dim() * size_of::<f32>()) as u64;
        (bounds, 2 * bounds + n_rows as u64 * (query + scores))
    };
    let (one, batch) = (sizes(1, KV_PAGE_TOKENS, n_window), sizes(rows.n_rows, rows.n_tail, n_sealed));
    let bounds = gpu.buffer("page bounds", one.0.max(batch.0))?.all();
    Ok((bounds, gpu.readback_buffer("scores", one.1.max(batch.1))?))
}
