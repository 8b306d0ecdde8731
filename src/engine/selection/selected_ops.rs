//! Selected ops: token tables and bind groups of attention over selected tokens, by segment and for the staging pool.

use std::ops::Range;

use crate::engine::error::EngineError;
use crate::engine::runner::device_parts::DeviceParts;
use crate::engine::selection::token_scorer::{ScoreOps, pages_of};
use crate::gpu::kernels::attention_decode::AttentionDecode;
use crate::gpu::kernels::qk_scores::QkScores;
use crate::gpu::{Binding, Gpu, GpuError, Slice};
use crate::kv::BlockTable;

/// Bind groups over one run of pages, a segment or the staging pool, of which each KV head of each row reads its selection.
pub(in crate::engine) struct SelectedOps {
    /// tokens that attention reads
    pub table: Slice,
    /// by layer; one for the staging pool, which all layers share
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
        parts: DeviceParts<'_>,
        kernels: Kernels<'_>,
        n_rows: usize,
        segment: usize,
    ) -> Result<SelectedOps, EngineError> {
        SelectedOps::new(gpu, parts, kernels, n_rows, parts.kv.shapes()[segment].n_frames, &pages_of(parts, segment))
    }

    /// Bind groups over the staging pool. None without offload tiers.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub fn of_staging(
        gpu: &Gpu,
        parts: DeviceParts<'_>,
        kernels: Kernels<'_>,
        n_rows: usize,
    ) -> Result<Option<SelectedOps>, EngineError> {
        let n_pages = parts.kv.plan().n_slots * parts.kv.plan().slot_pages;
        parts.kv.staging_slice().map(|slice| SelectedOps::new(gpu, parts, kernels, n_rows, n_pages, &[slice])).transpose()
    }

    fn new(
        gpu: &Gpu,
        parts: DeviceParts<'_>,
        (attention, token_scores): Kernels<'_>,
        n_rows: usize,
        n_pages: usize,
        pages: &[&Slice],
    ) -> Result<SelectedOps, EngineError> {
        let table = gpu.buffer("selected tokens", BlockTable::token_bytes(n_rows * parts.model.dims.n_kv_head, n_pages))?.all();
        let (acc, state) = parts.split_slices()?;
        let decode = pages.iter().map(|pages| attention.bind_split(gpu, [&parts.model.act.q, pages, &table, acc, state]));
        Ok(SelectedOps {
            decode: decode.collect::<Result<_, GpuError>>()?,
            score: ScoreOps::new(gpu, parts, token_scores, n_rows, n_pages, pages)?,
            table,
        })
    }
}

/// Token tables of a stream.
pub(in crate::engine) struct SelectedTables {
    /// by segment
    pub in_segments: Vec<BlockTable>,
    /// batches that fill the staging pool together, and their table
    pub in_fills: Vec<(Range<usize>, BlockTable)>,
}

impl SelectedTables {
    /// Keys of the longest list of each table.
    pub fn run_keys(&self) -> Vec<usize> {
        self.in_segments.iter().chain(self.in_fills.iter().map(|(_, table)| table)).map(|table| table.n_listed).collect()
    }
}
