//! The engine's whole API: commands in, events out, over bounded channels.

use std::path::PathBuf;
use std::sync::Arc;

pub use super::conversation::{Message, Question, Role, Sampling, TurnId};
use super::fit::DeviceFacts;
use super::links::LinkPeaks;
use super::page_map::PageMap;
use super::saved::{DocumentRef, LibraryAction, SavedDocument};
use super::summary::{ChosenSummary, TurnSummary};
use super::turn::TurnPolicy;
use super::weigh::Weighed;
use crate::base::{Bytes, LinkLimits, Tiers};
use crate::kv::policy::PolicySpec;
use crate::telemetry::Snapshot;

/// Where a model comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelSource {
    /// the weights embedded in the binary
    BuiltIn,
    /// a GGUF file, or a folder with `config.json`, `tokenizer.json`, `*.safetensors`
    Path(PathBuf),
    /// random weights of a named real shape (`bench --synthetic`), at a weight type such as `Q4_0`
    Synthetic {
        /// shape name, for example `llama-3.2-1b`
        name: String,
        /// `F32`, `F16`, `Q8_0`, `Q4_0`, ...
        weight_type: String,
    },
}

/// Element type of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KvDtype {
    /// half precision
    #[default]
    F16,
    /// 8 bits, keys grouped by channel and values by token
    Q8,
    /// 4 bits, grouped the same way
    Q4,
    /// single precision, for comparing engines
    F32,
}

/// What the user chose about loading a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LoadOptions {
    /// adapter by name (part of it, any case) or index; the best one otherwise
    pub gpu: Option<String>,
    /// cap on the context, tokens; the model's window otherwise
    pub context: Option<usize>,
    /// element type of K and V
    pub kv_dtype: KvDtype,
    /// cap on KV bytes in each tier; from what the machine has free where there is none
    pub budgets: Tiers<Option<Bytes>>,
    /// folder of the library (saved KV); the cache folder of the user otherwise
    pub kv_dir: Option<PathBuf>,
    /// speeds that transfers are held to
    pub limits: LinkLimits,
    /// transfers wait for compute and compute for transfers, layer by layer: the baseline that the pipeline is measured
    /// against
    pub synchronous: bool,
    /// what decode steps read of the context; everything where there is none
    pub policy: Option<PolicySpec>,
    /// file for a Chrome trace of everything until the model is unloaded
    pub trace: Option<PathBuf>,
    /// base of the rotary embedding instead of the model's own; the context may then pass the window it was trained for
    pub rope_base: Option<f64>,
}

/// What `strata bench` times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchTests {
    /// prompt lengths, as llama-bench's `-p`
    pub n_prompt: Vec<usize>,
    /// generated lengths, as `-n`
    pub n_gen: Vec<usize>,
    /// tokens already in the cache, as `-d`
    pub depths: Vec<usize>,
    /// these are pseudo-random keys and values, not prefilled tokens
    pub fill: bool,
    /// repetitions of each
    pub repetitions: usize,
}

/// What the engine can be asked to do. It acts in order; [`crate::engine::EngineHandle::stop`] overtakes.
#[derive(Debug, Clone)]
pub enum EngineCommand {
    /// replace the model (and rebuild the device if `options.gpu` changed)
    LoadModel {
        /// which
        source: ModelSource,
        /// how
        options: LoadOptions,
    },
    /// free the model and everything it holds
    UnloadModel,
    /// answer the last user message. Whatever prefix of the tokens is already in the KV cache is not read again.
    Ask {
        /// names the events
        turn: TurnId,
        /// the whole conversation, oldest first
        messages: Vec<Message>,
        /// the document that the first user message begins with
        document: Option<DocumentRef>,
        /// how tokens are chosen
        sampling: Sampling,
        /// the answer ends after this many tokens at the latest
        max_tokens: usize,
        /// what its decode steps read
        policy: TurnPolicy,
    },
    /// answer several questions at once: what their prompts have in common is read once, and each has tokens of its own after
    /// it. Events come under the id of each question, which ends with [`EngineEvent::Finished`] or [`EngineEvent::Failed`].
    AskMany {
        /// the questions
        questions: Vec<Question>,
        /// the document that the first user message of every question begins with
        document: Option<DocumentRef>,
        /// how tokens are chosen
        sampling: Sampling,
        /// each answer ends after this many tokens at the latest
        max_tokens: usize,
    },
    /// read a document ahead of the first question: prefill `text` as the start of a first user message
    Read {
        /// names the events
        turn: TurnId,
        /// document text
        text: String,
        /// what the library should know of it
        document: Option<DocumentRef>,
    },
    /// count the tokens of a conversation (events: [`EngineEvent::Counted`])
    Count {
        /// names the event
        turn: TurnId,
        /// the conversation
        messages: Vec<Message>,
    },
    /// logits of every position of `tokens` (events: [`EngineEvent::LogitsRows`], then [`EngineEvent::Finished`])
    Logits {
        /// names the events
        turn: TurnId,
        /// token ids
        tokens: Vec<u32>,
    },
    /// logits of the positions `n_prefix ..` of `tokens` as decoding gives them: the prefix is prefilled, each later token is
    /// a decode step (events: [`EngineEvent::Prefill`], [`EngineEvent::LogitsRows`] per step, then [`EngineEvent::Finished`])
    Score {
        /// names the events
        turn: TurnId,
        /// token ids, the same whatever is scored
        tokens: Vec<u32>,
        /// how many are prefilled
        n_prefix: usize,
    },
    /// time prefill and decode on random tokens (events: [`EngineEvent::BenchResult`], then [`EngineEvent::Finished`])
    Bench {
        /// names the events
        turn: TurnId,
        /// what is timed
        tests: BenchTests,
    },
    /// what the library holds, after doing something with it (event: [`EngineEvent::Library`])
    Library(LibraryAction),
    /// where every page of the context is now (event: [`EngineEvent::Pages`])
    ShowPages,
    /// what the links between the tiers can carry (event: [`EngineEvent::Links`]); takes a second, and writes a file that is
    /// gone afterwards
    MeasureLinks,
    /// lose the device on purpose: the next command that needs it finds it gone (fault injection in tests)
    LoseDevice,
    /// end the worker
    Shutdown,
}

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
    pub quantisation: String,
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
    pub chosen: Option<ChosenSummary>,
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
        turn: TurnId,
        /// tokens of the prompt
        prompt_tokens: usize,
        /// of which need no prefill
        cached_tokens: usize,
    },
    /// prefill goes on
    Prefill {
        /// which
        turn: TurnId,
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
        turn: TurnId,
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
        turn: TurnId,
        /// its cost
        summary: Box<TurnSummary>,
    },
    /// a turn could not be answered: one sentence that says what to do
    Failed {
        /// which
        turn: TurnId,
        /// for a person
        sentence: String,
        /// the request itself was at fault (exit 2), not the machine (exit 1)
        bad_input: bool,
    },
    /// tokens of a conversation
    Counted {
        /// which
        turn: TurnId,
        /// how many
        tokens: usize,
    },
    /// logits `[n, V]` of positions `first .. first + n`
    LogitsRows {
        /// which
        turn: TurnId,
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
        turn: TurnId,
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
    /// what the attention of an answer fell on: before the end of a turn of [`TurnPolicy::Sampled`], where it was measured
    Weighed {
        /// which
        turn: TurnId,
        /// page by page
        weighed: Box<Weighed>,
    },
    /// what the links between the tiers can carry
    Links(LinkPeaks),
    /// what the library holds, least recently used last (after a request, and whenever a document was saved or dropped)
    Library(Vec<SavedDocument>),
    /// what has happened since the last of these, every event once (while [`crate::engine::EngineHandle::observe`] asks for it)
    Telemetry(Box<Snapshot>),
    /// something the user should know, once (a lost device that was rebuilt, a converted weight type)
    Notice(String),
}
