//! Occupancy of the offload tiers at one moment.

use crate::base::Bytes;
use crate::kv::occupancy::{TierOccupancy, TierUsage};
use crate::kv::offload::OffloadTiers;
use crate::kv::policy::Tier;
use crate::kv::store::PageId;

impl OffloadTiers {
    /// Adds the page copies in RAM and on disk, and the bytes of both tiers.
    pub fn count_into(&self, occupancy: &mut TierOccupancy) {
        // A cached copy has its own slab; pages read ahead are in slabs of whole runs.
        let n_resident = self.ram.pages.keys().filter(|page| occupancy.add(**page, Tier::Ram)).count() as u64;
        let n_prefetched = self.reads.prefetched.keys().filter(|page| occupancy.add(**page, Tier::Ram)).count() as u64;
        let page_bytes = n_resident * self.ram.split.slot_bytes as u64 + n_prefetched * self.config.page_bytes;
        let Bytes(all) = self.usage().ram.now;
        occupancy.tiers.ram =
            TierUsage { n_pages: occupancy.count(Tier::Ram), page_bytes, spare_bytes: all.saturating_sub(page_bytes) };
        let Some(store) = &self.store else { return };
        let (n_layer, n_groups) = (occupancy.n_layer as u32, occupancy.n_pages as u32);
        let pages = (0..n_layer).flat_map(|layer| (0..n_groups).map(move |group| PageId::kv(layer, group)));
        let n_pages = pages.filter(|page| store.is_present(*page) && occupancy.add(*page, Tier::Disk)).count() as u64;
        let (page_bytes, Bytes(all)) = (n_pages * self.config.page_bytes, store.disk_bytes());
        occupancy.tiers.disk = TierUsage { n_pages, page_bytes, spare_bytes: all.saturating_sub(page_bytes) };
    }
}
