//! Everything that can be wrong with a tokenizer or a chat template, one sentence each.

use std::path::PathBuf;

/// Why a tokenizer could not be built or used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// the model file names no tokens
    #[error("the model file carries no tokenizer (`tokenizer.ggml.tokens` is missing or empty); use a GGUF that has one")]
    NoTokens,
    /// more tokens, merges or bytes than any real vocabulary
    #[error("the tokenizer has {got} {what}, and {max} is the most that is accepted; the file is damaged")]
    TooMany {
        /// what was counted
        what: &'static str,
        /// in the file
        got: usize,
        /// limit
        max: usize,
    },
    /// a per-token array of the wrong length
    #[error("the tokenizer has {tokens} tokens but {got} {what}; the file is damaged")]
    Mismatch {
        /// which array
        what: &'static str,
        /// its length
        got: usize,
        /// number of tokens
        tokens: usize,
    },
    /// a special id outside the vocabulary
    #[error("the tokenizer's {what} id is {id}, but there are only {vocab_size} tokens; the file is damaged")]
    IdOutOfRange {
        /// `bos`, `eos`, ...
        what: &'static str,
        /// in the file
        id: u32,
        /// number of tokens
        vocab_size: usize,
    },
    /// a merge that is not two known tokens
    #[error("merge {index} of the tokenizer, '{merge}', does not join two tokens into a third; the file is damaged")]
    BadMerge {
        /// position in the list
        index: usize,
        /// as written
        merge: String,
    },
    /// a score that is no number
    #[error("the score of token {index} is not a number; the tokenizer is damaged")]
    BadScore {
        /// token id
        index: usize,
    },
    /// a kind of tokenizer that none of the supported architectures uses
    #[error(
        "tokenizers of kind '{kind}' are not supported; use a model with a byte-level BPE (`gpt2`) or a SentencePiece \
         (`llama`) tokenizer"
    )]
    UnsupportedKind {
        /// as the file names it
        kind: String,
    },
    /// a file that could not be read
    #[error("cannot read {path}: {reason}")]
    Unreadable {
        /// which
        path: PathBuf,
        /// the system's words
        reason: String,
    },
    /// a file that is not what it should be
    #[error("{path} is not a usable tokenizer file: {reason}; download it again")]
    BadFile {
        /// which
        path: PathBuf,
        /// what was wrong
        reason: String,
    },
    /// an id outside the vocabulary
    #[error("token id {id} does not exist; the vocabulary has {vocab_size} tokens")]
    NoSuchToken {
        /// asked for
        id: u32,
        /// number of tokens
        vocab_size: usize,
    },
    /// the tokenizer failed on a text
    #[error("the text could not be tokenized: {reason}")]
    Encode {
        /// the library's words
        reason: String,
    },
    /// a chat template that is no valid Jinja
    #[error("the model's chat template cannot be read: {reason}")]
    BadTemplate {
        /// what and where
        reason: String,
    },
    /// a chat template that refuses these messages (`raise_exception`) or fails on them
    #[error("the model's chat template does not accept this conversation: {reason}")]
    Template {
        /// the template's own words, or what failed
        reason: String,
    },
}
