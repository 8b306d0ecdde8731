//! Page attention: attention mass that the last tokens of a chunk give to each page, from the prefill scores.
//!
//! ```text
//! tile: exp(score - max), max ─► log-sum-exp of each page ─┐
//! after the last tile: max, sum ───────────────────────────┴─► share of every page, mean over tokens and heads
//! ```
//! 1. Tiles have whole pages. 2. Keys outside the observed tiles count only in the sum.
//!
//! Source: SnapKV §3 (an observation window at the end of the prompt predicts what the answer attends to).

use std::sync::Arc;

use super::attention_prefill::KeyTile;
use crate::base::limits::KV_PAGE_TOKENS;
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// Pages per workgroup.
const SET_PAGES: usize = 64;

/// The two compiled kernels.
pub struct PageAttentionKernel {
    lse: Arc<Kernel>,
    shares: Arc<Kernel>,
    n_head: usize,
    n_kv_head: usize,
}

/// Observation window, and its maximum number of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// tokens of the chunk
    pub n_tokens: usize,
    /// number of last tokens in the window
    pub n_observed: usize,
    /// row stride of the log-sum-exp buffer, in pages
    pub stride: usize,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct LseParams {
    n_rows: u32,
    n_observed: u32,
    n_tile_keys: u32,
    first_page: u32,
    stride: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct ShareParams {
    n_rows: u32,
    n_observed: u32,
    n_kv_head: u32,
    n_pages: u32,
    stride: u32,
    to: u32,
}

fn keys() -> [KernelKey; 2] {
    ["attention/page_logsumexp", "attention/page_attention"].map(|name| KernelKey::new(name, &[]))
}

pub(super) fn variants() -> Vec<KernelKey> {
    keys().to_vec()
}

impl PageAttentionKernel {
    /// Compiles the kernels for H = `n_head`, G = `n_kv_head`.
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, n_head: usize, n_kv_head: usize) -> Result<PageAttentionKernel, GpuError> {
        let [lse, shares] = keys();
        Ok(PageAttentionKernel { lse: gpu.kernel(&lse)?, shares: gpu.kernel(&shares)?, n_head, n_kv_head })
    }

    /// Bytes of the log-sum-exp buffer of a window.
    pub fn lse_bytes(&self, window: Window) -> u64 {
        (self.n_head * window.n_observed * window.stride * size_of::<f32>()) as u64
    }

    /// Binds the scores and state of prefill, the log-sum-exp buffer, and shares f32 `[.., P]`.
    ///
    /// # Errors
    /// Buffers the device refuses to bind.
    pub fn bind(&self, gpu: &Gpu, [scores, state, lse, shares]: [&Slice; 4]) -> Result<[Binding; 2], GpuError> {
        Ok([gpu.bind(&self.lse, &[scores, state, lse])?, gpu.bind(&self.shares, &[lse, state, shares])?])
    }

    /// Records the pages of the tile whose scores were recorded last; its first page has the index `first_page`.
    pub fn record_tile(
        &self,
        recorder: &mut Recorder,
        [lse, _]: &[Binding; 2],
        window: Window,
        tile: &KeyTile,
        first_page: usize,
    ) {
        debug_assert!(tile.n_keys.is_multiple_of(KV_PAGE_TOKENS) && tile.n_tokens == window.n_tokens, "{tile:?}");
        let params = LseParams {
            n_rows: self.rows(window.n_tokens),
            n_observed: self.rows(window.n_observed),
            n_tile_keys: tile.n_keys as u32,
            first_page: first_page as u32,
            stride: window.stride as u32,
        };
        let sets = (tile.n_keys / KV_PAGE_TOKENS).div_ceil(SET_PAGES);
        recorder.dispatch(&self.lse, lse, &params, [sets as u32, params.n_observed, self.n_kv_head as u32]);
    }

    /// Records the shares of the first `n_pages`, after the last tile of all keys. Writes them from index `to` on.
    pub fn record_shares(&self, recorder: &mut Recorder, [_, shares]: &[Binding; 2], window: Window, n_pages: usize, to: usize) {
        let params = ShareParams {
            n_rows: self.rows(window.n_tokens),
            n_observed: self.rows(window.n_observed),
            n_kv_head: self.n_kv_head as u32,
            n_pages: n_pages as u32,
            stride: window.stride as u32,
            to: to as u32,
        };
        recorder.dispatch(&self.shares, shares, &params, [n_pages.div_ceil(SET_PAGES) as u32, 1, 1]);
    }

    /// Rows of each KV head: a token has one row per query head of the group.
    fn rows(&self, n_tokens: usize) -> u32 {
        (n_tokens * (self.n_head / self.n_kv_head)) as u32
    }
}
