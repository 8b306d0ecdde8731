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
    /// more bytes than the user allows
    #[error(
        "the KV cache of {tokens} tokens needs {needed}, over the VRAM budget of {budget}; raise --vram-budget or shorten \
         the document"
    )]
    OverBudget {
        /// tokens asked for
        tokens: usize,
        /// what they need
        needed: Bytes,
        /// what is allowed
        budget: Bytes,
    },
    /// the device said no
    #[error(transparent)]
    Gpu(#[from] GpuError),
}
