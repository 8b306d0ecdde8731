//! SnapKV observation window: attention of the last prompt tokens, which predicts the pages that the answer attends to.
//!
//! ```text
//! last tokens of the prompt, exact attention ─► attention mass by layer and page ─► RetainedPages
//! ```
//! 1. Nothing is observed if all pages are in VRAM, because every candidate is scored there.
//! 2. The weights come from the scores buffer of prefill attention. Flash attention has none: the window computes those of
//!    its own tokens.
//!
//! Owner: the engine thread. Shapes: L layers, P pages in the order of attention.
//!
//! Source: SnapKV §3 (see [`crate::kv::policy::retention`]).

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::error::EngineError;
use crate::engine::runner::device_parts::DeviceParts;
use crate::gpu::kernels::attention_prefill::{KeyTile, PrefillScores};
use crate::gpu::kernels::page_attention::{PageAttentionKernel, Window};
use crate::gpu::{Binding, Buffer, Gpu, Recorder, Slice};

/// Tokens of the observation window.
pub(super) const OBSERVED_TOKENS: usize = 32;

/// Keys of a tile of [`WindowScores`].
const SCORE_KEYS: usize = 1024;

/// Scores of the observed tokens.
struct WindowScores {
    kernels: PrefillScores,
    /// queries of the chunk
    q: Slice,
    scores: Slice,
    state: Slice,
}

/// Observed attention of one pass.
pub(in crate::engine) struct ObservationWindow {
    pub(super) kernel: PageAttentionKernel,
    pub(super) window: Window,
    pub(super) bindings: [Binding; 2],
    /// None if the scores of prefill attention are used
    own: Option<WindowScores>,
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
        let act = &parts.model.act;
        let mut bindings = kernel.bind(gpu, [&act.scores, &act.prefill_state, &lse, &shares])?;
        let prefill = &parts.model.page_attention.prefill;
        let own = match prefill.variant().is_tiled() {
            true => None,
            false => {
                let kernels = prefill.scores_only(gpu)?;
                let scores = gpu.buffer("observed scores", kernels.scores_bytes(n_observed, SCORE_KEYS))?.all();
                let state = gpu.buffer("observed state", prefill.state_bytes(n_observed))?.all();
                let [of_tile, _] = kernel.bind(gpu, [&scores, &state, &lse, &shares])?;
                bindings[0] = of_tile;
                Some(WindowScores { kernels, q: act.q.clone(), scores, state })
            }
        };
        let readback = gpu.readback_buffer("shares of pages", n_bytes)?;
        Ok(ObservationWindow { kernel, window, bindings, own, shares, readback, order: Vec::new() })
    }

    /// Records the attention of a tile of whole pages, after its prefill attention. `keys` are the pages and their block
    /// table; `first_page` pages precede the tile.
    ///
    /// # Errors
    /// A lost device.
    pub fn record_tile(
        &self,
        gpu: &Gpu,
        recorder: &mut Recorder,
        keys: &[Slice; 2],
        tile: &KeyTile,
        first_page: usize,
    ) -> Result<(), EngineError> {
        let Some(own) = &self.own else {
            self.kernel.record_tile(recorder, &self.bindings, self.window, tile, first_page);
            return Ok(());
        };
        let Window { n_tokens, n_observed, .. } = self.window;
        let window = Window { n_tokens: n_observed, ..self.window };
        let [kv, table] = keys;
        let binding = own.kernels.bind(gpu, [&own.q, kv, table, &own.scores, &own.state])?;
        let first_token = n_tokens - n_observed;
        for first in (0..tile.n_keys).step_by(SCORE_KEYS) {
            let part = KeyTile {
                n_tokens: n_observed,
                first_key: tile.first_key + first,
                n_keys: SCORE_KEYS.min(tile.n_keys - first),
                mask_from: tile.mask_from + first_token,
                is_first: true,
                ..*tile
            };
            own.kernels.record(recorder, &binding, part, first_token);
            self.kernel.record_tile(recorder, &self.bindings, window, &part, first_page + first / KV_PAGE_TOKENS);
        }
        Ok(())
    }

    /// Records the attention shares of the current layer, after its last tile.
    pub fn record_layer(&self, recorder: &mut Recorder) {
        let Some(layer) = self.order.len().checked_sub(1) else { return };
        let to = layer * self.window.stride;
        self.kernel.record_shares(recorder, &self.bindings, self.window, self.order[layer].len(), to);
    }
}
