//! Page abstracts: element-wise minimum and maximum of the keys of a page, to bound its scores without reading it.
//!
//! ```text
//! tail: page, page, ... (slot order, f16 or f32) ─► abstract f16 [G, 2, D] of each: minimum, maximum of 64 keys
//! ```
//! 1. The bounds hold for the keys in the page. If it is quantized afterwards, a key may exceed them by the rounding of
//!    the scale, at most 2^-10 of the range of the channel.
//! 2. A NaN key makes the bounds of its channel infinite, so that [`super::page_bounds`] never excludes its page.
//!
//! Source: LeoAM §4.3.

use std::sync::Arc;

use super::KvFormat;
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// Lanes per workgroup, each with 8 channels.
const LANES: usize = 64;

/// The compiled kernel for one format.
pub struct PageAbstracts {
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

/// Bytes of the abstract of one page: one layer, all G KV heads. A multiple of 32.
pub fn abstract_bytes(n_kv_head: usize, head_dim: usize) -> u64 {
    (n_kv_head * 2 * head_dim * 2) as u64
}

fn key(n_kv_head: usize, head_dim: usize, work: KvFormat) -> KernelKey {
    let mut defines = vec![("D", head_dim.to_string()), ("KV_HEADS", n_kv_head.to_string())];
    if work == KvFormat::F16 {
        defines.push(("WORK_F16", String::new()));
    }
    KernelKey::new("kv/page_abstracts", &defines)
}

pub(super) fn variants(n_kv_head: usize, head_dim: usize) -> Vec<KernelKey> {
    [KvFormat::F16, KvFormat::F32].map(|work| key(n_kv_head, head_dim, work)).to_vec()
}

impl PageAbstracts {
    /// Compiles the variant for G = `n_kv_head`, D = `head_dim` (a multiple of 8), of f16 or f32 blocks.
    ///
    /// # Errors
    /// Quantized blocks, a kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, n_kv_head: usize, head_dim: usize, work: KvFormat) -> Result<PageAbstracts, GpuError> {
        if work.is_quantized() {
            let reason = format!("{work:?} is already quantized");
            return Err(GpuError::Rejected { what: "abstracts of KV pages".into(), reason });
        }
        Ok(PageAbstracts { kernel: gpu.kernel(&key(n_kv_head, head_dim, work))?, n_kv_head, head_dim })
    }

    /// Binds the source blocks and the destination abstracts f16 `[pages, G, 2, D]`.
    ///
    /// # Errors
    /// Buffers the device refuses to bind.
    pub fn bind(&self, gpu: &Gpu, [blocks, abstracts]: [&Slice; 2]) -> Result<Binding, GpuError> {
        gpu.bind(&self.kernel, &[blocks, abstracts])
    }

    /// Records the abstracts of `n_pages` consecutive pages; both indices are in pages.
    pub fn record(&self, recorder: &mut Recorder, binding: &Binding, from_page: usize, to_page: usize, n_pages: usize) {
        let params = Params { from_page: from_page as u32, to_page: to_page as u32, n_pages: n_pages as u32 };
        let lanes = n_pages * self.n_kv_head * (self.head_dim / 8);
        recorder.dispatch(&self.kernel, binding, &params, [lanes.div_ceil(LANES) as u32, 1, 1]);
    }
}
