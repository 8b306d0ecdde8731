//! Lookahead: pages of the next layer, predicted by a query estimated from the input of this layer.
//!
//! ```text
//! x of layer l ─► norm, qkv, rope of layer l + 1 ─► estimated q ─► page bounds ─► pages to prefetch while layer l computes
//! ```
//! 1. The estimate only triggers transfers and scores; the exact query selects what attention reads.
//! 2. The estimated keys and values are discarded.
//!
//! Source: LeoAM §4.4 Fig. 13, after InfiniGen §4.3 (inputs of neighboring layers are similar).

use crate::engine::error::EngineError;
use crate::engine::runner::device_parts::DeviceParts;
use crate::gpu::kernels::page_bounds::PageBoundsKernel;
use crate::gpu::kernels::rope_append::{AppendRange, RopeAppend};
use crate::gpu::{Binding, Gpu, Recorder, Slice};
use crate::kv::BLOCKS_PER_PAGE;

/// Prefetch of the next layer.
#[derive(Debug, Clone)]
pub(in crate::engine) struct Prefetched {
    /// the layer
    pub layer: usize,
    /// by row: pages whose tokens are scored if they are in VRAM
    pub candidates: Vec<Vec<u32>>,
    /// pages of the layer that have arrived in VRAM
    pub arrived: Vec<u32>,
}

/// Bind groups of the estimate.
pub(in crate::engine) struct LookaheadOps {
    /// estimated query f32 `[R, H, D]`
    q: Slice,
    /// discarded keys and values
    page: Slice,
    table: Slice,
    /// by layer
    rope: Vec<Binding>,
    score: Vec<Binding>,
}

impl LookaheadOps {
    /// Creates buffers for `n_rows` queries, at most 64.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub fn new(gpu: &Gpu, parts: DeviceParts<'_>, n_rows: usize) -> Result<LookaheadOps, EngineError> {
        let kv = parts.kv.spec();
        let table = gpu.buffer("table of discarded keys", kv.table_bytes(1))?.all();
        gpu.upload(&table, bytemuck::cast_slice(&kv.table(&[0], BLOCKS_PER_PAGE)))?;
        Ok(LookaheadOps {
            q: gpu.buffer("estimated q", (n_rows * parts.model.dims.q_dim() * 4) as u64)?.all(),
            page: gpu.buffer("discarded keys", kv.tail_page_bytes())?.all(),
            table,
            rope: Vec::new(),
            score: Vec::new(),
        })
    }

    /// Creates the missing bind groups. `bounds` is overwritten after the bounds of a layer were copied.
    pub fn bind(
        &mut self,
        gpu: &Gpu,
        parts: DeviceParts<'_>,
        scorer: &PageBoundsKernel,
        bounds: &Slice,
    ) -> Result<(), EngineError> {
        for layer in self.rope.len()..parts.model.dims.n_layer {
            let Some(abstracts) = parts.kv.abstracts(layer) else { break };
            self.rope.push(parts.model.bind_rope(gpu, layer, &self.table, &self.page, &self.q)?);
            self.score.push(scorer.bind(gpu, [&self.q, abstracts, bounds])?);
        }
        Ok(())
    }

    /// Records the estimated bounds of the first `n_pages` of `layer`, after its projection of x, which is still the input of
    /// the previous layer.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        rope_append: &RopeAppend,
        scorer: &PageBoundsKernel,
        layer: usize,
        (n_pages, n_rows): (usize, usize),
    ) {
        let range = AppendRange { first_token: 0, n_tokens: n_rows, first_slot: 0, n_blocks: BLOCKS_PER_PAGE };
        rope_append.record(recorder, &self.rope[layer], range);
        scorer.record(recorder, &self.score[layer], n_pages, n_rows);
    }
}
