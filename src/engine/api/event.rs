//! Events: everything the engine reports, in order, over a bounded channel.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::Tiers;
use crate::engine::api::{
    DeviceFacts, LinkBandwidth, PageAttention, PageMap, RequestId, RequestSummary, Sampling, SavedDocument, SelectionSummary,
};
use crate::telemetry::Snapshot;

/// How the KV tiers of a loaded model are set up.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct KvSetup {
    /// caps in force
    pub budgets: Tiers<u64>,
    /// `io_uring` or `threads`
    pub io_backend: String,
    /// why it is this one
    pub io_reason: String,
    /// folder of the library; none where no folder can be had
    pub kv_dir: Option<PathBuf>,
}

/// A loaded model and its device, for the model bar.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ModelInfo {
    /// `general.name`, or the file name
    pub name: String,
    /// `llama`, `qwen2`, ...
    pub architecture: String,
    /// most common weight type, for example `Q8_0`
    #[serde(rename = "quantisation")]
    pub quantization: String,
    /// number of weights
    pub n_params: u64,
    /// trained window, tokens
    pub context_len: usize,
    /// window in force (smaller when capped)
    pub context_limit: usize,
    /// size of the file(s)
    pub file_bytes: u64,
    /// VRAM for weights, activations and the KV cache as allocated now
    pub vram_bytes: u64,
    /// what was estimated before loading
    pub estimated_vram_bytes: u64,
    /// KV cache of the whole window in force, bytes; allocated as the context grows
    pub kv_full_bytes: u64,
    /// KV bytes of one token
    pub kv_bytes_per_token: u64,
    /// budgets, disk and ring
    pub kv: KvSetup,
    /// adapter name
    pub adapter: String,
    /// runs on the CPU (lavapipe and the like)
    pub software: bool,
    /// sentences for the user, for example a weight type that was converted at load
    pub notes: Vec<String>,
    /// the model's own recommended sampling, or the default
    pub sampling: Sampling,
    /// it is the built-in quoting model
    pub built_in: bool,
}

/// One line of `strata bench`.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct BenchRow {
    /// `pp512`, `tg128`, `tg128 @ d4096`
    pub test: String,
    /// tokens per second of each repetition
    pub samples: Vec<f64>,
    /// dispatches per token (decode) or per chunk (prefill)
    pub dispatches: usize,
    /// CPU time spent encoding per token, milliseconds
    pub encode_ms_per_token: f64,
    /// bytes of weights that one token reads
    pub weight_bytes_per_token: u64,
    /// floating-point operations of one token's matrix products
    pub flops_per_token: u64,
    /// bytes of KV read from the disk per token, mean of the repetitions
    pub disk_bytes_per_token: u64,
    /// what a policy chose in the last repetition; none where everything was read
    pub chosen: Option<SelectionSummary>,
}

/// What the engine reports.
#[derive(Debug, Clone)]
pub enum EngineEvent {
    /// loading goes on: share done in 0..=1 and what is happening
    ModelLoading {
        /// 0 to 1
        share: f32,
        /// a few words
        what: String,
    },
    /// what the device and the machine have, before a model is put on it
    Device(Box<DeviceFacts>),
    /// the model is ready
    ModelLoaded(Box<ModelInfo>),
    /// the model could not be loaded: one sentence that says what to do
    ModelFailed {
        /// for a person
        sentence: String,
        /// the file or a flag was at fault (exit 2), not the machine (exit 1)
        bad_input: bool,
    },
    /// the model is gone
    ModelUnloaded,
    /// a turn began
    TurnStarted {
        /// which
        turn: RequestId,
        /// tokens of the prompt
        prompt_tokens: usize,
        /// of which need no prefill
        cached_tokens: usize,
    },
    /// prefill goes on
    Prefill {
        /// which
        turn: RequestId,
        /// tokens in the cache so far
        done: usize,
        /// tokens of the prompt
        total: usize,
        /// of this prefill so far
        tokens_per_s: f64,
    },
    /// a piece of the answer (whole code points)
    Token {
        /// which
        turn: RequestId,
        /// text to append
        text: String,
        /// answer tokens so far
        n: usize,
        /// decode speed so far
        tokens_per_s: f64,
        /// tokens in the KV cache
        context_used: usize,
    },
    /// a turn ended well (also when it was stopped)
    Finished {
        /// which
        turn: RequestId,
        /// its cost
        summary: Box<RequestSummary>,
    },
    /// a turn could not be answered: one sentence that says what to do
    Failed {
        /// which
        turn: RequestId,
        /// for a person
        sentence: String,
        /// the request itself was at fault (exit 2), not the machine (exit 1)
        bad_input: bool,
    },
    /// tokens of a conversation
    Counted {
        /// which
        turn: RequestId,
        /// how many, those of the chat template included
        tokens: usize,
        /// tokens that begin before each offset of [`EngineCommand::Count`]; empty if the prompt does not have the text as it
        /// was given
        positions: Vec<usize>,
    },
    /// logits `[n, V]` of positions `first .. first + n`
    LogitsRows {
        /// which
        turn: RequestId,
        /// first position
        first: usize,
        /// row-major
        rows: Vec<f32>,
        /// V
        vocab_size: usize,
    },
    /// one finished benchmark line
    BenchResult {
        /// which
        turn: RequestId,
        /// the line
        row: Box<BenchRow>,
    },
    /// what the KV tiers hold now; after a turn, and after every [`EngineEvent::Pages`]
    KvUse {
        /// bytes in each tier
        used: Tiers<u64>,
        /// and the caps
        budgets: Tiers<u64>,
    },
    /// where every page of the context is: after [`EngineCommand::ShowPages`], and during and after every turn while somebody
    /// watches
    Pages(Arc<PageMap>),
    /// what the attention of an answer fell on: before the end of a turn of [`AttentionMode::Sampled`], where it was measured
    PageAttention {
        /// which
        turn: RequestId,
        /// page by page
        page_attention: Box<PageAttention>,
    },
    /// what the links between the tiers can carry
    Links(LinkBandwidth),
    /// what the library holds, least recently used last (after a request, and whenever a document was saved or dropped)
    Library(Vec<SavedDocument>),
    /// what has happened since the last of these, every event once (while [`crate::engine::EngineHandle::observe`] asks for it)
    Telemetry(Box<Snapshot>),
    /// something the user should know, once (a lost device that was rebuilt, a converted weight type)
    Notice(String),
}
