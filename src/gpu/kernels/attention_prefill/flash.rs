//! Flash attention for prefill: one kernel per run of keys, with the scores in workgroup memory.
//!
//! ```text
//! q, K, V ─► for each key tile: q·k, online softmax, p V ─► out, state
//! ```
//! Source: FlashAttention-2 Algorithm 1 (Dao 2023).

use std::sync::Arc;

use super::key_tile::KeyTile;
use super::matrix_tiling::MatrixTiling;
use crate::gpu::kernels::KvFormat;
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// Workgroup memory of the f32 kernel at most, bytes.
pub(super) const MAX_MEMORY_BYTES: u32 = 26 << 10;
/// Lanes of a workgroup of the f32 kernel.
pub(super) const N_LANES: u32 = 256;
/// Query rows of a workgroup of the f32 kernel.
const ROWS: usize = 64;
/// Keys of a tile of the f32 kernel.
const KEYS: usize = 32;
/// Slice of D in workgroup memory, in vec4 with padding, of the f32 kernel.
const SLICE_STRIDE: usize = 9;

/// The compiled kernel.
pub(super) struct Flash {
    kernel: Arc<Kernel>,
    n_head: usize,
    n_kv_head: usize,
    /// query rows per workgroup
    n_rows: usize,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct FlashParams {
    n_rows: u32,
    group: u32,
    n_head: u32,
    n_blocks: u32,
    first_key: u32,
    n_keys: u32,
    mask_from: u32,
    is_first: u32,
    is_last: u32,
}

/// Key of the f32 kernel.
pub(super) fn key(n_kv_head: usize, head_dim: usize, element: KvFormat) -> KernelKey {
    // The values of all 32 keys need 32 KiB at D = 256.
    let value_pairs = if head_dim <= 128 { KEYS / 2 } else { KEYS / 4 };
    let tile = ((ROWS + KEYS) * SLICE_STRIDE).max(2 * value_pairs * head_dim / 4);
    let mut defines = element.defines(n_kv_head, head_dim);
    for (name, value) in [
        ("ROWS", ROWS),
        ("KEYS", KEYS),
        ("TILE", tile),
        ("VALUE_PAIRS", value_pairs),
        ("VALUE_PARTS", KEYS / 2 / value_pairs),
        ("VECS", head_dim.div_ceil(64)),
    ] {
        defines.push((name, value.to_string()));
    }
    KernelKey::new("attention/prefill_flash", &defines)
}

impl Flash {
    pub(super) fn new(gpu: &Gpu, [n_head, n_kv_head, head_dim]: [usize; 3], element: KvFormat) -> Result<Flash, GpuError> {
        Ok(Flash { kernel: gpu.kernel(&key(n_kv_head, head_dim, element))?, n_head, n_kv_head, n_rows: ROWS })
    }

    /// The kernel of cooperative matrices.
    pub(super) fn with_matrices(
        gpu: &Gpu,
        [n_head, n_kv_head, head_dim]: [usize; 3],
        element: KvFormat,
        tiling: MatrixTiling,
    ) -> Result<Flash, GpuError> {
        let kernel = gpu.kernel(&tiling.key(n_kv_head, head_dim, element))?;
        Ok(Flash { kernel, n_head, n_kv_head, n_rows: tiling.n_rows })
    }

    pub(super) fn bind(&self, gpu: &Gpu, [q, kv, table, state, out]: [&Slice; 5]) -> Result<Binding, GpuError> {
        gpu.bind(&self.kernel, &[q, kv, table, state, out])
    }

    /// Records the dispatch of one run of keys.
    pub(super) fn record(&self, recorder: &mut Recorder, binding: &Binding, tile: KeyTile) {
        let group = self.n_head / self.n_kv_head;
        let n_rows = tile.n_tokens * group;
        let params = FlashParams {
            n_rows: n_rows as u32,
            group: group as u32,
            n_head: self.n_head as u32,
            n_blocks: tile.n_blocks as u32,
            first_key: tile.first_key as u32,
            n_keys: tile.n_keys as u32,
            mask_from: tile.mask_from as u32,
            is_first: u32::from(tile.is_first),
            is_last: u32::from(tile.is_last),
        };
        recorder.dispatch(&self.kernel, binding, &params, [n_rows.div_ceil(self.n_rows) as u32, self.n_kv_head as u32, 1]);
    }
}
