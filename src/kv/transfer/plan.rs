//! Transfer plan: the pages that attention will read, in batches, in order. Pure.
//!
//! ```text
//! pages without a frame ─► batches of one layer, one staging buffer each ─┬► TransferPlan ─► the transfer thread
//! pages that may be needed after them, to be cached in RAM ───────────────┘
//! ```

use crate::kv::spec::KvSpec;
use crate::kv::store::PageId;

/// Pages of one layer that are transferred together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferBatch {
    /// layer
    pub layer: u32,
    /// groups, ascending; at most one staging buffer of pages
    pub groups: Vec<u32>,
    /// true if transferred as INT4
    pub is_compressed: bool,
}

/// Batches in the order of attention.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransferPlan {
    /// the batches
    pub batches: Vec<TransferBatch>,
    /// the first batch follows the last
    pub cyclic: bool,
    /// pages to read from disk after the batches, and to cache in RAM until a batch needs them or the plan is replaced
    pub read_ahead: Vec<PageId>,
}

impl TransferBatch {
    /// Bytes of each page during the transfer.
    pub fn page_bytes(&self, spec: &KvSpec) -> u64 {
        spec.int4_page_bytes().filter(|_| self.is_compressed).unwrap_or(spec.page_bytes())
    }

    /// Its pages, in order.
    pub fn pages(&self) -> impl Iterator<Item = PageId> + '_ {
        self.groups.iter().map(|group| PageId::kv(self.layer, *group))
    }
}
