//! Errors of the offload tiers, each with a message that names the remedy.

use crate::base::Bytes;
use crate::kv::store::{PageId, StoreError};

/// Errors of the RAM and disk tiers. A disk fault is not an error but a [`Notice`](crate::kv::offload::Notice); its
/// page is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OffloadError {
    /// the RAM budget is too small to transfer pages
    #[error("a RAM budget of {budget} is too small for pages of {page}: at least {least} is needed; raise --ram-budget")]
    TooSmall {
        /// the budget
        budget: Bytes,
        /// bytes of a page
        page: Bytes,
        /// minimum budget
        least: Bytes,
    },
    /// the pages of the store have another size or number of layers
    #[error("the store has {got_layers} layers of {got} a page, the model {n_layer} of {expected}")]
    ShapeMismatch {
        /// bytes of a page of the store
        got: Bytes,
        /// bytes of a page of the model
        expected: Bytes,
        /// layers of the store
        got_layers: u32,
        /// layers of the model
        n_layer: u32,
    },
    /// a payload of the wrong size, layer or kind
    #[error("{page} with {got} is not a page of {n_layer} layers of {expected}")]
    WrongPage {
        /// the page
        page: PageId,
        /// bytes given
        got: Bytes,
        /// bytes of a page
        expected: Bytes,
        /// layers
        n_layer: u32,
    },
    /// neither tier has room
    #[error(
        "no room for {page} of {wanted}: RAM holds {ram} of {ram_budget}, the disk {disk} of {disk_budget}; raise --ram-budget \
         or --disk-budget, or shorten the document"
    )]
    NoRoom {
        /// the page
        page: PageId,
        /// bytes it needs
        wanted: Bytes,
        /// bytes of the RAM tier in use
        ram: Bytes,
        /// RAM budget
        ram_budget: Bytes,
        /// bytes of the store
        disk: Bytes,
        /// disk budget, 0 if there is no store
        disk_budget: Bytes,
    },
    /// no tier has the page intact: the caller recomputes its group
    #[error("{0} is in no tier; it is computed again")]
    Missing(PageId),
    /// the caller holds all memory for reads
    #[error("{0} cannot be read: every read buffer is in use")]
    BuffersInUse(PageId),
    /// the disk does not respond
    #[error("{0} was not read or written within {1} seconds; check the disk")]
    Timeout(PageId, u64),
    /// the scratch folder cannot be created
    #[error("the disk tier cannot be used: {0}")]
    Store(String),
}

impl From<StoreError> for OffloadError {
    fn from(error: StoreError) -> Self {
        OffloadError::Store(error.to_string())
    }
}
