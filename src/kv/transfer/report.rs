//! Report of the offload tiers to the engine thread.

use crate::kv::offload::{OffloadStats, OffloadTiers, OffloadUsage};
use crate::kv::store::StoreChain;

/// State and statistics of the offload tiers.
#[derive(Debug, Clone, Copy, Default)]
pub struct OffloadReport {
    /// bytes in use
    pub usage: OffloadUsage,
    /// totals since they were opened
    pub counts: OffloadStats,
    /// complete page groups at the beginning of the context
    pub n_saved_groups: u32,
    /// bytes of the stores
    pub store_bytes: u64,
    /// true if page I/O bypasses the page cache
    pub is_direct: bool,
    /// maximum number of cached copies in RAM
    pub n_resident: usize,
}

impl OffloadReport {
    pub(super) fn of(offload: &OffloadTiers) -> OffloadReport {
        let store = offload.store();
        OffloadReport {
            usage: offload.usage(),
            counts: offload.counts(),
            n_saved_groups: store.map_or(0, StoreChain::n_complete_prefix),
            store_bytes: store.map_or(0, |s| s.disk_bytes().0),
            is_direct: store.and_then(StoreChain::is_direct).unwrap_or(false),
            n_resident: offload.n_resident(),
        }
    }
}
