//! The blocks of a context in VRAM. Which of their tokens are valid is known to whoever runs the model.
//!
//! Owner: the engine thread. 1. Growing adds segments and moves nothing. 2. Bytes never pass the budget: what would is
//! refused with the numbers.

use super::error::KvError;
use super::layout::{KvSpec, SegmentShape, plan_segments};
use crate::base::Bytes;
use crate::gpu::{Gpu, Slice};

/// One segment of one layer.
pub struct Segment {
    /// K and V blocks
    pub blocks: Slice,
    /// block table u32 `[G, n_blocks]`
    pub table: Slice,
}

/// The cache of one context.
pub struct KvCache {
    spec: KvSpec,
    limit: usize,
    budget: Option<Bytes>,
    shapes: Vec<SegmentShape>,
    /// `[segment][layer]`
    segments: Vec<Vec<Segment>>,
}

impl KvCache {
    /// An empty cache for contexts of up to `limit` tokens and `budget` bytes. Allocates nothing.
    pub fn new(spec: KvSpec, limit: usize, budget: Option<Bytes>) -> KvCache {
        KvCache { spec, limit, budget, shapes: Vec::new(), segments: Vec::new() }
    }

    /// Shape of what is stored.
    pub fn spec(&self) -> &KvSpec {
        &self.spec
    }

    /// Tokens that may be stored at most.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes allocated (blocks and tables). Never shrinks, so it is the peak as well.
    pub fn bytes(&self) -> u64 {
        self.shapes.iter().map(|s| self.spec.segment_bytes(*s)).sum()
    }

    /// Bytes that a context of `n_tokens` allocates.
    pub fn bytes_for(&self, gpu: &Gpu, n_tokens: usize) -> u64 {
        let shapes = plan_segments(&self.spec, n_tokens, self.limit, gpu.max_binding_bytes());
        shapes.iter().map(|s| self.spec.segment_bytes(*s)).sum()
    }

    /// Segments, in order.
    pub fn shapes(&self) -> &[SegmentShape] {
        &self.shapes
    }

    /// Buffers of a segment in a layer.
    pub fn segment(&self, segment_idx: usize, layer_idx: usize) -> &Segment {
        &self.segments[segment_idx][layer_idx]
    }

    /// Makes room for `n_tokens` in all. True when segments were added (bind groups must follow).
    ///
    /// # Errors
    /// Over the limit, over the budget, or out of VRAM; nothing changes then.
    pub fn reserve(&mut self, gpu: &Gpu, n_tokens: usize) -> Result<bool, KvError> {
        if n_tokens > self.limit {
            return Err(KvError::OverLimit { wanted: n_tokens, limit: self.limit });
        }
        let shapes = plan_segments(&self.spec, n_tokens, self.limit, gpu.max_binding_bytes());
        if shapes.len() <= self.shapes.len() {
            return Ok(false);
        }
        let needed = Bytes(shapes.iter().map(|s| self.spec.segment_bytes(*s)).sum());
        if let Some(budget) = self.budget.filter(|b| needed > *b) {
            return Err(KvError::OverBudget { tokens: n_tokens, needed, budget });
        }
        let mut added = Vec::new();
        for shape in &shapes[self.shapes.len()..] {
            added.push((0..self.spec.n_layer).map(|_| self.allocate(gpu, *shape)).collect::<Result<Vec<_>, _>>()?);
        }
        self.segments.extend(added);
        self.shapes = shapes;
        Ok(true)
    }

    fn allocate(&self, gpu: &Gpu, shape: SegmentShape) -> Result<Segment, KvError> {
        let n_slots = shape.n_blocks() * self.spec.n_kv_head;
        let blocks = gpu.buffer("KV blocks", self.spec.segment_layer_bytes(shape))?.all();
        let table = gpu.buffer("KV block table", (n_slots * 4) as u64)?.all();
        let entries: Vec<u32> = (0..self.spec.n_kv_head)
            .flat_map(|head| (0..shape.n_blocks()).map(move |block| (block, head)))
            .map(|(block, head)| self.spec.slot(block, head) as u32)
            .collect();
        gpu.upload(&table, bytemuck::cast_slice(&entries))?;
        Ok(Segment { blocks, table })
    }

    /// Index of the segment that holds token `pos`, which must have room.
    pub fn segment_of(&self, pos: usize) -> usize {
        self.shapes.partition_point(|s| s.end_token() <= pos)
    }
}
