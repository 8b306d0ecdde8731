//! Summary of an answer: its last JSON line, with result and cost in fields that scripts may rely on.
//!
//! Invariant: a field never changes its name or its type. Fields that do not apply are zero or null.

use serde::Serialize;

use crate::base::{MovedBytes, PageCounts, Tiers};
use crate::engine::{AttentionKind, IoSummary, ModelInfo, RequestSummary, Sampling, SelectionSummary, StopReason};

/// `{"event":"summary", ...}`
#[derive(Debug, Serialize)]
pub struct AskSummary<'a> {
    event: &'static str,
    /// 1 for the first `--prompt`
    turn: usize,
    model: &'a str,
    adapter: &'a str,
    /// `dense` or `exact-offload`: attention read every key, all in VRAM or not; `selective`: the keys that a policy selected
    attention: AttentionKind,
    policy: &'static str,
    text: &'a str,
    prompt_tokens: usize,
    cached_tokens: usize,
    /// tokens whose KV was saved at another position; absent if the answer is exact
    #[serde(skip_serializing_if = "Option::is_none")]
    approximate_tokens: Option<usize>,
    prefill_ms: f64,
    first_token_ms: f64,
    generated_tokens: usize,
    decode_ms: f64,
    tokens_per_s: f64,
    kv_bytes: Tiers<u64>,
    kv_peak_bytes: Tiers<u64>,
    moved_bytes: MovedBytes,
    pages: PageCounts,
    /// share of selected blocks that were in VRAM already; null without a policy
    reuse: Option<f64>,
    /// statistics of the policy's selection; null without a policy
    #[serde(rename = "chosen")]
    selection: Option<&'a SelectionSummary>,
    /// 0 to 1; null if nothing was transferred
    overlap: Option<f64>,
    io: &'a IoSummary,
    #[serde(flatten)]
    quotes: &'a Quotes,
    stop: StopReason,
    context_used: usize,
    sampling: Sampling,
    dispatches_per_token: usize,
    encode_ms_per_token: f64,
}

/// Quotations of an answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Quotes {
    /// quotations, in order
    pub quotes: Vec<Quote>,
    /// mentions that a list misses, with the words around them; at most 100
    #[serde(rename = "left_out")]
    pub missing: Vec<Quote>,
}

/// A quotation of an answer, with its location.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quote {
    /// text in the answer
    pub text: String,
    /// true if a document has it
    pub found: bool,
    /// name of the document
    pub document: Option<String>,
    /// its page, from 1
    pub page: Option<usize>,
    /// byte range in the document's text (UTF-8, line ends as one byte): first byte, and one past the last
    pub byte_range: Option<[usize; 2]>,
}

impl<'a> AskSummary<'a> {
    /// The line for one answer.
    pub fn new(
        turn: usize,
        info: &'a ModelInfo,
        sampling: Sampling,
        text: &'a str,
        cost: &'a RequestSummary,
        quotes: &'a Quotes,
    ) -> Self {
        AskSummary {
            event: "summary",
            turn,
            model: &info.name,
            adapter: &info.adapter,
            attention: cost.attention,
            policy: cost.selection.as_ref().map_or("full", |c| c.spec.kind.name()),
            text,
            prompt_tokens: cost.prompt_tokens,
            cached_tokens: cost.cached_tokens,
            approximate_tokens: Some(cost.approximate_tokens).filter(|n| *n > 0),
            prefill_ms: cost.prefill_ms,
            first_token_ms: cost.first_token_ms,
            generated_tokens: cost.generated_tokens,
            decode_ms: cost.decode_ms,
            tokens_per_s: cost.tokens_per_s,
            kv_bytes: cost.kv_bytes,
            kv_peak_bytes: cost.kv_peak_bytes,
            moved_bytes: cost.moved_bytes,
            pages: cost.pages,
            reuse: cost.selection.as_ref().map(|c| c.reuse),
            selection: cost.selection.as_ref(),
            overlap: cost.overlap,
            io: &cost.io,
            quotes,
            stop: cost.stop,
            context_used: cost.context_used,
            sampling,
            dispatches_per_token: cost.dispatches_per_token,
            encode_ms_per_token: cost.encode_ms_per_token,
        }
    }
}
