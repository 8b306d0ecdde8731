//! Token scorer: q · k scores of single tokens, run by run, with the buffers of the kernel.
//!
//! ```text
//! q [R, H, D], pages of a run, lists of blocks ─► Scorer::record ─► scores [R, H, n_keys] ─► readback ─► ScoreRuns
//! ```
//! Owner: the engine thread. Shapes: R rows, H query heads of each.

use std::ops::Range;

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::error::EngineError;
use crate::engine::runner::device_parts::DeviceParts;
use crate::gpu::kernels::qk_scores::QkScores;
use crate::gpu::{Binding, Buffer, Gpu, GpuError, Recorder, Slice};
use crate::kv::policy::scores::ScoreRuns;
use crate::kv::{BLOCKS_PER_PAGE, BlockTable, VramCache};

/// Bind groups to score one run of pages: a segment or the staging pool.
pub(in crate::engine) struct ScoreOps {
    /// block table of the scored pages
    pub table: Slice,
    /// token scores f32 `[R, H, n_keys]`
    pub scores: Slice,
    /// by layer; one for the staging pool, which all layers share
    pub bindings: Vec<Binding>,
}

/// Scoring kernel and the readback buffer of its scores.
pub(in crate::engine) struct Scorer {
    pub kernel: QkScores,
    pub readback: Buffer,
}

/// Pages of a segment, by layer.
pub(in crate::engine) fn pages_of(parts: DeviceParts<'_>, segment: usize) -> Vec<&Slice> {
    (0..parts.model.dims.n_layer).map(|layer| &parts.kv.segment(segment, layer).pages).collect()
}

impl ScoreOps {
    /// Creates buffers and bind groups for runs of `n_pages` and `n_rows` queries.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub fn new(
        gpu: &Gpu,
        parts: DeviceParts<'_>,
        kernel: &QkScores,
        n_rows: usize,
        n_pages: usize,
        pages: &[&Slice],
    ) -> Result<ScoreOps, EngineError> {
        let table = gpu.buffer("scored blocks", BlockTable::block_bytes(n_rows * parts.model.dims.n_kv_head, n_pages))?.all();
        let score_bytes = n_rows as u64 * kernel.scores_bytes(n_pages * KV_PAGE_TOKENS);
        let scores = gpu.buffer("token scores", score_bytes)?.all();
        let bindings = pages.iter().map(|pages| kernel.bind(gpu, [&parts.model.act.q, pages, &table, &scores]));
        Ok(ScoreOps { bindings: bindings.collect::<Result<_, GpuError>>()?, table, scores })
    }

    /// Records the scores of the first `n_keys` of lists of `n_blocks` for these rows of q, and their copy to an offset of the
    /// readback buffer. Returns their bytes.
    pub fn record(
        &self,
        (recorder, kernel): (&mut Recorder, &QkScores),
        binding: usize,
        (n_keys, n_blocks): (usize, usize),
        rows: Range<usize>,
        (readback, at): (&Buffer, u64),
    ) -> u64 {
        let size = rows.len() as u64 * kernel.scores_bytes(n_keys);
        kernel.record_rows(recorder, &self.bindings[binding], n_keys, n_blocks, rows);
        recorder.copy(&self.scores.buffer.slice(self.scores.offset, size), &readback.slice(at, size));
        size
    }
}

impl Scorer {
    /// Records the scores of all tokens of `pages`, listed in `table`, and their copy after those of `scoring`.
    pub fn record(
        &self,
        gpu: &Gpu,
        recorder: &mut Recorder,
        (ops, binding): (&ScoreOps, usize),
        table: &BlockTable,
        pages: &[u32],
        scoring: &mut ScoreRuns,
    ) {
        gpu.write(&ops.table, bytemuck::cast_slice(&table.entries));
        let n_keys = pages.len() * KV_PAGE_TOKENS;
        let keys = (n_keys, pages.len() * BLOCKS_PER_PAGE);
        scoring.end += ops.record((recorder, &self.kernel), binding, keys, 0..1, (&self.readback, scoring.end));
        scoring.pages.extend_from_slice(pages);
        scoring.runs.push(n_keys);
    }
}

/// Scorer of the tokens after the last complete page, in the element type of the tail.
pub(in crate::engine) struct TailScores {
    pub(in crate::engine::selection) kernel: QkScores,
    ops: ScoreOps,
}

impl TailScores {
    /// # Errors
    /// A kernel that does not compile, out of VRAM, a lost device.
    pub fn new(gpu: &Gpu, parts: DeviceParts<'_>) -> Result<TailScores, EngineError> {
        let d = &parts.model.dims;
        let kernel = QkScores::new(gpu, d.n_head, d.n_kv_head, d.head_dim, parts.kv.spec().work)?;
        let tails: Vec<&Slice> = (0..d.n_layer).map(|layer| parts.kv.tail(layer).0).collect();
        let ops = ScoreOps::new(gpu, parts, &kernel, 1, 1, &tails)?;
        Ok(TailScores { kernel, ops })
    }

    /// Records the scores of the first `n_keys` tokens of a layer's tail, at most a page, and their copy to an offset of the
    /// readback buffer. Returns their bytes.
    pub fn record(
        &self,
        kv: &VramCache,
        (gpu, recorder): (&Gpu, &mut Recorder),
        layer: usize,
        n_keys: usize,
        readback: (&Buffer, u64),
    ) -> u64 {
        let table = kv.blocks_in_tail(&[0]);
        gpu.write(&self.ops.table, bytemuck::cast_slice(&table.entries));
        self.ops.record((recorder, &self.kernel), layer, (n_keys, table.n_listed), 0..1, readback)
    }
}
