//! Token scores: exact q · k of every key in a block table.
//!
//! ```text
//! q [H, D], block list of each KV head ─► scores [H, n_keys], in the order of the lists
//! ```
//! Lists have slots. Shorter ones are padded with [`PAD`](super::attention_decode::PAD), whose keys score [`MASKED`].
//!
//! Source: LeoAM §4.2.

use std::ops::Range;
use std::sync::Arc;

use super::KvFormat;
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// Score of a missing key.
pub const MASKED: f32 = -3.0e38;
/// Keys per workgroup.
const TILE_KEYS: usize = 256;
/// Maximum query heads of a group per workgroup.
const MAX_HEADS_PER_WORKGROUP: usize = 4;

/// The compiled kernel for one format.
pub struct QkScores {
    kernel: Arc<Kernel>,
    n_head: usize,
    n_kv_head: usize,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    n_keys: u32,
    n_blocks: u32,
    group: u32,
    q_head: u32,
}

fn key(n_kv_head: usize, group: usize, head_dim: usize, element: KvFormat, subgroup8: bool) -> KernelKey {
    let mut defines = element.defines(n_kv_head, head_dim);
    defines.push(("GR", group.min(MAX_HEADS_PER_WORKGROUP).to_string()));
    if !subgroup8 {
        return KernelKey::new("attention/qk_scores", &defines);
    }
    element.widen(&mut defines);
    defines.push(("NC", head_dim.div_ceil(64).to_string()));
    KernelKey::new("attention/qk_scores_subgroup8", &defines)
}

pub(super) fn variants(n_kv_head: usize, head_dim: usize, element: KvFormat) -> Vec<KernelKey> {
    let key = |group, subgroup8| key(n_kv_head, group, head_dim, element, subgroup8);
    (1..=MAX_HEADS_PER_WORKGROUP).flat_map(|group| [key(group, false), key(group, true)]).collect()
}

impl QkScores {
    /// Compiles the variant for H = `n_head`, G = `n_kv_head`, D = `head_dim` (a multiple of 8, at most 512).
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, n_head: usize, n_kv_head: usize, head_dim: usize, element: KvFormat) -> Result<Self, GpuError> {
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
    ) -> Result<Self, GpuError> {
        let kernel = gpu.kernel(&key(n_kv_head, n_head / n_kv_head, head_dim, element, subgroup8))?;
        Ok(QkScores { kernel, n_head, n_kv_head })
    }

    /// Bytes of the scores of `n_keys`.
    pub fn scores_bytes(&self, n_keys: usize) -> u64 {
        (self.n_head * n_keys * 4) as u64
    }

    /// Binds q f32 `[H, D]` (scaled and rotated), the blocks, the lists `[G, n_blocks]` and scores f32 `[H, n_keys]`.
    ///
    /// # Errors
    /// Buffers the device refuses to bind.
    pub fn bind(&self, gpu: &Gpu, slices: [&Slice; 4]) -> Result<Binding, GpuError> {
        gpu.bind(&self.kernel, &slices)
    }

    /// Records the scores of the first `n_keys` of each list; `n_blocks` is the row stride of the table.
    pub fn record(&self, recorder: &mut Recorder, binding: &Binding, n_keys: usize, n_blocks: usize) {
        self.record_rows(recorder, binding, n_keys, n_blocks, 0..1);
    }

    /// Same for several rows of q, each with its own lists: lists `[R, G, n_blocks]`, scores `[R, H, n_keys]`.
    pub fn record_rows(&self, recorder: &mut Recorder, binding: &Binding, n_keys: usize, n_blocks: usize, rows: Range<usize>) {
        let group = self.n_head / self.n_kv_head;
        let q_head = (rows.start * self.n_head) as u32;
        let params = Params { n_keys: n_keys as u32, n_blocks: n_blocks as u32, group: group as u32, q_head };
        let head_sets = group.div_ceil(group.min(MAX_HEADS_PER_WORKGROUP));
        let grid = [n_keys.div_ceil(TILE_KEYS) as u32, (rows.len() * self.n_kv_head) as u32, head_sets as u32];
        recorder.dispatch(&self.kernel, binding, &params, grid);
    }
}
