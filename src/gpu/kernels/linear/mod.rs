//! Matrix products with weights in their stored format, and the embedding lookup.
//!
//! ```text
//! quants, scales (WeightFormat::repack) ─┐
//! x f32 [T, K] ──────────────────────────┼─► y f32 [T, N] = activation(W x + bias) (+ y)    one slab of rows per dispatch
//! bias f32 [N] ──────────────────────────┘
//! ```
//! 1. A matvec is for few tokens, a matmul for many. Both have variants for software devices and for real GPUs.
//! 2. Sums are f32. Their order differs between variants, so results differ by rounding.
//! 3. With [`Precision::Fast`], products on a real GPU may convert the activations first ([`ActivationForm`]). Products that
//!    follow each other with the same input share the conversion.
//! 4. Order: bias, activation, residual.

mod activations;
pub mod bench;
mod embed;
mod format;
mod fused;
mod matrix_units;
mod repack;
mod shape;
mod spec;
mod variant;

use std::sync::Arc;

pub use activations::{ActivationForm, ConvertActivations, ConvertedSlices};
pub use embed::Embed;
pub use format::{COL_GROUP, ROW_TILE, WeightFormat};
pub use fused::{FusedMatvec, FusedOutput, FusedSlices, Fusion};
pub use matrix_units::MatrixUnits;
pub use shape::LinearShape;
pub use spec::{LinearActivation, LinearSpec, MAX_MATVEC_TOKENS};
pub use variant::{LinearOp, LinearVariant, Precision};

use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, MatvecShape, Recorder, Slice};

/// The compiled op: a matvec for few tokens and a matmul for many.
pub struct Linear {
    matvec: OpKernels,
    matmul: OpKernels,
    spec: LinearSpec,
    variant: LinearVariant,
    matvec_shape: MatvecShape,
}

/// Kernels of a matvec or a matmul.
struct OpKernels {
    op: LinearOp,
    /// tokens per workgroup, ascending
    tiles: Vec<usize>,
    /// by tile
    kernels: Vec<Arc<Kernel>>,
    form: ActivationForm,
    convert: Option<ConvertActivations>,
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
    /// scratch of [`ActivationForm::scratch_bytes`], if the variant converts activations
    pub converted: Option<ConvertedSlices<'a>>,
}

/// Bind groups of one slab.
#[derive(Clone)]
pub struct LinearBinding {
    matvec: OpBinding,
    matmul: OpBinding,
}

#[derive(Clone)]
struct OpBinding {
    convert: Option<Binding>,
    product: Binding,
}

impl Linear {
    /// Compiles the named variant.
    ///
    /// # Errors
    /// A variant that this GPU cannot run, a kernel that does not compile, or a lost device.
    pub fn with_variant(gpu: &Gpu, spec: LinearSpec, variant: LinearVariant) -> Result<Linear, GpuError> {
        if !variant.runs_on(gpu) {
            let reason = "the device lacks the subgroups or 64-bit integers that they need".to_owned();
            return Err(GpuError::Rejected { what: format!("the {variant:?} kernels"), reason });
        }
        let matvec_shape = gpu.tuning().matvec;
        let compile = |op| OpKernels::compile(gpu, op, &spec, variant, matvec_shape);
        Ok(Linear { matvec: compile(LinearOp::Matvec)?, matmul: compile(LinearOp::Matmul)?, spec, variant, matvec_shape })
    }

    /// Binds the buffers of one slab.
    ///
    /// # Errors
    /// Buffers that the GPU refuses to bind, or no scratch for converted activations if the variant needs it.
    pub fn bind(&self, gpu: &Gpu, slices: LinearSlices<'_>) -> Result<LinearBinding, GpuError> {
        Ok(LinearBinding { matvec: self.matvec.bind(gpu, &slices)?, matmul: self.matmul.bind(gpu, &slices)? })
    }

    /// Configuration of the op.
    pub fn spec(&self) -> &LinearSpec {
        &self.spec
    }

    /// The op for `n_tokens`.
    pub fn op_for(&self, n_tokens: usize) -> LinearOp {
        self.variant.op_for(n_tokens)
    }

    /// Form in which a product of `n_tokens` reads its activations.
    pub fn input(&self, n_tokens: usize) -> ActivationForm {
        self.kernels(self.op_for(n_tokens)).form
    }

    /// Records the conversion of the activations to [`Linear::input`], if they are not read as f32.
    pub fn record_convert(&self, recorder: &mut Recorder, binding: &LinearBinding, shape: LinearShape) {
        self.record_convert_for(recorder, binding, shape, self.op_for(shape.n_tokens));
    }

    /// The same for a given op.
    pub fn record_convert_for(&self, recorder: &mut Recorder, binding: &LinearBinding, shape: LinearShape, op: LinearOp) {
        if let (Some(convert), Some(x)) = (&self.kernels(op).convert, &binding.of(op).convert) {
            convert.record(recorder, x, shape.n_tokens, shape.x_stride);
        }
    }

    /// Records the product of one slab, after the conversion of its activations.
    pub fn record(&self, recorder: &mut Recorder, binding: &LinearBinding, shape: LinearShape) {
        self.record_for(recorder, binding, shape, self.op_for(shape.n_tokens));
    }

    /// The same for a given op.
    pub fn record_for(&self, recorder: &mut Recorder, binding: &LinearBinding, shape: LinearShape, op: LinearOp) {
        debug_assert!(!self.spec.cols.is_multiple_of(8) || shape.x_stride.is_multiple_of(8));
        debug_assert!(self.spec.activation != LinearActivation::SwiGlu || shape.n_rows.is_multiple_of(2));
        let params = shape.params(self.spec.cols);
        let kernels = self.kernels(op);
        let at = self.variant.tile_for(op, &kernels.tiles, shape.n_tokens);
        let (Some(tile), Some(kernel)) = (kernels.tiles.get(at), kernels.kernels.get(at)) else { return };
        let grid = self.variant.grid(op, &self.spec, self.matvec_shape, shape.n_tiles(), [shape.n_tokens, *tile]);
        recorder.dispatch(kernel, &binding.of(op).product, &params, grid);
    }

    fn kernels(&self, op: LinearOp) -> &OpKernels {
        match op {
            LinearOp::Matvec => &self.matvec,
            LinearOp::Matmul => &self.matmul,
        }
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

impl LinearBinding {
    fn of(&self, op: LinearOp) -> &OpBinding {
        match op {
            LinearOp::Matvec => &self.matvec,
            LinearOp::Matmul => &self.matmul,
        }
    }
}

impl OpKernels {
    fn compile(
        gpu: &Gpu,
        op: LinearOp,
        spec: &LinearSpec,
        variant: LinearVariant,
        matvec: MatvecShape,
    ) -> Result<OpKernels, GpuError> {
        let (mut tiles, form) = (variant.token_tiles(op, spec), variant.input(op, spec));
        if form == ActivationForm::F32 {
            let largest = variant::largest_plain_tile(gpu);
            tiles.retain(|tile| *tile <= largest);
        }
        let kernels =
            tiles.iter().map(|tile| gpu.kernel(&variant.key(op, spec, matvec, *tile))).collect::<Result<Vec<_>, _>>()?;
        Ok(OpKernels { op, tiles, kernels, form, convert: ConvertActivations::new(gpu, form, spec.cols)? })
    }

    fn bind(&self, gpu: &Gpu, s: &LinearSlices<'_>) -> Result<OpBinding, GpuError> {
        let rejected = |reason: &str| {
            Err(GpuError::Rejected { what: format!("a {:?} of {:?} activations", self.op, self.form), reason: reason.to_owned() })
        };
        // Kernels for other numbers of tokens have the same bindings.
        let Some(kernel) = self.kernels.first() else { return rejected("no kernel") };
        let bind = |x: &[&Slice]| {
            let slices: Vec<&Slice> =
                [s.quants, s.scales].into_iter().chain(x.iter().copied()).chain([s.y]).chain(s.bias).collect();
            gpu.bind(kernel, &slices)
        };
        match (&self.convert, s.converted) {
            (Some(convert), Some(x)) => {
                Ok(OpBinding { convert: Some(convert.bind(gpu, s.x, x)?), product: bind(&[x.values, x.scales])? })
            }
            (Some(_), None) => rejected("no scratch for converted activations"),
            (None, _) => Ok(OpBinding { convert: None, product: bind(&[s.x])? }),
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
    keys.extend(activations::variants());
    keys.extend(fused::variants());
    keys
}
