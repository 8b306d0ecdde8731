//! Prefill attention: a chunk of new tokens over one tile of keys at a time: scores, online softmax, values.
//!
//! ```text
//! tile of keys (of one segment): q·k ─► s [G, T*group, n_tile_keys] ─► exp, running max and sum ─► out += p V
//! ```
//! 1. The tiles of a chunk run in order; the first resets the running state, the last divides by the sum.
//! 2. Token t of the chunk attends to all keys up to itself: `mask_from + t` keys, counted from the first key of the
//!    segment.

use std::sync::Arc;

use super::KvFormat;
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// Query rows per workgroup of 8 lanes; they share each load of a key.
const SUBGROUP8_ROWS: u32 = 16;

/// The three compiled kernels.
pub struct AttentionPrefill {
    scores: Arc<Kernel>,
    softmax: Arc<Kernel>,
    values: Arc<Kernel>,
    n_head: usize,
    n_kv_head: usize,
    head_dim: usize,
    subgroup8: bool,
    /// tiles begin at multiples of this
    key_step: usize,
}

/// Bind groups for one segment of one layer.
#[derive(Clone)]
pub struct PrefillBindings {
    scores: Binding,
    softmax: Binding,
    values: Binding,
}

/// One tile of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyTile {
    /// new tokens T
    pub n_tokens: usize,
    /// first key, counted from the first token of the segment; a multiple of 8, or of 64 (whole pages) if keys are
    /// quantized
    pub first_key: usize,
    /// number of keys in the tile
    pub n_keys: usize,
    /// logical blocks of the segment (row stride of its table)
    pub n_blocks: usize,
    /// keys of this segment that token 0 of the chunk attends to (may be less than `first_key`, or 0); token t attends
    /// to t more
    pub mask_from: usize,
    /// true for the first tile
    pub is_first: bool,
    /// true for the last tile
    pub is_last: bool,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct ScoreParams {
    n_rows: u32,
    group: u32,
    n_head: u32,
    n_blocks: u32,
    first_key: u32,
    n_keys: u32,
    n_tile_keys: u32,
    mask_from: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct SoftmaxParams {
    n_rows: u32,
    n_tile_keys: u32,
    is_first: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct ValueParams {
    scores: ScoreParams,
    is_first: u32,
    is_last: u32,
}

fn keys(n_kv_head: usize, head_dim: usize, element: KvFormat, subgroup8: bool) -> [KernelKey; 3] {
    let mut defines = element.defines(n_kv_head, head_dim);
    if subgroup8 {
        element.widen(&mut defines);
        defines.push(("ROWS", SUBGROUP8_ROWS.to_string()));
    }
    let wide = [("WIDE", String::new())];
    match subgroup8 {
        true => [
            KernelKey::new("attention/prefill_scores_subgroup8", &defines),
            KernelKey::new("attention/prefill_softmax_subgroup8", &wide),
            KernelKey::new("attention/prefill_values_subgroup8", &defines),
        ],
        false => [
            KernelKey::new("attention/prefill_scores", &defines),
            KernelKey::new("attention/prefill_softmax", &[]),
            KernelKey::new("attention/prefill_values", &defines),
        ],
    }
}

pub(super) fn variants(n_kv_head: usize, head_dim: usize, element: KvFormat) -> Vec<KernelKey> {
    [keys(n_kv_head, head_dim, element, false), keys(n_kv_head, head_dim, element, true)].concat()
}

impl AttentionPrefill {
    /// Compiles the variants for H = `n_head`, G = `n_kv_head`, D = `head_dim` (a multiple of 8).
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(
        gpu: &Gpu,
        n_head: usize,
        n_kv_head: usize,
        head_dim: usize,
        element: KvFormat,
    ) -> Result<AttentionPrefill, GpuError> {
        Self::with_variant(gpu, n_head, n_kv_head, head_dim, element, gpu.uses_subgroup8())
    }

    /// Same with a given variant: `subgroup8` needs [`Gpu::has_subgroup8`].
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn with_variant(
        gpu: &Gpu,
        n_head: usize,
        n_kv_head: usize,
        head_dim: usize,
        element: KvFormat,
        subgroup8: bool,
    ) -> Result<AttentionPrefill, GpuError> {
        let [scores, softmax, values] = keys(n_kv_head, head_dim, element, subgroup8);
        Ok(AttentionPrefill {
            scores: gpu.kernel(&scores)?,
            softmax: gpu.kernel(&softmax)?,
            values: gpu.kernel(&values)?,
            n_head,
            n_kv_head,
            head_dim,
            subgroup8,
            key_step: if element.is_quantized() { 64 } else { 8 },
        })
    }

    /// Bytes of the scores buffer for T tokens and a tile of `n_keys`.
    pub fn scores_bytes(&self, n_tokens: usize, n_keys: usize) -> u64 {
        (self.n_head * n_tokens * n_keys.next_multiple_of(8) * 4) as u64
    }

    /// Bytes of the running state for T tokens.
    pub fn state_bytes(&self, n_tokens: usize) -> u64 {
        (self.n_head * n_tokens * 16) as u64
    }

    /// Binds q f32 `[T, H, D]`, the blocks and table of the segment, the score and state buffers, out f32 `[T, H, D]`.
    ///
    /// # Errors
    /// Buffers the device refuses to bind.
    pub fn bind(&self, gpu: &Gpu, [q, kv, table, scores, state, out]: [&Slice; 6]) -> Result<PrefillBindings, GpuError> {
        Ok(PrefillBindings {
            scores: gpu.bind(&self.scores, &[q, kv, table, scores])?,
            softmax: gpu.bind(&self.softmax, &[scores, state])?,
            values: gpu.bind(&self.values, &[scores, state, kv, table, out])?,
        })
    }

    /// Records the three dispatches of one tile.
    pub fn record(&self, recorder: &mut Recorder, bindings: &PrefillBindings, tile: KeyTile) {
        debug_assert!(tile.first_key.is_multiple_of(self.key_step), "{tile:?}");
        let group = self.n_head / self.n_kv_head;
        let n_rows = (tile.n_tokens * group) as u32;
        let n_tile_keys = tile.n_keys.next_multiple_of(8) as u32;
        let scores = ScoreParams {
            n_rows,
            group: group as u32,
            n_head: self.n_head as u32,
            n_blocks: tile.n_blocks as u32,
            first_key: tile.first_key as u32,
            n_keys: tile.n_keys as u32,
            n_tile_keys,
            mask_from: tile.mask_from as u32,
        };
        let g = self.n_kv_head as u32;
        let row_tiles = n_rows.div_ceil(if self.subgroup8 { SUBGROUP8_ROWS } else { 64 });
        recorder.dispatch(&self.scores, &bindings.scores, &scores, [n_tile_keys.div_ceil(64), row_tiles, g]);
        let softmax = SoftmaxParams { n_rows, n_tile_keys, is_first: u32::from(tile.is_first) };
        recorder.dispatch(&self.softmax, &bindings.softmax, &softmax, [n_rows, g, 1]);
        let values = ValueParams { scores, is_first: u32::from(tile.is_first), is_last: u32::from(tile.is_last) };
        let d_tiles = (self.head_dim as u32).div_ceil(64);
        recorder.dispatch(&self.values, &bindings.values, &values, [d_tiles, row_tiles, g]);
    }
}
