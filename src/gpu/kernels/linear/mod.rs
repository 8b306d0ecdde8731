//! Matrix products with weights in their stored format, and the embedding gather.
//!
//! ```text
//! x [T, K] ─► y [T, N] = activation(W x + bias) (+ y)       one slab of rows of W per dispatch
//! ```

mod format;

use std::sync::Arc;

pub use format::WeightFormat;

use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// What follows the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinearActivation {
    /// nothing
    None,
    /// rows 2i and 2i + 1 are gate and up: out i = silu(gate) * up; N/2 outputs
    SwiGlu,
    /// tanh approximation
    GeluTanh,
    /// erf
    Gelu,
    /// max(0, x)
    Relu,
}

/// Which variant of the op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinearSpec {
    /// how W is stored
    pub format: WeightFormat,
    /// K
    pub cols: usize,
    /// after the bias
    pub activation: LinearActivation,
    /// there is a bias
    pub bias: bool,
    /// y is added to, not overwritten
    pub residual: bool,
}

/// The compiled op: a matvec for few tokens and a matmul for many.
pub struct Linear {
    kernel: Arc<Kernel>,
    spec: LinearSpec,
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
pub struct LinearBinding(Binding);

/// One product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearShape {
    /// T
    pub n_tokens: usize,
    /// rows of this slab
    pub n_rows: usize,
    /// elements between tokens in x
    pub x_stride: usize,
    /// elements between tokens in y
    pub y_stride: usize,
    /// element of y (after the activation) that the slab's first output goes to
    pub y_offset: usize,
    /// element of the bias that belongs to the slab's first row
    pub bias_offset: usize,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    n_rows: u32,
    n_cols: u32,
    x_stride: u32,
    y_stride: u32,
    y_offset: u32,
    bias_offset: u32,
}

impl Linear {
    /// Compiles the variants for `spec` that suit this device.
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, spec: LinearSpec) -> Result<Linear, GpuError> {
        let mut defines = vec![];
        let activation = match spec.activation {
            LinearActivation::None => None,
            LinearActivation::SwiGlu => Some("SWIGLU"),
            LinearActivation::GeluTanh => Some("GELU_TANH"),
            LinearActivation::Gelu => Some("GELU"),
            LinearActivation::Relu => Some("RELU"),
        };
        let flags = [activation, spec.bias.then_some("BIAS"), spec.residual.then_some("RESIDUAL")];
        defines.extend(flags.into_iter().flatten().map(|f| (f, String::new())));
        Ok(Linear { kernel: gpu.kernel(&KernelKey::new("linear/plain", &defines))?, spec })
    }

    /// Binds the buffers of one slab.
    ///
    /// # Errors
    /// Buffers the device refuses to bind.
    pub fn bind(&self, gpu: &Gpu, s: LinearSlices<'_>) -> Result<LinearBinding, GpuError> {
        let mut slices = vec![s.x, s.quants, s.scales];
        slices.extend(s.bias);
        slices.push(s.y);
        Ok(LinearBinding(gpu.bind(&self.kernel, &slices)?))
    }

    /// Adds the product of one slab.
    pub fn record(&self, recorder: &mut Recorder, binding: &LinearBinding, shape: LinearShape) {
        let params = Params {
            n_rows: shape.n_rows as u32,
            n_cols: self.spec.cols as u32,
            x_stride: shape.x_stride as u32,
            y_stride: shape.y_stride as u32,
            y_offset: shape.y_offset as u32,
            bias_offset: shape.bias_offset as u32,
        };
        recorder.dispatch(&self.kernel, &binding.0, &params, [(shape.n_rows as u32).div_ceil(64), shape.n_tokens as u32, 1]);
    }
}

/// The compiled embedding gather.
pub struct Embed {
    kernel: Arc<Kernel>,
    cols: usize,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct EmbedParams {
    n_cols: u32,
    first_row: u32,
    n_rows: u32,
    id_offset: u32,
}

impl Embed {
    /// Compiles the variant for a table of width `cols`; with `add`, rows are added to y (learned positions).
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, _format: WeightFormat, cols: usize, add: bool) -> Result<Embed, GpuError> {
        let defines = if add { vec![("ADD", String::new())] } else { vec![] };
        Ok(Embed { kernel: gpu.kernel(&KernelKey::new("linear/embed", &defines))?, cols })
    }

    /// Binds ids u32 `[T]`, one slab of the table, and y f32 `[T, C]`.
    ///
    /// # Errors
    /// Buffers the device refuses to bind.
    pub fn bind(&self, gpu: &Gpu, ids: &Slice, quants: &Slice, scales: &Slice, y: &Slice) -> Result<Binding, GpuError> {
        gpu.bind(&self.kernel, &[ids, quants, scales, y])
    }

    /// Adds the gather of `n_tokens` ids from the slab with rows `first_row .. first_row + n_rows`. `id_offset` is added
    /// to every id first (OPT's positions start at row 2).
    pub fn record(&self, recorder: &mut Recorder, binding: &Binding, n_tokens: usize, slab: [usize; 2], id_offset: usize) {
        let params = EmbedParams {
            n_cols: self.cols as u32,
            first_row: slab[0] as u32,
            n_rows: slab[1] as u32,
            id_offset: id_offset as u32,
        };
        recorder.dispatch(&self.kernel, binding, &params, [(self.cols as u32).div_ceil(64), n_tokens as u32, 1]);
    }
}
