//! Request summary: cost and attention of an answer, reported at its end.
//!
//! Units: milliseconds, bytes, tokens, fractions in 0..=1, as each field documents.

use crate::base::{MovedBytes, PageCounts, Tiers};
use crate::kv::policy::PolicySpec;

/// Reason for the end of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// end token of the model
    Eos,
    /// `max_tokens` or the end of the window
    Length,
    /// stopped by the user
    Cancelled,
}

/// Kind of attention over the context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionKind {
    /// all keys, in VRAM
    #[default]
    Dense,
    /// all keys, in any tier
    ExactOffload,
    /// keys selected by a policy
    Selective,
    /// all keys, in VRAM, because selecting would take longer
    ExactByCost,
}

/// Attention mass of one layer that a selection retains, mean over steps and KV heads.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MassKept {
    /// attention mass of the selected tokens
    pub kept: f64,
    /// maximum attention mass of that many tokens
    pub best: f64,
    /// fraction of those best tokens that were selected
    pub recall: f64,
}

/// Selection of a policy during an answer.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SelectionSummary {
    /// configuration of the policy
    pub spec: PolicySpec,
    /// decode steps
    pub steps: u64,
    /// selected tokens divided by tokens in complete pages, over all steps, layers and KV heads
    pub share_read: f64,
    /// fraction of the selected pages that were in VRAM already
    pub reuse: f64,
    /// fraction of the other selected pages that were prefetched before the selection
    pub foreseen: f64,
    /// fraction of the pages transferred to VRAM that were compressed (INT4)
    #[serde(rename = "packed")]
    pub compressed: f64,
    /// evaluated token ranges per step
    pub evaluations_per_step: f64,
    /// selection time per step, milliseconds: the policy, and waits for scores that only it needs. The GPU time of
    /// scoring is in the trace
    pub evaluation_ms_per_step: f64,
    /// by layer; None if not measured
    pub mass: Option<Vec<MassKept>>,
    /// decode steps in which the mass was measured
    pub mass_steps: u64,
}

/// Disk reads of an answer.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct IoSummary {
    /// `io_uring` or `threads`; None if the disk was not used
    pub backend: Option<String>,
    /// true if I/O bypasses the page cache
    pub direct: bool,
    /// bytes read
    pub read_bytes: u64,
    /// time with reads in flight, milliseconds
    pub read_ms: f64,
}

/// Consecutive phases of an answer (milliseconds), with its begin and end.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Phases {
    /// tokenization
    pub tokenize_ms: f64,
    /// opening the saved document
    pub restore_ms: f64,
    /// prefill
    pub prefill_ms: f64,
    /// last prompt token to first answer token
    pub first_token_ms: f64,
    /// decode
    pub decode_ms: f64,
    /// begin, nanoseconds of [`crate::telemetry::now`]
    pub began_ns: u64,
    /// end
    pub ended_ns: u64,
}

/// A document of which KV is reused that was saved at another position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReusedDocument {
    /// content hash of the document
    pub content_hash: [u8; 32],
    /// reused tokens
    pub tokens: usize,
}

/// Cost of an answer (all times in milliseconds).
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RequestSummary {
    /// tokens of the prompt
    pub prompt_tokens: usize,
    /// tokens of it that needed no prefill
    pub cached_tokens: usize,
    /// tokens of the context whose KV was saved at another position, so that the answer is approximate
    #[serde(default, skip_serializing_if = "is_zero")]
    pub approximate_tokens: usize,
    /// time in prefill
    pub prefill_ms: f64,
    /// time to first token
    pub first_token_ms: f64,
    /// tokens of the answer
    pub generated_tokens: usize,
    /// time in decode
    pub decode_ms: f64,
    /// decode speed
    pub tokens_per_s: f64,
    /// kind of attention
    pub attention: AttentionKind,
    /// KV bytes in each tier at the end
    pub kv_bytes: Tiers<u64>,
    /// peak KV bytes in each tier
    pub kv_peak_bytes: Tiers<u64>,
    /// bytes moved between tiers
    pub moved_bytes: MovedBytes,
    /// pages that the attention of the answer needed
    pub pages: PageCounts,
    /// selection of the policy; None if attention read everything
    #[serde(rename = "chosen")]
    pub selection: Option<SelectionSummary>,
    /// hidden fraction of the shorter of compute and I/O, 0 to 1; None if either is empty
    pub overlap: Option<f64>,
    /// disk reads
    pub io: IoSummary,
    /// allocated VRAM at the end: weights, activations and the KV cache
    pub vram_bytes: u64,
    /// tokens in the cache at the end
    pub context_used: usize,
    /// dispatches of the last decoded token
    pub dispatches_per_token: usize,
    /// CPU time to encode one decoded token, mean, milliseconds
    pub encode_ms_per_token: f64,
    /// decode steps that were recorded before their token was read back
    #[serde(skip)]
    pub lookahead_steps: usize,
    /// phases
    pub phases: Phases,
    /// reason for the end
    pub stop: StopReason,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}
