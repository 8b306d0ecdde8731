//! Device selection: the GPU selects the tokens of a layer and reads them, in VRAM or in RAM, without any readback.
//!
//! ```text
//! splits of the tails ─► page bounds ─► candidates ─► token scores ─► list of tokens ─► splits of the list ─► merge
//!                            frames of the pages ──────────┴─────────────────┘
//! ```
//! 1. The same commands in every step: sizes depend on the number of pages alone. 2. The list is read back only in steps that
//!    compare the selection with the full attention. 3. Pages without a frame are read where they are in RAM; one that is in
//!    neither, and the CPU selects.
//!
//! Owner: the engine thread. Shapes: R rows, H query heads and G KV heads of each, P complete pages, L layers.
//!
//! Source: LeoAM §4.2.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::error::EngineError;
use crate::engine::runner::device_parts::DeviceParts;
use crate::engine::selection::promotion::Promotion;
use crate::gpu::kernels::attention_decode::AttentionDecode;
use crate::gpu::kernels::page_bounds::PageBoundsKernel;
use crate::gpu::kernels::selection::{SelectionBindings, SelectionBuffers, SelectionCapacity, SelectionSizes, TokenSelection};
use crate::gpu::{Binding, Buffer, Gpu, Slice};
use crate::kv::VramCache;

/// Kernels, buffers and bind groups.
pub(in crate::engine) struct DeviceSelection {
    pub kernels: TokenSelection,
    pub buffers: Option<SelectionBuffers>,
    pub bindings: Option<Bindings>,
    pub frames: KnownFrames,
    pub promotion: Promotion,
    /// rows of the last step
    n_rows: usize,
    /// true if the GPU selects in this step
    pub is_active: bool,
    /// true if pages are fetched into RAM in this step, layer by layer
    pub is_paged: bool,
    /// readback of the listed pages of a layer
    pub listed: Option<Buffer>,
    /// the last answer reads everything because that is faster
    pub reads_all: bool,
    /// the state is of another answer
    is_stale: bool,
    /// selections of a layer for a row since the last reset
    pub n_selections: u64,
    /// pages scored and tokens selected in RAM that are counted as moved
    n_moved: [u32; 2],
}

/// Counters of the GPU for an answer, per selection of a layer for a row, over KV heads.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(in crate::engine) struct DeviceCounters {
    /// pages whose tokens were scored
    pub scored_pages: f64,
    /// selected tokens in RAM
    pub selected_in_ram: f64,
}

/// Bind groups of the buffers.
pub(in crate::engine::selection) struct Bindings {
    pub selection: SelectionBindings,
    /// by layer
    pub page_bounds: Vec<Binding>,
    /// `[segment][layer]`: token scores, and attention
    pub scores: Vec<Vec<Binding>>,
    pub decode: Vec<Vec<Binding>>,
    pub in_ram: RamBindings,
}

/// Bind groups of regions of the RAM tier, which have pages of all layers.
#[derive(Default)]
pub(in crate::engine::selection) struct RamBindings {
    /// version of the regions
    of: u64,
    /// by region: token scores, and attention
    pub scores: Vec<Binding>,
    pub decode: Vec<Binding>,
}

/// Frames of the pages in the buffer of the device.
#[derive(Default)]
pub(in crate::engine::selection) struct KnownFrames {
    /// versions of the frames and of the places in RAM, and number of pages; None: nothing was written
    of: Option<((u64, u64), usize)>,
    /// by layer, then page; None if a page is neither in VRAM nor in RAM
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
            buffers: None,
            bindings: None,
            frames: KnownFrames::default(),
            promotion: Promotion::default(),
            n_rows: 0,
            is_active: false,
            is_paged: false,
            listed: None,
            reads_all: false,
            is_stale: false,
            n_selections: 0,
            n_moved: [0; 2],
        })
    }

    /// Drops the bind groups, but not the state of earlier steps.
    pub fn unbind(&mut self) {
        self.bindings = None;
    }

    /// Drops the bind groups of regions, so that these can be unmapped.
    pub fn unbind_ram(&mut self) {
        if let Some(bindings) = &mut self.bindings {
            bindings.in_ram = RamBindings::default();
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
        let (n_layers, kv, q) = (parts.model.dims.n_layer, parts.kv, &parts.model.act.q);
        // With offload tiers, pages without a frame may be read too.
        let n_frames = kv.shapes().last().map_or(0, |shape| shape.end_frame());
        let reads_ram = kv.has_offload() && gpu.reads_host_memory().is_ok();
        let n_pages = if reads_ram { kv.plan().n_abstracts } else { n_frames.min(kv.plan().n_abstracts) };
        let has_buffers = |b: &SelectionBuffers| (b.capacity.n_rows, b.capacity.n_pages) == (n_rows, n_pages);
        if !self.buffers.as_ref().is_some_and(has_buffers) {
            (self.buffers, self.bindings) = (None, None);
            let of_layers: Option<Vec<SelectionSizes>> = (0..n_layers).map(|layer| sizes(layer, n_pages)).collect();
            let Some(of_layers) = of_layers.filter(|_| n_pages > 0) else { return Ok(()) };
            let n_listed = of_layers.iter().map(SelectionSizes::n_listed).max().unwrap_or(0);
            let n_table = of_layers.iter().map(SelectionSizes::n_table).max().unwrap_or(0);
            let capacity = SelectionCapacity { n_layers, n_rows, n_pages, n_listed, n_table };
            self.buffers = Some(SelectionBuffers::new(gpu, capacity, parts.model.dims.n_head, parts.model.dims.n_kv_head)?);
            self.frames = KnownFrames::default();
            self.forget();
        }
        let (Some(buffers), Ok((acc, state))) = (&self.buffers, parts.split_slices()) else { return Ok(()) };
        if self.bindings.is_none() {
            let of_layer = |layer| {
                let abstracts = kv.abstracts(layer)?;
                Some(page_bounds.bind(gpu, [q, abstracts, &buffers.bounds]))
            };
            let page_bounds = (0..n_layers).map_while(of_layer).collect::<Result<_, _>>()?;
            let selection = self.kernels.bind(gpu, buffers, state)?;
            let (scores, decode, in_ram) = (Vec::new(), Vec::new(), RamBindings::default());
            self.bindings = Some(Bindings { selection, page_bounds, scores, decode, in_ram });
        }
        let Some(bindings) = &mut self.bindings else { return Ok(()) };
        for segment in bindings.decode.len()..kv.shapes().len() {
            let pages: Vec<&Slice> = (0..n_layers).map(|layer| &kv.segment(segment, layer).pages).collect();
            let scores = pages.iter().map(|pages| self.kernels.bind_scores(gpu, buffers, [q, pages]));
            bindings.scores.push(scores.collect::<Result<_, _>>()?);
            let splits = pages.iter().map(|pages| decode.bind_split(gpu, [q, pages, &buffers.table, acc, state]));
            bindings.decode.push(splits.collect::<Result<_, _>>()?);
        }
        self.bind_ram(gpu, parts, decode)
    }

    /// Creates the bind groups of regions of the RAM tier, if these have changed.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub fn bind_ram(&mut self, gpu: &Gpu, parts: DeviceParts<'_>, decode: &AttentionDecode) -> Result<(), EngineError> {
        let (Some(buffers), Some(bindings)) = (&self.buffers, &mut self.bindings) else { return Ok(()) };
        let (q, (acc, state)) = (&parts.model.act.q, parts.split_slices()?);
        let (segments, version) = parts.kv.ram_segments();
        if (bindings.in_ram.of, bindings.in_ram.scores.len()) != (version, segments.len()) {
            let pages = || segments.iter().map(|segment| &segment.pages);
            let scores = pages().map(|pages| self.kernels.bind_scores(gpu, buffers, [q, pages]));
            let decode = pages().map(|pages| decode.bind_split(gpu, [q, pages, &buffers.table, acc, state]));
            bindings.in_ram =
                RamBindings { of: version, scores: scores.collect::<Result<_, _>>()?, decode: decode.collect::<Result<_, _>>()? };
        }
        Ok(())
    }

    /// Begins another answer, which does not depend on earlier steps.
    pub fn forget(&mut self) {
        self.is_stale = true;
    }

    /// Prepares a step of `n_rows` over the first `n_pages`. True if the device can select in it: all pages are in VRAM or RAM, or
    /// it `is_paged`.
    pub fn begin_step(&mut self, gpu: &Gpu, kv: &VramCache, (n_rows, n_pages): (usize, usize), is_paged: bool) -> bool {
        self.is_paged = is_paged;
        let Some(buffers) = self.buffers.as_ref().filter(|_| self.bindings.is_some()) else { return false };
        // With another number of rows, the state of a row may be that of another sequence.
        if self.is_stale || n_rows != self.n_rows {
            buffers.reset(gpu);
            self.promotion.reset();
            (self.is_stale, self.n_rows, self.n_selections, self.n_moved) = (false, n_rows, 0, [0; 2]);
        }
        let now = Some((kv.places_version(), n_pages));
        if is_paged {
            // Each layer gets its frames when its turn comes.
            self.frames = KnownFrames { of: None, layers: Some(vec![Vec::new(); buffers.capacity.n_layers]) };
        } else if self.frames.of != now {
            let of_layers: Option<Vec<Vec<u32>>> =
                (0..buffers.capacity.n_layers).map(|layer| kv.places(layer, n_pages)).collect();
            for (layer, frames) in of_layers.iter().flatten().enumerate() {
                if self.frames.layers.as_ref().is_none_or(|known| known[layer] != *frames) {
                    gpu.write(&buffers.frames_of(layer), bytemuck::cast_slice(frames));
                }
            }
            self.frames = KnownFrames { of: now, layers: of_layers };
        }
        self.frames.layers.is_some()
    }

    /// Writes the frames of the pages of a layer in a paged step: to see which are on disk, or to read them.
    pub fn write_frames(&mut self, gpu: &Gpu, layer: usize, frames: Vec<u32>) {
        if let (Some(buffers), Some(layers)) = (&self.buffers, &mut self.frames.layers) {
            gpu.write(&buffers.frames_of(layer), bytemuck::cast_slice(&frames));
            layers[layer] = frames;
        }
    }

    /// Reads the counters since the last reset, and counts the bytes that kernels read in place. None if there was no selection.
    ///
    /// # Errors
    /// A lost device.
    pub fn counters(&mut self, gpu: &Gpu, kv: &mut VramCache) -> Result<Option<DeviceCounters>, EngineError> {
        let Some(buffers) = self.buffers.as_ref().filter(|_| self.n_selections > 0) else { return Ok(None) };
        let counters: Vec<u32> = bytemuck::pod_collect_to_vec(&gpu.download(&buffers.counters())?);
        let [n_scored, n_scored_in_ram, n_selected_in_ram] = counters[..] else { return Ok(None) };
        let now = [n_scored_in_ram, n_selected_in_ram];
        let [pages, tokens] = [0, 1].map(|i| u64::from(now[i].wrapping_sub(self.n_moved[i])));
        self.n_moved = now;
        // Keys of one head of a page, and keys and values of one head of a token.
        let of_head = kv.spec().page_bytes() / kv.spec().n_kv_head as u64;
        kv.count_in_place(0, 0, pages * of_head / 2 + tokens * of_head / KV_PAGE_TOKENS as u64);
        let [scored_pages, selected_in_ram] = [n_scored, n_selected_in_ram].map(|n| f64::from(n) / self.n_selections as f64);
        Ok(Some(DeviceCounters { scored_pages, selected_in_ram }))
    }
}
