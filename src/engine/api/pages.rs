//! Page map and page attention: where KV pages are, and which of them an answer attended to.

use crate::engine::api::KvDtype;
use crate::kv::occupancy::TierOccupancy;

/// All complete pages of the context at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct PageMap {
    /// when it was taken, nanoseconds of [`telemetry::now`]
    pub taken_ns: u64,
    /// where pages are, and what the tiers hold
    pub census: TierOccupancy,
    /// tokens of the context; those after the last complete page are in VRAM
    pub n_tokens: usize,
    /// bytes of a page
    pub page_bytes: u64,
    /// its elements
    pub dtype: KvDtype,
    /// `[L, P]`: share of the layer's attention mass that went to a page when it was last sampled; empty where it never was
    pub mass: Vec<f32>,
    /// `[P + 1]`: where the text of a page begins in the first user message, bytes, and where that of the last one ends; empty
    /// where the context has no text
    pub first_byte: Vec<u32>,
}

/// What the attention of an answer fell on.
#[derive(Debug, Clone, PartialEq)]
pub struct PageAttention {
    /// steps of the answer in which it was measured
    pub n_steps: usize,
    /// `[P]`: share of the attention on complete pages, mean over those steps, layers and heads
    pub mass: Vec<f32>,
    /// `[P + 1]`: where the text of a page begins in the first user message, bytes, and where that of the last one ends
    pub first_byte: Vec<u32>,
}
