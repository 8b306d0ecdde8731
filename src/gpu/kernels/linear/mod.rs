//! Matrix products with weights in their stored format, and the embedding lookup.
//!
//! ```text
//! quants, scales (WeightFormat::repack) ─┐
//! x f32 [T, K] ──────────────────────────┼─► y f32 [T, N] = activation(W x + bias) (+ y)    one slab of rows per dispatch
//! bias f32 [N] ──────────────────────────┘
//! ```
//! 1. A matvec is for few tokens, a matmul for many. Both have variants for software devices and for real GPUs.
//! 2. Sums are f32. Their order differs between variants, so results differ by rounding.
//! 3. Order: bias, activation, residual.

pub mod bench;
mod embed;
mod format;
mod repack;
mod spec;
mod variant;

use std::ops::Range;
use std::sync::Arc;

pub use embed::Embed;
pub use format::{COL_GROUP, ROW_TILE, WeightFormat};
pub use spec::{LinearActivation, LinearSpec};
pub use variant::{LinearOp, LinearVariant};

use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// The compiled op: a matvec for few tokens and a matmul for many.
pub struct Linear {
    matvec: Arc<Kernel>,
    matmul: Arc<Kernel>,
    spec: LinearSpec,
    variant: LinearVariant,
}

/// Buffers of one slab.
#[derive(Clone, Copy)]
pub struct LinearSlices<'a> {
    /// f32 `[T, x_stride]`
    pub x: &'a Slice,
    /// the slab's quants
    pub quants: &'a Slice,
    /// the slab's scales
    pub scales: &'a Slice,
    /// f32, of the whole matrix
    pub bias: Option<&'a Slice>,
    /// f32 `[T, y_stride]`
    pub y: &'a Slice,
}

/// Bind groups of one slab.
#[derive(Clone)]
pub struct LinearBinding {
    matvec: Binding,
    matmul: Binding,
}

/// One product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearShape {
    /// T
    pub n_tokens: usize,
    /// rows of this slab
    pub n_rows: usize,
    /// stride of tokens in x, elements; a multiple of 8 if the columns are
    pub x_stride: usize,
    /// stride of tokens in y, elements
    pub y_stride: usize,
    /// element of y (after the activation) for the first output of the slab
    pub y_offset: usize,
    /// element of the bias for the first row of the slab
    pub bias_offset: usize,
}

impl LinearShape {
    /// Tiles of [`ROW_TILE`] rows in the slab.
    pub fn n_tiles(&self) -> usize {
        self.n_rows.div_ceil(ROW_TILE)
    }
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    n_cols: u32,
    n_rows: u32,
    n_tokens: u32,
    x_stride: u32,
    y_offset: u32,
    y_stride: u32,
    first_tile: u32,
    bias_offset: u32,
}

impl Linear {
    /// Compiles the variants for `spec` that fit this GPU.
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, spec: LinearSpec) -> Result<Linear, GpuError> {
        Linear::with_variant(gpu, spec, LinearVariant::for_gpu(gpu))
    }

    /// Compiles the named variant.
    ///
    /// # Errors
    /// A variant that this GPU cannot run, a kernel that does not compile, or a lost device.
    pub fn with_variant(gpu: &Gpu, spec: LinearSpec, variant: LinearVariant) -> Result<Linear, GpuError> {
        if !variant.runs_on(gpu) {
            let reason = "the device lacks subgroups of 8 lanes, or 64-bit integers".to_owned();
            return Err(GpuError::Rejected { what: format!("the {variant:?} kernels"), reason });
        }
        let kernel = |op| gpu.kernel(&variant.key(op, &spec));
        Ok(Linear { matvec: kernel(LinearOp::Matvec)?, matmul: kernel(LinearOp::Matmul)?, spec, variant })
    }

    /// Binds the buffers of one slab.
    ///
    /// # Errors
    /// Buffers that the GPU refuses to bind.
    pub fn bind(&self, gpu: &Gpu, s: LinearSlices<'_>) -> Result<LinearBinding, GpuError> {
        let mut slices = vec![s.quants, s.scales, s.x, s.y];
        slices.extend(s.bias);
        Ok(LinearBinding { matvec: gpu.bind(&self.matvec, &slices)?, matmul: gpu.bind(&self.matmul, &slices)? })
    }

    /// Tokens that share one read of the weights in a matmul; chunks should be multiples of it.
    pub fn token_tile(&self) -> usize {
        self.variant.token_tile(LinearOp::Matmul, self.spec.format)
    }

    /// Records the product of one slab.
    pub fn record(&self, recorder: &mut Recorder, binding: &LinearBinding, shape: LinearShape) {
        self.record_tiles(recorder, binding, shape, self.variant.op_for(shape.n_tokens), 0..shape.n_tiles());
    }

    /// Records tiles `tiles` (of [`ROW_TILE`] rows) of the product, so that a large one can be spread over several
    /// submits. `tiles.start` is even.
    pub fn record_tiles(
        &self,
        recorder: &mut Recorder,
        binding: &LinearBinding,
        shape: LinearShape,
        op: LinearOp,
        tiles: Range<usize>,
    ) {
        debug_assert!(!self.spec.cols.is_multiple_of(8) || shape.x_stride.is_multiple_of(8));
        debug_assert!(self.spec.activation != LinearActivation::SwiGlu || shape.n_rows.is_multiple_of(2));
        debug_assert!(tiles.start.is_multiple_of(2));
        let params = Params {
            n_cols: self.spec.cols as u32,
            n_rows: shape.n_rows as u32,
            n_tokens: shape.n_tokens as u32,
            x_stride: shape.x_stride as u32,
            y_offset: shape.y_offset as u32,
            y_stride: shape.y_stride as u32,
            first_tile: tiles.start as u32,
            bias_offset: shape.bias_offset as u32,
        };
        let (kernel, binding) = match op {
            LinearOp::Matvec => (&self.matvec, &binding.matvec),
            LinearOp::Matmul => (&self.matmul, &binding.matmul),
        };
        recorder.dispatch(kernel, binding, &params, self.variant.grid(op, self.spec.format, tiles.len(), shape.n_tokens));
    }

    /// Weight bytes (read once) and floating-point operations of one product.
    pub fn cost(&self, shape: &LinearShape) -> LinearCost {
        let (format, cols) = (self.spec.format, self.spec.cols);
        LinearCost {
            weight_bytes: (format.quants_bytes(shape.n_rows, cols) + format.scales_bytes(shape.n_rows, cols)) as f64,
            flops: 2.0 * shape.n_rows as f64 * cols as f64 * shape.n_tokens as f64,
        }
    }
}

/// Cost of one product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinearCost {
    /// quants and scales
    pub weight_bytes: f64,
    /// 2 per weight and token
    pub flops: f64,
}

/// Every variant of these kernels, for the checks without a GPU.
pub(super) fn variants() -> Vec<KernelKey> {
    let mut keys = variant::variants();
    keys.extend(embed::variants());
    keys.extend(bench::variants());
    keys
}
