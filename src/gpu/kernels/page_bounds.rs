//! Page bounds: upper and lower bound of q · k over the keys of each page, from its abstract.
//!
//! ```text
//! q [H, D], abstracts [P, G, 2, D] ─► bounds [H, P]: upper, lower of q · k
//! ```
//! A page with an infinite abstract is unbounded: its bounds are ([`UNBOUNDED`], -[`UNBOUNDED`]).
//!
//! Source: LeoAM §4.2, LeoAM §4.3.

use std::sync::Arc;

use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// Upper bound of an unbounded page.
pub const UNBOUNDED: f32 = 3.0e38;
/// Pages per workgroup.
const TILE_PAGES: usize = 64;
/// Maximum query heads of a group per workgroup.
const MAX_HEADS_PER_WORKGROUP: usize = 8;

/// The compiled kernel.
pub struct PageBoundsKernel {
    pages: Arc<Kernel>,
    n_head: usize,
    n_kv_head: usize,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    n_pages: u32,
    group: u32,
}

fn page_bounds_key(n_kv_head: usize, group: usize, head_dim: usize) -> KernelKey {
    let heads = group.min(MAX_HEADS_PER_WORKGROUP);
    let defines = [("D", head_dim.to_string()), ("KV_HEADS", n_kv_head.to_string()), ("GR", heads.to_string())];
    KernelKey::new("kv/page_bounds", &defines)
}

pub(super) fn variants(n_kv_head: usize, head_dim: usize) -> Vec<KernelKey> {
    (1..=MAX_HEADS_PER_WORKGROUP).map(|group| page_bounds_key(n_kv_head, group, head_dim)).collect()
}

impl PageBoundsKernel {
    /// Compiles the variants for H = `n_head`, G = `n_kv_head`, D = `head_dim` (a multiple of 8).
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, n_head: usize, n_kv_head: usize, head_dim: usize) -> Result<PageBoundsKernel, GpuError> {
        Ok(PageBoundsKernel { pages: gpu.kernel(&page_bounds_key(n_kv_head, n_head / n_kv_head, head_dim))?, n_head, n_kv_head })
    }

    /// Bytes of the bounds of `n_pages` for one row of q.
    pub fn bounds_bytes(&self, n_pages: usize) -> u64 {
        (self.n_head * n_pages * 8) as u64
    }

    /// Binds q f32 `[R, H, D]` (scaled and rotated), abstracts f16 `[P, G, 2, D]` and bounds f32 `[R, H, P, 2]`.
    ///
    /// # Errors
    /// Buffers the device refuses to bind.
    pub fn bind(&self, gpu: &Gpu, [q, abstracts, bounds]: [&Slice; 3]) -> Result<Binding, GpuError> {
        gpu.bind(&self.pages, &[q, abstracts, bounds])
    }

    /// Records the bounds of the first `n_pages` for the first `n_rows` rows of q. The output is dense, whatever the
    /// buffer size.
    pub fn record(&self, recorder: &mut Recorder, binding: &Binding, n_pages: usize, n_rows: usize) {
        let group = self.n_head / self.n_kv_head;
        let params = Params { n_pages: n_pages as u32, group: group as u32 };
        let head_sets = group.div_ceil(group.min(MAX_HEADS_PER_WORKGROUP));
        let n_groups = (n_rows * self.n_kv_head) as u32;
        let grid = [n_pages.div_ceil(TILE_PAGES) as u32, n_groups, head_sets as u32];
        recorder.dispatch(&self.pages, binding, &params, grid);
    }
}
