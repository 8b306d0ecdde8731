//! Page map and page attention: tiers of the KV pages, and their attention mass.

use crate::engine::api::KvDtype;
use crate::kv::occupancy::TierOccupancy;

/// All complete pages of the context at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct PageMap {
    /// time of the snapshot, nanoseconds of [`crate::telemetry::now`]
    pub taken_ns: u64,
    /// tiers of every page, and bytes of every tier
    pub occupancy: TierOccupancy,
    /// tokens of the context; those after the last complete page are in VRAM
    pub n_tokens: usize,
    /// bytes of a page
    pub page_bytes: u64,
    /// element type of a page
    pub dtype: KvDtype,
    /// `[L, P]`: fraction of the layer's attention mass on a page when last sampled; empty if never
    pub mass: Vec<f32>,
    /// `[P + 1]`: byte offset of each page's text in the first user message, and the end of the last; empty if the context
    /// has no text
    pub first_byte: Vec<u32>,
}

/// Attention mass of every page during an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct PageAttention {
    /// measured steps of the answer
    pub n_steps: usize,
    /// `[P]`: fraction of the attention mass on complete pages, mean over those steps, layers and heads
    pub mass: Vec<f32>,
    /// `[P + 1]`: byte offset of each page's text in the first user message, and the end of the last
    pub first_byte: Vec<u32>,
}
