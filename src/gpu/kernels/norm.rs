//! RMSNorm and LayerNorm over rows: x f32 `[rows, C]` to y f32 `[rows, C]`, C a multiple of 4.

use std::sync::Arc;

use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

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

fn key(layer_norm: bool) -> KernelKey {
    let defines = if layer_norm { vec![("LAYER", String::new())] } else { vec![] };
    KernelKey::new("norm/norm", &defines)
}

pub(super) fn variants() -> Vec<KernelKey> {
    vec![key(false), key(true)]
}

impl Norm {
    /// RMSNorm, or LayerNorm when `layer_norm`.
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, layer_norm: bool, eps: f32) -> Result<Norm, GpuError> {
        Ok(Norm { kernel: gpu.kernel(&key(layer_norm))?, eps })
    }

    /// Binds x `[rows, C]`, weight `[C]`, bias `[C]` (LayerNorm only) and y `[rows, C]`.
    ///
    /// # Errors
    /// A bias for RMSNorm, or none for LayerNorm.
    pub fn bind(&self, gpu: &Gpu, x: &Slice, weight: &Slice, bias: Option<&Slice>, y: &Slice) -> Result<Binding, GpuError> {
        let mut slices = vec![x, weight];
        slices.extend(bias);
        slices.push(y);
        gpu.bind(&self.kernel, &slices)
    }

    /// Normalizes rows `x_first_row ..` of x into rows `0 .. n_rows` of y.
    pub fn record(&self, recorder: &mut Recorder, binding: &Binding, n_cols: usize, x_first_row: usize, n_rows: usize) {
        let params = Params { n_cols4: (n_cols / 4) as u32, x_first_row: x_first_row as u32, eps: self.eps };
        recorder.dispatch(&self.kernel, binding, &params, [n_rows as u32, 1, 1]);
    }
}
