//! Frame pool: frames for complete pages of every layer, in segments that are only added.
//!
//! ```text
//! layer ─► segment 0 │ segment 1 │ ... each one buffer of frames, and a block table in the order of attention
//! ```
//! Owner: the engine thread.

use crate::gpu::{Gpu, Slice};
use crate::kv::error::KvError;
use crate::kv::layout::{SegmentShape, VramPlan};
use crate::kv::spec::KvSpec;

/// Pages of one layer with their block table.
pub struct PagedBuffer {
    /// K and V
    pub pages: Slice,
    /// block table u32 `[G, n_blocks]`
    pub table: Slice,
    /// the table lists all frames in order
    is_in_order: bool,
}

/// The frames of every layer.
#[derive(Default)]
pub(super) struct FramePool {
    shapes: Vec<SegmentShape>,
    /// `[segment][layer]`
    segments: Vec<Vec<PagedBuffer>>,
}

impl FramePool {
    /// Segments, in order.
    pub fn shapes(&self) -> &[SegmentShape] {
        &self.shapes
    }

    /// Pages and block table of a segment in a layer.
    pub fn segment(&self, segment_idx: usize, layer: usize) -> &PagedBuffer {
        &self.segments[segment_idx][layer]
    }

    /// Bytes allocated.
    pub fn bytes(&self, spec: &KvSpec) -> u64 {
        self.shapes.iter().map(|s| s.n_frames as u64 * VramPlan::frame_bytes(spec)).sum()
    }

    /// Allocates a segment in every layer.
    ///
    /// # Errors
    /// Out of VRAM, or a lost GPU. Then nothing has changed.
    pub fn grow(&mut self, gpu: &Gpu, spec: &KvSpec, shape: SegmentShape) -> Result<(), KvError> {
        let layers = (0..spec.n_layer).map(|_| allocate(gpu, spec, shape)).collect::<Result<Vec<_>, _>>()?;
        self.segments.push(layers);
        self.shapes.push(shape);
        Ok(())
    }

    /// Frees all segments.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.shapes.clear();
    }

    /// Rewrites the block table of a segment in a layer for these frames; None: all frames in order.
    pub fn set_order(&mut self, gpu: &Gpu, spec: &KvSpec, (segment_idx, layer): (usize, usize), order: Option<&[usize]>) {
        let (shape, paged) = (self.shapes[segment_idx], &mut self.segments[segment_idx][layer]);
        if order.is_none() && paged.is_in_order {
            return;
        }
        let frames = order.map_or_else(|| (0..shape.n_frames).collect(), <[usize]>::to_vec);
        gpu.write(&paged.table, bytemuck::cast_slice(&spec.table(&frames, shape.n_blocks())));
        paged.is_in_order = order.is_none();
    }

    /// GPU range of a frame of a layer.
    pub fn frame(&self, spec: &KvSpec, layer: usize, frame: usize) -> Slice {
        let segment_idx = self.shapes.partition_point(|s| s.end_frame() <= frame);
        let first = self.shapes[segment_idx].first_frame;
        let page = spec.page_bytes();
        self.segments[segment_idx][layer].pages.buffer.slice((frame - first) as u64 * page, page)
    }
}

fn allocate(gpu: &Gpu, spec: &KvSpec, shape: SegmentShape) -> Result<PagedBuffer, KvError> {
    let pages = gpu.buffer("KV pages", shape.n_frames as u64 * spec.page_bytes())?.all();
    let table = gpu.buffer("KV block table", spec.table_bytes(shape.n_frames))?.all();
    let identity: Vec<usize> = (0..shape.n_frames).collect();
    gpu.upload(&table, bytemuck::cast_slice(&spec.table(&identity, shape.n_blocks())))?;
    Ok(PagedBuffer { pages, table, is_in_order: true })
}
