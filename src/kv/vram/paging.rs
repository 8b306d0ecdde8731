//! Paging: the pages that kernels read of one layer are fetched into RAM, layer by layer, if some of the context is on disk alone.
//!
//! ```text
//! listed pages of a layer ─► frame of the pool │ slab in RAM │ disk ─ read ─► slab in RAM ─► frame numbers of the layer
//! ```
//! Invariant: the slabs of the last layer stay in use until the next one is paged in; its kernels must have ended by then.
//!
//! Owner: the engine thread.

use crate::gpu::Gpu;
use crate::kv::error::KvError;
use crate::kv::store::PageId;
use crate::kv::vram::VramCache;
use crate::telemetry::{self, EventKind, WaitCause};

/// Frame number of a page that no kernel reads. It counts as one in RAM, where the page will be if it is a candidate.
const NO_FRAME: u32 = u32::MAX;

impl VramCache {
    /// True if kernels can read the first `n_pages` of a layer once its pages on disk were fetched into RAM: RAM holds a whole layer.
    pub fn can_page_in(&self, gpu: &Gpu, n_pages: usize) -> bool {
        self.has_offload() && gpu.reads_host_memory().is_ok() && self.n_ram_pages() >= n_pages
    }

    /// Begins to page in, layer by layer. Pages that were just completed arrive in RAM.
    ///
    /// # Errors
    /// An error of the offload tiers, or a lost GPU.
    pub fn begin_paging(&mut self, gpu: &Gpu) -> Result<(), KvError> {
        self.drain_readbacks(gpu)
    }

    /// Fetches the `pages` of a layer that have no frame into RAM. Afterwards [`VramCache::paged_frames`] has their frame numbers,
    /// and [`VramCache::ram_segments`] the regions. Kernels that read the layer before must have ended. False if RAM has no room for
    /// them.
    ///
    /// # Errors
    /// [`KvError::Missing`] if a page must be recomputed, an error of the offload tiers, or a lost GPU.
    pub fn page_in(&mut self, gpu: &Gpu, layer: usize, pages: &[u32]) -> Result<bool, KvError> {
        self.offload.ram_places.release_layer();
        let without_frame = |page: &u32| self.residency.frame(layer, *page).is_none();
        let pages: Vec<u32> = pages.iter().copied().filter(without_frame).collect();
        let ids: Vec<PageId> = pages.iter().map(|page| PageId::kv(layer as u32, *page)).collect();
        let is_late = self.offload.ram_pages().is_some_and(|in_ram| !in_ram.has_all(ids.iter().copied()));
        let began = telemetry::now();
        let slabs = self.offload.transfer.page_in(ids)?;
        if is_late {
            self.engine_lane.span(EventKind::Wait { cause: WaitCause::Pages }, began);
        }
        let Some(slabs) = slabs else { return Ok(false) };
        let sizes = (self.spec.page_bytes() as usize, self.plan.max_frames);
        let placed = self.offload.ram_places.place_layer(gpu, pages.into_iter().zip(slabs).collect(), sizes);
        if let Err(reason) = &placed {
            log::warn!("kernels do not read the RAM tier in place: {reason}");
        }
        Ok(placed.is_ok())
    }

    /// Frame number of each of the first `n_pages` of a layer: of the pool, of a region if the layer `is_paged_in`, or [`NO_FRAME`].
    pub fn paged_frames(&self, layer: usize, n_pages: usize, is_paged_in: bool) -> Vec<u32> {
        let in_ram = |page: u32| self.offload.ram_places.paged_frame(page).filter(|_| is_paged_in).unwrap_or(NO_FRAME);
        (0..n_pages as u32).map(|page| self.residency.frame(layer, page).unwrap_or_else(|| in_ram(page))).collect()
    }

    /// First frame number of pages in RAM. None if kernels read none there.
    pub fn first_frame_in_ram(&self, is_paged: bool) -> Option<usize> {
        let first = self.ram_segments().0.first().map(|segment| segment.first_frame);
        first.or(is_paged.then_some(self.plan.max_frames))
    }
}
