//! Engine state: the model, the running request, commands to send, and measurements of the last requests.

use std::collections::HashMap;

use crate::app::state::chat::{ChatId, DocId};
use crate::base::Tiers;
use crate::engine::{AttentionKind, DeviceFacts, EngineCommand, LoadOptions, ModelInfo, ModelSource, RequestId};

/// State of the model.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelState {
    /// not loaded
    Absent,
    /// loading
    Loading {
        /// 0 to 1
        share: f32,
        /// current activity
        what: String,
    },
    /// ready
    Ready(Box<ModelInfo>),
    /// an error: one sentence with what to do
    Failed(String),
}

/// Phase of the running request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Phase {
    /// sent, not started
    Waiting,
    /// prefilling the prompt
    Prefill {
        /// tokens in the cache
        done: usize,
        /// tokens of the prompt
        total: usize,
        /// speed so far
        tokens_per_s: f64,
    },
    /// generating
    Decode {
        /// tokens of the answer
        n: usize,
        /// speed so far
        tokens_per_s: f64,
    },
}

/// Purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// prefill documents before a question
    Prefill,
    /// the answer of an exchange
    Answer(u64),
    /// the exact check of an exchange
    Check(u64),
    /// prefill a document alone, for later chats
    PrefillAlone(DocId),
}

/// The running request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Running {
    /// its id
    pub request: RequestId,
    /// its chat
    pub chat: ChatId,
    /// its purpose
    pub task: Task,
    /// its phase
    pub phase: Phase,
    /// a stop was requested
    pub stopping: bool,
}

impl Running {
    /// True if it answers this exchange, or checks its answer.
    pub fn is_for(&self, exchange: u64) -> bool {
        matches!(self.task, Task::Answer(id) | Task::Check(id) if id == exchange)
    }
}

/// KV bytes of the tiers, and their budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvUse {
    /// bytes in each tier
    pub used: Tiers<u64>,
    /// and the caps
    pub budgets: Tiers<u64>,
}

/// Purpose of a count of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::app) enum CountTarget {
    /// a document alone
    Document(DocId),
    /// the documents of a chat, in this order, as one text
    Chat(ChatId, Vec<DocId>),
}

/// The window's side of the engine.
#[derive(Debug)]
pub struct EngineState {
    /// the model
    pub model: ModelState,
    /// the requested source
    pub source: ModelSource,
    /// its options
    pub load: LoadOptions,
    /// the device and the machine, once reported
    pub device: Option<DeviceFacts>,
    /// the running request
    pub running: Option<Running>,
    /// commands to send, oldest first
    pub outbox: Vec<EngineCommand>,
    /// a stop was requested before the request began, so it is sent again when the request begins
    pub pending_stop: bool,
    /// the chat whose question is sent when the running task has stopped for it
    pub deferred_send: Option<ChatId>,
    /// documents that were prefilled alone, with or without success
    pub prefilled_alone: Vec<DocId>,
    /// counts that are requested
    pub(in crate::app) counting: HashMap<RequestId, CountTarget>,
}

impl EngineState {
    /// No model, and `source` as the one to load.
    pub fn new(source: ModelSource, load: LoadOptions) -> EngineState {
        EngineState {
            model: ModelState::Absent,
            source,
            load,
            device: None,
            running: None,
            outbox: Vec::new(),
            pending_stop: false,
            deferred_send: None,
            prefilled_alone: Vec::new(),
            counting: HashMap::new(),
        }
    }
}

/// Measurements of the last requests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measurements {
    /// decode speed of the last answer, tokens per second
    pub last_speed: Option<f64>,
    /// speed of the last prefill, tokens per second
    pub last_prefill: Option<f64>,
    /// speed of the last read from the disk, bytes per second
    pub disk_speed: Option<f64>,
    /// kind of attention of the last answer
    pub attention: Option<AttentionKind>,
    /// attention mass that its policy kept, if measured
    pub mass_kept: Option<f64>,
    /// usage of the KV tiers, once reported
    pub kv: Option<KvUse>,
}
