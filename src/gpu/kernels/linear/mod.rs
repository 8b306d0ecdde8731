//! Matrix products with weights in their stored format, and the embedding lookup.
//!
//! ```text
//! quants, scales (WeightFormat::repack) ─┐
//! x f32 [T, K] ──────────────────────────┼─► y f32 [T, N] = activation(W x + bias) (+ y)    one slab of rows per dispatch
//! bias f32 [N] ──────────────────────────┘
//! ```
//! 1. A matvec is for few tokens, a matmul for many. Both have variants for software devices and for real GPUs.
//! 2. Sums are f32. Their order differs between variants, so results differ by rounding.
//! 3. With [`Precision::Fast`], a matvec with integer weights on a real GPU with subgroups rounds the activations to 15 bits first.
//! 4. Order: bias, activation, residual.

pub mod bench;
mod embed;
mod format;
mod quantize;
mod repack;
mod spec;
mod variant;

use std::ops::Range;
use std::sync::Arc;

pub use embed::Embed;
pub use format::{COL_GROUP, ROW_TILE, WeightFormat};
pub use quantize::{QuantizeActivations, QuantizedSlices};
pub use spec::{LinearActivation, LinearSpec};
pub use variant::{LinearOp, LinearVariant, MAX_MATVEC_TOKENS, Precision};

use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// The compiled op: a matvec for few tokens and a matmul for many.
pub struct Linear {
    /// by tokens per workgroup, ascending
    matvec: Vec<(usize, Arc<Kernel>)>,
    matmul: Arc<Kernel>,
    quantize: Option<QuantizeActivations>,
    spec: LinearSpec,
    variant: LinearVariant,
}

/// Buffers of one slab: consecutive rows of a matrix that fit one binding.
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
    /// scratch for up to [`MAX_MATVEC_TOKENS`] tokens, if the variant quantizes activations
    pub quantized: Option<QuantizedSlices<'a>>,
}

/// Bind groups of one slab.
#[derive(Clone)]
pub struct LinearBinding {
    quantize: Option<Binding>,
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
    pub fn new(gpu: &Gpu, spec: LinearSpec, precision: Precision) -> Result<Linear, GpuError> {
        Linear::with_variant(gpu, spec, LinearVariant::for_gpu(gpu, precision))
    }

    /// Compiles the named variant.
    ///
    /// # Errors
    /// A variant that this GPU cannot run, a kernel that does not compile, or a lost device.
    pub fn with_variant(gpu: &Gpu, spec: LinearSpec, variant: LinearVariant) -> Result<Linear, GpuError> {
        if !variant.runs_on(gpu) {
            let reason = "the device lacks the subgroups or 64-bit integers that they need".to_owned();
            return Err(GpuError::Rejected { what: format!("the {variant:?} kernels"), reason });
        }
        let kernel = |op, tile| gpu.kernel(&variant.key(op, &spec, tile));
        let tiles = variant.token_tiles(LinearOp::Matvec, spec.format).into_iter();
        let matvec = tiles.map(|tile| Ok((tile, kernel(LinearOp::Matvec, tile)?))).collect::<Result<Vec<_>, GpuError>>()?;
        let matmul = kernel(LinearOp::Matmul, variant.token_tile(LinearOp::Matmul, spec.format))?;
        let quantize = match variant.quantizes(LinearOp::Matvec, spec.format) {
            true => Some(QuantizeActivations::new(gpu, spec.format, spec.cols)?),
            false => None,
        };
        Ok(Linear { matvec, matmul, quantize, spec, variant })
    }

    /// Binds the buffers of one slab.
    ///
    /// # Errors
    /// Buffers that the GPU refuses to bind, or no scratch for quantized activations if the variant needs it.
    pub fn bind(&self, gpu: &Gpu, s: LinearSlices<'_>) -> Result<LinearBinding, GpuError> {
        let bind = |kernel: &Kernel, x: &[&Slice]| {
            let slices: Vec<&Slice> =
                [s.quants, s.scales].into_iter().chain(x.iter().copied()).chain([s.y]).chain(s.bias).collect();
            gpu.bind(kernel, &slices)
        };
        // Kernels for other numbers of tokens have the same bindings.
        let Some((_, matvec)) = self.matvec.first() else { return Err(self.rejected("no kernel")) };
        let (quantize, matvec) = match (&self.quantize, s.quantized) {
            (Some(op), Some(x)) => (Some(op.bind(gpu, s.x, x)?), bind(matvec, &[x.codes, x.scales])?),
            (Some(_), None) => return Err(self.rejected("no scratch for quantized activations")),
            (None, _) => (None, bind(matvec, &[s.x])?),
        };
        Ok(LinearBinding { quantize, matvec, matmul: bind(&self.matmul, &[s.x])? })
    }

    fn rejected(&self, reason: &str) -> GpuError {
        GpuError::Rejected { what: format!("a product of {:?} weights", self.spec.format), reason: reason.to_owned() }
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
        let (tile, kernel, slices) = match op {
            LinearOp::Matvec => {
                let fits = self.matvec.iter().find(|(tile, _)| shape.n_tokens <= *tile).or(self.matvec.last());
                let Some((tile, kernel)) = fits else { return };
                (*tile, kernel, &binding.matvec)
            }
            LinearOp::Matmul => (self.token_tile(), &self.matmul, &binding.matmul),
        };
        // The parts of a product that is spread over several submits share the quantized activations of the first.
        if let (LinearOp::Matvec, 0, Some(quantize), Some(x)) = (op, tiles.start, &self.quantize, &binding.quantize) {
            quantize.record(recorder, x, shape.n_tokens, shape.x_stride);
        }
        let grid = self.variant.grid(op, self.spec.format, tiles.len(), shape.n_tokens, tile);
        recorder.dispatch(kernel, slices, &params, grid);
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
    keys.extend(quantize::variants());
    keys
}
