//! Selection of tokens on the device: from page bounds to the list of tokens that each KV head reads. Nothing is read back.
//!
//! ```text
//! page bounds ─► candidate pages ─► scores of their tokens ─► keys ─► radix selection ─► list of tokens ─► attention
//!                   ▲ slack, gaps of the last step ◄───────────┘
//! ```
//! 1. The number of selected tokens is known before: grids and lists have fixed sizes. 2. The list is in the order of the pages,
//!    so that sums do not depend on timing. 3. The always-read pages are scored too, because totals need them.
//!
//! Shapes: R rows, H query heads and G KV heads of each, P complete pages, L layers.
//!
//! Source: LeoAM §4.2.

mod buffers;
mod sizes;

use std::sync::Arc;

use super::KvFormat;
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};
pub use buffers::{SelectionBuffers, SelectionCapacity};
pub use sizes::SelectionSizes;

/// Maximum query heads of a group per workgroup of token scores.
const MAX_HEADS_PER_WORKGROUP: usize = 4;
/// Elements of a key per lane, unless lanes are few.
const LANE_ELEMENTS: usize = 16;
/// Maximum lanes that share a key (bounds workgroup memory).
const MAX_TOKEN_LANES: usize = 8;
/// No frame.
const NONE: u32 = u32::MAX;
/// Listed pages of a workgroup that weights tokens.
const TILE_PAGES: usize = 4;

/// The compiled kernels of one shape and format of pages.
pub struct TokenSelection {
    candidates: Arc<Kernel>,
    scores: Arc<Kernel>,
    totals: Arc<Kernel>,
    weights: Arc<Kernel>,
    histogram: Arc<Kernel>,
    counts: Arc<Kernel>,
    list: Arc<Kernel>,
    n_head: usize,
    n_kv_head: usize,
}

/// Layer and rows of a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectionPlace {
    /// layer
    pub layer: usize,
    /// R
    pub n_rows: usize,
    /// splits of each query head, of which the first `n_tail` have the scores of its tail
    pub n_splits: usize,
    /// splits of the tail
    pub n_tail: usize,
    /// frame from which pages are in RAM; None if none are
    pub first_in_ram: Option<usize>,
}

/// Frames of one segment of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentFrames {
    /// first frame
    pub first: usize,
    /// number of frames
    pub n: usize,
}

/// Bind groups of everything but the token scores, which read the pages of a layer.
pub struct SelectionBindings {
    candidates: Binding,
    totals: Binding,
    weights: Binding,
    histogram: Binding,
    counts: Binding,
    list: Binding,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct CandidateParams {
    n_pages: u32,
    group: u32,
    first_head: u32,
    first_list: u32,
    frames_at: u32,
    counter_at: u32,
    first_in_ram: u32,
    n_best: u32,
    n_sink: u32,
    n_recent: u32,
    n_min: u32,
    n_max: u32,
    least: f32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct ScoreParams {
    n_listed: u32,
    n_lists: u32,
    group: u32,
    frames_at: u32,
    first_frame: u32,
    n_frames: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct TotalParams {
    n_listed: u32,
    n_heads: u32,
    group: u32,
    first_head: u32,
    n_splits: u32,
    n_tail: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct WeightParams {
    n_listed: u32,
    group: u32,
    n_pages: u32,
    n_always: u32,
    first_head: u32,
    first_list: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct HistogramParams {
    n_listed: u32,
    n_wanted: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct CountParams {
    n_listed: u32,
    n_wanted: u32,
    n_tiles: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct ListParams {
    n_listed: u32,
    n_wanted: u32,
    n_tiles: u32,
    n_always: u32,
    n_kv_head: u32,
    frames_at: u32,
    counter_at: u32,
    first_in_ram: u32,
}

/// Frames of the layer, in those of all layers.
fn frames_at(b: &SelectionBuffers, place: SelectionPlace) -> u32 {
    (place.layer * b.capacity.n_pages) as u32
}

fn key(name: &'static str) -> KernelKey {
    KernelKey::new(name, &[])
}

fn scores_key(n_kv_head: usize, group: usize, head_dim: usize, element: KvFormat) -> KernelKey {
    let mut defines = element.defines(n_kv_head, head_dim);
    defines.push(("G", n_kv_head.to_string()));
    defines.push(("GR", group.min(MAX_HEADS_PER_WORKGROUP).to_string()));
    let lanes = head_dim.div_ceil(LANE_ELEMENTS).next_power_of_two().min(MAX_TOKEN_LANES);
    defines.push(("W", lanes.to_string()));
    defines.push(("C", head_dim.div_ceil(8 * lanes).to_string()));
    KernelKey::new("selection/token_scores", &defines)
}

pub(super) fn variants() -> Vec<KernelKey> {
    [
        "selection/page_candidates",
        "selection/head_totals",
        "selection/token_weights",
        "selection/key_histogram",
        "selection/token_counts",
        "selection/token_list",
    ]
    .map(key)
    .to_vec()
}

pub(super) fn score_variants(n_kv_head: usize, head_dim: usize, element: KvFormat) -> Vec<KernelKey> {
    (1..=MAX_HEADS_PER_WORKGROUP).map(|group| scores_key(n_kv_head, group, head_dim, element)).collect()
}

impl TokenSelection {
    /// Compiles the kernels for H = `n_head`, G = `n_kv_head`, D = `head_dim` (a multiple of 8).
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, n_head: usize, n_kv_head: usize, head_dim: usize, element: KvFormat) -> Result<Self, GpuError> {
        Ok(TokenSelection {
            candidates: gpu.kernel(&key("selection/page_candidates"))?,
            scores: gpu.kernel(&scores_key(n_kv_head, n_head / n_kv_head, head_dim, element))?,
            totals: gpu.kernel(&key("selection/head_totals"))?,
            weights: gpu.kernel(&key("selection/token_weights"))?,
            histogram: gpu.kernel(&key("selection/key_histogram"))?,
            counts: gpu.kernel(&key("selection/token_counts"))?,
            list: gpu.kernel(&key("selection/token_list"))?,
            n_head,
            n_kv_head,
        })
    }

    fn group(&self) -> usize {
        self.n_head / self.n_kv_head
    }

    /// Binds the buffers of a selection, and the states f32 `[R, H, n_splits, 2]` of attention.
    ///
    /// # Errors
    /// Buffers that the GPU refuses to bind.
    pub fn bind(&self, gpu: &Gpu, b: &SelectionBuffers, states: &Slice) -> Result<SelectionBindings, GpuError> {
        let candidates = [&b.bounds, &b.heads, &b.state, &b.page_keys, &b.pages, &b.upper_bits, &b.lower_bits, &b.frames];
        let weights = [&b.scores, &b.bounds, &b.heads, &b.state, &b.pages, &b.keys, &b.upper_bits];
        let list = [&b.keys, &b.pages, &b.upper_bits, &b.lower_bits, &b.counts, &b.frames, &b.table, &b.state];
        Ok(SelectionBindings {
            candidates: gpu.bind(&self.candidates, &candidates)?,
            totals: gpu.bind(&self.totals, &[&b.scores, states, &b.pages, &b.heads])?,
            weights: gpu.bind(&self.weights, &weights)?,
            histogram: gpu.bind(&self.histogram, &[&b.keys, &b.pages, &b.upper_bits, &b.lower_bits])?,
            counts: gpu.bind(&self.counts, &[&b.keys, &b.pages, &b.upper_bits, &b.lower_bits, &b.counts])?,
            list: gpu.bind(&self.list, &list)?,
        })
    }

    /// Binds q f32 `[R, H, D]` and the pages of one layer in one segment.
    ///
    /// # Errors
    /// Buffers that the GPU refuses to bind.
    pub fn bind_scores(&self, gpu: &Gpu, b: &SelectionBuffers, [q, pages]: [&Slice; 2]) -> Result<Binding, GpuError> {
        gpu.bind(&self.scores, &[q, pages, &b.pages, &b.frames, &b.scores])
    }

    /// Records the candidate pages, after their bounds.
    pub fn record_candidates(
        &self,
        recorder: &mut Recorder,
        bindings: &SelectionBindings,
        b: &SelectionBuffers,
        place: SelectionPlace,
        sizes: SelectionSizes,
    ) {
        let [first_head, first_list] = self.first_of_layer(b, place);
        let params = CandidateParams {
            n_pages: sizes.n_pages as u32,
            group: self.group() as u32,
            first_head,
            first_list,
            frames_at: frames_at(b, place),
            counter_at: b.counter_at as u32,
            first_in_ram: place.first_in_ram.map_or(NONE, |first| first as u32),
            n_best: sizes.n_best as u32,
            n_sink: sizes.n_sink as u32,
            n_recent: sizes.n_recent as u32,
            n_min: sizes.n_candidates[0] as u32,
            n_max: sizes.n_candidates[1] as u32,
            least: sizes.least,
        };
        recorder.dispatch(&self.candidates, &bindings.candidates, &params, [self.n_lists(place), 1, 1]);
    }

    /// Records the scores of the tokens of the listed pages that are in a segment, after the candidates.
    pub fn record_scores(
        &self,
        recorder: &mut Recorder,
        binding: &Binding,
        b: &SelectionBuffers,
        place: SelectionPlace,
        sizes: SelectionSizes,
        segment: SegmentFrames,
    ) {
        let params = ScoreParams {
            n_listed: sizes.n_listed() as u32,
            n_lists: self.n_lists(place),
            group: self.group() as u32,
            frames_at: frames_at(b, place),
            first_frame: segment.first as u32,
            n_frames: segment.n as u32,
        };
        let head_sets = self.group().div_ceil(self.group().min(MAX_HEADS_PER_WORKGROUP));
        recorder.dispatch(&self.scores, binding, &params, [sizes.n_listed() as u32, self.n_lists(place), head_sets as u32]);
    }

    /// Records the list of tokens u32 `[R, G, n_table]`, after the scores of all segments and the splits of the tails.
    pub fn record_list(
        &self,
        recorder: &mut Recorder,
        bindings: &SelectionBindings,
        b: &SelectionBuffers,
        place: SelectionPlace,
        sizes: SelectionSizes,
    ) {
        let (n_listed, n_wanted, n_tiles) = (sizes.n_listed() as u32, sizes.n_wanted as u32, sizes.n_tiles() as u32);
        let n_lists = self.n_lists(place);
        let [first_head, first_list] = self.first_of_layer(b, place);
        let (group, n_heads) = (self.group() as u32, (place.n_rows * self.n_head) as u32);
        let (n_splits, n_tail) = (place.n_splits as u32, place.n_tail as u32);
        let params = TotalParams { n_listed, n_heads, group, first_head, n_splits, n_tail };
        recorder.dispatch(&self.totals, &bindings.totals, &params, [n_heads, 1, 1]);
        let params = WeightParams {
            n_listed,
            group,
            n_pages: sizes.n_pages as u32,
            n_always: sizes.n_always() as u32,
            first_head,
            first_list,
        };
        let tiles = sizes.n_listed().div_ceil(TILE_PAGES) as u32;
        recorder.dispatch(&self.weights, &bindings.weights, &params, [tiles, n_lists, 1]);
        let grid = [n_tiles, n_lists, 1];
        recorder.dispatch(&self.histogram, &bindings.histogram, &HistogramParams { n_listed, n_wanted }, grid);
        recorder.dispatch(&self.counts, &bindings.counts, &CountParams { n_listed, n_wanted, n_tiles }, grid);
        let params = ListParams {
            n_listed,
            n_wanted,
            n_tiles,
            n_always: sizes.n_always() as u32,
            n_kv_head: self.n_kv_head as u32,
            frames_at: frames_at(b, place),
            counter_at: b.counter_at as u32,
            first_in_ram: place.first_in_ram.map_or(NONE, |first| first as u32),
        };
        recorder.dispatch(&self.list, &bindings.list, &params, grid);
    }

    /// First query head and first list of the layer, in the states of all layers.
    fn first_of_layer(&self, b: &SelectionBuffers, place: SelectionPlace) -> [u32; 2] {
        [self.n_head, self.n_kv_head].map(|n| (place.layer * b.capacity.n_rows * n) as u32)
    }

    fn n_lists(&self, place: SelectionPlace) -> u32 {
        (place.n_rows * self.n_kv_head) as u32
    }
}
