//! Quantization of activations to two planes of signed bytes: the input of a matvec by integer dot products.
//!
//! `block_q8_1` of ggml has one plane, whose rounding to 8 bits costs small models a KL divergence of 1e-3. Two planes
//! round to 15 bits. Weights are read once for both, and dot products are not the limit of a matvec.

use std::sync::Arc;

use super::format::{COL_GROUP, WeightFormat};
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// Columns per scale.
const BLOCK: usize = 32;
/// Columns per workgroup.
const WORKGROUP_COLS: usize = 512;

/// Buffers of quantized activations.
#[derive(Clone, Copy)]
pub struct QuantizedSlices<'a> {
    /// signed bytes `[T, Kp / 32, 2 planes, 32]`
    pub codes: &'a Slice,
    /// vec4 of f32 `[T, Kp / 32]`
    pub scales: &'a Slice,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    n_cols: u32,
    x_stride: u32,
}

/// The compiled op.
pub struct QuantizeActivations {
    kernel: Arc<Kernel>,
    cols: usize,
}

impl QuantizeActivations {
    /// Compiles the kernel for activations that are multiplied with weights of `format`, of `cols` columns.
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, format: WeightFormat, cols: usize) -> Result<QuantizeActivations, GpuError> {
        Ok(QuantizeActivations { kernel: gpu.kernel(&key(format.is_even_odd()))?, cols })
    }

    /// Bytes of the codes and of the scales of `n_tokens` tokens of `cols` columns.
    pub fn bytes(cols: usize, n_tokens: usize) -> (u64, u64) {
        let padded = cols.next_multiple_of(COL_GROUP) * n_tokens;
        (2 * padded as u64, (padded / BLOCK * 16) as u64)
    }

    /// Binds x f32 `[T, x_stride]` and the output buffers.
    ///
    /// # Errors
    /// Buffers that the GPU refuses to bind.
    pub fn bind(&self, gpu: &Gpu, x: &Slice, out: QuantizedSlices<'_>) -> Result<Binding, GpuError> {
        gpu.bind(&self.kernel, &[x, out.codes, out.scales])
    }

    /// Records the quantization of `n_tokens` tokens, `x_stride` elements apart (a multiple of 4).
    pub fn record(&self, recorder: &mut Recorder, binding: &Binding, n_tokens: usize, x_stride: usize) {
        let params = Params { n_cols: self.cols as u32, x_stride: x_stride as u32 };
        let grid = [self.cols.next_multiple_of(COL_GROUP).div_ceil(WORKGROUP_COLS) as u32, n_tokens as u32, 1];
        recorder.dispatch(&self.kernel, binding, &params, grid);
    }
}

fn key(is_even_odd: bool) -> KernelKey {
    let defines = [("EVEN_ODD", String::new())];
    KernelKey::new("linear/quantize_activations", if is_even_odd { &defines } else { &[] })
}

/// Every variant of this kernel, for the checks without a GPU.
pub(super) fn variants() -> Vec<KernelKey> {
    vec![key(false), key(true)]
}
