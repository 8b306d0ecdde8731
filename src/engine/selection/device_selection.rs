//! Device selection: if all pages are in VRAM, the GPU selects the tokens of a layer and reads them, without any readback.
//!
//! ```text
//! splits of the tails ─► page bounds ─► candidates ─► token scores ─► list of tokens ─► splits of the list ─► merge
//!                            frames of the pages ──────────┴─────────────────┘
//! ```
//! 1. The same commands in every step: sizes depend on the number of pages alone. 2. The list is read back only in steps that
//!    compare the selection with the full attention.
//!
//! Owner: the engine thread. Shapes: R rows, H query heads and G KV heads of each, P complete pages, L layers.
//!
//! Source: LeoAM §4.2.

use crate::engine::error::EngineError;
use crate::engine::runner::device_parts::DeviceParts;
use crate::gpu::kernels::attention_decode::AttentionDecode;
use crate::gpu::kernels::page_bounds::PageBoundsKernel;
use crate::gpu::kernels::selection::{SelectionBindings, SelectionBuffers, SelectionCapacity, SelectionSizes, TokenSelection};
use crate::gpu::{Binding, Buffer, Gpu, Slice};
use crate::kv::VramCache;

/// Kernels, buffers and bind groups.
pub(in crate::engine) struct DeviceSelection {
    pub kernels: TokenSelection,
    pub bound: Option<Bound>,
    pub frames: KnownFrames,
    /// rows of the last step
    n_rows: usize,
    /// true if the GPU selects in this step
    pub is_active: bool,
    /// the last answer reads everything because that is faster
    pub reads_all: bool,
    /// the state is of another answer
    is_stale: bool,
    /// selections of a layer for a row since the last reset
    pub n_selections: u64,
}

/// Buffers, and their bind groups.
pub(in crate::engine::selection) struct Bound {
    pub buffers: SelectionBuffers,
    /// listed tokens, and the number of scored pages
    pub readback: Buffer,
    pub selection: SelectionBindings,
    /// by layer
    pub page_bounds: Vec<Binding>,
    /// `[segment][layer]`: token scores, and attention
    pub scores: Vec<Vec<Binding>>,
    pub decode: Vec<Vec<Binding>>,
}

/// Frames of the pages in the buffer of the device.
#[derive(Default)]
pub(in crate::engine::selection) struct KnownFrames {
    /// version of the residency, and number of pages; None: nothing was written
    of: Option<(u64, usize)>,
    /// by layer, then page; None if a page is not in VRAM
    pub layers: Option<Vec<Vec<u32>>>,
}

impl DeviceSelection {
    /// Compiles the kernels.
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, parts: DeviceParts<'_>) -> Result<DeviceSelection, EngineError> {
        let d = &parts.model.dims;
        let kernels = TokenSelection::new(gpu, d.n_head, d.n_kv_head, d.head_dim, parts.kv.spec().sealed)?;
        Ok(DeviceSelection {
            kernels,
            bound: None,
            frames: KnownFrames::default(),
            n_rows: 0,
            is_active: false,
            reads_all: false,
            is_stale: false,
            n_selections: 0,
        })
    }

    /// Drops the bind groups, but not the state of earlier steps if the buffers remain large enough.
    pub fn unbind(&mut self) {
        if let Some(bound) = &mut self.bound {
            bound.scores.clear();
            bound.decode.clear();
            bound.page_bounds.clear();
        }
    }

    /// Creates what is missing for `n_rows` and the pages of all segments. `sizes` of each layer are for that many pages.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub fn bind(
        &mut self,
        gpu: &Gpu,
        parts: DeviceParts<'_>,
        (decode, page_bounds): (&AttentionDecode, &PageBoundsKernel),
        n_rows: usize,
        sizes: impl Fn(usize, usize) -> Option<SelectionSizes>,
    ) -> Result<(), EngineError> {
        let (n_layers, kv) = (parts.model.dims.n_layer, parts.kv);
        let n_pages = kv.shapes().last().map_or(0, |shape| shape.end_frame()).min(kv.plan().n_abstracts);
        let of_layers: Option<Vec<SelectionSizes>> = (0..n_layers).map(|layer| sizes(layer, n_pages)).collect();
        let (Some(of_layers), Ok((acc, state))) = (of_layers.filter(|_| n_pages > 0), parts.split_slices()) else {
            self.bound = None;
            return Ok(());
        };
        let capacity = SelectionCapacity {
            n_layers,
            n_rows,
            n_pages,
            n_listed: of_layers.iter().map(SelectionSizes::n_listed).max().unwrap_or(0),
            n_table: of_layers.iter().map(SelectionSizes::n_table).max().unwrap_or(0),
        };
        if self.bound.as_ref().is_none_or(|bound| bound.buffers.capacity != capacity) {
            self.bound = None;
            let buffers = SelectionBuffers::new(gpu, capacity, parts.model.dims.n_head, parts.model.dims.n_kv_head)?;
            let readback = gpu.readback_buffer("selected tokens", buffers.table.size)?;
            let selection = self.kernels.bind(gpu, &buffers, state)?;
            let (page_bounds, scores, decode) = (Vec::new(), Vec::new(), Vec::new());
            self.bound = Some(Bound { buffers, readback, selection, page_bounds, scores, decode });
            self.frames = KnownFrames::default();
            self.forget();
        }
        let (Some(bound), q) = (&mut self.bound, &parts.model.act.q) else { return Ok(()) };
        if bound.decode.is_empty() {
            bound.selection = self.kernels.bind(gpu, &bound.buffers, state)?;
        }
        let buffers = &bound.buffers;
        for layer in bound.page_bounds.len()..n_layers {
            let Some(abstracts) = kv.abstracts(layer) else { break };
            bound.page_bounds.push(page_bounds.bind(gpu, [q, abstracts, &buffers.bounds])?);
        }
        for segment in bound.decode.len()..kv.shapes().len() {
            let pages: Vec<&Slice> = (0..n_layers).map(|layer| &kv.segment(segment, layer).pages).collect();
            let scores = pages.iter().map(|pages| self.kernels.bind_scores(gpu, buffers, [q, pages]));
            bound.scores.push(scores.collect::<Result<_, _>>()?);
            let splits = pages.iter().map(|pages| decode.bind_split(gpu, [q, pages, &buffers.table, acc, state]));
            bound.decode.push(splits.collect::<Result<_, _>>()?);
        }
        Ok(())
    }

    /// Begins another answer, which does not depend on earlier steps.
    pub fn forget(&mut self) {
        self.is_stale = true;
    }

    /// Prepares a step of `n_rows` over the first `n_pages`. True if the device can select in it: all pages are in VRAM.
    pub fn begin_step(&mut self, gpu: &Gpu, kv: &VramCache, n_rows: usize, n_pages: usize) -> bool {
        let Some(bound) = &self.bound else { return false };
        // With another number of rows, the state of a row may be that of another sequence.
        if self.is_stale || n_rows != self.n_rows {
            bound.buffers.reset(gpu);
            (self.is_stale, self.n_rows, self.n_selections) = (false, n_rows, 0);
        }
        let now = Some((kv.frames_version(), n_pages));
        if self.frames.of != now {
            let of_layers: Option<Vec<Vec<u32>>> =
                (0..bound.buffers.capacity.n_layers).map(|layer| kv.frames(layer, n_pages)).collect();
            for (layer, frames) in of_layers.iter().flatten().enumerate() {
                if self.frames.layers.as_ref().is_none_or(|known| known[layer] != *frames) {
                    gpu.write(&bound.buffers.frames_of(layer), bytemuck::cast_slice(frames));
                }
            }
            self.frames = KnownFrames { of: now, layers: of_layers };
        }
        self.frames.layers.is_some()
    }

    /// Reads the number of pages whose tokens were scored, per selection of a layer for a row. None if there was none since the
    /// last reset.
    ///
    /// # Errors
    /// A lost device.
    pub fn scored_pages(&self, gpu: &Gpu) -> Result<Option<f64>, EngineError> {
        let Some(bound) = self.bound.as_ref().filter(|_| self.n_selections > 0) else { return Ok(None) };
        let bytes = gpu.download(&bound.buffers.n_scored())?;
        let n_scored: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes);
        Ok(n_scored.first().map(|n| f64::from(*n) / self.n_selections as f64))
    }
}
