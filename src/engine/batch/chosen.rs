//! Selective attention of several rows: each chooses for itself, and what any of them chose comes once.
//!
//! ```text
//! q [R, H, D] ─► score_pages of all rows ─ readback ─► a policy each: candidates ─► token_scores ─ readback ─► selections
//!                                                        └─► those in RAM ─► scored where they lie ──────────────┤
//!                                                         union of their pages: frames, stream ◄──────────────────┘
//! merge ◄─ each row's tail ◄─ blocks of each row in slots ◄─ in frames
//! ```
//! 1. To the kernels, KV heads of another row are more KV heads: rows have lists of blocks of their own in one table. 2. Pages
//!    are candidates, a row's own tail is always read.
//!
//! Owner: the engine thread. Shapes: R rows, H query heads and G KV heads of each, P complete pages.
//!
//! Source: LeoAM, sections 4.2 and 4.3, as [`crate::engine::selective`](super::super::selective).

use std::time::Instant;

use crate::base::ModelDims;
use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::engine::device_model::DeviceModel;
use crate::engine::error::EngineError;
use crate::engine::pace::Pace;
use crate::engine::selective::bring::ChosenOps;
use crate::engine::selective::scores::{PageBounds, PageTokens, Scoring, Totals};
use crate::engine::selective::{HALF_LIFE_STEPS, Spent};
use crate::engine::summary::ChosenSummary;
use crate::gpu::kernels::attention_decode::AttentionDecode;
use crate::gpu::kernels::score_pages::ScorePages;
use crate::gpu::kernels::token_scores::TokenScores;
use crate::gpu::{Binding, Buffer, Gpu, Recorder, Slice};
use crate::kv::policy::frequency::FrequencyTable;
use crate::kv::policy::{ChosenBlock, LayerView, Policy, Selection, SelectiveSpec, unique};
use crate::kv::{ChosenStream, ChosenTable};

/// What one row has learnt, and what its choices came to.
pub(super) struct RowPolicy {
    spec: SelectiveSpec,
    policy: Policy,
    /// by layer: by how much the highest bound of each query head exceeded its attention in the last step, `[H]`
    above: Vec<Vec<f32>>,
    step: usize,
    n_steps: usize,
    spent: Spent,
}

/// What choosing for several rows needs of the device.
pub(super) struct Chooser {
    pub decode: AttentionDecode,
    score_pages: ScorePages,
    token_scores: TokenScores,
    page_scores: Slice,
    /// bounds of all rows, then q
    page_readback: Buffer,
    scores_readback: Buffer,
    /// by layer
    score_bindings: Vec<[Binding; 2]>,
    pub segments: Vec<ChosenOps>,
    /// none where nothing lies below VRAM
    pub area: Option<ChosenOps>,
    frequency: FrequencyTable,
    n_first_layers: usize,
}

/// What is known of every page for a row, and what was asked.
#[derive(Clone, Default)]
struct Bounded {
    pages: PageBounds,
    /// f32 `[H, D]`
    q: Vec<f32>,
}

/// Scores that are on their way: what each row asked for, run by run.
#[derive(Default)]
struct Asked {
    /// pages of each row, and keys of the longest list
    runs: Vec<(Vec<Vec<u32>>, usize)>,
    n_bytes: u64,
}

impl RowPolicy {
    /// Of an answer of up to `n_steps` tokens by a model of these dimensions.
    pub fn new(spec: SelectiveSpec, n_steps: usize, dims: &ModelDims) -> Result<RowPolicy, EngineError> {
        let policy = Policy::new(spec).map_err(|e| EngineError::Policy(e.to_string()))?;
        let above = vec![vec![0.0; dims.n_head]; dims.n_layer];
        Ok(RowPolicy { spec, policy, above, step: 0, n_steps: n_steps.max(1), spent: Spent::default() })
    }

    /// One token was decoded.
    pub fn end_step(&mut self) {
        self.step += 1;
    }

    /// What the choices came to; none before the first.
    pub fn summary(&self) -> Option<ChosenSummary> {
        self.spent.summary(self.spec, self.step as u64)
    }
}

impl Chooser {
    /// Buffers and bind groups for `n_rows` over the pages that `model` holds.
    pub fn new(gpu: &Gpu, model: &DeviceModel, spec: SelectiveSpec, n_rows: usize) -> Result<Chooser, EngineError> {
        let (d, kv) = (&model.dims, &model.kv);
        let (sealed, n_pages) = (kv.spec().sealed, (kv.n_sealed() as usize).max(1));
        let score_pages = ScorePages::new(gpu, d.n_head, d.n_kv_head, d.head_dim)?;
        let bounds = gpu.buffer("page bounds", n_rows as u64 * score_pages.bounds_bytes(n_pages))?.all();
        let score_bytes = n_rows as u64 * score_pages.scores_bytes(n_pages);
        let page_scores = gpu.buffer("page scores", score_bytes)?.all();
        let abstracts = (0..d.n_layer).filter_map(|layer| kv.abstracts(layer));
        let bind = |abstracts| score_pages.bind(gpu, [&model.act.q, abstracts, &bounds, &page_scores]);
        let score_bindings = abstracts.map(bind).collect::<Result<_, _>>()?;
        let token_scores = TokenScores::new(gpu, d.n_head, d.n_kv_head, d.head_dim, sealed)?;
        let all_keys = n_pages * KV_PAGE_TOKENS;
        let decode = AttentionDecode::selective(gpu, d.n_head, d.n_kv_head, d.head_dim, sealed)?;
        let kernels = (&decode, &token_scores);
        let segments = (0..kv.shapes().len()).map(|i| ChosenOps::of_segment(gpu, model, kernels, n_rows, i));
        Ok(Chooser {
            segments: segments.collect::<Result<_, _>>()?,
            area: ChosenOps::of_area(gpu, model, kernels, n_rows)?,
            decode,
            page_readback: gpu.readback_buffer("page scores", score_bytes + (n_rows * d.q_dim() * size_of::<f32>()) as u64)?,
            scores_readback: gpu.readback_buffer("token scores", n_rows as u64 * token_scores.scores_bytes(all_keys))?,
            score_pages,
            token_scores,
            page_scores,
            score_bindings,
            frequency: FrequencyTable::new(d.n_layer, HALF_LIFE_STEPS),
            n_first_layers: spec.n_first_layers,
        })
    }

    /// Records the scores of what each row asked for in one run of pages.
    fn ask(
        &self,
        gpu: &Gpu,
        recorder: &mut Recorder,
        (ops, binding): (&ChosenOps, &Binding),
        table: &ChosenTable,
        pages: Vec<Vec<u32>>,
        asked: &mut Asked,
    ) {
        let (n_rows, n_keys) = (pages.len(), table.n_blocks * KV_BLOCK_TOKENS);
        gpu.write(&ops.score.table, bytemuck::cast_slice(&table.entries));
        self.token_scores.record_rows(recorder, binding, n_keys, table.n_blocks, n_rows);
        let size = n_rows as u64 * self.token_scores.scores_bytes(n_keys);
        recorder.copy(&ops.score.scores.buffer.slice(0, size), &self.scores_readback.slice(asked.n_bytes, size));
        asked.runs.push((pages, n_keys));
        asked.n_bytes += size;
    }
}

impl DeviceModel {
    /// What a layer reads in this step for each row.
    pub(super) fn choose_rows(
        &mut self,
        chooser: &mut Chooser,
        gpu: &Gpu,
        pace: &mut Pace,
        layer: usize,
        policies: &mut [&mut RowPolicy],
    ) -> Result<Vec<Selection>, EngineError> {
        let began = Instant::now();
        let (n_pages, n_kv_head, n_head) = (self.kv.n_sealed() as usize, self.dims.n_kv_head, self.dims.n_head);
        let tiers = self.kv.tiers(layer, n_pages);
        let bounded = self.page_bounds(chooser, gpu, pace, layer, policies)?;
        let view = |p: &RowPolicy| LayerView {
            layer,
            step: p.step,
            n_steps: p.n_steps,
            n_kv_head,
            tiers: &tiers,
            bounds: &[],
            scores: None,
        };
        let candidates = |(p, bounded): (&&mut RowPolicy, &Bounded)| {
            let bounds = bounded.pages.of_weights(&p.above[layer], n_kv_head);
            let pages = p.policy.candidates(&LayerView { bounds: &bounds, ..view(p) });
            if !p.spec.kind.reads_abstracts() {
                return pages;
            }
            // What lies below is not fetched for its scores alone.
            let pages = p.spec.to_score(pages, n_pages).into_iter().filter(|page| self.kv.is_resident(layer, *page));
            pages.collect()
        };
        let candidates = policies.iter().zip(&bounded).map(candidates).collect();
        let scores = self.score_rows(chooser, gpu, pace, layer, candidates)?;
        let mut selections = Vec::with_capacity(policies.len());
        for ((p, bounded), (mut scoring, mut values)) in policies.iter_mut().zip(&bounded).zip(scores) {
            let mut totals = Totals::none(n_head);
            totals.add_runs(&scoring, &values);
            let below = || {
                let bounds = bounded.pages.of_weights(&bounded.pages.above(&totals), n_kv_head);
                p.policy.candidates_below(&LayerView { bounds: &bounds, ..view(p) })
            };
            let (pages, in_ram) = self.kv.scores_in_ram(layer, below, &bounded.q);
            totals.add(&in_ram);
            scoring.add_run(&pages, &mut values, in_ram);
            let mut tokens = PageTokens::none(n_kv_head, n_pages);
            tokens.add(&scoring, &values, &totals);
            p.above[layer] = bounded.pages.above(&totals);
            let bounds = bounded.pages.of_weights(&p.above[layer], n_kv_head);
            let selection = p.policy.select(&LayerView { bounds: &bounds, scores: Some(&tokens), ..view(p) });
            let n_resident = selection.pages.iter().filter(|page| self.kv.is_resident(layer, **page)).count();
            p.spent.note(&selection, n_pages, selection.pages.len() - n_resident, &[]);
            selections.push(selection);
        }
        policies.iter_mut().for_each(|p| p.spent.evaluation += began.elapsed());
        Ok(selections)
    }

    /// Starts what any row chose, and says what should stay in RAM.
    pub(super) fn begin_rows(
        &mut self,
        chooser: &mut Chooser,
        layer: usize,
        selections: &[Selection],
        clock: u64,
    ) -> ChosenStream {
        let n_pages = self.kv.n_sealed() as usize;
        let pages = unique(selections.iter().flat_map(|selection| &selection.pages).copied().collect());
        let stream = self.kv.begin_chosen(layer, &pages, n_pages, clock, None, |_| 0.0);
        chooser.frequency.note(layer, clock, &pages);
        self.keep_hot(&chooser.frequency, layer, n_pages, clock, chooser.n_first_layers);
        stream
    }

    /// Bounds of every page for every row; nothing where a row's policy reads no abstracts.
    fn page_bounds(
        &self,
        chooser: &Chooser,
        gpu: &Gpu,
        pace: &mut Pace,
        layer: usize,
        policies: &[&mut RowPolicy],
    ) -> Result<Vec<Bounded>, EngineError> {
        let (n_rows, n_pages) = (policies.len(), self.kv.n_sealed() as usize);
        if !policies.iter().all(|p| p.spec.kind.reads_abstracts()) {
            return Ok(vec![Bounded::default(); n_rows]);
        }
        chooser.score_pages.record_rows(&mut pace.recorder, &chooser.score_bindings[layer], n_pages, n_rows);
        let size = n_rows as u64 * chooser.score_pages.scores_bytes(n_pages);
        pace.recorder.copy(&chooser.page_scores.buffer.slice(0, size), &chooser.page_readback.slice(0, size));
        let (q, q_bytes) = (&self.act.q, (n_rows * self.dims.q_dim() * size_of::<f32>()) as u64);
        pace.recorder.copy(&q.buffer.slice(q.offset, q_bytes), &chooser.page_readback.slice(size, q_bytes));
        let submitted = pace.submit(gpu)?;
        let (n_head, n_of_row, q_dim) = (self.dims.n_head, self.dims.n_kv_head * n_pages, self.dims.q_dim());
        Ok(pace.read_after(gpu, &submitted, &chooser.page_readback, |bytes| {
            let (numbers, q) = bytes[..(size + q_bytes) as usize].split_at(size as usize);
            let numbers: Vec<[f32; 2]> = bytemuck::pod_collect_to_vec(numbers);
            let (bounds, highest) = numbers.split_at(n_rows * n_of_row);
            let q: Vec<f32> = bytemuck::pod_collect_to_vec(q);
            let row = |row: usize| Bounded {
                pages: PageBounds::new(&bounds[row * n_of_row..][..n_of_row], &highest[row * n_head..][..n_head]),
                q: q[row * q_dim..][..q_dim].to_vec(),
            };
            (0..n_rows).map(row).collect()
        })?)
    }

    /// Scores the tokens of the pages that each row asked for, wherever they are: f32 `[H, n_keys]` of each of its runs.
    fn score_rows(
        &mut self,
        chooser: &Chooser,
        gpu: &Gpu,
        pace: &mut Pace,
        layer: usize,
        candidates: Vec<Vec<u32>>,
    ) -> Result<Vec<(Scoring, Vec<f32>)>, EngineError> {
        let (n_head, n_kv_head) = (self.dims.n_head, self.dims.n_kv_head);
        let mut scores: Vec<(Scoring, Vec<f32>)> = candidates.iter().map(|_| (Scoring::default(), Vec::new())).collect();
        let all = unique(candidates.iter().flatten().copied().collect());
        if all.is_empty() {
            return Ok(scores);
        }
        let mut asked = Asked::default();
        let whole =
            |pages: &[Vec<u32>]| pages.iter().flat_map(|pages| vec![ChosenBlock::of_pages(pages); n_kv_head]).collect::<Vec<_>>();
        for (i, ops) in chooser.segments.iter().enumerate() {
            let here = kept(&candidates, |page| self.kv.is_in_segment(layer, i, page));
            if here.iter().any(|pages| !pages.is_empty()) {
                let table = self.kv.chosen_in_segment(layer, i, &whole(&here));
                chooser.ask(gpu, &mut pace.recorder, (ops, &ops.score.bindings[layer]), &table, here, &mut asked);
            }
        }
        let n_batches = self.kv.begin_streamed(layer, &all);
        let mut recorded = Vec::new();
        for fill in self.fills(0..n_batches) {
            let groups = self.fill_area(gpu, pace, fill.clone(), &mut recorded)?;
            let here = kept(&candidates, |page| groups.binary_search(&page).is_ok());
            let table = self.kv.chosen_in_batches(fill, &whole(&here));
            if let Some(ops) = &chooser.area {
                chooser.ask(gpu, &mut pace.recorder, (ops, &ops.score.bindings[0]), &table, here, &mut asked);
            }
            self.submit_slots(gpu, pace, &mut recorded)?;
        }
        let submitted = pace.submit(gpu)?;
        let n_bytes = asked.n_bytes as usize;
        let values: Vec<f32> =
            pace.read_after(gpu, &submitted, &chooser.scores_readback, |bytes| bytemuck::pod_collect_to_vec(&bytes[..n_bytes]))?;
        let mut rest = values.as_slice();
        for (pages, n_keys) in &asked.runs {
            for ((scoring, own), pages) in scores.iter_mut().zip(pages) {
                let (of_row, later) = rest.split_at(n_head * n_keys);
                let n_own = pages.len() * KV_PAGE_TOKENS;
                if n_own > 0 {
                    own.extend(of_row.chunks_exact(*n_keys).flat_map(|of_head| &of_head[..n_own]));
                    scoring.pages.extend_from_slice(pages);
                    scoring.runs.push(n_own);
                }
                rest = later;
            }
        }
        Ok(scores)
    }
}

fn kept(rows: &[Vec<u32>], keeps: impl Fn(u32) -> bool) -> Vec<Vec<u32>> {
    rows.iter().map(|pages| pages.iter().copied().filter(|page| keeps(*page)).collect()).collect()
}
