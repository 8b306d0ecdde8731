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

mod spent;

use std::time::Instant;

use super::command::ChosenSummary;
use super::device_model::DeviceModel;
use super::error::EngineError;
use super::pace::Pace;
pub(super) use spent::Spent;

use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::gpu::kernels::abstracts::Abstracts;
use crate::gpu::kernels::attention_decode::{AttentionDecode, SPLIT_KEYS, SegmentKeys};
use crate::gpu::kernels::score_pages::ScorePages;
use crate::gpu::kernels::token_scores::TokenScores;
use crate::gpu::{Binding, Buffer, Gpu, GpuError, Recorder, Slice};
use crate::kv::policy::frequency::FrequencyTable;
use crate::kv::policy::{LayerView, Policy, Selection, SelectiveSpec};
use crate::kv::{BLOCKS_PER_PAGE, ChosenTable, KvSpec};

/// Steps after which having been chosen is worth half.
pub(super) const HALF_LIFE_STEPS: usize = 32;
/// Steps between two looks at what should stay in RAM.
pub(super) const PREFER_EVERY: u64 = 8;

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
    /// what was chosen lately, to be kept off the disk
    frequency: FrequencyTable,
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
    spent: Spent,
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
            frequency: FrequencyTable::new(d.n_layer, HALF_LIFE_STEPS),
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
            spent: Spent::default(),
        })
    }

    /// The context is another from token `n_tokens` on.
    pub(super) fn truncate(&mut self, n_tokens: usize) {
        self.frequency.truncate(n_tokens / KV_PAGE_TOKENS);
    }

    /// An answer of up to `n_steps` tokens begins: nothing that was learnt of another one counts.
    pub(super) fn begin_answer(&mut self, n_steps: usize) {
        if let Ok(policy) = Policy::new(self.spec) {
            self.policy = policy;
        }
        (self.step, self.n_steps) = (0, n_steps.max(1));
        self.spent = Spent::default();
    }

    /// What the choices of this answer came to; none before the first.
    pub(super) fn summary(&self) -> Option<ChosenSummary> {
        self.spent.summary(self.spec, self.step as u64)
    }

    /// From here to the end of the answer, what is chosen is compared with the attention there is, which reads everything.
    pub(super) fn measure_mass(&mut self) {
        self.spent.mass = Some(Vec::new());
    }

    /// One token was decoded.
    pub(super) fn end_step(&mut self) {
        self.step += 1;
        self.clock += 1;
    }

    /// Which policy, and its numbers.
    pub(super) fn spec(&self) -> SelectiveSpec {
        self.spec
    }

    /// Counts a step in which others choose by the same spec; its number.
    pub(super) fn count_step(&mut self) -> u64 {
        self.clock += 1;
        self.clock
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

    /// Sorts the scores of all runs, f32 `[H, n_keys]` each, into what a policy is given. Where pages were not scored, each
    /// query head is counted from its best key.
    fn take_scores(&self, tokens: &mut PageTokens, scoring: &Scoring, scores: &[f32], highest: &[f32]) {
        let mut runs = Vec::new();
        let mut rest = scores;
        for n_keys in &scoring.runs {
            let (run, after) = rest.split_at(self.n_head * n_keys);
            runs.push((run, *n_keys));
            rest = after;
        }
        let mut highest = highest.to_vec();
        if highest.is_empty() {
            highest = vec![f32::NEG_INFINITY; self.n_head];
            for (run, n_keys) in &runs {
                for (highest, of_head) in highest.iter_mut().zip(run.chunks_exact(*n_keys)) {
                    *highest = of_head.iter().copied().filter(|x| x.is_finite()).fold(*highest, f32::max);
                }
            }
        }
        for (run, n_keys) in runs {
            self.add_scores(tokens, run, n_keys, &highest);
        }
        for (i, page) in scoring.pages.iter().enumerate() {
            if let Some(place) = tokens.place.get_mut(*page as usize) {
                *place = Some(i);
            }
        }
    }
}

/// Pages whose tokens are being scored: run by run into the readback buffer.
struct Scoring {
    /// pages in the order of their scores
    pages: Vec<u32>,
    /// keys of each run
    runs: Vec<usize>,
    n_bytes: u64,
}

impl Scoring {
    /// The scores of each query head in the order of pages, which are all of them.
    fn in_order(&self, scores: &[f32], n_head: usize) -> Vec<Vec<f32>> {
        let mut heads = vec![vec![0.0; self.pages.len() * KV_PAGE_TOKENS]; n_head];
        let (mut rest, mut pages) = (scores, self.pages.as_slice());
        for n_keys in &self.runs {
            let (run, after) = rest.split_at(n_head * n_keys);
            let (here, later) = pages.split_at(n_keys / KV_PAGE_TOKENS);
            for (head, of_head) in heads.iter_mut().zip(run.chunks_exact(*n_keys)) {
                for (page, scores) in here.iter().zip(of_head.chunks_exact(KV_PAGE_TOKENS)) {
                    let at = *page as usize * KV_PAGE_TOKENS;
                    if let Some(place) = head.get_mut(at..at + KV_PAGE_TOKENS) {
                        place.copy_from_slice(scores);
                    }
                }
            }
            (rest, pages) = (after, later);
        }
        heads
    }

    fn add(&mut self, recorder: &mut Recorder, s: &Selective, ops: &ChosenOps, binding: &Binding, pages: &[u32]) {
        let n_keys = pages.len() * KV_PAGE_TOKENS;
        s.token_scores.record(recorder, binding, n_keys, pages.len() * BLOCKS_PER_PAGE);
        let size = s.token_scores.scores_bytes(n_keys);
        recorder.copy(&ops.scores.buffer.slice(ops.scores.offset, size), &s.scores_readback.slice(self.n_bytes, size));
        self.pages.extend_from_slice(pages);
        self.runs.push(n_keys);
        self.n_bytes += size;
    }
}

impl DeviceModel {
    /// Lets a policy choose what decode steps read, wherever they are not asked to read everything.
    ///
    /// # Errors
    /// Numbers that cannot be, a kernel that does not compile, out of VRAM, a lost device.
    pub(super) fn set_policy(&mut self, gpu: &Gpu, spec: Option<SelectiveSpec>) -> Result<(), EngineError> {
        self.selective = spec.map(|spec| Selective::new(gpu, self, spec)).transpose()?;
        Ok(())
    }

    /// Attention of one new token over what the policy chooses of the complete pages before it, and over all new tokens.
    pub(super) fn attend_chosen(
        &mut self,
        s: &mut Selective,
        gpu: &Gpu,
        pace: &mut Pace,
        layer: usize,
        first_pos: usize,
    ) -> Result<(), EngineError> {
        let n_pages = first_pos / KV_PAGE_TOKENS;
        let began = Instant::now();
        let selection = self.choose(s, gpu, pace, layer, n_pages)?;
        s.spent.evaluation += began.elapsed();
        if s.spent.mass.is_some() {
            let all: Vec<u32> = (0..n_pages as u32).collect();
            if let Some((scoring, scores)) = self.score_tokens(s, gpu, pace, layer, &all)? {
                s.spent.note_mass(layer, &selection, &scoring.in_order(&scores, s.n_head));
            }
        }
        let n_missing = self.kv.begin_chosen(layer, &selection.pages, n_pages, s.clock + 1);
        s.spent.note(&selection, n_pages, n_missing);
        s.frequency.note(layer, s.clock, &selection.pages);
        if layer == 0 && s.clock.is_multiple_of(PREFER_EVERY) && self.kv.has_lower() {
            let pages = s.frequency.keep_off_disk(s.clock, n_pages, s.spec.n_first_layers, self.kv.n_ram_pages());
            self.kv.prefer(pages.into_iter());
        }
        let n_batches = self.kv.n_batches();
        let in_segments: Vec<ChosenTable> =
            (0..s.segments.len()).map(|i| self.kv.chosen_in_segment(layer, i, &selection.blocks)).collect();
        let in_batches: Vec<ChosenTable> = (0..n_batches).map(|i| self.kv.chosen_in_batch(i, &selection.blocks)).collect();
        let tail_keys = first_pos % KV_PAGE_TOKENS + 1;
        let splits = |n_blocks: usize| (n_blocks * KV_BLOCK_TOKENS).div_ceil(SPLIT_KEYS);
        let chosen = in_segments.iter().chain(&in_batches).map(|t| splits(t.n_blocks));
        let n_splits = chosen.sum::<usize>() + tail_keys.div_ceil(SPLIT_KEYS);
        let mut first_split = 0;
        let mut keys = |table: &ChosenTable| {
            let n_keys = table.n_blocks * KV_BLOCK_TOKENS;
            let keys = SegmentKeys { n_keys, n_blocks: table.n_blocks, first_split, n_splits };
            first_split += splits(table.n_blocks);
            keys
        };
        for (ops, table) in s.segments.iter().zip(&in_segments).filter(|(_, table)| table.n_blocks > 0) {
            gpu.write(&ops.table, bytemuck::cast_slice(&table.slots));
            s.decode.record_split(&mut pace.recorder, &ops.decode[layer], keys(table));
        }
        let mut recorded = Vec::new();
        for (batch_idx, table) in in_batches.iter().enumerate() {
            if !self.kv.is_next_filled(gpu)? {
                self.submit_slots(gpu, pace, &mut recorded)?;
            }
            let filled = self.kv.next_filled(gpu)?;
            debug_assert!(batch_idx < n_batches);
            self.kv.record_slot(&mut pace.recorder, &filled);
            let ops = &s.slots[filled.slot];
            gpu.write(&ops.table, bytemuck::cast_slice(&table.slots));
            s.decode.record_split(&mut pace.recorder, &ops.decode[0], keys(table));
            recorded.push(filled);
        }
        let n_blocks = self.kv.tail_blocks();
        let tail = SegmentKeys { n_keys: tail_keys, n_blocks, first_split: n_splits - tail_keys.div_ceil(SPLIT_KEYS), n_splits };
        self.tail_attention.decode.record_split(&mut pace.recorder, &self.tails[layer].run.decode, tail);
        self.submit_slots(gpu, pace, &mut recorded)?;
        if let Some(splits) = &self.splits {
            self.page_attention.decode.record_merge(&mut pace.recorder, &splits.merge, n_splits);
        }
        Ok(())
    }

    /// What a layer reads in this step.
    fn choose(
        &mut self,
        s: &mut Selective,
        gpu: &Gpu,
        pace: &mut Pace,
        layer: usize,
        n_pages: usize,
    ) -> Result<Selection, EngineError> {
        let tiers = self.kv.tiers(layer, n_pages);
        let PageBounds { bounds, highest } = s.bounds(gpu, pace, layer, n_pages)?;
        let (step, n_steps, n_kv_head) = (s.step, s.n_steps, s.n_kv_head);
        let view = LayerView { layer, step, n_steps, n_kv_head, tiers: &tiers, bounds: &bounds, scores: None };
        let candidates = s.policy.candidates(&view);
        let mut tokens = PageTokens { place: vec![None; n_pages], heads: vec![Vec::new(); s.n_kv_head] };
        if let Some((scoring, scores)) = self.score_tokens(s, gpu, pace, layer, &candidates)? {
            s.take_scores(&mut tokens, &scoring, &scores, &highest);
        }
        Ok(s.policy.select(&LayerView { scores: Some(&tokens), ..view }))
    }

    /// Scores the tokens of `pages` one by one, wherever they are: f32 `[H, n_keys]` of each run.
    fn score_tokens(
        &mut self,
        s: &Selective,
        gpu: &Gpu,
        pace: &mut Pace,
        layer: usize,
        pages: &[u32],
    ) -> Result<Option<(Scoring, Vec<f32>)>, EngineError> {
        if pages.is_empty() {
            return Ok(None);
        }
        let whole = |pages: &[u32]| -> Vec<Vec<u32>> {
            let blocks = pages.iter().flat_map(|p| (0..BLOCKS_PER_PAGE as u32).map(move |b| p * BLOCKS_PER_PAGE as u32 + b));
            vec![blocks.collect(); s.n_kv_head]
        };
        let mut scoring = Scoring { pages: Vec::new(), runs: Vec::new(), n_bytes: 0 };
        for (i, ops) in s.segments.iter().enumerate() {
            let here: Vec<u32> = pages.iter().copied().filter(|p| self.kv.is_in_segment(layer, i, *p)).collect();
            if !here.is_empty() {
                let table = self.kv.chosen_in_segment(layer, i, &whole(&here));
                gpu.write(&ops.table, bytemuck::cast_slice(&table.slots));
                scoring.add(&mut pace.recorder, s, ops, &ops.score[layer], &here);
            }
        }
        let batches = self.kv.begin_streamed(layer, pages);
        let mut recorded = Vec::new();
        for (batch_idx, groups) in batches.iter().enumerate() {
            if !self.kv.is_next_filled(gpu)? {
                self.submit_slots(gpu, pace, &mut recorded)?;
            }
            let table = self.kv.chosen_in_batch(batch_idx, &whole(groups));
            let filled = self.kv.next_filled(gpu)?;
            self.kv.record_slot(&mut pace.recorder, &filled);
            let ops = &s.slots[filled.slot];
            gpu.write(&ops.table, bytemuck::cast_slice(&table.slots));
            scoring.add(&mut pace.recorder, s, ops, &ops.score[0], groups);
            recorded.push(filled);
        }
        let submitted = pace.flush(gpu)?;
        for filled in recorded.drain(..) {
            self.kv.slot_submitted(&filled);
        }
        let submitted = submitted.ok_or_else(|| GpuError::Lost("nothing was submitted".into()))?;
        let n_bytes = scoring.n_bytes as usize;
        let scores: Vec<f32> =
            gpu.read_after(&submitted, &s.scores_readback, |bytes| bytemuck::pod_collect_to_vec(&bytes[..n_bytes]))?;
        Ok(Some((scoring, scores)))
    }
}
