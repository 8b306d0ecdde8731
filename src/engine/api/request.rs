//! Requests: messages, sampling parameters and attention mode.

/// Author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// instructions
    System,
    /// the user
    User,
    /// the model
    Assistant,
}

/// One message of a conversation, as plain text. A document is part of the first user message: its text, a blank line, the
/// question.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    /// author
    pub role: Role,
    /// text
    pub content: String,
}

/// Id of a request, in each of its events.
pub type RequestId = u64;

/// One request of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptRequest {
    /// id, unique in the batch
    pub id: RequestId,
    /// the whole conversation, oldest first
    pub messages: Vec<Message>,
}

/// Sampling parameters. `temperature == 0` is greedy and deterministic.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Sampling {
    /// 0 is greedy
    pub temperature: f32,
    /// 0 keeps all
    pub top_k: u32,
    /// 1 keeps all
    pub top_p: f32,
    /// 0 keeps all
    pub min_p: f32,
    /// 1 disables it
    pub repetition_penalty: f32,
    /// same seed, same answer
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { temperature: 0.0, top_k: 40, top_p: 0.95, min_p: 0.05, repetition_penalty: 1.0, seed: 0 }
    }
}

/// Attention mode of the decode steps of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AttentionMode {
    /// selected by the policy of the model; everything if it has none
    #[default]
    AsLoaded,
    /// same, but a few steps read everything to measure the retained attention mass
    Sampled,
    /// everything
    Exact,
}
