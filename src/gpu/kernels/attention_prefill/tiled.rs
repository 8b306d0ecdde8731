//! Tiled prefill attention: three kernels per tile of keys, with the scores in a buffer.
//!
//! ```text
//! q·k ─► s [G, T*group, n_tile_keys] ─► exp, running max and sum ─► out += p V
//! ```

use std::sync::Arc;

use super::key_tile::KeyTile;
use crate::gpu::kernels::KvFormat;
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// Query rows per workgroup of 8 lanes; they share each load of a key.
const SUBGROUP8_ROWS: u32 = 16;

/// The three compiled kernels.
pub(super) struct Tiled {
    scores: PrefillScores,
    values: Arc<Kernel>,
    head_dim: usize,
}

/// Kernels of the scores and softmax: weights exp(q · k - max) f32 `[G, T * group, n_tile_keys]`, max and sum.
struct PrefillScores {
    scores: Arc<Kernel>,
    softmax: Arc<Kernel>,
    n_head: usize,
    n_kv_head: usize,
    subgroup8: bool,
}

/// Bind groups for one segment of one layer.
#[derive(Clone)]
pub(super) struct TiledBindings {
    scores: [Binding; 2],
    values: Binding,
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

pub(super) fn keys(n_kv_head: usize, head_dim: usize, element: KvFormat, subgroup8: bool) -> [KernelKey; 3] {
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

impl Tiled {
    pub(super) fn new(gpu: &Gpu, shape: [usize; 3], element: KvFormat, subgroup8: bool) -> Result<Tiled, GpuError> {
        let [_, n_kv_head, head_dim] = shape;
        let [.., values] = keys(n_kv_head, head_dim, element, subgroup8);
        let scores = PrefillScores::new(gpu, shape, element, subgroup8)?;
        Ok(Tiled { scores, values: gpu.kernel(&values)?, head_dim })
    }

    pub(super) fn bind(&self, gpu: &Gpu, [q, kv, table, scores, state, out]: [&Slice; 6]) -> Result<TiledBindings, GpuError> {
        Ok(TiledBindings {
            scores: self.scores.bind(gpu, [q, kv, table, scores, state])?,
            values: gpu.bind(&self.values, &[scores, state, kv, table, out])?,
        })
    }

    /// Records the three dispatches of one tile.
    pub(super) fn record(&self, recorder: &mut Recorder, bindings: &TiledBindings, tile: KeyTile) {
        self.scores.record(recorder, &bindings.scores, tile);
        let values = ValueParams {
            scores: self.scores.params(tile),
            is_first: u32::from(tile.is_first),
            is_last: u32::from(tile.is_last),
        };
        let grid = [self.head_dim.div_ceil(64) as u32, self.scores.row_tiles(tile), self.scores.n_kv_head as u32];
        recorder.dispatch(&self.values, &bindings.values, &values, grid);
    }
}

impl PrefillScores {
    fn new(
        gpu: &Gpu,
        [n_head, n_kv_head, head_dim]: [usize; 3],
        element: KvFormat,
        subgroup8: bool,
    ) -> Result<PrefillScores, GpuError> {
        let [scores, softmax, _] = keys(n_kv_head, head_dim, element, subgroup8);
        Ok(PrefillScores { scores: gpu.kernel(&scores)?, softmax: gpu.kernel(&softmax)?, n_head, n_kv_head, subgroup8 })
    }

    fn bind(&self, gpu: &Gpu, [q, kv, table, scores, state]: [&Slice; 5]) -> Result<[Binding; 2], GpuError> {
        Ok([gpu.bind(&self.scores, &[q, kv, table, scores])?, gpu.bind(&self.softmax, &[scores, state])?])
    }

    fn record(&self, recorder: &mut Recorder, [scores, softmax]: &[Binding; 2], tile: KeyTile) {
        let params = self.params(tile);
        let ScoreParams { n_rows, n_tile_keys, .. } = params;
        let g = self.n_kv_head as u32;
        recorder.dispatch(&self.scores, scores, &params, [n_tile_keys.div_ceil(64), self.row_tiles(tile), g]);
        let of_softmax = SoftmaxParams { n_rows, n_tile_keys, is_first: u32::from(tile.is_first) };
        recorder.dispatch(&self.softmax, softmax, &of_softmax, [n_rows, g, 1]);
    }

    fn params(&self, tile: KeyTile) -> ScoreParams {
        let group = self.n_head / self.n_kv_head;
        ScoreParams {
            n_rows: (tile.n_tokens * group) as u32,
            group: group as u32,
            n_head: self.n_head as u32,
            n_blocks: tile.n_blocks as u32,
            first_key: tile.first_key as u32,
            n_keys: tile.n_keys as u32,
            n_tile_keys: tile.n_keys.next_multiple_of(8) as u32,
            mask_from: tile.mask_from as u32,
        }
    }

    fn row_tiles(&self, tile: KeyTile) -> u32 {
        self.params(tile).n_rows.div_ceil(if self.subgroup8 { SUBGROUP8_ROWS } else { 64 })
    }
}

/// Bytes of the scores of T tokens and a tile of `n_keys`.
pub(super) fn scores_bytes(n_head: usize, n_tokens: usize, n_keys: usize) -> u64 {
    (n_head * n_tokens * n_keys.next_multiple_of(8) * 4) as u64
}
