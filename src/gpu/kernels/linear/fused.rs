//! Fused matvec: the product of one token, with what the ops around it would need dispatches of their own for.
//!
//! ```text
//! x bytes (, sums of squares) ─► W x / rms ─► bias, activation, residual ─┬► y
//!                                                                         └► bytes (times the next norm's weights, sums of squares)
//! ```
//! A norm needs all results of the product before it. So a product hands on its results times the norm's weights, and the sums of
//! squares of blocks of 32; the next product divides by the root mean square. Between dependent dispatches a real GPU stands still
//! for 2 to 3.5 us.

use std::sync::Arc;

use super::activations::{ActivationForm, ConvertedSlices};
use super::format::COL_GROUP;
use super::shape::{LinearShape, Params};
use super::spec::{LinearActivation, LinearSpec};
use crate::gpu::tuning::{MatvecShape, Tuning};
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// Outputs per block of the next product's input, and per workgroup.
const BLOCK: usize = 32;
/// Fewest lanes of a workgroup that computes a block; every device has them.
const LEAST_BLOCK_LANES: usize = 256;

/// Result of a fused product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FusedOutput {
    /// y, in f32
    Plain,
    /// only the input of the next product: its form
    Converted(ActivationForm),
    /// y, and the input of the product after the next RMSNorm: its form
    Normed(ActivationForm),
}

/// What a product does for the ops around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fusion {
    /// the input was not divided by its root mean square yet
    pub divides_by_rms: bool,
    /// result
    pub output: FusedOutput,
}

/// Buffers of a fused product of one token.
#[derive(Clone, Copy)]
pub struct FusedSlices<'a> {
    /// the slab's quants and scales
    pub weights: [&'a Slice; 2],
    /// input
    pub x: ConvertedSlices<'a>,
    /// f32 `[N]`; not written by [`FusedOutput::Converted`]
    pub y: &'a Slice,
    /// f32, of the whole matrix
    pub bias: Option<&'a Slice>,
    /// sums of squares f32 `[K / 32]` of the input, for [`Fusion::divides_by_rms`]
    pub squares: &'a Slice,
    /// input of the next product
    pub out: ConvertedSlices<'a>,
    /// weights f32 `[N]` of the next norm, and the sums of squares f32 `[N / 32]`, for [`FusedOutput::Normed`]
    pub next_norm: Option<[&'a Slice; 2]>,
}

/// The compiled op.
pub struct FusedMatvec {
    kernel: Arc<Kernel>,
    spec: LinearSpec,
    fusion: Fusion,
    rows: usize,
    eps: f32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct FusedParams {
    product: Params,
    eps: f32,
}

impl Fusion {
    /// True if the kernels can compute `n_rows` rows of a product like this, which the next one reads in 64 columns at a time.
    pub fn allows(self, spec: &LinearSpec, n_rows: usize) -> bool {
        let outputs = if spec.activation == LinearActivation::SwiGlu { n_rows / 2 } else { n_rows };
        let is_bytes = |form| matches!(form, ActivationForm::Bytes { .. });
        let output = match self.output {
            FusedOutput::Plain => true,
            FusedOutput::Converted(form) => is_bytes(form) && !spec.residual && outputs.is_multiple_of(COL_GROUP),
            FusedOutput::Normed(form) => is_bytes(form) && spec.residual && outputs.is_multiple_of(COL_GROUP),
        };
        spec.format.is_integer() && output && (!self.divides_by_rms || spec.cols.is_multiple_of(BLOCK))
    }

    fn out_form(self) -> Option<ActivationForm> {
        match self.output {
            FusedOutput::Plain => None,
            FusedOutput::Converted(form) | FusedOutput::Normed(form) => Some(form),
        }
    }

    /// Workgroup of `lanes` that computes a whole block; `plain` if none is needed.
    fn workgroup(self, spec: &LinearSpec, plain: MatvecShape, lanes: usize) -> MatvecShape {
        match (self.output, spec.activation) {
            (FusedOutput::Plain, _) => plain,
            (_, LinearActivation::SwiGlu) => MatvecShape { rows: 2 * BLOCK, lanes },
            _ => MatvecShape { rows: BLOCK, lanes },
        }
    }

    fn key(self, spec: &LinearSpec, MatvecShape { rows, lanes }: MatvecShape) -> KernelKey {
        let bindings = 5 + usize::from(spec.bias);
        let mut names = vec![spec.format.define(), "CONVERTED", "DOT4", "FUSED"];
        names.extend(spec.activation.define());
        for (present, name) in [
            (spec.bias, "BIAS"),
            (spec.residual, "RESIDUAL"),
            (self.divides_by_rms, "SQUARES"),
            (self.output != FusedOutput::Plain, "OUT"),
            (matches!(self.output, FusedOutput::Normed(_)), "OUT_NORM"),
            (self.out_form() == Some(ActivationForm::Bytes { even_odd: true }), "EVEN_ODD"),
        ] {
            names.extend(present.then_some(name));
        }
        let mut defines: Vec<_> = names.into_iter().map(|name| (name, String::new())).collect();
        defines.extend([("X", "vec4<u32>".to_owned()), ("SCALE", "vec4<f32>".to_owned())]);
        let out_at = bindings + usize::from(self.divides_by_rms);
        let numbers = [("COLS", 1), ("ROWS", rows), ("LANES", lanes), ("AFTER", bindings), ("OUT_AT", out_at)];
        defines.extend(numbers.map(|(name, n)| (name, n.to_string())));
        KernelKey::new("linear/matvec_converted", &defines)
    }
}

impl FusedMatvec {
    /// Compiles the product of `spec` with `fusion`, which must [allow](Fusion::allows) it. `eps` is that of the norm.
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, spec: LinearSpec, fusion: Fusion, eps: f32) -> Result<FusedMatvec, GpuError> {
        let lanes = gpu.tuning().fused_lanes.min(FusedMatvec::most_lanes(gpu));
        let shape = fusion.workgroup(&spec, gpu.tuning().matvec, lanes);
        Ok(FusedMatvec { kernel: gpu.kernel(&fusion.key(&spec, shape))?, spec, fusion, rows: shape.rows, eps })
    }

    /// Most lanes of a workgroup on `gpu`, a power of two.
    pub fn most_lanes(gpu: &Gpu) -> usize {
        let most = gpu.limits().max_compute_invocations_per_workgroup.min(gpu.limits().max_compute_workgroup_size_x) as usize;
        1 << most.max(LEAST_BLOCK_LANES).ilog2()
    }

    /// Binds the buffers of a slab.
    ///
    /// # Errors
    /// Buffers that the GPU refuses to bind, or no next norm for [`FusedOutput::Normed`].
    pub fn bind(&self, gpu: &Gpu, s: FusedSlices<'_>) -> Result<Binding, GpuError> {
        let mut slices = vec![s.weights[0], s.weights[1], s.x.values, s.x.scales, s.y];
        slices.extend(s.bias);
        slices.extend(self.fusion.divides_by_rms.then_some(s.squares));
        if self.fusion.out_form().is_some() {
            slices.extend([s.out.values, s.out.scales]);
        }
        if matches!(self.fusion.output, FusedOutput::Normed(_)) {
            slices.extend(s.next_norm.into_iter().flatten());
        }
        gpu.bind(&self.kernel, &slices)
    }

    /// Records the product of a slab of `n_rows` rows from `first_row` on.
    pub fn record(&self, recorder: &mut Recorder, binding: &Binding, first_row: usize, n_rows: usize) {
        let rows_per_output = if self.spec.activation == LinearActivation::SwiGlu { 2 } else { 1 };
        let cols = self.spec.cols;
        let (y_offset, bias_offset) = (first_row / rows_per_output, first_row);
        let shape = LinearShape { n_tokens: 1, n_rows, x_stride: cols, y_stride: 0, y_offset, bias_offset };
        let params = FusedParams { product: shape.params(cols), eps: self.eps };
        recorder.dispatch(&self.kernel, binding, &params, [n_rows.div_ceil(self.rows) as u32, 1, 1]);
    }
}

/// Every variant of these kernels, for the checks without a GPU.
pub(super) fn variants() -> Vec<KernelKey> {
    let mut keys = Vec::new();
    for format in super::WeightFormat::ALL.into_iter().filter(|format| format.is_integer()) {
        for even_odd in [false, true] {
            let form = ActivationForm::Bytes { even_odd };
            for (activation, divides_by_rms, residual, output) in [
                (LinearActivation::None, true, false, FusedOutput::Plain),
                (LinearActivation::None, false, true, FusedOutput::Normed(form)),
                (LinearActivation::SwiGlu, true, false, FusedOutput::Converted(form)),
                (LinearActivation::GeluTanh, true, false, FusedOutput::Converted(form)),
            ] {
                for (bias, lanes) in [(false, 1024), (true, 256)] {
                    let spec = LinearSpec { format, cols: 256, activation, bias, residual };
                    let fusion = Fusion { divides_by_rms, output };
                    keys.push(fusion.key(&spec, fusion.workgroup(&spec, Tuning::default().matvec, lanes)));
                }
            }
        }
    }
    keys.sort();
    keys.dedup();
    keys
}
