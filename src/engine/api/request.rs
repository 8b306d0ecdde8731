//! What is said, and how the next token of an answer is chosen.

/// Who said a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// instructions
    System,
    /// the person
    User,
    /// the model
    Assistant,
}

/// One message of a conversation, as plain text. A document is part of the first user message:
/// its text, a blank line, the question.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    /// who
    pub role: Role,
    /// what
    pub content: String,
}

/// Names one request, so that its events can be told from those of another.
pub type RequestId = u64;

/// One of several questions that are answered at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptRequest {
    /// names its events; no other question has the same
    pub turn: RequestId,
    /// the whole conversation, oldest first
    pub messages: Vec<Message>,
}

/// How the next token is chosen. `temperature == 0` is greedy and deterministic.
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
    /// 1 changes nothing
    pub repetition_penalty: f32,
    /// same seed, same answer
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { temperature: 0.0, top_k: 40, top_p: 0.95, min_p: 0.05, repetition_penalty: 1.0, seed: 0 }
    }
}

/// What the decode steps of one turn read of the context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AttentionMode {
    /// what the policy that the model was loaded with chooses; everything where there is none
    #[default]
    AsLoaded,
    /// the same; a few steps, which read everything, measure the attention that it kept
    Sampled,
    /// everything
    Exact,
}
