//! What can go wrong with the cache.

use crate::base::Bytes;
use crate::gpu::GpuError;

/// Errors of the KV cache.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum KvError {
    /// more tokens than the window in force
    #[error("{wanted} tokens do not fit the context of {limit}; shorten the document or raise --context")]
    OverLimit {
        /// tokens asked for
        wanted: usize,
        /// tokens allowed
        limit: usize,
    },
    /// less VRAM than anything can be done with
    #[error(
        "the KV cache of this model needs at least {least} of VRAM to work with, over the budget of {budget}; raise --vram-budget"
    )]
    VramTooSmall {
        /// what is needed
        least: Bytes,
        /// what is allowed
        budget: Bytes,
    },
    /// more bytes than the user allows in all tiers together
    #[error(
        "the KV cache of {tokens} tokens needs {needed}, over the budgets of {vram} in VRAM, {ram} in RAM and {disk} on the \
         disk; raise --ram-budget or --disk-budget, choose --kv-dtype q4, or shorten the document"
    )]
    OverBudget {
        /// tokens asked for
        tokens: usize,
        /// what they need
        needed: Bytes,
        /// for pages in VRAM
        vram: Bytes,
        /// in RAM
        ram: Bytes,
        /// on the disk
        disk: Bytes,
    },
    /// the policy never reads these layers from the disk
    #[error(
        "{policy} keeps the first {n_layers} layers off the disk: at {tokens} tokens they need {needed}, over the {ram} that \
         there are in RAM beside {vram} in VRAM; raise --ram-budget, or choose --kv-policy full"
    )]
    FirstLayers {
        /// by name
        policy: &'static str,
        /// which
        n_layers: usize,
        /// tokens asked for
        tokens: usize,
        /// what their first layers need
        needed: Bytes,
        /// their part of VRAM
        vram: Bytes,
        /// what is allowed
        ram: Bytes,
    },
    /// a page of this group is not whole anywhere: it must be computed again
    #[error("KV pages of tokens from {} on are damaged and must be computed again", 64 * .0)]
    Missing(u32),
    /// a page found no frame and there is nothing below
    #[error("a KV page had nowhere to go; please report this")]
    NoTierBelow,
    /// the transfer thread could not be started
    #[error("the transfer thread could not be started ({0}); close other programs")]
    NoThread(String),
    /// the transfer thread is gone
    #[error("the transfer thread ended by itself; please report this")]
    TransferGone,
    /// the tiers below
    #[error(transparent)]
    OffloadTiers(#[from] crate::kv::offload::OffloadError),
    /// the device said no
    #[error(transparent)]
    Gpu(#[from] GpuError),
}
