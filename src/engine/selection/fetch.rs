//! Fetch of selected pages: hot pages into frames, the others into staging buffers, and token tables of both for the kernels.
//!
//! ```text
//! stream ─┬─ framed batches ─► frames ─► a table per segment ─────────┐
//!         └─ others ─► fills of the staging area ─► a table per fill ─┴─► SelectedOps: decode, token scores
//! ```
//! Owner: the engine thread. Shapes: R rows, H query heads and G KV heads of each.

use std::ops::Range;

use crate::engine::error::EngineError;
use crate::engine::runner::executor::Executor;
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::engine::selection::token_scorer::{ScoreOps, pages_of};
use crate::gpu::kernels::attention_decode::{AttentionDecode, SPLIT_KEYS};
use crate::gpu::kernels::qk_scores::QkScores;
use crate::gpu::{Binding, Gpu, GpuError, Slice};
use crate::kv::policy::SelectedBlock;
use crate::kv::policy::access_frequency::FrequencyTable;
use crate::kv::{BlockTable, SelectedStream, StagedBatch};

/// Bind groups over one run of pages, a segment or the staging area, of which each KV head of each row reads its selection.
pub(in crate::engine) struct SelectedOps {
    /// tokens that attention reads
    pub table: Slice,
    /// by layer; one for the staging area, which all layers share
    pub decode: Vec<Binding>,
    /// token scores
    pub score: ScoreOps,
}

/// Attention kernel and scoring kernel.
pub(in crate::engine) type Kernels<'a> = (&'a AttentionDecode, &'a QkScores);

impl SelectedOps {
    /// Bind groups over a segment of frames.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub fn of_segment(
        gpu: &Gpu,
        exec: &Executor,
        kernels: Kernels<'_>,
        n_rows: usize,
        segment: usize,
    ) -> Result<SelectedOps, EngineError> {
        SelectedOps::new(gpu, exec, kernels, n_rows, exec.kv.shapes()[segment].n_frames, &pages_of(exec, segment))
    }

    /// Bind groups over the staging area. None without offload tiers.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub fn of_area(gpu: &Gpu, exec: &Executor, kernels: Kernels<'_>, n_rows: usize) -> Result<Option<SelectedOps>, EngineError> {
        let n_pages = exec.kv.plan().n_slots * exec.kv.plan().slot_pages;
        exec.kv.area().map(|area| SelectedOps::new(gpu, exec, kernels, n_rows, n_pages, &[area])).transpose()
    }

    fn new(
        gpu: &Gpu,
        exec: &Executor,
        (attention, token_scores): Kernels<'_>,
        n_rows: usize,
        n_pages: usize,
        pages: &[&Slice],
    ) -> Result<SelectedOps, EngineError> {
        let table = gpu.buffer("chosen tokens", BlockTable::token_bytes(n_rows * exec.model.dims.n_kv_head, n_pages))?.all();
        let (acc, state) = exec.split_slices()?;
        let decode = pages.iter().map(|pages| attention.bind_split(gpu, [&exec.model.act.q, pages, &table, acc, state]));
        Ok(SelectedOps {
            decode: decode.collect::<Result<_, GpuError>>()?,
            score: ScoreOps::new(gpu, exec, token_scores, n_rows, n_pages, pages)?,
            table,
        })
    }
}

/// Token tables of a stream.
pub(in crate::engine) struct SelectedTables {
    /// by segment
    pub in_segments: Vec<BlockTable>,
    /// batches that fill the staging area together, and their table
    pub in_fills: Vec<(Range<usize>, BlockTable)>,
}

impl SelectedTables {
    /// Number of splits of all tables.
    pub fn n_splits(&self) -> usize {
        self.in_segments.iter().chain(self.in_fills.iter().map(|(_, table)| table)).map(n_splits).sum()
    }
}

/// Number of splits of one table.
pub(in crate::engine) fn n_splits(tokens: &BlockTable) -> usize {
    tokens.n_listed.div_ceil(SPLIT_KEYS)
}

impl Executor {
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
        let mut came = Vec::new();
        while let Some(filled) = self.kv.next_prefetched(gpu, layer)? {
            came.extend(self.kv.record_frames(&mut pacer.recorder, &filled));
            recorded.push(filled);
        }
        Ok(came)
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

    /// Batches of the stream in fills of the staging area.
    pub(in crate::engine) fn fills(&self, batches: Range<usize>) -> Vec<Range<usize>> {
        let n_slots = self.kv.plan().n_slots;
        batches.clone().step_by(n_slots).map(|first| first..batches.end.min(first + n_slots)).collect()
    }

    /// Fetches these batches into the staging area, contiguously. Returns their pages.
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
            self.kv.record_area(&mut pacer.recorder, &filled, pages.len());
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
