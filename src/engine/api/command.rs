//! Commands: everything the engine can be asked to do, over a bounded channel.

use std::path::PathBuf;

use crate::base::{Bytes, LinkLimits, Tiers};
use crate::engine::api::{AttentionMode, DocumentRef, KvDtype, LibraryAction, Message, PromptRequest, RequestId, Sampling};
use crate::kv::policy::PolicySpec;

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
    /// shaders are compiled with run-time checks
    pub checked_shaders: bool,
    /// only kernels with f32 activations; otherwise a real GPU may round them where that is faster
    pub exact: bool,
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
    Generate {
        /// names the events
        turn: RequestId,
        /// the whole conversation, oldest first
        messages: Vec<Message>,
        /// documents that the first user message begins with, in this order
        documents: Vec<DocumentRef>,
        /// how tokens are chosen
        sampling: Sampling,
        /// the answer ends after this many tokens at the latest
        max_tokens: usize,
        /// what its decode steps read
        policy: AttentionMode,
    },
    /// answer several questions at once: what their prompts have in common is read once, and each has tokens of its own after
    /// it. Events come under the id of each question, which ends with [`EngineEvent::Finished`] or [`EngineEvent::Failed`].
    GenerateBatch {
        /// the questions
        questions: Vec<PromptRequest>,
        /// documents that the first user message of every question begins with, in this order
        documents: Vec<DocumentRef>,
        /// how tokens are chosen
        sampling: Sampling,
        /// each answer ends after this many tokens at the latest
        max_tokens: usize,
    },
    /// read a document ahead of the first question: prefill `text` as the start of a first user message
    Prefill {
        /// names the events
        turn: RequestId,
        /// document text
        text: String,
        /// documents that the text consists of, in this order; the library lists them
        documents: Vec<DocumentRef>,
    },
    /// count the tokens of a conversation (events: [`EngineEvent::Counted`])
    Count {
        /// names the event
        turn: RequestId,
        /// the conversation
        messages: Vec<Message>,
        /// bytes of the first user message, ascending, whose places among the tokens are wanted
        offsets: Vec<usize>,
    },
    /// logits of every position of `tokens` (events: [`EngineEvent::LogitsRows`], then [`EngineEvent::Finished`])
    Logits {
        /// names the events
        turn: RequestId,
        /// token ids
        tokens: Vec<u32>,
    },
    /// logits of the positions `n_prefix ..` of `tokens` as decoding gives them: the prefix is prefilled, each later token is
    /// a decode step (events: [`EngineEvent::Prefill`], [`EngineEvent::LogitsRows`] per step, then [`EngineEvent::Finished`])
    Score {
        /// names the events
        turn: RequestId,
        /// token ids, the same whatever is scored
        tokens: Vec<u32>,
        /// how many are prefilled
        n_prefix: usize,
    },
    /// time prefill and decode on random tokens (events: [`EngineEvent::BenchResult`], then [`EngineEvent::Finished`])
    Bench {
        /// names the events
        turn: RequestId,
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
