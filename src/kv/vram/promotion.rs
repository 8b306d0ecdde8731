//! Promotion: often-selected pages move from RAM to frames, and rarely selected ones give theirs up.
//!
//! ```text
//! PageSwap ─► frames of the evicted pages are free, which are read in RAM from now on
//!          └► stream of the promoted pages ─► staging buffers, beside the kernels ─► copies into those frames, once they arrive
//! ```
//! Owner: the engine thread.

use crate::gpu::{Gpu, Recorder};
use crate::kv::error::KvError;
use crate::kv::vram::{StagedBatch, VramCache};
use crate::telemetry::Cause;

/// Pages of a layer that change places.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageSwap {
    /// layer
    pub layer: usize,
    /// pages with frames and copies in RAM, which give up their frames
    pub evicted: Vec<u32>,
    /// pages in RAM that get frames, ascending
    pub promoted: Vec<u32>,
}

impl VramCache {
    /// Begins to move pages. A stream that is still running ends.
    pub fn begin_promotion(&mut self, swaps: &[PageSwap]) {
        let mut batches = Vec::new();
        for swap in swaps {
            self.residency.evict(swap.layer, &swap.evicted);
            batches.extend(self.batches(swap.layer, &swap.promoted));
        }
        self.replace_stream(batches, Vec::new());
    }

    /// True if pages are on their way.
    pub fn is_promoting(&self) -> bool {
        self.stream.next_batch().is_some()
    }

    /// Records the copies of pages that have arrived into frames. Their staging buffers must be passed to
    /// [`VramCache::slot_submitted`] after the next submit.
    ///
    /// # Errors
    /// An error of the offload tiers, or a lost GPU.
    pub fn record_promoted(&mut self, gpu: &Gpu, recorder: &mut Recorder) -> Result<Vec<StagedBatch>, KvError> {
        let mut recorded = Vec::new();
        while self.is_promoting() && self.is_next_filled(gpu)? {
            let filled = self.next_filled_for(gpu, Cause::Prefetch)?;
            self.record_frames(recorder, &filled);
            recorded.push(filled);
        }
        Ok(recorded)
    }

    /// Pages of a layer that can change places: those with a frame and a copy in RAM, and those in RAM alone.
    pub fn movable_pages(&self, layer: usize, n_pages: usize) -> (Vec<u32>, Vec<u32>) {
        let in_ram = (0..n_pages as u32).filter(|page| self.offload.ram_places.frame(layer, *page as usize).is_some());
        in_ram.partition(|page| self.residency.frame(layer, *page).is_some())
    }

    /// Frames of a layer that no page has.
    pub fn n_free_frames(&self, layer: usize) -> usize {
        let n_allocated = self.shapes().last().map_or(0, |shape| shape.end_frame());
        self.residency.max_frames().min(n_allocated).saturating_sub(self.residency.n_resident(layer))
    }
}
