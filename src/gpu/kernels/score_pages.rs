//! Scores every page by its abstract: bounds of what attention would make of its keys.
//!
//! ```text
//! q [H, D], abstracts [P, G, 2, D] ─► bounds [H, P]: upper, lower of q · k ─► scores [G, P]: over the heads of a group
//! ```
//! 1. Scores are against the highest upper bound R_h of each query head: upper = max over h of (ub_h - R_h), at most 0, so that
//!    heads of different size are comparable; lower likewise.
//! 2. A page with an infinite bound may hold anything: it scores ([`UNKNOWN`], -[`UNKNOWN`]) and has no part in R_h.
//!
//! Source: LeoAM, sections 4.2 and 4.3.

use std::sync::Arc;

use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// Upper bound of a page that may hold anything.
pub const UNKNOWN: f32 = 3.0e38;
/// Pages that one workgroup scores.
const TILE_PAGES: usize = 64;
/// Query heads of a group that one workgroup serves at most.
const MAX_HEADS_PER_WORKGROUP: usize = 8;

/// The two compiled kernels.
pub struct ScorePages {
    pages: Arc<Kernel>,
    groups: Arc<Kernel>,
    n_head: usize,
    n_kv_head: usize,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    n_pages: u32,
    group: u32,
}

fn pages_key(n_kv_head: usize, group: usize, head_dim: usize) -> KernelKey {
    let heads = group.min(MAX_HEADS_PER_WORKGROUP);
    let defines = [("D", head_dim.to_string()), ("KV_HEADS", n_kv_head.to_string()), ("GR", heads.to_string())];
    KernelKey::new("attention/score_pages", &defines)
}

/// Workgroups of one subgroup where lanes are simulated and a barrier is dear.
fn groups_key(is_software: bool) -> KernelKey {
    KernelKey::new("attention/score_groups", &[("LANES", if is_software { "8" } else { "256" }.to_owned())])
}

pub(super) fn variants(n_kv_head: usize, head_dim: usize) -> Vec<KernelKey> {
    let mut keys: Vec<KernelKey> = (1..=MAX_HEADS_PER_WORKGROUP).map(|group| pages_key(n_kv_head, group, head_dim)).collect();
    keys.extend([groups_key(false), groups_key(true)]);
    keys
}

impl ScorePages {
    /// Compiles the variants for H = `n_head`, G = `n_kv_head`, D = `head_dim` (a multiple of 8).
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, n_head: usize, n_kv_head: usize, head_dim: usize) -> Result<ScorePages, GpuError> {
        Ok(ScorePages {
            pages: gpu.kernel(&pages_key(n_kv_head, n_head / n_kv_head, head_dim))?,
            groups: gpu.kernel(&groups_key(gpu.wants_software_kernels()))?,
            n_head,
            n_kv_head,
        })
    }

    /// Bytes of the bounds of `n_pages`.
    pub fn bounds_bytes(&self, n_pages: usize) -> u64 {
        (self.n_head * n_pages * 8) as u64
    }

    /// Bytes of the scores of `n_pages`, and the highest upper bound of each query head: what is read back.
    pub fn scores_bytes(&self, n_pages: usize) -> u64 {
        ((self.n_kv_head * n_pages + self.n_head) * 8) as u64
    }

    /// Binds q f32 `[H, D]` (scaled and rotated), abstracts f16 `[P, G, 2, D]`, bounds f32 `[H, P, 2]` and scores f32
    /// `[G, P, 2]`, after which stands the highest upper bound of each query head, `[H, 2]` (the second is 0).
    ///
    /// # Errors
    /// Buffers the device refuses to bind.
    pub fn bind(&self, gpu: &Gpu, [q, abstracts, bounds, scores]: [&Slice; 4]) -> Result<[Binding; 2], GpuError> {
        Ok([gpu.bind(&self.pages, &[q, abstracts, bounds])?, gpu.bind(&self.groups, &[bounds, scores])?])
    }

    /// Adds the scores of the first `n_pages`; bounds and scores are dense, whatever their buffers have room for.
    pub fn record(&self, recorder: &mut Recorder, bindings: &[Binding; 2], n_pages: usize) {
        self.record_rows(recorder, bindings, n_pages, 1);
    }

    /// The same for the first `n_rows` rows of q: bounds `[R, H, P, 2]`, scores `[R, G, P, 2]` and then `[R, H, 2]`.
    pub fn record_rows(&self, recorder: &mut Recorder, [pages, groups]: &[Binding; 2], n_pages: usize, n_rows: usize) {
        let group = self.n_head / self.n_kv_head;
        let params = Params { n_pages: n_pages as u32, group: group as u32 };
        let head_sets = group.div_ceil(group.min(MAX_HEADS_PER_WORKGROUP));
        let n_groups = (n_rows * self.n_kv_head) as u32;
        let grid = [n_pages.div_ceil(TILE_PAGES) as u32, n_groups, head_sets as u32];
        recorder.dispatch(&self.pages, pages, &params, grid);
        recorder.dispatch(&self.groups, groups, &params, [n_groups, 1, 1]);
    }
}
