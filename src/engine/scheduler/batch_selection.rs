//! Selective attention of several rows: each chooses for itself, and what any of them chose comes once.
//!
//! ```text
//! q [R, H, D] ─► score_pages, token_scores of what the last step's bounds put first ─ readback ─► a policy each ─► selections
//!                     └─ once more for what nobody expected; in RAM, tokens are scored where they lie ─┘              │
//! what the rows chose of the next layer last time: comes behind ◄─ union of their pages: frames, stream ◄─────────────┘
//! merge ◄─ each row's tail ◄─ blocks of each row in slots ◄─ in frames
//! ```
//! 1. To the kernels, KV heads of another row are more KV heads: rows have lists of blocks of their own in one table. 2. Pages
//!    are candidates, a row's own tail is always read. 3. The device is waited for once per layer, and once more where much is
//!    found that the last step did not expect.
//!
//! Owner: the engine thread. Shapes: R rows, H query heads and G KV heads of each, P complete pages.
//!
//! Source: LeoAM, sections 4.2 and 4.3, as [`crate::engine::selective`](crate::engine::selective).

use std::collections::HashSet;
use std::time::Instant;

use rayon::prelude::*;

use crate::base::ModelDims;
use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::engine::api::SelectionSummary;
use crate::engine::error::EngineError;
use crate::engine::runner::gpu_model::GpuModel;
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::engine::scheduler::batch_forward::Row;
use crate::engine::scheduler::sequence_tail::SequenceTail;
use crate::engine::selection::fetch::SelectedOps;
use crate::engine::selection::token_scorer::ScoreOps;
use crate::engine::selection::{HALF_LIFE_STEPS, PREFER_EVERY, SelectionStats};
use crate::gpu::kernels::attention_decode::AttentionDecode;
use crate::gpu::kernels::page_bounds::PageBoundsKernel;
use crate::gpu::kernels::qk_scores::QkScores;
use crate::gpu::{Binding, Buffer, Gpu, Recorder, Slice};
use crate::kv::policy::access_frequency::FrequencyTable;
use crate::kv::policy::retention::{OffloadedHits, RetainedPages, TRACKED_WEIGHT};
use crate::kv::policy::scores::{PageBounds, PageScores, ScoreRuns, ScoreTotals};
use crate::kv::policy::{LayerView, Policy, PolicySpec, Selection, Tier, unique};
use crate::kv::{BlockTable, RamKeys, SelectedStream, StagedBatch};

/// What one row has learnt, and what its choices came to.
pub(in crate::engine) struct RowPolicy {
    spec: PolicySpec,
    policy: Policy,
    /// by layer: pages whose tokens were worth scoring in the last step, wherever they are; none before the first
    candidates: Vec<Option<Vec<u32>>>,
    /// what its prompt and its answer look at
    seen: RetainedPages,
    step: usize,
    n_steps: usize,
    spent: SelectionStats,
}

/// What choosing for several rows needs of the device.
pub(in crate::engine) struct BatchSelector {
    pub decode: AttentionDecode,
    score_pages: PageBoundsKernel,
    token_scores: QkScores,
    /// of the rows' own tails
    pub own_scores: QkScores,
    page_bounds: Slice,
    /// bounds of all rows, q, scores of their tails, token scores
    readback: Buffer,
    /// by layer
    score_bindings: Vec<Binding>,
    pub segments: Vec<SelectedOps>,
    /// none where nothing lies below VRAM
    pub area: Option<SelectedOps>,
    frequency: FrequencyTable,
    /// by layer: pages that the rows chose in the last step
    last_pages: Vec<Vec<u32>>,
    n_first_layers: usize,
}

/// What is known of a layer for a row.
#[derive(Default)]
struct Known {
    bounds: PageBounds,
    /// f32 `[H, D]`
    q: Vec<f32>,
    /// scores f32 `[H, n_keys]` of the row's own tail
    own: Vec<f32>,
    /// pages whose tokens are scored, and their scores f32 `[H, n_keys]` of each run
    scoring: ScoreRuns,
    scores: Vec<f32>,
    /// pages that were looked at lately
    seen: OffloadedHits,
}

/// Scores that are on their way: what each row asked for, run by run.
struct Asked {
    /// pages of each row, and keys of the longest list
    runs: Vec<(Vec<Vec<u32>>, usize)>,
    /// where they begin and end in the readback
    begin: u64,
    end: u64,
}

/// What all rows see of a layer.
struct Layer<'a> {
    layer: usize,
    n_kv_head: usize,
    n_head: usize,
    tiers: &'a [Tier],
    in_ram: RamKeys<'a>,
}

impl Known {
    /// All attention that is known.
    fn totals(&self, n_head: usize) -> ScoreTotals {
        let mut totals = ScoreTotals::none(n_head);
        totals.add(&self.own);
        totals.add_runs(&self.scoring, &self.scores);
        totals
    }
}

impl<'a> Layer<'a> {
    fn view(&self, row: &RowPolicy, bounds: &'a [[f32; 2]]) -> LayerView<'a> {
        let Layer { layer, n_kv_head, tiers, .. } = *self;
        LayerView { layer, step: row.step, n_steps: row.n_steps, n_kv_head, tiers, bounds, scores: None }
    }
}

impl Asked {
    /// Nothing yet; the first run's scores go to `begin`.
    fn from(begin: u64) -> Asked {
        Asked { runs: Vec::new(), begin, end: begin }
    }

    /// Hands the scores f32 of all runs to the rows that asked for them.
    fn give(&self, mut values: &[f32], n_head: usize, rows: &mut [Known]) {
        for (pages, n_keys) in &self.runs {
            for (row, pages) in rows.iter_mut().zip(pages) {
                let (of_row, later) = values.split_at(n_head * n_keys);
                let n_own = pages.len() * KV_PAGE_TOKENS;
                let of_heads = of_row.chunks_exact(*n_keys).flat_map(|of_head| &of_head[..n_own]);
                row.scoring.add_run(pages, &mut row.scores, of_heads.copied().collect());
                values = later;
            }
        }
    }
}

impl RowPolicy {
    /// Of an answer of up to `n_steps` tokens by a model of these dimensions.
    pub fn new(spec: PolicySpec, n_steps: usize, dims: &ModelDims) -> Result<RowPolicy, EngineError> {
        let policy = Policy::new(spec).map_err(|e| EngineError::Policy(e.to_string()))?;
        let candidates = vec![None; dims.n_layer];
        Ok(RowPolicy {
            spec,
            policy,
            candidates,
            seen: RetainedPages::default(),
            step: 0,
            n_steps: n_steps.max(1),
            spent: SelectionStats::default(),
        })
    }

    /// Its prompt is read, and looked at this.
    pub fn begin(&mut self, seen: RetainedPages) {
        self.seen = seen;
    }

    /// Pages whose tokens are worth scoring before anything is known of this step.
    fn expected(&self, layer: usize, n_pages: usize) -> Vec<u32> {
        let candidates = self.candidates.get(layer).and_then(Option::as_ref).filter(|_| self.is_scored());
        candidates.map_or(Vec::new(), |pages| self.spec.to_score(pages.iter().copied(), n_pages))
    }

    /// Pages whose tokens are worth scoring as well, now that bounds are known.
    fn wanted(&self, at: &Layer, known: &Known) -> Vec<u32> {
        let bounds = known.bounds.of_weights(&known.bounds.slack(&known.totals(at.n_head)), at.n_kv_head);
        let view = at.view(self, &bounds);
        let mut pages = match (self.is_scored(), &self.candidates[at.layer]) {
            (false, _) => return self.policy.candidates(&view),
            (true, Some(_)) => self.policy.unpredicted_candidates(&view),
            (true, None) => self.spec.to_score(self.policy.candidates(&view), view.n_pages()),
        };
        let scored: HashSet<u32> = known.scoring.pages.iter().copied().collect();
        pages.retain(|page| !scored.contains(page));
        pages
    }

    /// What it reads, and pages that it came to.
    fn choose(&mut self, at: &Layer, known: &mut Known) -> (Selection, Vec<u32>) {
        let mut totals = known.totals(at.n_head);
        let bounds = known.bounds.of_weights(&known.bounds.slack(&totals), at.n_kv_head);
        let below = || known.seen.in_ram(self.policy.offloaded_candidates(&at.view(self, &bounds)));
        let (pages, scores) = at.in_ram.scores(below, &known.q);
        totals.add(&scores);
        known.scoring.add_run(&pages, &mut known.scores, scores);
        let mut tokens = PageScores::none(at.n_kv_head, at.tiers.len());
        tokens.add(&known.scoring, &known.scores, &totals);
        let bounds = known.bounds.of_weights(&known.bounds.slack(&totals), at.n_kv_head);
        let view = at.view(self, &bounds);
        let scored = LayerView { scores: Some(&tokens), ..view };
        let selection = self.policy.select(&scored);
        let followed = self.seen.track(&self.spec, &scored);
        let anywhere = vec![Tier::Vram; at.tiers.len()];
        self.candidates[at.layer] = Some(self.policy.candidates(&LayerView { tiers: &anywhere, ..view }));
        (selection, followed)
    }

    /// Every layer is scored before its attention is read.
    pub fn is_scored(&self) -> bool {
        self.spec.kind.reads_abstracts()
    }

    /// One token was decoded.
    pub fn end_step(&mut self) {
        self.step += 1;
    }

    /// What the choices came to; none before the first.
    pub fn summary(&self) -> Option<SelectionSummary> {
        self.spent.summary(self.spec, self.step as u64)
    }
}

impl BatchSelector {
    /// Pages that prompts looked at count as chosen often.
    pub fn record_retained<'a>(&mut self, rows: impl Iterator<Item = &'a RowPolicy>, clock: u64) {
        rows.for_each(|row| row.seen.record_retained(&mut self.frequency, clock));
    }

    /// Buffers and bind groups for `n_rows` over the pages that `model` holds, and up to `n_own` tokens of each row's own.
    pub fn new(gpu: &Gpu, model: &GpuModel, spec: PolicySpec, n_rows: usize, n_own: usize) -> Result<BatchSelector, EngineError> {
        let (d, kv) = (&model.dims, &model.kv);
        let (sealed, n_pages) = (kv.spec().sealed, (kv.n_sealed() as usize).max(1));
        let score_pages = PageBoundsKernel::new(gpu, d.n_head, d.n_kv_head, d.head_dim)?;
        let bounds_bytes = n_rows as u64 * score_pages.bounds_bytes(n_pages);
        let page_bounds = gpu.buffer("page bounds", bounds_bytes)?.all();
        let abstracts = (0..d.n_layer).filter_map(|layer| kv.abstracts(layer));
        let bind = |abstracts| score_pages.bind(gpu, [&model.act.q, abstracts, &page_bounds]);
        let score_bindings = abstracts.map(bind).collect::<Result<_, _>>()?;
        let token_scores = QkScores::new(gpu, d.n_head, d.n_kv_head, d.head_dim, sealed)?;
        let own_scores = QkScores::new(gpu, d.n_head, d.n_kv_head, d.head_dim, kv.spec().work)?;
        let all_scores = token_scores.scores_bytes(n_pages * KV_PAGE_TOKENS) + own_scores.scores_bytes(n_own + 1);
        let decode = AttentionDecode::selective(gpu, d.n_head, d.n_kv_head, d.head_dim, sealed)?;
        let kernels = (&decode, &token_scores);
        let segments = (0..kv.shapes().len()).map(|i| SelectedOps::of_segment(gpu, model, kernels, n_rows, i));
        let bounds_and_query = bounds_bytes + (n_rows * d.q_dim() * size_of::<f32>()) as u64;
        Ok(BatchSelector {
            segments: segments.collect::<Result<_, _>>()?,
            area: SelectedOps::of_area(gpu, model, kernels, n_rows)?,
            decode,
            readback: gpu.readback_buffer("scores of rows", bounds_and_query + n_rows as u64 * all_scores)?,
            score_pages,
            token_scores,
            own_scores,
            page_bounds,
            score_bindings,
            frequency: FrequencyTable::new(d.n_layer, HALF_LIFE_STEPS),
            last_pages: vec![Vec::new(); d.n_layer],
            n_first_layers: spec.n_first_layers,
        })
    }

    /// Records the scores of what each row asked for in one run of pages.
    fn ask(
        &self,
        gpu: &Gpu,
        recorder: &mut Recorder,
        (ops, binding): (&ScoreOps, usize),
        table: &BlockTable,
        pages: Vec<Vec<u32>>,
        asked: &mut Asked,
    ) {
        let n_keys = table.n_listed * KV_BLOCK_TOKENS;
        gpu.write(&ops.table, bytemuck::cast_slice(&table.entries));
        let (kernels, keys) = ((recorder, &self.token_scores), (n_keys, table.n_listed));
        asked.end += ops.record(kernels, binding, keys, 0..pages.len(), (&self.readback, asked.end));
        asked.runs.push((pages, n_keys));
    }
}

impl GpuModel {
    /// What a layer reads in this step for each row. Slots in `recorded` are submitted.
    pub(in crate::engine) fn choose_rows(
        &mut self,
        chooser: &mut BatchSelector,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer: usize,
        (rows, clock): (&mut [Row], u64),
        recorded: &mut Vec<StagedBatch>,
    ) -> Result<Vec<Selection>, EngineError> {
        let began = Instant::now();
        let n_pages = self.kv.n_sealed() as usize;
        let tiers = self.kv.tiers(layer, n_pages);
        let (mut policies, tails): (Vec<&mut RowPolicy>, Vec<&SequenceTail>) =
            rows.iter_mut().filter_map(|row| Some((row.policy.as_deref_mut()?, &*row.tail))).unzip();
        let mut rows = self.evaluate_rows(chooser, gpu, pacer, layer, (&policies, &tails), recorded)?;
        let wanted = self.wanted_of_rows(layer, &tiers, &policies, &mut rows);
        self.score_rows(chooser, gpu, pacer, layer, wanted, &mut rows)?;
        let at = self.layer_of_rows(layer, &tiers);
        let choose = |(p, known): (&mut &mut RowPolicy, &mut Known)| p.choose(&at, known);
        let (selections, followed): (Vec<_>, Vec<_>) = policies.par_iter_mut().zip(&mut rows).map(choose).unzip();
        chooser.frequency.record(layer, clock, &unique(followed.concat()), TRACKED_WEIGHT);
        for (p, selection) in policies.iter_mut().zip(&selections) {
            let n_resident = selection.pages.iter().filter(|page| self.kv.is_resident(layer, **page)).count();
            p.spent.note(selection, n_pages, selection.pages.len() - n_resident, &[]);
            p.spent.evaluation += began.elapsed();
        }
        Ok(selections)
    }

    fn layer_of_rows<'a>(&'a self, layer: usize, tiers: &'a [Tier]) -> Layer<'a> {
        let (n_kv_head, n_head) = (self.dims.n_kv_head, self.dims.n_head);
        Layer { layer, n_kv_head, n_head, tiers, in_ram: self.kv.keys_in_ram(layer) }
    }

    /// Pages whose tokens are worth scoring for each row, now that bounds are known; what they looked at lately.
    fn wanted_of_rows(&self, layer: usize, tiers: &[Tier], policies: &[&mut RowPolicy], rows: &mut [Known]) -> Vec<Vec<u32>> {
        let (at, is_resident) = (self.layer_of_rows(layer, tiers), |page| self.kv.is_resident(layer, page));
        let wanted = |(p, known): (&&mut RowPolicy, &mut Known)| {
            known.seen = p.seen.offloaded_hits((layer, p.step), tiers.len(), is_resident, &at.in_ram);
            // What else lies below is not fetched for its scores alone.
            let pages = p.wanted(&at, known).into_iter().filter(|page| !p.is_scored() || is_resident(*page));
            unique(pages.chain(known.seen.on_disk.iter().copied()).collect())
        };
        policies.iter().zip(rows).map(wanted).collect()
    }

    /// Starts what any row chose and what they may choose of the next layer, and says what should stay in RAM.
    pub(in crate::engine) fn begin_rows(
        &mut self,
        chooser: &mut BatchSelector,
        layer: usize,
        selections: &[Selection],
        clock: u64,
    ) -> SelectedStream {
        let n_pages = self.kv.n_sealed() as usize;
        let pages = unique(selections.iter().flat_map(|selection| &selection.pages).copied().collect());
        let next = chooser.last_pages.get(layer + 1).map(|pages| (layer + 1, pages.as_slice()));
        let stream = self.kv.begin_selected(layer, &pages, n_pages, clock, next, |_| 0.0);
        chooser.frequency.record(layer, clock, &pages, 1.0);
        if layer == 0 && clock.is_multiple_of(PREFER_EVERY) {
            self.pin_hot_pages(&chooser.frequency, n_pages, clock, chooser.n_first_layers);
        }
        chooser.last_pages[layer] = pages;
        stream
    }

    /// Scores every page by its abstract, and token by token the rows' own tails and what was worth it in the last step, where that
    /// is in VRAM; waits for the device once. Nothing where a row's policy reads no abstracts.
    fn evaluate_rows(
        &self,
        chooser: &BatchSelector,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer: usize,
        (policies, tails): (&[&mut RowPolicy], &[&SequenceTail]),
        recorded: &mut Vec<StagedBatch>,
    ) -> Result<Vec<Known>, EngineError> {
        let (n_rows, n_pages) = (policies.len(), self.kv.n_sealed() as usize);
        let mut rows: Vec<Known> = policies.iter().map(|_| Known::default()).collect();
        if !policies.iter().all(|p| p.is_scored()) {
            return Ok(rows);
        }
        chooser.score_pages.record(&mut pacer.recorder, &chooser.score_bindings[layer], n_pages, n_rows);
        let size = n_rows as u64 * chooser.score_pages.bounds_bytes(n_pages);
        pacer.recorder.copy(&chooser.page_bounds.buffer.slice(0, size), &chooser.readback.slice(0, size));
        let (q, q_bytes) = (&self.act.q, (n_rows * self.dims.q_dim() * size_of::<f32>()) as u64);
        pacer.recorder.copy(&q.buffer.slice(q.offset, q_bytes), &chooser.readback.slice(size, q_bytes));
        let mut own = vec![size + q_bytes];
        for (row, tail) in tails.iter().enumerate() {
            let at = own[row];
            own.push(at + tail.record_scores((&mut pacer.recorder, &chooser.own_scores), (layer, row), (&chooser.readback, at)));
        }
        let mut asked = Asked::from(own[n_rows]);
        let expected: Vec<Vec<u32>> = policies.iter().map(|p| p.expected(layer, n_pages)).collect();
        self.ask_frames(chooser, gpu, &mut pacer.recorder, layer, &expected, &mut asked);
        let submitted = pacer.submit(gpu)?;
        for filled in recorded.drain(..) {
            self.kv.slot_submitted(&filled);
        }
        let (n_head, n_of_row, q_dim) = (self.dims.n_head, self.dims.n_head * n_pages, self.dims.q_dim());
        pacer.read_after(gpu, &submitted, &chooser.readback, |bytes| {
            let range = |begin: u64, end: u64| &bytes[begin as usize..end as usize];
            let bounds: Vec<[f32; 2]> = bytemuck::pod_collect_to_vec(range(0, size));
            let q: Vec<f32> = bytemuck::pod_collect_to_vec(range(size, own[0]));
            for (i, row) in rows.iter_mut().enumerate() {
                row.own = bytemuck::pod_collect_to_vec(range(own[i], own[i + 1]));
                row.bounds = PageBounds::new(bounds[i * n_of_row..][..n_of_row].to_vec(), n_head);
                row.q = q[i * q_dim..][..q_dim].to_vec();
            }
            let scores: Vec<f32> = bytemuck::pod_collect_to_vec(range(asked.begin, asked.end));
            asked.give(&scores, n_head, &mut rows);
        })?;
        Ok(rows)
    }

    /// Records the scores of the tokens of those pages that each row asked for which are in frames.
    fn ask_frames(
        &self,
        chooser: &BatchSelector,
        gpu: &Gpu,
        recorder: &mut Recorder,
        layer: usize,
        wanted: &[Vec<u32>],
        asked: &mut Asked,
    ) {
        for (i, ops) in chooser.segments.iter().enumerate() {
            let here = kept(wanted, |page| self.kv.is_in_segment(layer, i, page));
            if here.iter().any(|pages| !pages.is_empty()) {
                let table = self.kv.blocks_in_segment(layer, i, &here);
                chooser.ask(gpu, recorder, (&ops.score, layer), &table, here, asked);
            }
        }
    }

    /// Scores the tokens of the pages that each row asked for, wherever they are, and waits where that is any.
    fn score_rows(
        &mut self,
        chooser: &BatchSelector,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer: usize,
        wanted: Vec<Vec<u32>>,
        rows: &mut [Known],
    ) -> Result<(), EngineError> {
        let all = unique(wanted.iter().flatten().copied().collect());
        if all.is_empty() {
            return Ok(());
        }
        let mut asked = Asked::from(0);
        self.ask_frames(chooser, gpu, &mut pacer.recorder, layer, &wanted, &mut asked);
        let n_batches = self.kv.begin_streamed(layer, &all);
        let mut recorded = Vec::new();
        for fill in self.fills(0..n_batches) {
            let groups = self.fill_staging(gpu, pacer, fill.clone(), &mut recorded)?;
            let here = kept(&wanted, |page| groups.binary_search(&page).is_ok());
            let table = self.kv.blocks_in_batches(fill, &here);
            if let Some(ops) = &chooser.area {
                chooser.ask(gpu, &mut pacer.recorder, (&ops.score, 0), &table, here, &mut asked);
            }
            self.submit_slots(gpu, pacer, &mut recorded)?;
        }
        let submitted = pacer.submit(gpu)?;
        let n_bytes = asked.end as usize;
        let scores: Vec<f32> =
            pacer.read_after(gpu, &submitted, &chooser.readback, |bytes| bytemuck::pod_collect_to_vec(&bytes[..n_bytes]))?;
        asked.give(&scores, self.dims.n_head, rows);
        Ok(())
    }
}

fn kept(rows: &[Vec<u32>], keeps: impl Fn(u32) -> bool) -> Vec<Vec<u32>> {
    rows.iter().map(|pages| pages.iter().copied().filter(|page| keeps(*page)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attention_of_a_row_counts_what_stays_in_its_own_tail() {
        let mut known = Known { bounds: PageBounds::new(vec![[7.0, -2.0]], 1), ..Known::default() };
        known.scoring.add_run(&[0], &mut known.scores, vec![1.0; KV_PAGE_TOKENS]);
        let above = |known: &Known| known.bounds.slack(&known.totals(1))[0];
        assert!((above(&known) - (7.0 - 1.0 - 64f32.ln())).abs() < 1e-3);
        known.own = vec![9.0];
        let want = 7.0 - (9f32.exp() + 64.0 * 1f32.exp()).ln();
        assert!((above(&known) - want).abs() < 1e-3, "{} instead of {want}", above(&known));
    }

    #[test]
    fn scores_go_to_the_rows_that_asked_for_them() {
        // Two heads; the first row asked for two pages, the second for one, in one run as long as the longer list.
        let asked = Asked { runs: vec![(vec![vec![3, 5], vec![4]], 2 * KV_PAGE_TOKENS)], begin: 0, end: 0 };
        let values: Vec<f32> = (0..8).flat_map(|i| [i as f32; KV_PAGE_TOKENS]).collect();
        let mut rows = [Known::default(), Known::default()];
        asked.give(&values, 2, &mut rows);
        let pages = |row: &Known| row.scores.chunks(KV_PAGE_TOKENS).map(|page| page[0]).collect::<Vec<_>>();
        assert_eq!((rows[0].scoring.pages.as_slice(), pages(&rows[0])), ([3, 5].as_slice(), vec![0.0, 1.0, 2.0, 3.0]));
        assert_eq!((rows[1].scoring.pages.as_slice(), pages(&rows[1])), ([4].as_slice(), vec![4.0, 6.0]));
    }
}
