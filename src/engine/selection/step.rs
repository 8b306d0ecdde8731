//! Selection step: one layer of a decode step, for every sequence of the batch.
//!
//! ```text
//! prefetched pages ─► bounds and scores, of this layer and the next ─ readback ─► SequencePolicy::select, in parallel
//!                          └─ more scores, if an unpredicted candidate turns up ─┘         │
//! merge ◄─ tails ◄─ selected blocks in the staging pool ◄─ in frames ◄─ one stream for all ◄┘
//! ```
//! 1. Kernels treat the KV heads of other rows as more KV heads: each row has its own lists of blocks in one table.
//! 2. A page that several sequences selected is fetched once. 3. Each layer waits for the GPU once, and once more for
//!    unpredicted candidates.
//!
//! Owner: the engine thread. Shapes: R rows, one of each sequence, H query heads and G KV heads of each, P complete pages.
//!
//! Source: LeoAM §4.2, LeoAM §4.3.

use std::time::Instant;

use rayon::prelude::*;

use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::engine::api::MassKept;
use crate::engine::error::EngineError;
use crate::engine::runner::executor::Executor;
use crate::engine::runner::fused_ops::HiddenForm;
use crate::engine::runner::pass::{Row, Splits};
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::engine::selection::lookahead::Prefetched;
use crate::engine::selection::overlap::KvCacheView;
use crate::engine::selection::selected_ops::SelectedOps;
use crate::engine::selection::sequence_policy::{LayerInputs, RowScores, RowSelection, SequencePolicy};
use crate::engine::selection::token_scorer::ScoreOps;
use crate::engine::selection::{PREFER_EVERY, Selector};
use crate::gpu::kernels::linear::ActivationForm;
use crate::gpu::{Binding, Gpu, Recorder};
use crate::kv::policy::scores::{PageBounds, head_masses};
use crate::kv::policy::{Lookahead, SelectedBlock, unique};
use crate::kv::{BlockTable, SelectedStream, StagedBatch};
use crate::telemetry::{EventKind, KernelFamily};

/// Engine state that every step of a selection needs.
pub(in crate::engine) struct Device<'a> {
    pub gpu: &'a Gpu,
    pub pacer: &'a mut SubmitPacer,
}

/// Scores requested from the GPU: pages of each row, run by run, and their range in the readback buffer.
struct ScoreRequest {
    /// pages of each row, and keys of the longest list
    runs: Vec<(Vec<Vec<u32>>, usize)>,
    begin: u64,
    end: u64,
}

impl ScoreRequest {
    /// No runs; the scores of the first one go to `begin`.
    fn new(begin: u64) -> ScoreRequest {
        ScoreRequest { runs: Vec::new(), begin, end: begin }
    }

    /// Distributes the scores f32 of all runs to the rows that requested them.
    fn distribute(&self, mut values: &[f32], n_head: usize, rows: &mut [RowScores]) {
        for (pages, n_keys) in &self.runs {
            for (row, pages) in rows.iter_mut().zip(pages) {
                let (of_row, later) = values.split_at(n_head * n_keys);
                let n_own = pages.len() * KV_PAGE_TOKENS;
                let of_heads = of_row.chunks_exact(*n_keys).flat_map(|of_head| &of_head[..n_own]);
                row.runs.add_run(pages, &mut row.scores, of_heads.copied().collect());
                values = later;
            }
        }
    }
}

impl Selector {
    /// Records the scores of the tokens of each row's `pages`, listed in `table`.
    fn request(
        &self,
        (gpu, recorder): (&Gpu, &mut Recorder),
        (ops, binding): (&ScoreOps, usize),
        table: &BlockTable,
        pages: Vec<Vec<u32>>,
        request: &mut ScoreRequest,
    ) {
        let n_keys = table.n_listed * KV_BLOCK_TOKENS;
        gpu.write(&ops.table, bytemuck::cast_slice(&table.entries));
        let (kernels, keys) = ((recorder, &self.scorer.kernel), (n_keys, table.n_listed));
        request.end += ops.record(kernels, binding, keys, 0..pages.len(), (&self.scorer.readback, request.end));
        request.runs.push((pages, n_keys));
    }
}

impl Executor {
    /// Attention of every row over what its policy selects of the `n_context` tokens in complete pages, and over its tail.
    ///
    /// # Errors
    /// A page that must be recomputed, a lost device.
    pub(in crate::engine) fn attend_selected(
        &mut self,
        s: &mut Selector,
        device: &mut Device,
        layer: usize,
        n_context: usize,
        rows: &mut [Row],
    ) -> Result<ActivationForm, EngineError> {
        let n_pages = n_context / KV_PAGE_TOKENS;
        if let Some(form) = self.attend_on_device(s, device, layer, n_context, rows)? {
            return Ok(form);
        }
        let mut recorded = Vec::new();
        let mut prefetched = s.prefetched.take().filter(|prefetched| prefetched.layer == layer);
        self.take_arrived(device, layer, prefetched.as_mut(), &mut recorded)?;
        let mut scores = self.evaluate(s, device, layer, n_context, rows, prefetched.as_ref(), &mut recorded)?;
        self.take_arrived(device, layer, prefetched.as_mut(), &mut recorded)?;
        let began = Instant::now();
        let selected = self.select_rows(s, device, layer, n_context, rows, &mut scores, &mut recorded)?;
        policies(rows).for_each(|policy| policy.stats.evaluation += began.elapsed());
        device.pacer.did(EventKind::Select { layer: layer as u32 }, began);
        if rows.iter().filter_map(|row| row.policy.as_deref()).any(SequencePolicy::measures_mass) {
            // Every page is transferred through the staging buffers.
            self.submit_slots(device.gpu, device.pacer, &mut recorded)?;
            let tails = scores.into_iter().map(|row| row.tail).collect();
            self.measure_mass(s, device, layer, n_context, rows, &selected, tails)?;
        }
        let form = self.attend_blocks(s, device, layer, n_context, rows, selected, prefetched.as_ref(), recorded)?;
        if s.spec.kind.lookahead() == Lookahead::AllKeys && !self.synchronous && layer + 1 < self.model.dims.n_layer {
            let all: Vec<u32> = (0..n_pages as u32).collect();
            self.kv.begin_streamed(layer + 1, &all);
        }
        Ok(form)
    }

    /// Moves prefetched pages of the layer that have arrived into frames.
    fn take_arrived(
        &mut self,
        device: &mut Device,
        layer: usize,
        prefetched: Option<&mut Prefetched>,
        recorded: &mut Vec<StagedBatch>,
    ) -> Result<(), EngineError> {
        if let Some(prefetched) = prefetched {
            prefetched.arrived.extend(self.collect_prefetched(device.gpu, device.pacer, layer, recorded)?);
        }
        Ok(())
    }

    /// Computes the bounds of every page from its abstract, for this layer and, by an estimated query, for the next one if
    /// some of it is offloaded. Scores the tails and the tokens of candidates. Waits for the GPU once, or not at all if the
    /// policy reads no abstracts.
    #[allow(clippy::too_many_arguments, reason = "the layer's whole state, once")]
    fn evaluate(
        &mut self,
        s: &mut Selector,
        device: &mut Device,
        layer: usize,
        n_context: usize,
        rows: &[Row],
        prefetched: Option<&Prefetched>,
        recorded: &mut Vec<StagedBatch>,
    ) -> Result<Vec<RowScores>, EngineError> {
        let mut scores: Vec<RowScores> = rows.iter().map(|_| RowScores::default()).collect();
        if !s.spec.kind.reads_abstracts() {
            return Ok(scores);
        }
        let Device { gpu, pacer } = device;
        pacer.mark(KernelFamily::Evaluation, layer as u32);
        let (n_rows, n_pages) = (rows.len(), n_context / KV_PAGE_TOKENS);
        let size = n_rows as u64 * s.score_pages.bounds_bytes(n_pages);
        let bounds = s.bounds.buffer.slice(s.bounds.offset, size);
        s.score_pages.record(&mut pacer.recorder, &s.bindings.scores[layer], n_pages, n_rows);
        pacer.recorder.copy(&bounds, &s.scorer.readback.slice(0, size));
        let next = layer + 1;
        let is_offloaded = || next < self.model.dims.n_layer && !self.kv.is_all_resident(next, n_pages as u32);
        let lookahead = s.lookahead.as_ref().filter(|_| !self.synchronous && is_offloaded());
        if let Some(lookahead) = lookahead {
            self.record_qkv(gpu, pacer, next, n_rows, HiddenForm::Plain)?;
            let rope_append = &self.model.rope_append;
            lookahead.record(&mut pacer.recorder, rope_append, &s.score_pages, next, (n_pages, n_rows));
            pacer.recorder.copy(&bounds, &s.scorer.readback.slice(size, size));
        }
        pacer.mark(KernelFamily::Evaluation, layer as u32);
        let q_bytes = (n_rows * self.model.dims.q_dim() * size_of::<f32>()) as u64;
        let q = &self.model.act.q;
        pacer.recorder.copy(&q.buffer.slice(q.offset, q_bytes), &s.scorer.readback.slice(2 * size, q_bytes));
        let mut tails = vec![2 * size + q_bytes];
        for (i, row) in rows.iter().enumerate() {
            let at = tails[i];
            tails.push(at + self.record_tail_scores(s, (gpu, &mut pacer.recorder), (layer, i), n_context, &row.kv, at));
        }
        let mut request = ScoreRequest::new(tails[n_rows]);
        let predicted = |i: usize| prefetched.map(|prefetched| prefetched.candidates[i].as_slice());
        let mut candidates = Vec::new();
        for (i, policy) in rows.iter().filter_map(|row| row.policy.as_deref()).enumerate() {
            candidates.push(policy.candidates(layer, predicted(i), n_pages));
            scores[i].is_predicted = policy.is_predicted(layer, predicted(i));
        }
        self.request_in_frames(s, (gpu, &mut pacer.recorder), layer, &candidates, &mut request);
        let submitted = pacer.submit(gpu)?;
        for filled in recorded.drain(..) {
            self.kv.slot_submitted(&filled);
        }
        let (n_head, n_bounds, q_dim) = (self.model.dims.n_head, self.model.dims.n_head * n_pages, self.model.dims.q_dim());
        let has_next = lookahead.is_some();
        pacer.read_after(gpu, &submitted, &s.scorer.readback, |bytes| {
            let range = |begin: u64, end: u64| &bytes[begin as usize..end as usize];
            let bounds: Vec<[f32; 2]> = bytemuck::pod_collect_to_vec(range(0, 2 * size));
            let of_row = |i: usize| PageBounds::new(bounds[i * n_bounds..][..n_bounds].to_vec(), n_head);
            let q: Vec<f32> = bytemuck::pod_collect_to_vec(range(2 * size, tails[0]));
            for (i, row) in scores.iter_mut().enumerate() {
                row.bounds = of_row(i);
                row.next_bounds = has_next.then(|| of_row(n_rows + i));
                row.q = q[i * q_dim..][..q_dim].to_vec();
                row.tail = bytemuck::pod_collect_to_vec(range(tails[i], tails[i + 1]));
            }
            let values: Vec<f32> = bytemuck::pod_collect_to_vec(range(request.begin, request.end));
            request.distribute(&values, n_head, &mut scores);
        })?;
        Ok(scores)
    }

    /// Scores the remaining pages, then selects for every sequence.
    #[allow(clippy::too_many_arguments, reason = "the layer's whole state, once")]
    fn select_rows(
        &mut self,
        s: &mut Selector,
        device: &mut Device,
        layer: usize,
        n_context: usize,
        rows: &mut [Row],
        scores: &mut [RowScores],
        recorded: &mut Vec<StagedBatch>,
    ) -> Result<Vec<RowSelection>, EngineError> {
        let n_pages = n_context / KV_PAGE_TOKENS;
        let (tiers, next) = (self.kv.tiers(layer, n_pages), layer + 1);
        let next_tiers = (next < self.model.dims.n_layer && !self.synchronous).then(|| self.kv.tiers(next, n_pages));
        let (n_head, n_kv_head) = (self.model.dims.n_head, self.model.dims.n_kv_head);
        let (tiers, next_tiers) = (tiers.as_slice(), next_tiers.as_deref());
        let at = LayerInputs { layer, n_head, n_kv_head, tiers, ram_keys: self.kv.keys_in_ram(layer), next_tiers };
        let wanted: Vec<Vec<u32>> = policies(rows).zip(scores.iter_mut()).map(|(p, row)| p.pages_to_score(&at, row)).collect();
        if scores.iter().any(|row| !row.on_disk.is_empty()) {
            // They are transferred through the staging buffers.
            self.submit_slots(device.gpu, device.pacer, recorded)?;
        }
        self.score_rows(s, device, layer, &wanted, scores)?;
        let at = LayerInputs { layer, n_head, n_kv_head, tiers, ram_keys: self.kv.keys_in_ram(layer), next_tiers };
        let mut pairs: Vec<(&mut SequencePolicy, &mut RowScores)> = policies(rows).zip(scores).collect();
        let selected: Vec<RowSelection> = match pairs.as_mut_slice() {
            [(policy, row)] => vec![policy.select(&at, row)],
            pairs => pairs.par_iter_mut().map(|(policy, row)| policy.select(&at, row)).collect(),
        };
        if selected.iter().any(|row| row.next.is_some()) {
            let candidates = selected.iter().map(|row| row.next.as_ref().map_or(Vec::new(), |(pages, _)| pages.clone()));
            s.prefetched = Some(Prefetched { layer: next, candidates: candidates.collect(), arrived: Vec::new() });
        }
        Ok(selected)
    }

    /// Records the scores of the requested pages that are in frames.
    fn request_in_frames(
        &self,
        s: &Selector,
        (gpu, recorder): (&Gpu, &mut Recorder),
        layer: usize,
        wanted: &[Vec<u32>],
        request: &mut ScoreRequest,
    ) {
        for (i, ops) in s.segments.iter().enumerate() {
            let here = retain(wanted, |page| self.kv.is_in_segment(layer, i, page));
            if here.iter().any(|pages| !pages.is_empty()) {
                let table = self.kv.blocks_in_segment(layer, i, &here);
                s.request((gpu, recorder), (&ops.score, layer), &table, here, request);
            }
        }
    }

    /// Scores the tokens of the requested pages of each row, in any tier. Waits for the GPU, unless no page is requested.
    fn score_rows(
        &mut self,
        s: &Selector,
        device: &mut Device,
        layer: usize,
        wanted: &[Vec<u32>],
        scores: &mut [RowScores],
    ) -> Result<(), EngineError> {
        let Device { gpu, pacer } = device;
        let all = unique(wanted.iter().flatten().copied().collect());
        if all.is_empty() {
            return Ok(());
        }
        pacer.mark(KernelFamily::Evaluation, layer as u32);
        let mut request = ScoreRequest::new(0);
        self.request_in_frames(s, (gpu, &mut pacer.recorder), layer, wanted, &mut request);
        let n_batches = self.kv.begin_streamed(layer, &all);
        let mut recorded = Vec::new();
        for fill in self.fills(0..n_batches) {
            let groups = self.fill_staging(gpu, pacer, fill.clone(), &mut recorded)?;
            let here = retain(wanted, |page| groups.contains(&page));
            let table = self.kv.blocks_in_batches(fill, &here);
            if let Some(ops) = &s.staging_ops {
                s.request((gpu, &mut pacer.recorder), (&ops.score, 0), &table, here, &mut request);
            }
            self.submit_slots(gpu, pacer, &mut recorded)?;
        }
        let submitted = pacer.submit(gpu)?;
        let n_bytes = request.end as usize;
        let values: Vec<f32> =
            pacer.read_after(gpu, &submitted, &s.scorer.readback, |bytes| bytemuck::pod_collect_to_vec(&bytes[..n_bytes]))?;
        request.distribute(&values, self.model.dims.n_head, scores);
        Ok(())
    }

    /// Compares the selections of measured sequences with the full attention.
    #[allow(clippy::too_many_arguments, reason = "the layer's whole state, once")]
    pub(in crate::engine::selection) fn measure_mass(
        &mut self,
        s: &mut Selector,
        device: &mut Device,
        layer: usize,
        n_context: usize,
        rows: &mut [Row],
        selected: &[RowSelection],
        mut tails: Vec<Vec<f32>>,
    ) -> Result<(), EngineError> {
        let measured: Vec<bool> = policies(rows).map(|policy| policy.measures_mass()).collect();
        let all: Vec<u32> = (0..(n_context / KV_PAGE_TOKENS) as u32).collect();
        let wanted: Vec<Vec<u32>> = measured.iter().map(|is| if *is { all.clone() } else { Vec::new() }).collect();
        let mut full: Vec<RowScores> = rows.iter().map(|_| RowScores::default()).collect();
        self.score_rows(s, device, layer, &wanted, &mut full)?;
        if tails.iter().any(Vec::is_empty) {
            tails = self.score_tails(s, device, layer, n_context, rows)?;
        }
        let (n_head, n_kv_head, is_single) = (self.model.dims.n_head, self.model.dims.n_kv_head, rows.len() == 1);
        for (i, policy) in policies(rows).enumerate().filter(|(i, _)| measured[*i]) {
            let mut heads = full[i].runs.in_order(&full[i].scores, n_head);
            if is_single {
                self.attention_meter.record(layer, &head_masses(&heads, n_kv_head));
            }
            let n_tail = tails[i].len() / n_head;
            heads.iter_mut().zip(tails[i].chunks_exact(n_tail)).for_each(|(pages, tail)| pages.extend(tail));
            let retained = policy.stats.record_mass(layer, &selected[i].selection, &head_masses(&heads, n_kv_head), n_tail);
            s.mass.lane.instant(mass_event(layer, &retained));
            s.mass.pages = policy.stats.page_mass().to_vec();
        }
        Ok(())
    }

    /// Scores f32 `[H, n_keys]` of every tail, including the new token. Waits for the GPU.
    fn score_tails(
        &self,
        s: &Selector,
        device: &mut Device,
        layer: usize,
        n_context: usize,
        rows: &[Row],
    ) -> Result<Vec<Vec<f32>>, EngineError> {
        let Device { gpu, pacer } = device;
        let mut ends = vec![0];
        for (i, row) in rows.iter().enumerate() {
            let at = ends[i];
            ends.push(at + self.record_tail_scores(s, (gpu, &mut pacer.recorder), (layer, i), n_context, &row.kv, at));
        }
        let submitted = pacer.submit(gpu)?;
        Ok(pacer.read_after(gpu, &submitted, &s.scorer.readback, |bytes| {
            let tail = |range: &[u64]| bytemuck::pod_collect_to_vec(&bytes[range[0] as usize..range[1] as usize]);
            ends.windows(2).map(tail).collect()
        })?)
    }

    /// Starts the transfers of selected pages and the prefetch of the next layer. Updates the statistics.
    fn begin_transfers(
        &mut self,
        s: &mut Selector,
        layer: usize,
        n_pages: usize,
        rows: &mut [Row],
        selected: &[RowSelection],
        prefetched: Option<&Prefetched>,
    ) -> SelectedStream {
        let pages = unique(selected.iter().flat_map(|row| &row.selection.pages).copied().collect());
        let next = unique(selected.iter().filter_map(|row| row.next.as_ref()).flat_map(|(_, pages)| pages).copied().collect());
        let next = selected.iter().any(|row| row.next.is_some()).then_some((layer + 1, next.as_slice()));
        let arrived = prefetched.map_or(&[] as &[u32], |prefetched| &prefetched.arrived);
        for (policy, row) in policies(rows).zip(selected) {
            let n_resident = row.selection.pages.iter().filter(|page| self.kv.is_resident(layer, **page)).count();
            policy.stats.record(&row.selection, n_pages, row.selection.pages.len() - n_resident, arrived);
        }
        let view = KvCacheView::of(&self.kv);
        let theta = |bytes| if self.synchronous { 0.0 } else { s.overlap.theta(&view, layer, bytes) };
        let stream = self.kv.begin_selected(layer, &pages, n_pages, s.clock + 1, next, theta);
        policies(rows).for_each(|policy| policy.stats.record_stream(&stream));
        s.frequency.record(layer, s.clock, &pages, 1.0);
        // The sequences of a batch begin at different steps: pages are not pinned anew for each of them.
        let is_first = matches!(rows, [Row { policy: Some(policy), .. }] if policy.step == 0);
        if layer == 0 && (is_first || s.clock.is_multiple_of(PREFER_EVERY)) {
            self.pin_hot_pages(&s.frequency, n_pages, s.clock, s.spec.n_first_layers);
        }
        stream
    }

    /// Records attention over the selected blocks: first those in frames, once they are fetched, then those in the staging
    /// pool, fill by fill, then the tails.
    #[allow(clippy::too_many_arguments, reason = "the layer's whole state, once")]
    fn attend_blocks(
        &mut self,
        s: &mut Selector,
        device: &mut Device,
        layer: usize,
        n_context: usize,
        rows: &mut [Row],
        selected: Vec<RowSelection>,
        prefetched: Option<&Prefetched>,
        mut recorded: Vec<StagedBatch>,
    ) -> Result<ActivationForm, EngineError> {
        let stream = self.begin_transfers(s, layer, n_context / KV_PAGE_TOKENS, rows, &selected, prefetched);
        let Device { gpu, pacer } = device;
        pacer.mark(KernelFamily::Attention, layer as u32);
        let blocks: Vec<Vec<SelectedBlock>> = selected.into_iter().flat_map(|row| row.selection.blocks).collect();
        let tables = self.fetch_into_frames(gpu, pacer, layer, &stream, &blocks, &mut recorded)?;
        let mut splits = Splits::new(&s.decode, rows, n_context, &tables.run_keys());
        let mut read = |pacer: &mut SubmitPacer, ops: &SelectedOps, binding: &Binding, table: &BlockTable| {
            gpu.write(&ops.table, bytemuck::cast_slice(&table.entries));
            let (keys, all) = splits.next(table.n_listed, table.n_listed);
            s.decode.record_rows(&mut pacer.recorder, binding, keys, all);
        };
        for (ops, table) in s.segments.iter().zip(&tables.in_segments).filter(|(_, table)| table.n_listed > 0) {
            read(pacer, ops, &ops.decode[layer], table);
        }
        for (fill, table) in &tables.in_fills {
            self.fill_staging(gpu, pacer, fill.clone(), &mut recorded)?;
            if let Some(ops) = &s.staging_ops {
                read(pacer, ops, &ops.decode[0], table);
            }
            // The next fill overwrites the table.
            self.submit_slots(gpu, pacer, &mut recorded)?;
        }
        self.attend_tails(pacer, layer, n_context, rows, &mut splits);
        let form = self.merge_rows(pacer, layer, &splits);
        // Table writes take effect before submitted commands, so this layer must be submitted before the next one writes its
        // tables. If the next layer is scored, that is a submit anyway.
        let is_submitted = recorded.is_empty() && s.spec.kind.reads_abstracts();
        if !is_submitted {
            self.submit_slots(gpu, pacer, &mut recorded)?;
        }
        Ok(form)
    }
}

/// Policies of the rows, in order. All rows of a selective pass have one.
fn policies<'r>(rows: &'r mut [Row]) -> impl Iterator<Item = &'r mut SequencePolicy> {
    rows.iter_mut().filter_map(|row| row.policy.as_deref_mut())
}

fn retain(rows: &[Vec<u32>], keeps: impl Fn(u32) -> bool) -> Vec<Vec<u32>> {
    rows.iter().map(|pages| pages.iter().copied().filter(|page| keeps(*page)).collect()).collect()
}

fn mass_event(layer: usize, mass: &MassKept) -> EventKind {
    let ppm = |share: f64| (share.clamp(0.0, 1.0) * 1e6).round() as u32;
    EventKind::Mass { layer: layer as u32, kept_ppm: ppm(mass.kept), best_ppm: ppm(mass.best) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_go_to_the_rows_that_requested_them() {
        // Two heads; the first row requests two pages, the second one, in one run as long as the longer list.
        let request = ScoreRequest { runs: vec![(vec![vec![3, 5], vec![4]], 2 * KV_PAGE_TOKENS)], begin: 0, end: 0 };
        let values: Vec<f32> = (0..8).flat_map(|i| [i as f32; KV_PAGE_TOKENS]).collect();
        let mut rows = [RowScores::default(), RowScores::default()];
        request.distribute(&values, 2, &mut rows);
        let pages = |row: &RowScores| row.scores.chunks(KV_PAGE_TOKENS).map(|page| page[0]).collect::<Vec<_>>();
        assert_eq!((rows[0].runs.pages.as_slice(), pages(&rows[0])), ([3, 5].as_slice(), vec![0.0, 1.0, 2.0, 3.0]));
        assert_eq!((rows[1].runs.pages.as_slice(), pages(&rows[1])), ([4].as_slice(), vec![4.0, 6.0]));
    }
}
