//! Fetch of selected pages: hot pages into frames, the others into staging buffers, and token tables of both for the kernels.
//!
//! ```text
//! stream ─┬─ framed batches ─► frames ─► a table per segment ─────────┐
//!         └─ others ─► fills of the staging pool ─► a table per fill ─┴─► SelectedOps: decode, token scores
//! ```
//! Owner: the engine thread. Shapes: R rows, H query heads and G KV heads of each.

use std::ops::Range;

use crate::engine::error::EngineError;
use crate::engine::runner::executor::Executor;
use crate::engine::runner::pass::SequenceKv;
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::engine::selection::Selector;
use crate::engine::selection::selected_ops::SelectedTables;
use crate::engine::selection::token_scorer::{ScoreOps, Scorer};
use crate::gpu::{Gpu, Recorder};
use crate::kv::policy::SelectedBlock;
use crate::kv::policy::access_frequency::FrequencyTable;
use crate::kv::policy::scores::ScoreRuns;
use crate::kv::{SelectedStream, StagedBatch};

impl Executor {
    /// Records the scores of all tokens of those `pages` that are in frames. `segments` are those of the pool.
    pub(in crate::engine) fn score_in_frames<'a>(
        &self,
        scorer: &Scorer,
        segments: impl Iterator<Item = &'a ScoreOps>,
        (gpu, recorder): (&Gpu, &mut Recorder),
        layer: usize,
        pages: &[u32],
        scoring: &mut ScoreRuns,
    ) {
        for (i, ops) in segments.enumerate() {
            let here: Vec<u32> = pages.iter().copied().filter(|page| self.kv.is_in_segment(layer, i, *page)).collect();
            if !here.is_empty() {
                let table = self.kv.blocks_in_segment(layer, i, std::slice::from_ref(&here));
                scorer.record(gpu, recorder, (ops, layer), &table, &here, scoring);
            }
        }
    }

    /// Records the scores of a row's tail, including the new token, and their copy to `at` of the readback buffer. Returns
    /// their bytes.
    pub(in crate::engine) fn record_tail_scores(
        &self,
        s: &Selector,
        (gpu, recorder): (&Gpu, &mut Recorder),
        (layer, row): (usize, usize),
        n_context: usize,
        kv: &SequenceKv,
        at: u64,
    ) -> u64 {
        let readback = (&s.scorer.readback, at);
        match kv {
            SequenceKv::Context => {
                let n_keys = kv.n_tokens(n_context) + 1;
                s.tail_scores.record(&self.kv, (gpu, recorder), layer, n_keys, readback)
            }
            SequenceKv::Own(tail) => tail.record_scores((recorder, &s.tail_scores.kernel), (layer, row), readback),
        }
    }

    /// Pins the hot pages in RAM: the recently selected ones.
    pub(in crate::engine) fn pin_hot_pages(
        &mut self,
        frequency: &FrequencyTable,
        n_pages: usize,
        clock: u64,
        n_first_layers: usize,
    ) {
        if !self.kv.has_offload() {
            return;
        }
        let in_vram_alone = |page| self.kv.is_in_vram_alone(page);
        let hot = frequency.keep_off_disk(clock, n_pages, n_first_layers, self.kv.n_ram_pages(), in_vram_alone);
        self.kv.pin(&hot);
    }

    /// Moves the prefetched pages of the layer that have arrived into frames. Returns them.
    ///
    /// # Errors
    /// A page that cannot be read, a lost device.
    pub(in crate::engine) fn collect_prefetched(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer: usize,
        recorded: &mut Vec<StagedBatch>,
    ) -> Result<Vec<u32>, EngineError> {
        let mut arrived = Vec::new();
        while let Some(filled) = self.kv.next_prefetched(gpu, layer)? {
            arrived.extend(self.kv.record_frames(&mut pacer.recorder, &filled));
            recorded.push(filled);
        }
        Ok(arrived)
    }

    /// Fetches the framed batches of `stream`. Returns the tables of the tokens to read: those of `blocks`, by KV head of each
    /// row.
    ///
    /// # Errors
    /// A page that cannot be read, a lost device.
    pub(in crate::engine) fn fetch_into_frames(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer: usize,
        stream: &SelectedStream,
        blocks: &[Vec<SelectedBlock>],
        recorded: &mut Vec<StagedBatch>,
    ) -> Result<SelectedTables, EngineError> {
        for _ in 0..stream.n_framed {
            let filled = self.next_slot(gpu, pacer, recorded)?;
            let framed = self.kv.record_frames(&mut pacer.recorder, &filled).len();
            debug_assert_eq!(framed, filled.groups().len(), "what was promised a frame has one");
            recorded.push(filled);
        }
        let n_segments = self.kv.shapes().len();
        let fills = self.fills(stream.n_framed..stream.n_framed + stream.n_unframed);
        Ok(SelectedTables {
            in_segments: (0..n_segments).map(|i| self.kv.selected_in_segment(layer, i, blocks)).collect(),
            in_fills: fills.into_iter().map(|fill| (fill.clone(), self.kv.selected_in_batches(fill, blocks))).collect(),
        })
    }

    /// Batches of the stream in fills of the staging pool.
    pub(in crate::engine) fn fills(&self, batches: Range<usize>) -> Vec<Range<usize>> {
        let n_slots = self.kv.plan().n_slots;
        batches.clone().step_by(n_slots).map(|first| first..batches.end.min(first + n_slots)).collect()
    }

    /// Fetches these batches into the staging pool, contiguously. Returns their pages.
    ///
    /// # Errors
    /// A page that cannot be read, a lost device.
    pub(in crate::engine) fn fill_staging(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        batches: Range<usize>,
        recorded: &mut Vec<StagedBatch>,
    ) -> Result<Vec<u32>, EngineError> {
        let mut pages = Vec::new();
        for _ in batches {
            let filled = self.next_slot(gpu, pacer, recorded)?;
            self.kv.record_to_staging(&mut pacer.recorder, &filled, pages.len());
            pages.extend_from_slice(filled.groups());
            recorded.push(filled);
        }
        Ok(pages)
    }

    /// Returns the next batch of the stream. If it has not arrived and more than half of the staging buffers are recorded,
    /// submits these first, so that they can be refilled.
    ///
    /// # Errors
    /// A page that cannot be read, a lost device.
    pub(in crate::engine) fn next_slot(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        recorded: &mut Vec<StagedBatch>,
    ) -> Result<StagedBatch, EngineError> {
        if recorded.len() * 2 > self.kv.plan().n_slots && !self.kv.is_next_filled(gpu)? {
            self.submit_slots(gpu, pacer, recorded)?;
        }
        match pacer.aside(|| self.kv.next_filled(gpu)) {
            Ok(filled) => Ok(filled),
            Err(error) => {
                // Recorded frames count as filled, and recorded staging buffers as in use, so their commands must be submitted.
                self.submit_slots(gpu, pacer, recorded)?;
                Err(error.into())
            }
        }
    }
}
