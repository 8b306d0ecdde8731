//! What can go wrong below VRAM, as sentences that tell a person what to do.

use crate::base::Bytes;
use crate::kv::store::{PageId, StoreError};

/// Errors of the RAM and disk tiers. A fault of the disk is not one of them: it is a [`Notice`](crate::kv::offload::Notice), and the page
/// is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OffloadError {
    /// a RAM budget in which not even a few pages can move
    #[error("a RAM budget of {budget} is too small for pages of {page}: {least} is the least; raise --ram-budget")]
    TooSmall {
        /// the budget
        budget: Bytes,
        /// a page
        page: Bytes,
        /// what would do
        least: Bytes,
    },
    /// a store whose pages have another size, or other layers
    #[error("the store has {got_layers} layers of {got} a page, the model {n_layer} of {expected}")]
    OtherShape {
        /// a page of the store
        got: Bytes,
        /// a page of the model
        expected: Bytes,
        /// layers of the store
        got_layers: u32,
        /// layers of the model
        n_layer: u32,
    },
    /// a payload of the wrong size, or of a layer or kind that is not kept here
    #[error("{page} with {got} is no page of {n_layer} layers of {expected}")]
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
        /// its bytes
        wanted: Bytes,
        /// bytes of the RAM tier in use
        ram: Bytes,
        /// the cap
        ram_budget: Bytes,
        /// bytes of the store
        disk: Bytes,
        /// the cap, 0 where there is no store
        disk_budget: Bytes,
    },
    /// a page that no tier has whole: the caller computes its group again
    #[error("{0} is not there; it is computed again")]
    Missing(PageId),
    /// all memory for reads is held by whoever asks
    #[error("{0} cannot be read: every buffer for reads is still in use")]
    Held(PageId),
    /// the disk does not answer
    #[error("{0} was not read or written within {1} seconds; check the disk")]
    Stuck(PageId, u64),
    /// the scratch folder cannot be made
    #[error("the disk tier cannot be used: {0}")]
    Store(String),
}

impl From<StoreError> for OffloadError {
    fn from(error: StoreError) -> Self {
        OffloadError::Store(error.to_string())
    }
}
