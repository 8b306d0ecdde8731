//! Which pages come to attention, and in which order. Pure.
//!
//! ```text
//! pages that have no frame ─► batches of one layer, a slot's worth each ─┬► TransferPlan ─► the transfer thread
//! pages that may be wanted after them, of which RAM should have a copy ───┘
//! ```

use crate::kv::layout::KvSpec;
use crate::kv::store::PageId;

/// Pages of one layer that travel together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferBatch {
    /// layer
    pub layer: u32,
    /// groups, ascending; at most a slot's worth
    pub groups: Vec<u32>,
    /// they travel as INT4
    pub is_compressed: bool,
}

/// Batches in the order that attention reads them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransferPlan {
    /// the order
    pub batches: Vec<TransferBatch>,
    /// after the last comes the first again
    pub cyclic: bool,
    /// read from the disk after the batches, and kept in RAM until they are in batches themselves or no longer here
    pub ahead: Vec<PageId>,
}

impl TransferBatch {
    /// Bytes of each page as it travels.
    pub fn page_bytes(&self, spec: &KvSpec) -> u64 {
        spec.int4_page_bytes().filter(|_| self.is_compressed).unwrap_or(spec.page_bytes())
    }

    /// Its pages, in order.
    pub fn pages(&self) -> impl Iterator<Item = PageId> + '_ {
        self.groups.iter().map(|group| PageId::kv(self.layer, *group))
    }
}
