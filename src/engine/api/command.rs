//! Engine commands, over a bounded channel.

use std::path::PathBuf;

use crate::base::{Bytes, LinkLimits, Tiers};
use crate::engine::api::{AttentionMode, DocumentRef, KvDtype, LibraryAction, Message, PromptRequest, RequestId, Sampling};
use crate::kv::policy::PolicySpec;

/// Source of a model.
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

/// Options for loading a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LoadOptions {
    /// adapter by name (part of it, any case) or index; the best one otherwise
    pub gpu: Option<String>,
    /// cap on the context, tokens; the model's window otherwise
    pub context: Option<usize>,
    /// element type of K and V
    pub kv_dtype: KvDtype,
    /// cap on KV bytes in each tier; if None, set from the free memory
    pub budgets: Tiers<Option<Bytes>>,
    /// folder of the library (saved KV); the cache folder of the user otherwise
    pub kv_dir: Option<PathBuf>,
    /// bandwidth limits of transfers
    pub limits: LinkLimits,
    /// transfers wait for compute and compute for transfers, layer by layer: the baseline of the pipeline
    pub synchronous: bool,
    /// policy that selects the tokens that decode steps read; None to read all
    pub policy: Option<PolicySpec>,
    /// file for a Chrome trace of everything until the model is unloaded
    pub trace: Option<PathBuf>,
    /// base of the rotary embedding, in place of the model's own; the context may then exceed the trained window
    pub rope_base: Option<f64>,
    /// shaders are compiled with run-time checks
    pub checked_shaders: bool,
    /// only kernels with f32 activations; otherwise a real GPU may round them where that is faster
    pub exact: bool,
    /// reuse saved KV of a document at another position: approximate, and never saved
    pub reuse_anywhere: bool,
}

/// Tests of `strata bench`.
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
    /// true: then measure the time of each kernel family
    pub by_family: bool,
}

/// Command of the engine. Commands run in order; [`crate::engine::EngineHandle::stop`] overtakes them.
#[derive(Debug, Clone)]
pub enum EngineCommand {
    /// replace the model (and rebuild the device if `options.gpu` changed)
    LoadModel {
        /// model
        source: ModelSource,
        /// options
        options: LoadOptions,
    },
    /// free the model and everything it holds
    UnloadModel,
    /// answer the last user message. The prefix of its tokens that is already in the KV cache is not prefilled again.
    Generate {
        /// id of the request
        request: RequestId,
        /// the whole conversation, oldest first
        messages: Vec<Message>,
        /// documents that the first user message begins with, in this order
        documents: Vec<DocumentRef>,
        /// sampling parameters
        sampling: Sampling,
        /// the answer ends after this many tokens at the latest
        max_tokens: usize,
        /// attention mode of its decode steps
        policy: AttentionMode,
    },
    /// answer several requests at once: the common prefix of their prompts is prefilled once, and each has tokens of its own
    /// after it. Events have the id of their request, which ends with [`EngineEvent::Finished`] or [`EngineEvent::Failed`].
    GenerateBatch {
        /// the requests
        requests: Vec<PromptRequest>,
        /// documents that the first user message of every request begins with, in this order
        documents: Vec<DocumentRef>,
        /// sampling parameters
        sampling: Sampling,
        /// each answer ends after this many tokens at the latest
        max_tokens: usize,
    },
    /// prefill a document before the first question: `text` as the start of a first user message
    Prefill {
        /// id of the request
        request: RequestId,
        /// document text
        text: String,
        /// documents that the text consists of, in this order; the library lists them
        documents: Vec<DocumentRef>,
    },
    /// count the tokens of a conversation (events: [`EngineEvent::Counted`])
    Count {
        /// id of the request
        request: RequestId,
        /// the conversation
        messages: Vec<Message>,
        /// byte offsets in the first user message, ascending, for which token positions are returned
        offsets: Vec<usize>,
    },
    /// logits of every position of `tokens` (events: [`EngineEvent::LogitsRows`], then [`EngineEvent::Finished`])
    Logits {
        /// id of the request
        request: RequestId,
        /// token ids
        tokens: Vec<u32>,
    },
    /// logits of the positions `n_prefix ..` of `tokens` as decoding gives them: the prefix is prefilled, each later token is
    /// a decode step (events: [`EngineEvent::Prefill`], [`EngineEvent::LogitsRows`] per step, then [`EngineEvent::Finished`])
    Score {
        /// id of the request
        request: RequestId,
        /// token ids
        tokens: Vec<u32>,
        /// number of tokens to prefill
        n_prefix: usize,
    },
    /// time prefill and decode on random tokens (events: [`EngineEvent::BenchResult`], then [`EngineEvent::Finished`])
    Bench {
        /// id of the request
        request: RequestId,
        /// tests
        tests: BenchTests,
    },
    /// run an action on the library, then list it (event: [`EngineEvent::Library`])
    Library(LibraryAction),
    /// map the location of each page of the context (event: [`EngineEvent::Pages`])
    ShowPages,
    /// measure the link bandwidth between the tiers (event: [`EngineEvent::Links`]); takes a second and writes a temporary
    /// file
    MeasureLinks,
    /// lose the device on purpose, for fault injection in tests: the next command that needs it gets an error
    LoseDevice,
    /// end the worker
    Shutdown,
}
