//! Occupancy of the whole KV cache: the tiers of every complete page, and the bytes of each tier.
//!
//! Owner: the engine thread, which waits for the transfer thread.

use crate::kv::occupancy::{NEVER_READ, TierOccupancy, TierUsage};
use crate::kv::policy::Tier;
use crate::kv::store::PageId;
use crate::kv::vram::VramCache;

impl VramCache {
    /// Occupancy of all complete pages. `step` is the last decode step, if attention is selective.
    pub fn occupancy(&self, step: Option<u64>) -> TierOccupancy {
        let (n_layer, n_pages) = (self.spec.n_layer, self.n_sealed as usize);
        let mut occupancy = TierOccupancy::new(n_layer, n_pages);
        if self.has_offload() {
            occupancy = self.offload.transfer.occupancy(occupancy);
            occupancy.tiers.ram.spare_bytes += self.staging_bytes();
        }
        let every_page = (0..n_layer).flat_map(|layer| (0..n_pages).map(move |page| (layer, page as u32)));
        for (layer, group) in every_page.clone().filter(|(layer, group)| self.is_resident(*layer, *group)) {
            occupancy.add(PageId::kv(layer as u32, group), Tier::Vram);
        }
        if let Some(step) = step {
            let since = |at: u64| u32::try_from(step.saturating_sub(at)).unwrap_or(NEVER_READ);
            let read_at = every_page.map(|(layer, group)| self.residency.selected_at(layer, group));
            occupancy.steps_since_read = read_at.map(|at| at.map_or(NEVER_READ, since)).collect();
        }
        let n_resident = occupancy.count(Tier::Vram);
        let page_bytes = n_resident * self.spec.page_bytes();
        let spare_bytes = self.bytes().saturating_sub(page_bytes);
        occupancy.tiers.vram = TierUsage { n_pages: n_resident, page_bytes, spare_bytes };
        occupancy
    }
}
