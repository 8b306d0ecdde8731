//! Page dequantization: converts quantized pages to f16 blocks, for pages transferred compressed to an f16 pool.
//!
//! ```text
//! staging: page, page, ... (codes and scales) ─► low + step * code, nearest f16 ─► frames of a pool
//! ```

use std::sync::Arc;

use super::KvFormat;
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// Lanes per workgroup, each with 8 channels of a block.
const LANES: usize = 64;
/// Blocks of one KV head in a page.
const PAGE_BLOCKS: usize = 4;

/// The compiled kernel for one format.
pub struct DequantizePages {
    kernel: Arc<Kernel>,
    n_kv_head: usize,
    head_dim: usize,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    from_page: u32,
    to_page: u32,
    n_pages: u32,
}

pub(super) fn key(n_kv_head: usize, head_dim: usize, sealed: KvFormat) -> KernelKey {
    KernelKey::new("kv/dequantize_pages", &sealed.defines(n_kv_head, head_dim))
}

impl DequantizePages {
    /// Compiles the variant for G = `n_kv_head`, D = `head_dim` (a multiple of 8), from q8 or q4 to f16.
    ///
    /// # Errors
    /// Pages that are not quantized, a kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, n_kv_head: usize, head_dim: usize, sealed: KvFormat) -> Result<DequantizePages, GpuError> {
        if !sealed.is_quantized() {
            let reason = format!("{sealed:?} has no codes");
            return Err(GpuError::Rejected { what: "dequantizing KV pages".into(), reason });
        }
        Ok(DequantizePages { kernel: gpu.kernel(&key(n_kv_head, head_dim, sealed))?, n_kv_head, head_dim })
    }

    /// Binds the source pages and the destination f16 blocks.
    ///
    /// # Errors
    /// Buffers the device refuses to bind.
    pub fn bind(&self, gpu: &Gpu, [pages, blocks]: [&Slice; 2]) -> Result<Binding, GpuError> {
        gpu.bind(&self.kernel, &[pages, blocks])
    }

    /// Records the conversion of `n_pages` consecutive pages; both indices are in pages of their own size.
    pub fn record(&self, recorder: &mut Recorder, binding: &Binding, from_page: usize, to_page: usize, n_pages: usize) {
        let params = Params { from_page: from_page as u32, to_page: to_page as u32, n_pages: n_pages as u32 };
        let lanes = n_pages * PAGE_BLOCKS * self.n_kv_head * (self.head_dim / 8);
        recorder.dispatch(&self.kernel, binding, &params, [lanes.div_ceil(LANES) as u32, 1, 1]);
    }
}
