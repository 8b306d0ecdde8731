//! A tokenizer as a GGUF file describes it.

/// The `tokenizer.ggml.*` metadata of a GGUF file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GgufVocab {
    /// `llama` (SentencePiece style) or `gpt2` (byte-level BPE)
    pub model: String,
    /// pre-tokenizer kind, for example `llama-bpe`
    pub pre: Option<String>,
    /// text of every token
    pub tokens: Vec<String>,
    /// SentencePiece scores, or empty
    pub scores: Vec<f32>,
    /// 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; or empty
    pub token_types: Vec<u32>,
    /// BPE merges, "left right"
    pub merges: Vec<String>,
    /// begin of sequence
    pub bos: Option<u32>,
    /// end of sequence
    pub eos: Option<u32>,
    /// end of turn
    pub eot: Option<u32>,
    /// unknown
    pub unk: Option<u32>,
    /// padding
    pub pad: Option<u32>,
    /// put `bos` first
    pub add_bos: Option<bool>,
    /// put `eos` last
    pub add_eos: Option<bool>,
    /// SentencePiece: a space goes before the text
    pub add_space_prefix: Option<bool>,
}
