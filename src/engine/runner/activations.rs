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
    /// converted input of a matrix product after a norm
    pub(in crate::engine) h_values: Slice,
    pub(in crate::engine) h_scales: Slice,
    /// sums of squares of blocks of x, for the norm of one token
    pub(in crate::engine) squares: Slice,
    /// converted input of another matrix product
    pub(in crate::engine) x_values: Slice,
    pub(in crate::engine) x_scales: Slice,
    pub(in crate::engine) scores: Slice,
    pub(in crate::engine) prefill_state: Slice,
    pub(in crate::engine) result: Slice,
    /// in turn: the CPU reads one while the next step is copied to the other
    pub(in crate::engine) readbacks: Vec<Buffer>,
}

/// Number of readback buffers for the candidates: two if there are lookahead steps.
pub(in crate::engine) fn n_readbacks(software_kernels: bool) -> usize {
    if software_kernels { 1 } else { 2 }
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
    let converted = |cols: usize| ActivationForm::scratch_bytes(cols, if software_kernels { 0 } else { chunk });
    let (hidden, other) = (converted(d.hidden_dim), converted(d.q_dim().max(d.ffn_dim)));
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
        ("converted hidden states", hidden.0),
        ("hidden state scales", hidden.1),
        ("sums of squares", d.hidden_dim.div_ceil(32) as u64 * 4),
        ("converted activations", other.0),
        ("activation scales", other.1),
        ("scores", (d.n_head * chunk * tile * 4) as u64),
        ("softmax state", (d.n_head * chunk * 16) as u64),
        ("result", TOP_K_BYTES),
        ("readback", TOP_K_BYTES * n_readbacks(software_kernels) as u64),
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
            h_values: buffer("converted hidden states")?,
            h_scales: buffer("hidden state scales")?,
            squares: buffer("sums of squares")?,
            x_values: buffer("converted activations")?,
            x_scales: buffer("activation scales")?,
            scores: buffer("scores")?,
            prefill_state: buffer("softmax state")?,
            result: buffer("result")?,
            readbacks: (0..n_readbacks(gpu.uses_software_kernels()))
                .map(|_| gpu.readback_buffer("readback", TOP_K_BYTES))
                .collect::<Result<_, _>>()?,
        })
    }
}
