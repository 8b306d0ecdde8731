//! SnapKV observation window: attention of the last prompt tokens, which predicts the pages that the answer attends to.
//!
//! ```text
//! last tokens of the prompt, exact attention ─► attention mass by layer and page ─► RetainedPages
//! ```
//! 1. Nothing is observed if all pages are in VRAM, because every candidate is scored there.
//!
//! Owner: the engine thread. Shapes: L layers, P pages in the order of attention.
//!
//! Source: SnapKV §3 (see [`crate::kv::policy::retention`]).

use crate::engine::error::EngineError;
use crate::engine::runner::device_parts::DeviceParts;
use crate::gpu::kernels::attention_prefill::KeyTile;
use crate::gpu::kernels::page_attention::{PageAttentionKernel, Window};
use crate::gpu::{Binding, Buffer, Gpu, Recorder, Slice};

/// Tokens of the observation window.
pub(super) const OBSERVED_TOKENS: usize = 32;

/// Observed attention of one pass.
pub(in crate::engine) struct ObservationWindow {
    pub(super) kernel: PageAttentionKernel,
    pub(super) window: Window,
    pub(super) bindings: [Binding; 2],
    /// f32 `[L, P]`
    pub(super) shares: Slice,
    pub(super) readback: Buffer,
    /// by layer: pages in the order of attention
    pub(super) order: Vec<Vec<u32>>,
}

impl ObservationWindow {
    pub(super) fn new(
        gpu: &Gpu,
        parts: DeviceParts<'_>,
        n_tokens: usize,
        n_observed: usize,
        n_pages: usize,
    ) -> Result<ObservationWindow, EngineError> {
        let d = &parts.model.dims;
        let kernel = PageAttentionKernel::new(gpu, d.n_head, d.n_kv_head)?;
        let window = Window { n_tokens, n_observed, stride: n_pages };
        let lse = gpu.buffer("attention of pages", kernel.lse_bytes(window))?.all();
        let n_bytes = (d.n_layer * n_pages * size_of::<f32>()) as u64;
        let shares = gpu.buffer("shares of pages", n_bytes)?.all();
        let bindings = kernel.bind(gpu, [&parts.model.act.scores, &parts.model.act.prefill_state, &lse, &shares])?;
        let readback = gpu.readback_buffer("shares of pages", n_bytes)?;
        Ok(ObservationWindow { kernel, window, bindings, shares, readback, order: Vec::new() })
    }

    /// Records the attention of a tile of whole pages, after its scores. `first_page` pages precede it.
    pub fn record_tile(&self, recorder: &mut Recorder, tile: &KeyTile, first_page: usize) {
        self.kernel.record_tile(recorder, &self.bindings, self.window, tile, first_page);
    }

    /// Records the attention shares of the current layer, after its last tile.
    pub fn record_layer(&self, recorder: &mut Recorder) {
        let Some(layer) = self.order.len().checked_sub(1) else { return };
        let to = layer * self.window.stride;
        self.kernel.record_shares(recorder, &self.bindings, self.window, self.order[layer].len(), to);
    }
}
