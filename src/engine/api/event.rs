//! Events: everything the engine reports, in order, over a bounded channel.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::Tiers;
use crate::engine::api::{
    DeviceFacts, KernelPeaks, KernelProfile, LinkBandwidth, PageAttention, PageMap, RequestId, RequestSummary, ReusedDocument,
    Sampling, SavedDocument, SelectionSummary, WorkShape,
};
use crate::telemetry::Snapshot;

/// Configuration of the KV tiers of a loaded model.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct KvSetup {
    /// budgets in force
    pub budgets: Tiers<u64>,
    /// `io_uring` or `threads`
    pub io_backend: String,
    /// reason for this backend
    pub io_reason: String,
    /// folder of the library; None if no folder is usable
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
    /// window in force; smaller if capped
    pub context_limit: usize,
    /// size of the file(s)
    pub file_bytes: u64,
    /// VRAM for weights, activations and the KV cache as allocated now
    pub vram_bytes: u64,
    /// estimate before loading
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
    /// messages for the user, for example about weights that were converted on loading
    pub notes: Vec<String>,
    /// sampling recommended by the model, or the default
    pub sampling: Sampling,
    /// true for the built-in quoting model
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
    /// bytes of weights read per token
    pub weight_bytes_per_token: u64,
    /// floating-point operations of the matrix products per token
    pub flops_per_token: u64,
    /// KV bytes read from disk per token, mean of the repetitions
    pub disk_bytes_per_token: u64,
    /// selection of the policy in the last repetition; None if attention read everything
    #[serde(rename = "chosen")]
    pub selection: Option<SelectionSummary>,
    /// time and work of each kernel family; None if not requested, or if the device cannot time them
    #[serde(skip)]
    pub profile: Option<KernelProfile>,
}

/// Event of the engine.
#[derive(Debug, Clone)]
pub enum EngineEvent {
    /// progress of loading
    ModelLoading {
        /// 0 to 1
        share: f32,
        /// current phase, in a few words
        what: String,
    },
    /// device and machine, before a model is loaded
    Device(Box<DeviceFacts>),
    /// the model is ready
    ModelLoaded(Box<ModelInfo>),
    /// the model could not be loaded
    ModelFailed {
        /// message for the user
        sentence: String,
        /// true if the file or a flag was at fault (exit 2), not the machine (exit 1)
        bad_input: bool,
    },
    /// the model was unloaded
    ModelUnloaded,
    /// a request started
    RequestStarted {
        /// request
        request: RequestId,
        /// tokens of the prompt
        prompt_tokens: usize,
        /// tokens of it that need no prefill
        cached_tokens: usize,
    },
    /// progress of prefill
    Prefill {
        /// request
        request: RequestId,
        /// tokens in the cache so far
        done: usize,
        /// tokens of the prompt
        total: usize,
        /// prefill speed so far
        tokens_per_s: f64,
    },
    /// documents of which the context has KV that was saved at another position; at the end of a prefill, if there are any
    Approximate {
        /// request
        request: RequestId,
        /// in the order of the prompt
        documents: Vec<ReusedDocument>,
    },
    /// a piece of the answer (whole code points)
    Token {
        /// request
        request: RequestId,
        /// text to append
        text: String,
        /// answer tokens so far
        n: usize,
        /// decode speed so far
        tokens_per_s: f64,
        /// tokens in the KV cache
        context_used: usize,
    },
    /// a request ended without an error, or was stopped
    Finished {
        /// request
        request: RequestId,
        /// its cost
        summary: Box<RequestSummary>,
    },
    /// a request failed
    Failed {
        /// request
        request: RequestId,
        /// message for the user
        sentence: String,
        /// true if the request was at fault (exit 2), not the machine (exit 1)
        bad_input: bool,
    },
    /// token count of a conversation
    Counted {
        /// request
        request: RequestId,
        /// tokens, including those of the chat template
        tokens: usize,
        /// tokens that begin before each offset of [`EngineCommand::Count`]; empty if the prompt does not contain the
        /// text verbatim
        positions: Vec<usize>,
    },
    /// logits `[n, V]` of positions `first .. first + n`
    LogitsRows {
        /// request
        request: RequestId,
        /// first position
        first: usize,
        /// row-major
        rows: Vec<f32>,
        /// V
        vocab_size: usize,
    },
    /// one finished benchmark line
    BenchResult {
        /// request
        request: RequestId,
        /// the line
        row: Box<BenchRow>,
    },
    /// use of the KV tiers; after a request, and after every [`EngineEvent::Pages`]
    KvUse {
        /// bytes in each tier
        used: Tiers<u64>,
        /// budgets
        budgets: Tiers<u64>,
    },
    /// page map of the context: after [`EngineCommand::ShowPages`], and during and after every request while
    /// [`crate::engine::EngineHandle::watch_pages`] is on
    Pages(Arc<PageMap>),
    /// page attention of an answer: before the end of a request of [`AttentionMode::Sampled`], if it was measured
    PageAttention {
        /// request
        request: RequestId,
        /// page by page
        page_attention: Box<PageAttention>,
    },
    /// link bandwidth between the tiers
    Links(LinkBandwidth),
    /// peaks of the device for kernels, and the shape of the model that they run; after [`EngineEvent::Links`]
    Kernels(KernelPeaks, WorkShape),
    /// documents of the library, least recently used last: on request, and after a document was saved or dropped
    Library(Vec<SavedDocument>),
    /// telemetry since the last of these events (while [`crate::engine::EngineHandle::observe`] requests it)
    Telemetry(Box<Snapshot>),
    /// notice for the user, once (a lost device that was rebuilt, a converted weight type)
    Notice(String),
}
