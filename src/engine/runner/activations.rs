//! Activation buffers: sizes, computed before any allocation, and allocation.
//!
//! Shapes are those of [`crate::engine::runner::gpu_model`].

use crate::base::ModelDims;
use crate::gpu::kernels::linear::ActivationForm;
use crate::gpu::kernels::sample::TOP_K_BYTES;
use crate::gpu::{Buffer, Gpu, GpuError, Slice};
use crate::model::arch::plan::{ModelPlan, PositionPlan};

/// Maximum size of the scores buffer of prefill attention, bytes. Longer contexts take more tiles.
const SCORES_BYTES: u64 = 32 << 20;

/// Activation buffers.
pub(in crate::engine) struct Activations {
    pub(in crate::engine) ids: Slice,
    pub(in crate::engine) positions: Slice,
    pub(in crate::engine) rope: Slice,
    pub(in crate::engine) x: Slice,
    pub(in crate::engine) h: Slice,
    pub(in crate::engine) qkv: Slice,
    pub(in crate::engine) q: Slice,
    pub(in crate::engine) attn: Slice,
    pub(in crate::engine) ff: Slice,
    pub(in crate::engine) logits: Slice,
    /// converted input of a matrix product
    pub(in crate::engine) x_values: Slice,
    pub(in crate::engine) x_scales: Slice,
    pub(in crate::engine) scores: Slice,
    pub(in crate::engine) prefill_state: Slice,
    pub(in crate::engine) result: Slice,
    pub(in crate::engine) readback: Buffer,
}

/// Maximum chunk size on this kind of device, tokens.
pub(in crate::engine) fn max_chunk(is_software: bool) -> usize {
    if is_software { 128 } else { crate::base::limits::MAX_PREFILL_CHUNK }
}

/// Keys per prefill tile.
pub(in crate::engine) fn tile_keys(dims: &ModelDims, chunk: usize) -> usize {
    let most = SCORES_BYTES as usize / (dims.n_head * chunk * 4);
    (most / 64 * 64).clamp(64, 8192)
}

/// Bytes of each activation buffer, in the order of [`Activations`]. Kernels for software devices convert no activations of
/// a chunk.
pub(in crate::engine) fn activation_bytes(
    plan: &ModelPlan,
    chunk: usize,
    tile: usize,
    software_kernels: bool,
) -> Vec<(&'static str, u64)> {
    let d = &plan.dims;
    let n_pairs = match &plan.position {
        PositionPlan::Rope(r) => r.inv_freq.len(),
        PositionPlan::Learned { .. } => 0,
    };
    let per_token = |n: usize| (chunk * n * 4) as u64;
    let most_cols = d.hidden_dim.max(d.q_dim()).max(d.ffn_dim);
    let (values, scales) = ActivationForm::scratch_bytes(most_cols, if software_kernels { 0 } else { chunk });
    vec![
        ("token ids", per_token(1)),
        ("positions", per_token(1)),
        ("rope table", per_token(2 * n_pairs)),
        ("x", per_token(d.hidden_dim)),
        ("h", per_token(d.hidden_dim)),
        ("qkv", per_token(d.q_dim() + 2 * d.kv_dim())),
        ("q", per_token(d.q_dim())),
        ("attn", per_token(d.q_dim())),
        ("ff", per_token(d.ffn_dim)),
        ("logits", d.vocab_size as u64 * 4),
        ("converted activations", values),
        ("activation scales", scales),
        ("scores", (d.n_head * chunk * tile * 4) as u64),
        ("softmax state", (d.n_head * chunk * 16) as u64),
        ("result", TOP_K_BYTES),
        ("readback", TOP_K_BYTES),
    ]
}

impl Activations {
    /// Allocates every buffer for chunks of `chunk` tokens and tiles of `tile` keys; 0: no scores buffer, only a placeholder.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub(in crate::engine) fn allocate(gpu: &Gpu, plan: &ModelPlan, chunk: usize, tile: usize) -> Result<Activations, GpuError> {
        let sizes = activation_bytes(plan, chunk, tile, gpu.uses_software_kernels());
        let size = |name: &str| sizes.iter().find(|(n, _)| *n == name).map_or(16, |(_, b)| (*b).max(16));
        let buffer = |name: &str| -> Result<Slice, GpuError> { Ok(gpu.buffer(name, size(name))?.all()) };
        Ok(Activations {
            ids: buffer("token ids")?,
            positions: buffer("positions")?,
            rope: buffer("rope table")?,
            x: buffer("x")?,
            h: buffer("h")?,
            qkv: buffer("qkv")?,
            q: buffer("q")?,
            attn: buffer("attn")?,
            ff: buffer("ff")?,
            logits: buffer("logits")?,
            x_values: buffer("converted activations")?,
            x_scales: buffer("activation scales")?,
            scores: buffer("scores")?,
            prefill_state: buffer("softmax state")?,
            result: buffer("result")?,
            readback: gpu.readback_buffer("readback", size("readback"))?,
        })
    }
}
