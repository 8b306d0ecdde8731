//! Sequence tail: pages of a sequence's own tokens, after those that all sequences of a batch share.
//!
//! ```text
//! complete pages of the context (shared) ─► pages of one tail: the rest of the prompt, then the answer
//!                                             └─► scores: attention mass of the tail, if a policy selects
//! ```
//! 1. It stays in VRAM, in the element type of new tokens: it is neither offloaded nor quantized.
//! 2. Its pages are in order, so that one block table serves all layers.
//!
//! Owner: the engine thread. Units: tokens, pages of 64.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::error::EngineError;
use crate::engine::runner::executor::{Executor, TailOps};
use crate::engine::selection::token_scorer::ScoreOps;
use crate::gpu::kernels::qk_scores::QkScores;
use crate::gpu::{Buffer, Gpu, Recorder, Slice};
use crate::kv::{BLOCKS_PER_PAGE, BlockTable, KvSpec};

/// Pages of every layer and their bind groups.
pub(in crate::engine) struct SequenceTail {
    /// `[layer]`
    pub ops: Vec<TailOps>,
    pages: Vec<Slice>,
    /// scores of all its tokens; None if no policy selects
    scores: Option<ScoreOps>,
    /// tokens so far
    pub n_tokens: usize,
    n_pages: usize,
}

/// Bytes of a tail of `n_tokens`.
pub(in crate::engine) fn tail_bytes(spec: &KvSpec, n_tokens: usize) -> u64 {
    let n_pages = n_tokens.div_ceil(KV_PAGE_TOKENS);
    (n_pages * spec.n_layer) as u64 * spec.tail_page_bytes() + spec.table_bytes(n_pages)
}

impl SequenceTail {
    /// An empty tail with room for `n_tokens`.
    pub fn new(gpu: &Gpu, exec: &Executor, n_tokens: usize) -> Result<SequenceTail, EngineError> {
        let (spec, n_pages) = (exec.kv.spec(), n_tokens.div_ceil(KV_PAGE_TOKENS));
        let table = gpu.buffer("branch table", spec.table_bytes(n_pages))?.all();
        let order: Vec<usize> = (0..n_pages).collect();
        gpu.upload(&table, bytemuck::cast_slice(&spec.table(&order, n_pages * BLOCKS_PER_PAGE)))?;
        let (mut ops, mut pages) = (Vec::new(), Vec::new());
        for layer_idx in 0..spec.n_layer {
            let of_layer = gpu.buffer("branch pages", n_pages as u64 * spec.tail_page_bytes())?.all();
            ops.push(exec.bind_tail(gpu, layer_idx, [&of_layer, &table], None)?);
            pages.push(of_layer);
        }
        Ok(SequenceTail { ops, pages, scores: None, n_tokens: 0, n_pages })
    }

    /// Allocates buffers for the scores of its tokens, which `kernel` writes.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub fn bind_scores(&mut self, gpu: &Gpu, exec: &Executor, kernel: &QkScores) -> Result<(), EngineError> {
        let ops = ScoreOps::new(gpu, exec.parts(), kernel, 1, self.n_pages, &self.pages.iter().collect::<Vec<_>>())?;
        gpu.upload(&ops.table, bytemuck::cast_slice(&BlockTable::whole(exec.kv.spec(), self.n_pages).entries))?;
        self.scores = Some(ops);
        Ok(())
    }

    /// Records the scores of its tokens, including the new one, for row `row` of the pass, and their copy to an offset of the
    /// readback buffer. Returns their bytes; 0 without score buffers.
    pub fn record_scores(
        &self,
        kernels: (&mut Recorder, &QkScores),
        (layer, row): (usize, usize),
        readback: (&Buffer, u64),
    ) -> u64 {
        let keys = (self.n_tokens + 1, self.n_blocks());
        self.scores.as_ref().map_or(0, |scores| scores.record(kernels, layer, keys, row..row + 1, readback))
    }

    /// Logical blocks of one KV head.
    pub fn n_blocks(&self) -> usize {
        self.n_pages * BLOCKS_PER_PAGE
    }
}
