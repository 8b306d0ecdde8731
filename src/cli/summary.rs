//! The last JSON line of an answer: what it was and what it cost, in fields that scripts may rely on.
//!
//! Invariant: a field never changes its name or its type. Those of parts that are not there yet (tiers below VRAM,
//! selective attention) say so with zeros and nulls.

use serde::Serialize;

use crate::engine::{ModelInfo, Sampling, StopReason, TurnSummary};

/// `{"event":"summary", ...}`
#[derive(Debug, Serialize)]
pub struct AskSummary<'a> {
    event: &'static str,
    /// 1 for the first `--prompt`
    turn: usize,
    model: &'a str,
    adapter: &'a str,
    /// `dense`: every key in VRAM was read
    attention: &'static str,
    policy: &'static str,
    text: &'a str,
    prompt_tokens: usize,
    cached_tokens: usize,
    prefill_ms: f64,
    first_token_ms: f64,
    generated_tokens: usize,
    decode_ms: f64,
    tokens_per_s: f64,
    kv_bytes: Tiers,
    kv_peak_bytes: Tiers,
    moved_bytes: Moved,
    pages: Pages,
    /// share of selected blocks that were in VRAM already; null while nothing is selected
    reuse: Option<f64>,
    /// 0 to 1; null while nothing moves
    overlap: Option<f64>,
    io: Io,
    quotes: &'a [Quote],
    stop: StopReason,
    context_used: usize,
    sampling: Sampling,
    dispatches_per_token: usize,
    encode_ms_per_token: f64,
}

/// A quotation in an answer, and where it stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quote {
    /// as the answer has it
    pub text: String,
    /// a document has it
    pub found: bool,
    /// which document
    pub document: Option<String>,
    /// its page, from 1
    pub page: Option<usize>,
    /// its place in the document's text (UTF-8, line ends as one byte): first byte, and one past the last
    pub byte_range: Option<[usize; 2]>,
}

#[derive(Debug, Default, Serialize)]
struct Tiers {
    vram: u64,
    ram: u64,
    disk: u64,
}

#[derive(Debug, Default, Serialize)]
struct Moved {
    disk_to_ram: u64,
    ram_to_vram: u64,
    vram_to_ram: u64,
    ram_to_disk: u64,
}

#[derive(Debug, Default, Serialize)]
struct Pages {
    resident: u64,
    fetched: u64,
    recomputed: u64,
    skipped: u64,
}

#[derive(Debug, Default, Serialize)]
struct Io {
    backend: Option<String>,
    direct: bool,
    read_bytes: u64,
    read_ms: f64,
}

impl<'a> AskSummary<'a> {
    /// The line for one answer.
    pub fn new(
        turn: usize,
        info: &'a ModelInfo,
        sampling: Sampling,
        text: &'a str,
        cost: &TurnSummary,
        quotes: &'a [Quote],
    ) -> Self {
        AskSummary {
            event: "summary",
            turn,
            model: &info.name,
            adapter: &info.adapter,
            attention: "dense",
            policy: "full",
            text,
            prompt_tokens: cost.prompt_tokens,
            cached_tokens: cost.cached_tokens,
            prefill_ms: cost.prefill_ms,
            first_token_ms: cost.first_token_ms,
            generated_tokens: cost.generated_tokens,
            decode_ms: cost.decode_ms,
            tokens_per_s: cost.tokens_per_s,
            kv_bytes: Tiers { vram: cost.kv_bytes, ..Tiers::default() },
            kv_peak_bytes: Tiers { vram: cost.kv_peak_bytes, ..Tiers::default() },
            moved_bytes: Moved::default(),
            pages: Pages::default(),
            reuse: None,
            overlap: None,
            io: Io::default(),
            quotes,
            stop: cost.stop,
            context_used: cost.context_used,
            sampling,
            dispatches_per_token: cost.dispatches_per_token,
            encode_ms_per_token: cost.encode_ms_per_token,
        }
    }
}
