//! Selective attention of a decode step: pages are scored by their abstracts, a policy chooses, and only what it chose is read.
//!
//! ```text
//! q ──────────► score_pages, token_scores ─┬─ readback ─► policy ─► selection: blocks per KV head, pages that have to come
//!                                          │     └─ q · keys in RAM ─┘
//! q of l + 1, estimated ─► score_pages ────┘                └─► expected of layer l + 1: behind those, while l computes
//! end of the prompt, last steps ─► pages that were looked at: scored token by token wherever they are
//! merge ◄─ blocks in slots ◄─ tail (all of it) ◄─ blocks in frames ◄─ pages that came
//! ```
//! 1. The policy sees no buffer: bounds, scores and tiers in, a selection out. 2. New tokens are always read. 3. Prefill and
//!    everything that is asked for exactly never pass here. 4. The device is waited for once per layer, and once more where
//!    much is found that neither an estimate nor the last step expected.
//!
//! Owner: the engine thread. Shapes: H query heads, G KV heads, P complete pages.
//!
//! Source: LeoAM, sections 4.2 and 4.3; its baselines, section 6.1.

pub(in crate::engine) mod fetch;
mod lookahead;
mod observation_window;
mod overlap;
pub(in crate::engine) mod page_attention;
mod stats;
mod step;
pub(in crate::engine) mod token_scorer;

use crate::engine::api::SelectionSummary;
use crate::engine::error::EngineError;
use crate::engine::runner::gpu_model::GpuModel;
use crate::kv::policy::retention::RetainedPages;
use fetch::SelectedOps;
use lookahead::{LookaheadOps, Prefetched};
use observation_window::ObservationWindow;
use overlap::OverlapController;
pub(in crate::engine) use stats::SelectionStats;
use token_scorer::{ScoreOps, Scorer, TailScores};

use crate::base::limits::KV_PAGE_TOKENS;
use crate::gpu::kernels::attention_decode::AttentionDecode;
use crate::gpu::kernels::page_abstracts::PageAbstracts;
use crate::gpu::kernels::page_bounds::PageBoundsKernel;
use crate::gpu::kernels::qk_scores::QkScores;
use crate::gpu::{Binding, Gpu, Recorder, Slice};
use crate::kv::KvSpec;
use crate::kv::policy::access_frequency::FrequencyTable;
use crate::kv::policy::{Policy, PolicySpec};
use crate::telemetry::{ENGINE_LANE, EventLane, Hub};

/// Steps after which having been chosen is worth half.
pub(in crate::engine) const HALF_LIFE_STEPS: usize = 32;
/// Steps between two looks at what should stay in RAM.
pub(in crate::engine) const PREFER_EVERY: u64 = 8;

/// Steps in which what was chosen is compared with the attention there is, which reads everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::engine) enum MassSteps {
    /// none
    #[default]
    None,
    /// the 3rd, the 7th, the 15th and so on: at most 8 of 1,000, and some of a short answer
    Few,
    /// every one
    All,
}

impl MassSteps {
    /// Step `step` of an answer, from 0, is one of them.
    pub(in crate::engine) fn holds(self, step: usize) -> bool {
        match self {
            MassSteps::None => false,
            MassSteps::Few => step >= 2 && (step + 2).is_power_of_two(),
            MassSteps::All => true,
        }
    }
}

/// A policy at work, and what it needs of the device.
pub(in crate::engine) struct Selector {
    spec: PolicySpec,
    policy: Policy,
    /// what was chosen lately, to be kept off the disk
    frequency: FrequencyTable,
    decode: AttentionDecode,
    abstracts: PageAbstracts,
    score_pages: PageBoundsKernel,
    scorer: Scorer,
    tail_scores: TailScores,
    /// by layer: by how much the highest bound of each query head exceeded its attention in the last step, `[H]`
    above: Vec<Vec<f32>>,
    /// by layer: pages whose tokens were worth scoring in the last step, wherever they are
    candidates: Vec<Vec<u32>>,
    n_head: usize,
    n_kv_head: usize,
    bounds: Slice,
    /// by layer
    score_bindings: Vec<Binding>,
    /// by layer: tail to abstracts
    abstract_bindings: Vec<Binding>,
    segments: Vec<SelectedOps>,
    /// over the area of all slots
    area: Option<SelectedOps>,
    /// none where no query is estimated
    ahead: Option<LookaheadOps>,
    /// of the layer that comes next
    expected: Option<Prefetched>,
    /// in a pass at the end of a prompt
    observation_window: Option<ObservationWindow>,
    seen: RetainedPages,
    /// decode steps since the model was loaded
    clock: u64,
    /// decode step of the answer, and how many it may take
    step: usize,
    n_steps: usize,
    mass_steps: MassSteps,
    overlap: OverlapController,
    lane: EventLane,
    spent: SelectionStats,
}

impl Selector {
    /// Compiles the kernels and makes the buffers for the pages that `model` has room for.
    ///
    /// # Errors
    /// A kernel that does not compile, out of VRAM, a lost device.
    pub(in crate::engine) fn new(gpu: &Gpu, model: &GpuModel, spec: PolicySpec, hub: &Hub) -> Result<Selector, EngineError> {
        let policy = Policy::new(spec).map_err(|e| EngineError::Policy(e.to_string()))?;
        let (d, kv) = (&model.dims, &model.kv);
        let KvSpec { work, sealed, .. } = *kv.spec();
        let n_pages = kv.plan().n_abstracts;
        let score_pages = PageBoundsKernel::new(gpu, d.n_head, d.n_kv_head, d.head_dim)?;
        let token_scores = QkScores::new(gpu, d.n_head, d.n_kv_head, d.head_dim, sealed)?;
        let all_keys = n_pages.max(1) * KV_PAGE_TOKENS;
        // Bounds of a layer, bounds expected of the next, the query, scores of the tail's tokens and of others.
        let bounds_and_query = 2 * score_pages.bounds_bytes(n_pages) + (d.q_dim() * size_of::<f32>()) as u64;
        let tail_scores = TailScores::new(gpu, model)?;
        let all_scores = token_scores.scores_bytes(all_keys + KV_PAGE_TOKENS);
        let readback = gpu.readback_buffer("scores", bounds_and_query + all_scores)?;
        let estimates = spec.kind.reads_abstracts() && spec.kind.uses_lookahead();
        Ok(Selector {
            spec,
            policy,
            frequency: FrequencyTable::new(d.n_layer, HALF_LIFE_STEPS),
            decode: AttentionDecode::selective(gpu, d.n_head, d.n_kv_head, d.head_dim, sealed)?,
            abstracts: PageAbstracts::new(gpu, d.n_kv_head, d.head_dim, work)?,
            n_head: d.n_head,
            n_kv_head: d.n_kv_head,
            bounds: gpu.buffer("page bounds", score_pages.bounds_bytes(n_pages.max(1)))?.all(),
            scorer: Scorer { kernel: token_scores, readback },
            tail_scores,
            above: vec![vec![0.0; d.n_head]; d.n_layer],
            candidates: vec![Vec::new(); d.n_layer],
            ahead: if estimates { Some(LookaheadOps::new(gpu, model)?) } else { None },
            expected: None,
            observation_window: None,
            seen: RetainedPages::default(),
            score_pages,
            score_bindings: Vec::new(),
            abstract_bindings: Vec::new(),
            segments: Vec::new(),
            area: None,
            clock: 0,
            step: 0,
            n_steps: 1,
            mass_steps: MassSteps::None,
            overlap: OverlapController::new(hub),
            lane: hub.lane(ENGINE_LANE),
            spent: SelectionStats::default(),
        })
    }

    /// The context is another from token `n_tokens` on.
    pub(in crate::engine) fn truncate(&mut self, n_tokens: usize) {
        self.frequency.truncate(n_tokens / KV_PAGE_TOKENS);
    }

    /// An answer of up to `n_steps` tokens begins: nothing that was learnt of another one counts.
    pub(in crate::engine) fn begin_answer(&mut self, n_steps: usize) {
        if let Ok(policy) = Policy::new(self.spec) {
            self.policy = policy;
        }
        (self.step, self.n_steps) = (0, n_steps.max(1));
        self.seen.end_prompt(&self.spec);
        self.seen.record_retained(&mut self.frequency, self.clock);
        self.overlap.pause();
        (self.mass_steps, self.spent, self.expected) = (MassSteps::None, SelectionStats::default(), None);
        self.above.iter_mut().for_each(|above| above.fill(0.0));
        self.candidates.iter_mut().for_each(Vec::clear);
    }

    /// What the choices of this answer came to; none before the first.
    pub(in crate::engine) fn summary(&self) -> Option<SelectionSummary> {
        self.spent.summary(self.spec, self.step as u64)
    }

    /// Attention mass of every page by layer, as it was last measured in this answer; empty where it was not.
    pub(in crate::engine) fn page_mass(&self) -> &[Vec<f32>] {
        self.spent.page_mass()
    }

    /// The decode step that came last.
    pub(in crate::engine) fn last_step(&self) -> u64 {
        self.clock
    }

    /// In these steps of the answer, what is chosen is compared with the attention there is.
    pub(in crate::engine) fn measure_mass(&mut self, steps: MassSteps) {
        self.mass_steps = steps;
    }

    /// One token was decoded.
    pub(in crate::engine) fn end_step(&mut self) {
        self.step += 1;
        self.clock += 1;
    }

    /// Which policy, and its numbers.
    pub(in crate::engine) fn spec(&self) -> PolicySpec {
        self.spec
    }

    /// Counts a step in which others choose by the same spec; its number.
    pub(in crate::engine) fn count_step(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Forgets bind groups that hold buffers which are no more.
    pub(in crate::engine) fn unbind(&mut self) {
        self.segments.clear();
        self.area = None;
    }

    /// Where tokens in frames are scored, by segment.
    fn scored(&self) -> impl Iterator<Item = &ScoreOps> {
        self.segments.iter().map(|ops| &ops.score)
    }

    /// Records the abstracts of pages of a layer's tail: where they are in it, and their groups.
    pub(in crate::engine) fn record_abstracts(
        &self,
        recorder: &mut Recorder,
        layer: usize,
        pages: impl Iterator<Item = (usize, u32)>,
    ) {
        for (physical, group) in pages {
            self.abstracts.record(recorder, &self.abstract_bindings[layer], physical, group as usize, 1);
        }
    }

    /// Makes the bind groups that are missing.
    pub(in crate::engine) fn bind(&mut self, gpu: &Gpu, model: &GpuModel) -> Result<(), EngineError> {
        let kv = &model.kv;
        for layer in self.score_bindings.len()..model.dims.n_layer {
            let Some(abstracts) = kv.abstracts(layer) else { break };
            self.score_bindings.push(self.score_pages.bind(gpu, [&model.act.q, abstracts, &self.bounds])?);
            self.abstract_bindings.push(self.abstracts.bind(gpu, [kv.tail(layer).0, abstracts])?);
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.bind(gpu, model, &self.score_pages, &self.bounds)?;
        }
        let kernels = (&self.decode, &self.scorer.kernel);
        for segment in self.segments.len()..kv.shapes().len() {
            self.segments.push(SelectedOps::of_segment(gpu, model, kernels, 1, segment)?);
        }
        if self.area.is_none() {
            self.area = SelectedOps::of_area(gpu, model, kernels, 1)?;
        }
        Ok(())
    }
}

impl GpuModel {
    /// Lets a policy choose what decode steps read, wherever they are not asked to read everything.
    ///
    /// # Errors
    /// Numbers that cannot be, a kernel that does not compile, out of VRAM, a lost device.
    pub(in crate::engine) fn set_policy(&mut self, gpu: &Gpu, spec: Option<PolicySpec>, hub: &Hub) -> Result<(), EngineError> {
        self.selective = spec.map(|spec| Selector::new(gpu, self, spec, hub)).transpose()?;
        Ok(())
    }
}
