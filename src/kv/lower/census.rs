//! What the two tiers below VRAM hold at one moment.

use super::{Bytes, Lower};
use crate::kv::census::{Census, TierCensus};
use crate::kv::policy::Tier;
use crate::kv::store::PageId;

impl Lower {
    /// Adds the copies that RAM and the disk have, and what those take.
    pub fn count_into(&self, census: &mut Census) {
        // A copy has a slab of its own; what was read ahead lies in slabs of whole runs.
        let n_held = self.held.keys().filter(|page| census.add(**page, Tier::Ram)).count() as u64;
        let n_ready = self.ready.keys().filter(|page| census.add(**page, Tier::Ram)).count() as u64;
        let page_bytes = n_held * self.split.slot_bytes as u64 + n_ready * self.config.page_bytes;
        let Bytes(all) = self.usage().ram.now;
        census.tiers.ram =
            TierCensus { n_pages: census.count(Tier::Ram), page_bytes, spare_bytes: all.saturating_sub(page_bytes) };
        let Some(store) = &self.store else { return };
        let (n_layer, n_groups) = (census.n_layer as u32, census.n_pages as u32);
        let pages = (0..n_layer).flat_map(|layer| (0..n_groups).map(move |group| PageId::kv(layer, group)));
        let n_pages = pages.filter(|page| store.is_present(*page) && census.add(*page, Tier::Disk)).count() as u64;
        let (page_bytes, Bytes(all)) = (n_pages * self.config.page_bytes, store.disk_bytes());
        census.tiers.disk = TierCensus { n_pages, page_bytes, spare_bytes: all.saturating_sub(page_bytes) };
    }
}
