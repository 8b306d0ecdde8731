//! Errors of the KV cache.

use crate::base::Bytes;
use crate::gpu::GpuError;

/// Errors of the KV cache.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum KvError {
    /// more tokens than the context limit
    #[error("{wanted} tokens do not fit the context of {limit}; shorten the document or raise --context")]
    OverLimit {
        /// tokens requested
        wanted: usize,
        /// maximum
        limit: usize,
    },
    /// not enough VRAM for the minimum cache
    #[error(
        "the KV cache of this model needs at least {least} of VRAM to work with, over the budget of {budget}; raise --vram-budget"
    )]
    VramTooSmall {
        /// bytes needed
        least: Bytes,
        /// budget
        budget: Bytes,
    },
    /// more bytes than the budgets of all tiers together
    #[error(
        "the KV cache of {tokens} tokens needs {needed}, over the budgets of {vram} in VRAM, {ram} in RAM and {disk} on the \
         disk; raise --ram-budget or --disk-budget, choose --kv-dtype q4, or shorten the document"
    )]
    OverBudget {
        /// tokens requested
        tokens: usize,
        /// bytes they need
        needed: Bytes,
        /// budget for pages in VRAM
        vram: Bytes,
        /// RAM budget
        ram: Bytes,
        /// disk budget
        disk: Bytes,
    },
    /// the policy never reads these layers from disk
    #[error(
        "{policy} keeps the first {n_layers} layers off the disk: at {tokens} tokens they need {needed}, over the {ram} that \
         there are in RAM beside {vram} in VRAM; raise --ram-budget, or choose --kv-policy full"
    )]
    FirstLayers {
        /// name of the policy
        policy: &'static str,
        /// number of layers
        n_layers: usize,
        /// tokens requested
        tokens: usize,
        /// bytes of those layers
        needed: Bytes,
        /// the part of them in VRAM
        vram: Bytes,
        /// RAM budget
        ram: Bytes,
    },
    /// a page of this group is missing or corrupt in every tier: its group must be recomputed
    #[error("KV pages of tokens from {} on are damaged and must be computed again", 64 * .0)]
    Missing(u32),
    /// no frame is free, and there is no offload tier
    #[error("there is no free memory for a KV page; please report this")]
    NoOffloadTier,
    /// the transfer thread could not be started
    #[error("the transfer thread could not be started ({0}); close other programs")]
    NoThread(String),
    /// the transfer thread has ended
    #[error("the transfer thread ended unexpectedly; please report this")]
    TransferGone,
    /// an error of the offload tiers
    #[error(transparent)]
    Offload(#[from] crate::kv::offload::OffloadError),
    /// an error of the GPU
    #[error(transparent)]
    Gpu(#[from] GpuError),
}
