//! One layer ahead: what the next layer will want, by a query made of this layer's input.
//!
//! ```text
//! x of layer l ─► norm, qkv, rope of layer l + 1 ─► estimated q ─► score_pages ─► pages to bring while layer l computes
//! ```
//! 1. The estimate moves pages and orders scores; what attention reads is up to the exact query. 2. Keys and values that come
//!    with it go to a page of their own.
//!
//! Source: LeoAM, section 4.4 and figure 13, which takes the technique from InfiniGen (section 4.3: inputs of neighboring
//! layers are alike).

use crate::engine::error::EngineError;
use crate::engine::runner::gpu_model::GpuModel;
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::gpu::kernels::page_bounds::PageBoundsKernel;
use crate::gpu::kernels::rope_append::AppendRange;
use crate::gpu::{Binding, Gpu, Slice};
use crate::kv::BLOCKS_PER_PAGE;

/// What is expected of a layer.
#[derive(Debug, Clone)]
pub(in crate::engine) struct Prefetched {
    /// which
    pub layer: usize,
    /// pages whose tokens are worth scoring where they are in VRAM
    pub candidates: Vec<u32>,
    /// pages that came into VRAM for it
    pub came: Vec<u32>,
}

/// Bind groups of the estimate.
pub(in crate::engine) struct LookaheadOps {
    /// f32 `[H, D]`
    q: Slice,
    /// where keys and values go that nobody reads
    page: Slice,
    table: Slice,
    /// by layer
    rope: Vec<Binding>,
    score: Vec<Binding>,
}

impl LookaheadOps {
    /// The buffers.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub fn new(gpu: &Gpu, model: &GpuModel) -> Result<LookaheadOps, EngineError> {
        let kv = model.kv.spec();
        let table = gpu.buffer("table of nobody's page", kv.table_bytes(1))?.all();
        gpu.upload(&table, bytemuck::cast_slice(&kv.table(&[0], BLOCKS_PER_PAGE)))?;
        Ok(LookaheadOps {
            q: gpu.buffer("estimated q", (model.dims.q_dim() * 4) as u64)?.all(),
            page: gpu.buffer("nobody's page", kv.tail_page_bytes())?.all(),
            table,
            rope: Vec::new(),
            score: Vec::new(),
        })
    }

    /// Makes the bind groups that are missing. `bounds` are nobody's once those of a layer were copied.
    pub fn bind(&mut self, gpu: &Gpu, model: &GpuModel, scorer: &PageBoundsKernel, bounds: &Slice) -> Result<(), EngineError> {
        for layer in self.rope.len()..model.dims.n_layer {
            let Some(abstracts) = model.kv.abstracts(layer) else { break };
            self.rope.push(model.bind_rope(gpu, layer, &self.table, &self.page, &self.q)?);
            self.score.push(scorer.bind(gpu, [&self.q, abstracts, bounds])?);
        }
        Ok(())
    }

    /// Records the bounds of the first `n_pages` of `layer` by the estimate, while x is still the input of the layer before.
    pub fn record(
        &self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        model: &GpuModel,
        scorer: &PageBoundsKernel,
        layer: usize,
        n_pages: usize,
    ) -> Result<(), EngineError> {
        model.record_qkv(gpu, pacer, layer, 1)?;
        let range = AppendRange { first_token: 0, n_tokens: 1, first_slot: 0, n_blocks: BLOCKS_PER_PAGE };
        model.rope_append.record(&mut pacer.recorder, &self.rope[layer], range);
        scorer.record(&mut pacer.recorder, &self.score[layer], n_pages, 1);
        Ok(())
    }
}
