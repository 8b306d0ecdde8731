//! Places of pages that kernels read: frames of the pool, and slabs in RAM.
//!
//! ```text
//! page with a frame ─► frame │ page in RAM ─► its slab, in place │ a page that is in neither: nothing is read in place
//! ```
//! A place is lent until the next change: prefill takes back the slabs, because new pages may need them.
//!
//! Owner: the engine thread.

use crate::gpu::Gpu;
use crate::kv::error::KvError;
use crate::kv::offload::RamPagesView;
use crate::kv::store::PageId;
use crate::kv::vram::VramCache;
use crate::kv::vram::ram_places::{RamPlaces, RamRun, RamSegment};
use crate::telemetry::{self, Cause, EventKind, Link, WaitCause};

/// Groups whose pages must still fit into RAM, so that the slabs in use here never keep new pages out.
const SPARE_GROUPS: u64 = 2;

impl VramCache {
    /// Whether kernels can read the first `n_pages` of every layer, in VRAM or in RAM. Afterwards [`VramCache::places`] has their
    /// frames. May wait for the device, and for pages on their way to RAM. Regions that are not needed any more stay imported until
    /// [`VramCache::release_places`].
    ///
    /// # Errors
    /// An error of the offload tiers, or a lost GPU.
    pub fn prepare_places(&mut self, gpu: &Gpu, n_pages: usize) -> Result<bool, KvError> {
        let ram_version = self.offload.ram_pages().map(RamPagesView::version);
        let now = (self.residency.version(), ram_version, n_pages);
        if let Some(known) = self.offload.ram_places.known(now) {
            return Ok(known);
        }
        let are_readable = self.find_places(gpu, n_pages)?;
        self.offload.ram_places.set_known(now, are_readable);
        Ok(are_readable)
    }

    fn find_places(&mut self, gpu: &Gpu, n_pages: usize) -> Result<bool, KvError> {
        let is_resident = (0..self.spec.n_layer).all(|layer| self.is_all_resident(layer, n_pages as u32));
        if is_resident || !self.has_offload() || gpu.reads_host_memory().is_err() {
            return Ok(is_resident);
        }
        // Pages that were just completed are on their way.
        self.drain_readbacks(gpu)?;
        let Some(ram_pages) = self.offload.ram_pages().cloned() else { return Ok(false) };
        let now = (ram_pages.version(), n_pages);
        if !self.offload.ram_places.are_of(now) {
            let pages = (0..self.spec.n_layer).flat_map(|layer| (0..n_pages as u32).map(move |page| (layer, page)));
            let others = pages.filter(|(layer, page)| self.residency.frame(*layer, *page).is_none());
            let has_room = ram_pages.n_free() >= SPARE_GROUPS * self.spec.n_layer as u64;
            if !has_room || !ram_pages.has_all(others.map(|(layer, page)| PageId::kv(layer as u32, page))) {
                if self.offload.ram_places.is_placed() {
                    gpu.wait_idle()?;
                    self.offload.ram_places.release_slabs();
                }
                return Ok(false);
            }
            // Submitted steps may still read the slabs that are given up.
            gpu.wait_idle()?;
            let of_layer = |layer| ram_pages.of_layer(layer as u32, n_pages as u32, self.spec.page_bytes() as usize);
            let found = (0..self.spec.n_layer).map(of_layer).collect();
            let sizes = (self.spec.page_bytes() as usize, self.plan.max_frames);
            if let Err(reason) = self.offload.ram_places.replace(gpu, found, sizes, now) {
                log::warn!("kernels do not read the RAM tier in place: {reason}");
                self.release_places(gpu)?;
                return Ok(false);
            }
        }
        Ok((0..self.spec.n_layer).all(|layer| self.places(layer, n_pages).is_some()))
    }

    /// True if kernels read pages in RAM, and none on disk alone.
    pub fn reads_places(&self) -> bool {
        self.offload.ram_places.is_placed()
    }

    /// Whether attention over everything can read the first `n_pages` of every layer without a transfer, some of them in RAM.
    /// Afterwards [`VramCache::ram_runs`] has those. May wait as [`VramCache::prepare_places`].
    ///
    /// # Errors
    /// An error of the offload tiers, out of VRAM, or a lost GPU.
    pub fn prepare_ram_runs(&mut self, gpu: &Gpu, n_pages: usize) -> Result<bool, KvError> {
        self.residency.release_compressed();
        if !self.has_offload() || !self.prepare_places(gpu, n_pages)? || !self.offload.ram_places.is_placed() {
            return Ok(false);
        }
        let (spec, of_frames, residency) = (self.spec, self.residency.version(), &self.residency);
        let places = &mut self.offload.ram_places;
        if !places.has_runs(of_frames) {
            places.make_runs(gpu, &spec, of_frames, |layer, page| residency.frame(layer, page).is_none())?;
        }
        Ok(true)
    }

    /// Pages of each layer that attention over everything reads in RAM, by region, and a number that changes with them.
    pub fn ram_runs(&self) -> (&[Vec<RamRun>], u64) {
        self.offload.ram_places.runs()
    }

    /// Counts pages of a layer that attention over everything reads in RAM.
    pub fn count_pages_in_place(&mut self, layer: usize, n_pages: usize) {
        self.counts.fetched += n_pages as u64;
        self.count_in_place(layer, n_pages, n_pages as u64 * self.spec.page_bytes());
    }

    /// Gives up all places in RAM.
    ///
    /// # Errors
    /// A lost GPU.
    pub fn release_places(&mut self, gpu: &Gpu) -> Result<(), KvError> {
        if self.offload.ram_places.is_any() {
            gpu.wait_idle()?;
            self.offload.ram_places = RamPlaces::none_after(&self.offload.ram_places);
        }
        Ok(())
    }

    /// Frames of the first `n_pages` of a layer, in the pool or in RAM. None if a page is in neither.
    pub fn places(&self, layer: usize, n_pages: usize) -> Option<Vec<u32>> {
        let frame = |page: usize| self.residency.frame(layer, page as u32);
        (0..n_pages).map(|page| frame(page).or_else(|| self.offload.ram_places.frame(layer, page))).collect()
    }

    /// True if a simulated limit of the link holds for reads in place too.
    pub fn is_link_limited(&self) -> bool {
        self.has_offload() && self.offload.transfer.link().is_limited()
    }

    /// Counts bytes that kernels read in place, of whole pages of a layer or of tokens of any, and waits as long as a limited link
    /// takes for them.
    pub fn count_in_place(&mut self, layer: usize, n_pages: usize, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.moved.ram_to_vram += bytes;
        let (link, layer, n_pages, cause) = (Link::RamToVram, layer as u32, n_pages as u32, Cause::Attention);
        self.lane.instant(EventKind::PageMove { link, layer, group: 0, n_pages, bytes, cause });
        let began = telemetry::now();
        if self.offload.transfer.link().wait_for(bytes).is_some() {
            self.engine_lane.span(EventKind::Wait { cause: WaitCause::LinkLimit }, began);
        }
    }

    /// Regions of the RAM tier that kernels read in place, and a number that changes with them.
    pub fn ram_segments(&self) -> (&[RamSegment], u64) {
        self.offload.ram_places.segments()
    }

    /// A number that changes whenever a place changes.
    pub fn places_version(&self) -> (u64, u64) {
        (self.residency.version(), self.offload.ram_places.places_version())
    }
}
