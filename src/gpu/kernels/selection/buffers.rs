//! Buffers of a selection: scratch that all layers share, and the state of each layer between steps.

use super::sizes::{SelectionSizes, n_tiles};
use crate::base::limits::KV_PAGE_TOKENS;
use crate::gpu::{Gpu, GpuError, Slice};

/// Bins of each level of the radix selection.
const BINS: usize = 2048;
/// Counters before those of the pages.
const N_COUNTERS: usize = 3;
/// Bound slack that is not known.
const UNKNOWN: f32 = 3.0e38;

/// Largest selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectionCapacity {
    /// L
    pub n_layers: usize,
    /// R
    pub n_rows: usize,
    /// P
    pub n_pages: usize,
    /// listed pages
    pub n_listed: usize,
    /// listed tokens of a KV head
    pub n_table: usize,
}

/// The buffers. All are u32 or f32.
pub struct SelectionBuffers {
    /// what they have room for
    pub capacity: SelectionCapacity,
    /// bounds of pages `[R, H, P, 2]`
    pub bounds: Slice,
    /// frame of each page `[L, P]`
    pub frames: Slice,
    /// listed tokens `[R, G, n_table]`
    pub table: Slice,
    pub(super) heads: Slice,
    pub(super) state: Slice,
    pub(super) page_keys: Slice,
    pub(super) pages: Slice,
    pub(super) upper_bits: Slice,
    pub(super) lower_bits: Slice,
    pub(super) scores: Slice,
    pub(super) keys: Slice,
    pub(super) counts: Slice,
    pub(super) counter_at: usize,
}

impl SelectionCapacity {
    /// True if a selection of these sizes fits.
    pub fn holds(&self, n_rows: usize, sizes: &SelectionSizes) -> bool {
        n_rows <= self.n_rows
            && sizes.n_pages <= self.n_pages
            && sizes.n_listed() <= self.n_listed
            && sizes.n_table() <= self.n_table
    }

    /// Bytes of each buffer.
    fn bytes(&self, n_head: usize, n_kv_head: usize) -> [u64; 12] {
        let SelectionCapacity { n_layers, n_rows, n_pages, n_listed, n_table } = *self;
        let (heads, lists) = (n_rows * n_head, n_rows * n_kv_head);
        [
            2 * heads * n_pages,
            n_layers * n_pages,
            lists * n_table,
            2 * n_layers * heads,
            2 * n_layers * lists + N_COUNTERS + n_layers * n_pages,
            lists * n_pages,
            lists * (1 + n_listed),
            lists * BINS,
            lists * BINS,
            heads * n_listed * (KV_PAGE_TOKENS + 2),
            lists * n_listed * KV_PAGE_TOKENS,
            2 * lists * n_tiles(n_listed),
        ]
        .map(|n| 4 * n.max(4) as u64)
    }
}

impl SelectionBuffers {
    /// Allocates the buffers for H = `n_head` and G = `n_kv_head`. They must be reset before the first selection.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub fn new(gpu: &Gpu, capacity: SelectionCapacity, n_head: usize, n_kv_head: usize) -> Result<SelectionBuffers, GpuError> {
        let bytes = capacity.bytes(n_head, n_kv_head);
        let buffer = |i: usize| Ok(gpu.buffer("token selection", bytes[i])?.all());
        Ok(SelectionBuffers {
            capacity,
            bounds: buffer(0)?,
            frames: buffer(1)?,
            table: buffer(2)?,
            heads: buffer(3)?,
            state: buffer(4)?,
            page_keys: buffer(5)?,
            pages: buffer(6)?,
            upper_bits: buffer(7)?,
            lower_bits: buffer(8)?,
            scores: buffer(9)?,
            keys: buffer(10)?,
            counts: buffer(11)?,
            counter_at: 2 * capacity.n_layers * capacity.n_rows * n_kv_head,
        })
    }

    /// Forgets the earlier steps: the next one scores the most candidates. Resets the counters.
    pub fn reset(&self, gpu: &Gpu) {
        gpu.write(&self.state, bytemuck::cast_slice(&vec![0u32; (self.state.size / 4) as usize]));
        let n_heads = (self.heads.size / 8) as usize;
        gpu.write(&self.heads, bytemuck::cast_slice(&vec![[0.0, UNKNOWN]; n_heads]));
    }

    /// Frames of the pages of a layer.
    pub fn frames_of(&self, layer: usize) -> Slice {
        let bytes = 4 * self.capacity.n_pages as u64;
        self.frames.buffer.slice(self.frames.offset + layer as u64 * bytes, bytes)
    }

    /// Listed pages u32 `[R G, 1 + n_listed]` of the last selection: their number, then their indices.
    pub fn listed_pages(&self) -> Slice {
        self.pages.clone()
    }

    /// Counters u32 `[3]` since the last reset, over KV heads, rows and layers: pages whose tokens were scored, those of them in
    /// RAM, and selected tokens in RAM.
    pub fn counters(&self) -> Slice {
        self.state.buffer.slice(self.state.offset + 4 * self.counter_at as u64, 4 * N_COUNTERS as u64)
    }

    /// Tokens u32 `[L, P]` that were selected of each page since the last reset, over KV heads and rows, in steps that read pages
    /// in RAM.
    pub fn uses(&self) -> Slice {
        let at = self.state.offset + 4 * (self.counter_at + N_COUNTERS) as u64;
        self.state.buffer.slice(at, 4 * (self.capacity.n_layers * self.capacity.n_pages) as u64)
    }
}
