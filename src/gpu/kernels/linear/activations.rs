//! Conversion of activations to the form that a fast matrix product reads.
//!
//! 1. Two planes of signed bytes, for a matvec by integer dot products. `block_q8_1` of ggml has one plane, whose rounding to 8
//!    bits costs small models a KL divergence of 1e-3. Two planes round to 15 bits. Weights are read once for both, and dot
//!    products are not the limit of a matvec.
//! 2. f16 with a power of two per token, for a matmul by cooperative matrices: no activation overflows.

use std::sync::Arc;

use super::format::COL_GROUP;
use super::spec::MAX_MATVEC_TOKENS;
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// Columns per scale of the byte planes.
const BLOCK: usize = 32;
/// Lanes of a workgroup that makes byte planes; each has 8 columns.
const BYTES_LANES: usize = 64;

/// Form of activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ActivationForm {
    /// as they are
    F32,
    /// two planes of signed bytes, a scale per 32 columns
    Bytes {
        /// even and odd columns apart, as nibbles are unpacked
        even_odd: bool,
    },
    /// f16, a scale per token
    Halves,
}

/// Buffers of converted activations.
#[derive(Clone, Copy)]
pub struct ConvertedSlices<'a> {
    /// signed bytes `[T, Kp / 32, 2 planes, 32]`, or f16 `[T, Kp]`
    pub values: &'a Slice,
    /// vec4 of f32 `[T, Kp / 32]`, or f32 `[T]`
    pub scales: &'a Slice,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    n_cols: u32,
    x_stride: u32,
}

/// The compiled op.
pub struct ConvertActivations {
    kernel: Arc<Kernel>,
    form: ActivationForm,
    cols: usize,
}

impl ActivationForm {
    /// Every form.
    pub const ALL: [ActivationForm; 4] = [
        ActivationForm::F32,
        ActivationForm::Bytes { even_odd: false },
        ActivationForm::Bytes { even_odd: true },
        ActivationForm::Halves,
    ];

    /// Bytes of the values and of the scales of `n_tokens` tokens of `cols` columns.
    pub fn bytes(self, cols: usize, n_tokens: usize) -> (u64, u64) {
        let padded = (cols.next_multiple_of(COL_GROUP) * n_tokens) as u64;
        match self {
            ActivationForm::F32 => (0, 0),
            ActivationForm::Bytes { .. } => (2 * padded, padded / BLOCK as u64 * 16),
            ActivationForm::Halves => (2 * padded, 4 * n_tokens as u64),
        }
    }

    /// Bytes of buffers that hold every form: bytes of the tokens of a matvec, halves of up to `chunk` tokens (0: never).
    pub fn scratch_bytes(cols: usize, chunk: usize) -> (u64, u64) {
        let bytes = ActivationForm::Bytes { even_odd: false }.bytes(cols, MAX_MATVEC_TOKENS);
        let halves = ActivationForm::Halves.bytes(cols, chunk);
        (bytes.0.max(halves.0), bytes.1.max(halves.1))
    }

    fn key(self) -> Option<KernelKey> {
        let lanes = ("LANES", BYTES_LANES.to_string());
        match self {
            ActivationForm::F32 => None,
            ActivationForm::Bytes { even_odd: true } => {
                Some(KernelKey::new("linear/quantize_activations", &[lanes, ("EVEN_ODD", String::new())]))
            }
            ActivationForm::Bytes { even_odd: false } => Some(KernelKey::new("linear/quantize_activations", &[lanes])),
            ActivationForm::Halves => Some(KernelKey::new("linear/halve_activations", &[])),
        }
    }
}

impl ConvertActivations {
    /// Compiles the kernel for activations of `cols` columns. None if the form is f32.
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, form: ActivationForm, cols: usize) -> Result<Option<ConvertActivations>, GpuError> {
        let kernel = form.key().map(|key| gpu.kernel(&key)).transpose()?;
        Ok(kernel.map(|kernel| ConvertActivations { kernel, form, cols }))
    }

    /// Binds x f32 `[T, x_stride]` and the output buffers.
    ///
    /// # Errors
    /// Buffers that the GPU refuses to bind.
    pub fn bind(&self, gpu: &Gpu, x: &Slice, out: ConvertedSlices<'_>) -> Result<Binding, GpuError> {
        gpu.bind(&self.kernel, &[x, out.values, out.scales])
    }

    /// Records the conversion of `n_tokens` tokens, `x_stride` elements apart (a multiple of 4).
    pub fn record(&self, recorder: &mut Recorder, binding: &Binding, n_tokens: usize, x_stride: usize) {
        let params = Params { n_cols: self.cols as u32, x_stride: x_stride as u32 };
        let grid = match self.form {
            ActivationForm::Halves => [n_tokens as u32, 1, 1],
            _ => [self.cols.next_multiple_of(COL_GROUP).div_ceil(8 * BYTES_LANES) as u32, n_tokens as u32, 1],
        };
        recorder.dispatch(&self.kernel, binding, &params, grid);
    }
}

/// Every variant of these kernels, for the checks without a GPU.
pub(super) fn variants() -> Vec<KernelKey> {
    ActivationForm::ALL.into_iter().filter_map(ActivationForm::key).collect()
}
