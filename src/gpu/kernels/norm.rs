//! RMSNorm and LayerNorm over rows, with the result in f32 or in the form that the next product reads.
//!
//! x f32 `[rows, C]`, y `[rows, C]`, C a multiple of 4.

use std::sync::Arc;

use super::linear::ActivationForm;
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// Lanes of a workgroup whose result is converted.
const CONVERTING_LANES: usize = 256;

/// The compiled norm.
pub struct Norm {
    kernel: Arc<Kernel>,
    eps: f32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    n_cols4: u32,
    x_first_row: u32,
    eps: f32,
}

fn key(layer_norm: bool, form: ActivationForm) -> KernelKey {
    let mut defines = if layer_norm { vec![("LAYER", String::new())] } else { vec![] };
    if form == ActivationForm::F32 {
        return KernelKey::new("norm/norm", &defines);
    }
    defines.push(("LANES", CONVERTING_LANES.to_string()));
    let scale = if let ActivationForm::Bytes { even_odd } = form {
        defines.push(("BYTES", String::new()));
        defines.extend(even_odd.then(|| ("EVEN_ODD", String::new())));
        "vec4<f32>"
    } else {
        "f32"
    };
    defines.push(("SCALE", scale.to_owned()));
    KernelKey::new("norm/norm_converted", &defines)
}

pub(super) fn variants() -> Vec<KernelKey> {
    ActivationForm::ALL.into_iter().flat_map(|form| [key(false, form), key(true, form)]).collect()
}

impl Norm {
    /// RMSNorm, or LayerNorm when `layer_norm`, with the result in `form`; others than f32 need [`Gpu::has_subgroups`].
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, layer_norm: bool, eps: f32, form: ActivationForm) -> Result<Norm, GpuError> {
        Ok(Norm { kernel: gpu.kernel(&key(layer_norm, form))?, eps })
    }

    /// Binds x `[rows, C]`, weight `[C]`, bias `[C]` (LayerNorm only) and y: f32 `[rows, C]`, or the values and scales of another
    /// form.
    ///
    /// # Errors
    /// A bias for RMSNorm, or none for LayerNorm; a wrong number of output buffers.
    pub fn bind(&self, gpu: &Gpu, x: &Slice, weight: &Slice, bias: Option<&Slice>, y: &[&Slice]) -> Result<Binding, GpuError> {
        let slices: Vec<&Slice> = [x, weight].into_iter().chain(bias).chain(y.iter().copied()).collect();
        gpu.bind(&self.kernel, &slices)
    }

    /// Normalizes rows `x_first_row ..` of x into rows `0 .. n_rows` of y.
    pub fn record(&self, recorder: &mut Recorder, binding: &Binding, n_cols: usize, x_first_row: usize, n_rows: usize) {
        let params = Params { n_cols4: (n_cols / 4) as u32, x_first_row: x_first_row as u32, eps: self.eps };
        recorder.dispatch(&self.kernel, binding, &params, [n_rows as u32, 1, 1]);
    }
}
