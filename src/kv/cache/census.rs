//! Where every complete page of the context is, and what it takes, for whoever wants to see it.
//!
//! Owner: the engine thread, which waits for the thread that owns the tiers below.

use super::KvCache;
use crate::kv::census::{Census, NEVER_READ, TierCensus};
use crate::kv::policy::Tier;
use crate::kv::store::PageId;

impl KvCache {
    /// All complete pages. `step` is the one that came last where attention chooses what it reads.
    pub fn census(&self, step: Option<u64>) -> Census {
        let (n_layer, n_pages) = (self.spec.n_layer, self.n_sealed as usize);
        let mut census = Census::new(n_layer, n_pages);
        if self.has_lower {
            census = self.transfer.census(census);
            census.tiers.ram.spare_bytes += self.staging_bytes();
        }
        let every_page = (0..n_layer).flat_map(|layer| (0..n_pages).map(move |page| (layer, page as u32)));
        for (layer, group) in every_page.clone().filter(|(layer, group)| self.is_resident(*layer, *group)) {
            census.add(PageId::kv(layer as u32, group), Tier::Vram);
        }
        if let Some(step) = step {
            let since = |at: u64| u32::try_from(step.saturating_sub(at)).unwrap_or(NEVER_READ);
            let read_at = every_page.map(|(layer, group)| self.residency.chosen_at(layer, group));
            census.steps_since_read = read_at.map(|at| at.map_or(NEVER_READ, since)).collect();
        }
        let n_resident = census.count(Tier::Vram);
        let page_bytes = n_resident * self.spec.page_bytes();
        let spare_bytes = self.bytes().saturating_sub(page_bytes);
        census.tiers.vram = TierCensus { n_pages: n_resident, page_bytes, spare_bytes };
        census
    }
}
