//! One layer of a decode step: what is known is scored, the policy chooses, what it chose comes, attention reads it.
//!
//! ```text
//! expected pages that came ─► scores, this layer's and the next one's ─► choose ─► stream ─► frames, slots ─► merge
//! ```
//! Owner: the engine thread. Waits for the device's scores, and for chosen pages that were not expected.

use std::collections::HashSet;
use std::time::Instant;

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::api::MassKept;
use crate::engine::error::EngineError;
use crate::engine::runner::gpu_model::GpuModel;
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::engine::selection::lookahead::Prefetched;
use crate::engine::selection::overlap::KvCacheView;
use crate::engine::selection::{PREFER_EVERY, Selector, fetch};
use crate::gpu::Gpu;
use crate::gpu::kernels::attention_decode::{SPLIT_KEYS, SegmentKeys};
use crate::kv::policy::retention::{FOLLOWED_TIMES, OffloadedHits};
use crate::kv::policy::scores::{PageBounds, PageScores, ScoreRuns, ScoreTotals, head_masses};
use crate::kv::policy::{LayerView, PolicyKind, Selection, Tier, unique};
use crate::kv::{BlockTable, SelectedStream, StagedBatch};
use crate::telemetry::{EventKind, KernelFamily};

/// What the device knows when a layer's attention begins.
#[derive(Default)]
struct Evaluation {
    own: PageBounds,
    /// of the next layer, by the estimated query
    next: Option<PageBounds>,
    /// scores f32 `[H, n_keys]` of the tokens behind the last complete page
    tail: Vec<f32>,
    /// of pages that are always read or were expected
    tokens: (ScoreRuns, Vec<f32>),
    /// the layer's pages were expected
    is_expected: bool,
    /// f32 `[H, D]`
    q: Vec<f32>,
    /// pages that were looked at lately
    seen: OffloadedHits,
}

/// What a layer reads, and what the next one is expected to.
struct Choice {
    selection: Selection,
    /// pages by the layer that wants them
    expected: Option<(usize, Vec<u32>)>,
}

impl GpuModel {
    /// Attention of one new token over what the policy chooses of the complete pages before it, and over all new tokens.
    pub(in crate::engine) fn attend_selected(
        &mut self,
        s: &mut Selector,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer: usize,
        first_pos: usize,
    ) -> Result<(), EngineError> {
        let n_pages = first_pos / KV_PAGE_TOKENS;
        let mut recorded = Vec::new();
        let mut expected = s.expected.take().filter(|expected| expected.layer == layer);
        if let Some(expected) = &mut expected {
            expected.came.extend(self.collect_prefetched(gpu, pacer, layer, &mut recorded)?);
        }
        let mut evaluated = self.evaluate(s, gpu, pacer, layer, first_pos, expected.as_ref(), &mut recorded)?;
        if let Some(expected) = &mut expected {
            expected.came.extend(self.collect_prefetched(gpu, pacer, layer, &mut recorded)?);
        }
        evaluated.seen = self.seen_below(s, layer, n_pages);
        if !evaluated.seen.far.is_empty() {
            // They come through the slots.
            self.submit_slots(gpu, pacer, &mut recorded)?;
        }
        let measured_tail = s.mass_steps.holds(s.step).then(|| evaluated.tail.clone());
        let began = Instant::now();
        let choice = self.choose(s, gpu, pacer, layer, n_pages, evaluated)?;
        s.spent.evaluation += began.elapsed();
        pacer.did(EventKind::Select { layer: layer as u32 }, began);
        let selection = &choice.selection;
        if let Some(tail) = measured_tail {
            // Everything is going to come through the slots.
            self.submit_slots(gpu, pacer, &mut recorded)?;
            let all: Vec<u32> = (0..n_pages as u32).collect();
            if let Some((scoring, scores)) = self.score_tokens(s, gpu, pacer, layer, &all)? {
                let mut heads = scoring.in_order(&scores, s.n_head);
                self.attention_meter.note(layer, &head_masses(&heads, s.n_kv_head));
                let tail = if tail.is_empty() { self.score_tail(s, gpu, pacer, layer, first_pos)? } else { tail };
                let n_tail = tail.len() / s.n_head;
                heads.iter_mut().zip(tail.chunks_exact(n_tail)).for_each(|(pages, tail)| pages.extend(tail));
                let kept = s.spent.record_mass(layer, selection, &head_masses(&heads, s.n_kv_head), n_tail);
                s.lane.instant(mass_event(layer, &kept));
            }
        }
        let next = choice.expected.as_ref().map(|(layer, pages)| (*layer, pages.as_slice()));
        let view = KvCacheView::of(&self.kv);
        let theta = |bytes| if self.synchronous { 0.0 } else { s.overlap.theta(&view, layer, bytes) };
        let stream = self.kv.begin_selected(layer, &selection.pages, n_pages, s.clock + 1, next, theta);
        s.spent.record_stream(&stream);
        s.spent.note(selection, n_pages, stream.missing.len(), expected.as_ref().map_or(&[], |expected| &expected.came));
        s.frequency.note(layer, s.clock, &selection.pages, 1.0);
        if layer == 0 && (s.step == 0 || s.clock.is_multiple_of(PREFER_EVERY)) {
            self.pin_hot_pages(&s.frequency, n_pages, s.clock, s.spec.n_first_layers);
        }
        pacer.mark(KernelFamily::Attention, layer as u32);
        self.attend_to_selection(s, gpu, pacer, layer, first_pos, selection, &stream, recorded)?;
        if s.spec.kind == PolicyKind::Prefetch && !self.synchronous && layer + 1 < self.dims.n_layer {
            let all: Vec<u32> = (0..n_pages as u32).collect();
            self.kv.begin_streamed(layer + 1, &all);
        }
        Ok(())
    }

    /// Scores every page by its abstract, for this layer and, where something of it has to come, by an estimate for the next,
    /// and the tokens of pages that are likely to matter; waits for the device once.
    #[allow(clippy::too_many_arguments, reason = "the layer's whole state, once")]
    fn evaluate(
        &mut self,
        s: &mut Selector,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer: usize,
        first_pos: usize,
        expected: Option<&Prefetched>,
        recorded: &mut Vec<StagedBatch>,
    ) -> Result<Evaluation, EngineError> {
        if !s.spec.kind.reads_abstracts() {
            return Ok(Evaluation::default());
        }
        pacer.mark(KernelFamily::Evaluation, layer as u32);
        let n_pages = first_pos / KV_PAGE_TOKENS;
        let size = s.score_pages.bounds_bytes(n_pages);
        s.score_pages.record(&mut pacer.recorder, &s.score_bindings[layer], n_pages, 1);
        let bounds = s.bounds.buffer.slice(s.bounds.offset, size);
        pacer.recorder.copy(&bounds, &s.scorer.readback.slice(0, size));
        let next = layer + 1;
        let has_to_come = || next < self.dims.n_layer && !self.kv.is_all_resident(next, n_pages as u32);
        let ahead = s.ahead.as_ref().filter(|_| !self.synchronous && has_to_come());
        if let Some(ahead) = ahead {
            ahead.record(gpu, pacer, self, &s.score_pages, next, n_pages)?;
            pacer.recorder.copy(&bounds, &s.scorer.readback.slice(size, size));
        }
        pacer.mark(KernelFamily::Evaluation, layer as u32);
        let q_bytes = (self.dims.q_dim() * size_of::<f32>()) as u64;
        let q = &self.act.q;
        pacer.recorder.copy(&q.buffer.slice(q.offset, q_bytes), &s.scorer.readback.slice(2 * size, q_bytes));
        let tail_keys = first_pos % KV_PAGE_TOKENS + 1;
        let at = (&s.scorer.readback, 2 * size + q_bytes);
        let tail_bytes = s.tail_scores.record(self, (gpu, &mut pacer.recorder), layer, tail_keys, at);
        let mut scoring = ScoreRuns::new(2 * size + q_bytes + tail_bytes);
        let candidates = expected.iter().flat_map(|expected| &expected.candidates).chain(&s.candidates[layer]).copied();
        let candidates = s.spec.to_score(candidates, n_pages);
        self.score_in_frames(&s.scorer, s.scored(), (gpu, &mut pacer.recorder), layer, &candidates, &mut scoring);
        let submitted = pacer.submit(gpu)?;
        for filled in recorded.drain(..) {
            self.kv.slot_submitted(&filled);
        }
        let is_expected = expected.is_some() || !s.candidates[layer].is_empty();
        let (n_head, has_next) = (s.n_head, ahead.is_some());
        Ok(pacer.read_after(gpu, &submitted, &s.scorer.readback, |bytes| {
            let range = |begin: u64, n_bytes: u64| &bytes[begin as usize..(begin + n_bytes) as usize];
            let bounds = |begin| PageBounds::new(bytemuck::pod_collect_to_vec(range(begin, size)), n_head);
            let q = bytemuck::pod_collect_to_vec(range(2 * size, q_bytes));
            let tail = bytemuck::pod_collect_to_vec(range(2 * size + q_bytes, tail_bytes));
            let scores = bytemuck::pod_collect_to_vec(range(scoring.begin, scoring.end - scoring.begin));
            let next = has_next.then(|| bounds(size));
            Evaluation { own: bounds(0), next, tail, tokens: (scoring, scores), is_expected, q, ..Evaluation::default() }
        })?)
    }

    /// Pages of a layer that were looked at and VRAM has not.
    pub(in crate::engine) fn seen_below(&self, s: &Selector, layer: usize, n_pages: usize) -> OffloadedHits {
        s.seen.below((layer, s.step), n_pages, |page| self.kv.is_resident(layer, page), &self.kv.keys_in_ram(layer))
    }

    /// What a layer reads in this step, and what the next one is expected to.
    fn choose(
        &mut self,
        s: &mut Selector,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer: usize,
        n_pages: usize,
        evaluated: Evaluation,
    ) -> Result<Choice, EngineError> {
        let tiers = self.kv.tiers(layer, n_pages);
        let Evaluation { own, next, tail, tokens: (mut scoring, mut scores), is_expected, q, seen } = evaluated;
        let (step, n_steps, n_kv_head) = (s.step, s.n_steps, s.n_kv_head);
        let mut totals = ScoreTotals::none(s.n_head);
        totals.add(&tail);
        totals.add_runs(&scoring, &scores);
        let bounds = own.of_weights(&own.above(&totals), n_kv_head);
        let view = LayerView { layer, step, n_steps, n_kv_head, tiers: &tiers, bounds: &bounds, scores: None };
        // What was scored is what an estimate of the query expected, and the last step's bounds.
        let mut wanted = if is_expected { s.policy.surprises(&view) } else { s.policy.candidates(&view) };
        let known: HashSet<u32> = scoring.pages.iter().copied().collect();
        wanted.retain(|page| !known.contains(page));
        wanted = unique([wanted, seen.far.clone()].concat());
        if let Some((more, of_more)) = self.score_tokens(s, gpu, pacer, layer, &wanted)? {
            totals.add_runs(&more, &of_more);
            scoring.append(more);
            scores.extend(of_more);
        }
        let below = || seen.in_ram(s.policy.candidates_below(&view));
        let (pages, in_ram) = self.kv.keys_in_ram(layer).scores(below, &q);
        totals.add(&in_ram);
        scoring.add_run(&pages, &mut scores, in_ram);
        let mut tokens = PageScores::none(n_kv_head, n_pages);
        tokens.add(&scoring, &scores, &totals);
        let above = own.above(&totals);
        let bounds = own.of_weights(&above, n_kv_head);
        s.above[layer] = above;
        let view = LayerView { bounds: &bounds, scores: Some(&tokens), ..view };
        let selection = s.policy.select(&view);
        let followed = s.seen.follow(&s.spec, &view);
        s.frequency.note(layer, s.clock, &followed, FOLLOWED_TIMES);
        let anywhere = vec![Tier::Vram; n_pages];
        if s.spec.kind.reads_abstracts() {
            s.candidates[layer] = s.policy.candidates(&LayerView { tiers: &anywhere, ..view });
        }
        let is_known = next.is_some() || s.spec.kind == PolicyKind::Window;
        let expected = (is_known && layer + 1 < self.dims.n_layer && !self.synchronous).then(|| {
            let bounds = next.unwrap_or_default().of_weights(&s.above[layer + 1], n_kv_head);
            let view = LayerView { layer: layer + 1, tiers: &anywhere, bounds: &bounds, scores: None, ..view };
            let candidates = s.policy.candidates(&view);
            s.expected = Some(Prefetched { layer: layer + 1, candidates, came: Vec::new() });
            (layer + 1, s.policy.expect(&LayerView { tiers: &self.kv.tiers(layer + 1, n_pages), ..view }))
        });
        Ok(Choice { selection, expected })
    }

    /// Scores the tokens of `pages` one by one, wherever they are, and waits: f32 `[H, n_keys]` of each run.
    fn score_tokens(
        &mut self,
        s: &Selector,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer: usize,
        pages: &[u32],
    ) -> Result<Option<(ScoreRuns, Vec<f32>)>, EngineError> {
        if pages.is_empty() {
            return Ok(None);
        }
        pacer.mark(KernelFamily::Evaluation, layer as u32);
        let mut scoring = ScoreRuns::new(0);
        self.score_in_frames(&s.scorer, s.scored(), (gpu, &mut pacer.recorder), layer, pages, &mut scoring);
        let n_batches = self.kv.begin_streamed(layer, pages);
        let mut recorded = Vec::new();
        for batches in self.fills(0..n_batches) {
            let here = self.fill_staging(gpu, pacer, batches.clone(), &mut recorded)?;
            let table = self.kv.blocks_in_batches(batches, std::slice::from_ref(&here));
            if let Some(ops) = &s.area {
                s.scorer.record(gpu, &mut pacer.recorder, (&ops.score, 0), &table, &here, &mut scoring);
            }
            self.submit_slots(gpu, pacer, &mut recorded)?;
        }
        let submitted = pacer.submit(gpu)?;
        let n_bytes = scoring.end as usize;
        let scores: Vec<f32> =
            pacer.read_after(gpu, &submitted, &s.scorer.readback, |bytes| bytemuck::pod_collect_to_vec(&bytes[..n_bytes]))?;
        Ok(Some((scoring, scores)))
    }

    /// Scores the tokens behind the last complete page, the new one with them, and waits: f32 `[H, n_keys]`.
    fn score_tail(
        &self,
        s: &Selector,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer: usize,
        first_pos: usize,
    ) -> Result<Vec<f32>, EngineError> {
        let n_keys = first_pos % KV_PAGE_TOKENS + 1;
        let readback = &s.scorer.readback;
        let n_bytes = s.tail_scores.record(self, (gpu, &mut pacer.recorder), layer, n_keys, (readback, 0)) as usize;
        let submitted = pacer.submit(gpu)?;
        Ok(pacer.read_after(gpu, &submitted, readback, |bytes| bytemuck::pod_collect_to_vec(&bytes[..n_bytes]))?)
    }

    /// Attention over what was chosen: what finds a frame comes first, then everything is read at once but what has to stay
    /// in its slot.
    #[allow(clippy::too_many_arguments, reason = "the layer's whole state, once")]
    fn attend_to_selection(
        &mut self,
        s: &Selector,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer: usize,
        first_pos: usize,
        selection: &Selection,
        stream: &SelectedStream,
        mut recorded: Vec<StagedBatch>,
    ) -> Result<(), EngineError> {
        let tables = self.fetch_into_frames(gpu, pacer, layer, stream, &selection.blocks, &mut recorded)?;
        let tail_keys = first_pos % KV_PAGE_TOKENS + 1;
        let n_splits = tables.n_splits() + tail_keys.div_ceil(SPLIT_KEYS);
        let mut first_split = 0;
        let mut keys = |table: &BlockTable| {
            let keys = SegmentKeys { n_keys: table.n_listed, n_blocks: table.n_listed, first_split, n_splits };
            first_split += fetch::n_splits(table);
            keys
        };
        for (ops, table) in s.segments.iter().zip(&tables.in_segments).filter(|(_, table)| table.n_listed > 0) {
            gpu.write(&ops.table, bytemuck::cast_slice(&table.entries));
            s.decode.record_split(&mut pacer.recorder, &ops.decode[layer], keys(table));
        }
        for (fill, table) in &tables.in_fills {
            self.fill_staging(gpu, pacer, fill.clone(), &mut recorded)?;
            if let Some(ops) = &s.area {
                gpu.write(&ops.table, bytemuck::cast_slice(&table.entries));
                s.decode.record_split(&mut pacer.recorder, &ops.decode[0], keys(table));
            }
            // The next fill has a table of its own.
            self.submit_slots(gpu, pacer, &mut recorded)?;
        }
        let n_blocks = self.kv.tail_blocks();
        let tail = SegmentKeys { n_keys: tail_keys, n_blocks, first_split: n_splits - tail_keys.div_ceil(SPLIT_KEYS), n_splits };
        self.tail_attention.decode.record_split(&mut pacer.recorder, &self.tails[layer].run.decode, tail);
        if let Some(splits) = &self.splits {
            self.page_attention.decode.record_merge(&mut pacer.recorder, &splits.merge, n_splits);
        }
        // Tables are written ahead of what is submitted: the next layer's must not come before this one. Where the next layer
        // is scored, that is a submit anyway.
        if recorded.is_empty() && s.spec.kind.reads_abstracts() { Ok(()) } else { self.submit_slots(gpu, pacer, &mut recorded) }
    }
}

fn mass_event(layer: usize, mass: &MassKept) -> EventKind {
    let ppm = |share: f64| (share.clamp(0.0, 1.0) * 1e6).round() as u32;
    EventKind::Mass { layer: layer as u32, kept_ppm: ppm(mass.kept), best_ppm: ppm(mass.best) }
}
