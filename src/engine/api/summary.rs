//! What an answer cost and how it was read: plain numbers, told with its end.
//!
//! Units: milliseconds, bytes, tokens, shares in 0..=1; each field says which.

use crate::base::{MovedBytes, PageCounts, Tiers};
use crate::kv::policy::PolicySpec;

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// the model's own end token
    Eos,
    /// `max_tokens` or the end of the window
    Length,
    /// the user
    Cancelled,
}

/// How attention reached the keys of the context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionKind {
    /// all of them, in VRAM
    #[default]
    Dense,
    /// all of them, wherever they were
    ExactOffload,
    /// those that a policy chose
    Selective,
}

/// The attention of one layer that a policy's choices kept, mean over steps and KV heads; of what goes to complete pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MassKept {
    /// share of the attention mass that went to chosen tokens
    pub kept: f64,
    /// the most that as many tokens could have held
    pub best: f64,
    /// share of those best tokens that were chosen
    pub recall: f64,
}

/// What a policy chose during an answer.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SelectionSummary {
    /// which policy, and its numbers
    pub spec: PolicySpec,
    /// decode steps
    pub steps: u64,
    /// chosen over complete tokens, over all steps, layers and KV heads
    pub share_read: f64,
    /// chosen pages that were in VRAM already
    pub reuse: f64,
    /// of those that were not, what had come before it was chosen, because it was expected
    pub foreseen: f64,
    /// pages that traveled to VRAM as INT4, of those that traveled
    pub packed: f64,
    /// ranges of tokens that were scored one by one, per step
    pub evaluations_per_step: f64,
    /// time that choosing took per step, milliseconds: the policy's own, and waits for scores that only it needed. What the
    /// device spends on scoring meanwhile is in the trace
    pub evaluation_ms_per_step: f64,
    /// by layer, where it was measured
    pub mass: Option<Vec<MassKept>>,
    /// decode steps in which it was measured
    pub mass_steps: u64,
}

/// What was read from the disk, and how.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct IoSummary {
    /// `io_uring` or `threads`; none where the disk was not used
    pub backend: Option<String>,
    /// past the page cache
    pub direct: bool,
    /// bytes read
    pub read_bytes: u64,
    /// time that reads were on their way, milliseconds
    pub read_ms: f64,
}

/// The parts of an answer, one after the other (milliseconds), and when it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Phases {
    /// text to token ids
    pub tokenize_ms: f64,
    /// the saved document opened
    pub restore_ms: f64,
    /// prompt
    pub prefill_ms: f64,
    /// last prompt token to first answer token
    pub first_token_ms: f64,
    /// the answer
    pub decode_ms: f64,
    /// when it began, nanoseconds of [`crate::telemetry::now`]
    pub began_ns: u64,
    /// when it ended
    pub ended_ns: u64,
}

/// What an answer cost (all times in milliseconds).
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RequestSummary {
    /// tokens of the prompt
    pub prompt_tokens: usize,
    /// of which were already in the KV cache
    pub cached_tokens: usize,
    /// time in prefill
    pub prefill_ms: f64,
    /// from the request to the first token
    pub first_token_ms: f64,
    /// tokens of the answer
    pub generated_tokens: usize,
    /// time in decode
    pub decode_ms: f64,
    /// decode speed
    pub tokens_per_s: f64,
    /// how attention reached the keys
    pub attention: AttentionKind,
    /// KV bytes in each tier at the end
    pub kv_bytes: Tiers<u64>,
    /// and at most
    pub kv_peak_bytes: Tiers<u64>,
    /// what moved between tiers
    pub moved_bytes: MovedBytes,
    /// pages that the answer's attention needed
    pub pages: PageCounts,
    /// what a policy chose; none where everything was read
    pub chosen: Option<SelectionSummary>,
    /// share of the time that compute and transfers went on at once, 0 to 1; none where nothing moved
    pub overlap: Option<f64>,
    /// the disk's part
    pub io: IoSummary,
    /// everything in VRAM at the end: weights, activations and the KV cache
    pub vram_bytes: u64,
    /// tokens in the cache at the end
    pub context_used: usize,
    /// dispatches of the last decoded token
    pub dispatches_per_token: usize,
    /// CPU time to encode one decoded token, mean, milliseconds
    pub encode_ms_per_token: f64,
    /// its parts
    pub phases: Phases,
    /// why it ended
    pub stop: StopReason,
}
