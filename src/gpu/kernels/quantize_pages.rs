//! Page quantization: converts complete f16 or f32 pages to quantized pages.
//!
//! ```text
//! tail: page, page, ... (slot order) ─► step and low of each channel (K) or token (V), codes ─► frames of a pool
//! ```

use std::sync::Arc;

use super::KvFormat;
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// The compiled kernel for one pair of formats.
pub struct QuantizePages {
    kernel: Arc<Kernel>,
    n_kv_head: usize,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    from_page: u32,
    to_page: u32,
}

fn key(n_kv_head: usize, head_dim: usize, work: KvFormat, sealed: KvFormat) -> KernelKey {
    let mut defines = sealed.defines(n_kv_head, head_dim);
    if work == KvFormat::F16 {
        defines.push(("WORK_F16", String::new()));
    }
    KernelKey::new("kv/quantize_pages", &defines)
}

pub(super) fn variants(n_kv_head: usize, head_dim: usize, sealed: KvFormat) -> Vec<KernelKey> {
    [KvFormat::F16, KvFormat::F32].map(|work| key(n_kv_head, head_dim, work, sealed)).to_vec()
}

impl QuantizePages {
    /// Compiles the variant for G = `n_kv_head`, D = `head_dim` (a multiple of 8), from f16 or f32 to q8 or q4.
    ///
    /// # Errors
    /// An unsupported pair of formats, a kernel that does not compile, or a lost device.
    pub fn new(
        gpu: &Gpu,
        n_kv_head: usize,
        head_dim: usize,
        work: KvFormat,
        sealed: KvFormat,
    ) -> Result<QuantizePages, GpuError> {
        if work.is_quantized() || !sealed.is_quantized() {
            let reason = format!("no conversion of {work:?} to {sealed:?}");
            return Err(GpuError::Rejected { what: "quantizing KV pages".into(), reason });
        }
        Ok(QuantizePages { kernel: gpu.kernel(&key(n_kv_head, head_dim, work, sealed))?, n_kv_head })
    }

    /// Binds the source blocks and the destination pages.
    ///
    /// # Errors
    /// Buffers the device refuses to bind.
    pub fn bind(&self, gpu: &Gpu, [blocks, pages]: [&Slice; 2]) -> Result<Binding, GpuError> {
        gpu.bind(&self.kernel, &[blocks, pages])
    }

    /// Records the conversion of `n_pages` consecutive pages; both indices are in pages of their own size.
    pub fn record(&self, recorder: &mut Recorder, binding: &Binding, from_page: usize, to_page: usize, n_pages: usize) {
        let params = Params { from_page: from_page as u32, to_page: to_page as u32 };
        recorder.dispatch(&self.kernel, binding, &params, [n_pages as u32, self.n_kv_head as u32, 2]);
    }
}
