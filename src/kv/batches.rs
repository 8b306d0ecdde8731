//! Which pages come to attention, and in which order. Pure.
//!
//! ```text
//! pages that have no frame ─► batches of one layer, a slot's worth each ─┬► StreamPlan ─► the transfer thread
//! pages that may be wanted after them, of which RAM should have a copy ───┘
//! ```

use super::store::PageId;

/// Pages of one layer that travel together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// layer
    pub layer: u32,
    /// groups, ascending; at most a slot's worth
    pub groups: Vec<u32>,
}

/// Batches in the order that attention reads them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamPlan {
    /// the order
    pub batches: Vec<Batch>,
    /// after the last comes the first again
    pub cyclic: bool,
    /// read from the disk after the batches, and kept in RAM until they are in batches themselves or no longer here
    pub ahead: Vec<PageId>,
}

impl Batch {
    /// Its pages, in order.
    pub fn pages(&self) -> impl Iterator<Item = PageId> + '_ {
        self.groups.iter().map(|group| PageId::kv(self.layer, *group))
    }
}
