//! Selective attention of a decode step: pages are scored by their abstracts, a policy chooses, and only what it chose is read.
//!
//! ```text
//! q ─► score_pages ─ readback ─► policy: candidates ─► token_scores ─ readback ─► policy: selection
//!                                                                                   │ blocks per KV head, pages
//! merge ◄─ tail (all of it) ◄─ chosen blocks of segments ◄─ chosen blocks of slots ◄┘ (pages that have to come)
//! ```
//! 1. The policy sees no buffer: bounds, scores and tiers in, a selection out. 2. New tokens are always read. 3. Prefill and
//!    everything that is asked for exactly never pass here.
//!
//! Owner: the engine thread. Shapes: H query heads, G KV heads, P complete pages.
//!
//! Source: LeoAM, sections 4.2 and 4.3; its baselines, section 6.1.

use super::device_model::{DeviceModel, Run};
use super::error::EngineError;
use super::pace::Pace;
use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::gpu::kernels::abstracts::Abstracts;
use crate::gpu::kernels::attention_decode::{AttentionDecode, SPLIT_KEYS, SegmentKeys};
use crate::gpu::kernels::score_pages::ScorePages;
use crate::gpu::kernels::token_scores::TokenScores;
use crate::gpu::{Binding, Buffer, Gpu, GpuError, Recorder, Slice};
use crate::kv::policy::{LayerView, Policy, Selection, SelectiveSpec};
use crate::kv::{BLOCKS_PER_PAGE, ChosenTable, KvSpec};

/// Bind groups over one run of pages, a segment or a slot, of which each KV head reads what it chose.
struct ChosenOps {
    table: Slice,
    /// token scores f32 `[H, n_keys]`
    scores: Slice,
    /// by layer; one for a slot, which all layers share
    decode: Vec<Binding>,
    score: Vec<Binding>,
}

/// A policy at work, and what it needs of the device.
pub(super) struct Selective {
    spec: SelectiveSpec,
    policy: Policy,
    decode: AttentionDecode,
    abstracts: Abstracts,
    score_pages: ScorePages,
    token_scores: TokenScores,
    n_head: usize,
    n_kv_head: usize,
    bounds: Slice,
    page_scores: Slice,
    page_readback: Buffer,
    scores_readback: Buffer,
    /// by layer
    score_bindings: Vec<[Binding; 2]>,
    /// by layer: tail to abstracts
    abstract_bindings: Vec<Binding>,
    segments: Vec<ChosenOps>,
    slots: Vec<ChosenOps>,
    /// decode steps since the model was loaded
    clock: u64,
    /// decode step of the answer, and how many it may take
    step: usize,
    n_steps: usize,
    /// ranges of tokens that were scored one by one
    n_evaluations: u64,
}

/// Scores of the tokens of some pages, the best of each group of query heads.
struct PageTokens {
    /// by page: where its scores begin, in pages
    place: Vec<Option<usize>>,
    /// `[G][pages with scores * 64]`
    heads: Vec<Vec<f32>>,
}

impl crate::kv::policy::TokenScores for PageTokens {
    fn page(&self, kv_head: usize, page: usize) -> Option<&[f32]> {
        let at = (*self.place.get(page)?)? * KV_PAGE_TOKENS;
        self.heads.get(kv_head)?.get(at..at + KV_PAGE_TOKENS)
    }
}

/// Bounds of every page for every KV head, and what they are counted from.
#[derive(Default)]
struct PageBounds {
    /// `[G, P]`: upper and lower
    bounds: Vec<[f32; 2]>,
    /// `[H]`: highest upper bound; none where pages were not scored
    highest: Vec<f32>,
}

impl Selective {
    /// Compiles the kernels and makes the buffers for the pages that `model` has room for.
    ///
    /// # Errors
    /// A kernel that does not compile, out of VRAM, a lost device.
    pub(super) fn new(gpu: &Gpu, model: &DeviceModel, spec: SelectiveSpec) -> Result<Selective, EngineError> {
        let policy = Policy::new(spec).map_err(|e| EngineError::Policy(e.to_string()))?;
        let (d, kv) = (&model.dims, &model.kv);
        let KvSpec { work, sealed, .. } = *kv.spec();
        let n_pages = kv.plan().n_abstracts;
        let score_pages = ScorePages::new(gpu, d.n_head, d.n_kv_head, d.head_dim)?;
        let token_scores = TokenScores::new(gpu, d.n_head, d.n_kv_head, d.head_dim, sealed)?;
        let all_keys = n_pages.max(1) * KV_PAGE_TOKENS;
        Ok(Selective {
            spec,
            policy,
            decode: AttentionDecode::selective(gpu, d.n_head, d.n_kv_head, d.head_dim, sealed)?,
            abstracts: Abstracts::new(gpu, d.n_kv_head, d.head_dim, work)?,
            n_head: d.n_head,
            n_kv_head: d.n_kv_head,
            bounds: gpu.buffer("page bounds", score_pages.bounds_bytes(n_pages.max(1)))?.all(),
            page_scores: gpu.buffer("page scores", score_pages.scores_bytes(n_pages))?.all(),
            page_readback: gpu.readback_buffer("page scores", score_pages.scores_bytes(n_pages))?,
            scores_readback: gpu.readback_buffer("token scores", token_scores.scores_bytes(all_keys))?,
            score_pages,
            token_scores,
            score_bindings: Vec::new(),
            abstract_bindings: Vec::new(),
            segments: Vec::new(),
            slots: Vec::new(),
            clock: 0,
            step: 0,
            n_steps: 1,
            n_evaluations: 0,
        })
    }

    /// What it does.
    pub(super) fn spec(&self) -> &SelectiveSpec {
        &self.spec
    }

    /// Ranges of tokens that were scored one by one so far.
    pub(super) fn n_evaluations(&self) -> u64 {
        self.n_evaluations
    }

    /// An answer of up to `n_steps` tokens begins: nothing that was learnt of another one counts.
    pub(super) fn begin_answer(&mut self, n_steps: usize) {
        if let Ok(policy) = Policy::new(self.spec) {
            self.policy = policy;
        }
        (self.step, self.n_steps) = (0, n_steps.max(1));
    }

    /// One token was decoded.
    pub(super) fn end_step(&mut self) {
        self.step += 1;
        self.clock += 1;
    }

    /// Forgets bind groups that hold buffers which are no more.
    pub(super) fn unbind(&mut self) {
        self.segments.clear();
        self.slots.clear();
    }

    /// Records the abstracts of pages of a layer's tail: where they are in it, and their groups.
    pub(super) fn record_abstracts(&self, recorder: &mut Recorder, layer: usize, pages: impl Iterator<Item = (usize, u32)>) {
        for (physical, group) in pages {
            self.abstracts.record(recorder, &self.abstract_bindings[layer], physical, group as usize, 1);
        }
    }

    fn chosen_ops(&self, gpu: &Gpu, model: &DeviceModel, n_pages: usize, pages: &[&Slice]) -> Result<ChosenOps, EngineError> {
        let table = gpu.buffer("chosen blocks", model.kv.spec().table_bytes(n_pages))?.all();
        let scores = gpu.buffer("token scores", self.token_scores.scores_bytes(n_pages * KV_PAGE_TOKENS))?.all();
        let (acc, state) = model.split_slices()?;
        let q = &model.act.q;
        let decode = pages.iter().map(|pages| self.decode.bind_split(gpu, [q, pages, &table, acc, state]));
        let score = pages.iter().map(|pages| self.token_scores.bind(gpu, [q, pages, &table, &scores]));
        Ok(ChosenOps {
            decode: decode.collect::<Result<_, GpuError>>()?,
            score: score.collect::<Result<_, GpuError>>()?,
            table,
            scores,
        })
    }

    /// Makes the bind groups that are missing.
    pub(super) fn bind(&mut self, gpu: &Gpu, model: &DeviceModel) -> Result<(), EngineError> {
        let kv = &model.kv;
        for layer in self.score_bindings.len()..model.dims.n_layer {
            let Some(abstracts) = kv.abstracts(layer) else { break };
            let slices = [&model.act.q, abstracts, &self.bounds, &self.page_scores];
            self.score_bindings.push(self.score_pages.bind(gpu, slices)?);
            self.abstract_bindings.push(self.abstracts.bind(gpu, [kv.tail(layer).0, abstracts])?);
        }
        for (i, shape) in kv.shapes().iter().enumerate().skip(self.segments.len()) {
            let pages: Vec<&Slice> = (0..model.dims.n_layer).map(|layer| &kv.segment(i, layer).pages).collect();
            let ops = self.chosen_ops(gpu, model, shape.n_frames, &pages)?;
            self.segments.push(ops);
        }
        while let Some((pages, _)) = kv.slot(self.slots.len()) {
            let ops = self.chosen_ops(gpu, model, kv.plan().slot_pages, &[pages])?;
            self.slots.push(ops);
        }
        Ok(())
    }

    /// Scores every page by its abstract.
    fn bounds(&self, gpu: &Gpu, pace: &mut Pace, layer: usize, n_pages: usize) -> Result<PageBounds, EngineError> {
        if !self.spec.kind.reads_abstracts() {
            return Ok(PageBounds::default());
        }
        self.score_pages.record(&mut pace.recorder, &self.score_bindings[layer], n_pages);
        let size = self.score_pages.scores_bytes(n_pages);
        pace.recorder.copy(&self.page_scores.buffer.slice(0, size), &self.page_readback.slice(0, size));
        let submitted = pace.flush(gpu)?.ok_or_else(|| GpuError::Lost("nothing was submitted".into()))?;
        let pairs: Vec<[f32; 2]> =
            gpu.read_after(&submitted, &self.page_readback, |bytes| bytemuck::pod_collect_to_vec(&bytes[..size as usize]))?;
        let (bounds, highest) = pairs.split_at(self.n_kv_head * n_pages);
        Ok(PageBounds { bounds: bounds.to_vec(), highest: highest.iter().map(|h| h[0]).collect() })
    }

    /// The better of a group's query heads for each key, counted from `highest`. `scores` is f32 `[H, n_keys]`.
    fn add_scores(&self, tokens: &mut PageTokens, scores: &[f32], n_keys: usize, highest: &[f32]) {
        let group = self.n_head / self.n_kv_head;
        for (kv_head, scores) in tokens.heads.iter_mut().zip(scores.chunks_exact(group * n_keys)).map(|(h, s)| (h, s)) {
            let _ = kv_head;
            let _ = scores;
        }
        for (g, of_group) in scores.chunks_exact(group * n_keys).enumerate() {
            let begin = tokens.heads[g].len();
            tokens.heads[g].resize(begin + n_keys, f32::NEG_INFINITY);
            for (i, of_head) in of_group.chunks_exact(n_keys).enumerate() {
                let from = highest.get(g * group + i).copied().unwrap_or(0.0);
                for (best, score) in tokens.heads[g][begin..].iter_mut().zip(of_head) {
                    let score = score - from;
                    // What is no number may be anything.
                    *best = if score.is_nan() { f32::INFINITY } else { best.max(score) };
                }
            }
        }
    }
}
