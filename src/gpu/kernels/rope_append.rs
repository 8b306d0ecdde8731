//! RoPE and append: rotates q and k of new tokens, and appends k and v to the KV blocks of one segment.

use std::sync::Arc;

use super::KvFormat;
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// Head dimensions, rotation and norm of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeAppendSpec {
    /// H
    pub n_head: usize,
    /// G
    pub n_kv_head: usize,
    /// D, a multiple of 8
    pub head_dim: usize,
    /// rotated pairs R (a multiple of 2); 0 for learned positions
    pub n_pairs: usize,
    /// pairs are (i, i + R) instead of (2i, 2i + 1)
    pub half_style: bool,
    /// RMS-normalize each query and key head first
    pub qk_norm: bool,
    /// epsilon of that norm
    pub eps: f32,
    /// multiplies q
    pub scale: f32,
    /// element type of the blocks: f16 or f32
    pub element: KvFormat,
}

/// The compiled op.
pub struct RopeAppend {
    kernel: Arc<Kernel>,
    spec: RopeAppendSpec,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    first_token: u32,
    first_slot: u32,
    n_blocks: u32,
    n_head: u32,
    n_kv_head: u32,
    n_pairs: u32,
    scale: f32,
    eps: f32,
}

/// Tokens to append, and their destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendRange {
    /// first row of qkv
    pub first_token: usize,
    /// number of tokens
    pub n_tokens: usize,
    /// destination of the first token, counted from the first token of the segment
    pub first_slot: usize,
    /// logical blocks of the segment (row stride of its table)
    pub n_blocks: usize,
}

fn key(head_dim: usize, half_style: bool, qk_norm: bool, element: KvFormat) -> KernelKey {
    let mut defines = element.defines(1, head_dim);
    if half_style {
        defines.push(("HALF", String::new()));
    }
    if qk_norm {
        defines.push(("QK_NORM", String::new()));
    }
    KernelKey::new("attention/rope_append", &defines)
}

pub(super) fn variants(head_dim: usize, element: KvFormat) -> Vec<KernelKey> {
    let flags = [(false, false), (false, true), (true, false), (true, true)];
    flags.map(|(half, norm)| key(head_dim, half, norm, element)).to_vec()
}

impl RopeAppend {
    /// Compiles the variant for `spec`.
    ///
    /// # Errors
    /// Quantized blocks, a kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, spec: RopeAppendSpec) -> Result<RopeAppend, GpuError> {
        if spec.element.is_quantized() {
            let reason = format!("{:?} is for complete pages only", spec.element);
            return Err(GpuError::Rejected { what: "appending to KV blocks".into(), reason });
        }
        Ok(RopeAppend { kernel: gpu.kernel(&key(spec.head_dim, spec.half_style, spec.qk_norm, spec.element))?, spec })
    }

    /// Binds qkv f32 `[T, (H + 2G) D]`, rope f32 `[T, R, 2]`, table u32 `[G, n_blocks]` and blocks of the segment, q
    /// f32 `[T, H, D]`, and with `qk_norm` the weights f32 `[D]` of q and k.
    ///
    /// # Errors
    /// Norm weights without `qk_norm`, or `qk_norm` without weights.
    pub fn bind(&self, gpu: &Gpu, main: [&Slice; 5], norms: Option<[&Slice; 2]>) -> Result<Binding, GpuError> {
        let mut slices = main.to_vec();
        slices.extend(norms.into_iter().flatten());
        gpu.bind(&self.kernel, &slices)
    }

    /// Records the dispatch for the tokens of `range`.
    pub fn record(&self, recorder: &mut Recorder, binding: &Binding, range: AppendRange) {
        let s = &self.spec;
        let params = Params {
            first_token: range.first_token as u32,
            first_slot: range.first_slot as u32,
            n_blocks: range.n_blocks as u32,
            n_head: s.n_head as u32,
            n_kv_head: s.n_kv_head as u32,
            n_pairs: s.n_pairs as u32,
            scale: s.scale,
            eps: s.eps,
        };
        recorder.dispatch(&self.kernel, binding, &params, [range.n_tokens as u32, (s.n_head + 2 * s.n_kv_head) as u32, 1]);
    }
}
