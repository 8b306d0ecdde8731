//! Errors of tokenizers and chat templates. Each message names the fault and the remedy.

use std::path::PathBuf;

/// Error of building or using a tokenizer.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// the model file has no tokens
    #[error("the model file has no tokenizer (`tokenizer.ggml.tokens` is missing or empty). Use a GGUF file that has one")]
    NoTokens,
    /// more tokens, merges or bytes than the limits allow
    #[error("the tokenizer has {got} {what}, but at most {max} are supported. Download the file again")]
    TooMany {
        /// items that were counted
        what: &'static str,
        /// number in the file
        got: usize,
        /// limit
        max: usize,
    },
    /// an array of one entry per token has the wrong length
    #[error("the tokenizer has {tokens} tokens but {got} {what}, so the file is corrupt. Download it again")]
    Mismatch {
        /// name of the array
        what: &'static str,
        /// its length
        got: usize,
        /// number of tokens
        tokens: usize,
    },
    /// a special id is outside the vocabulary
    #[error("the tokenizer's {what} id is {id}, but there are only {vocab_size} tokens. Download the file again")]
    IdOutOfRange {
        /// `bos`, `eos`, ...
        what: &'static str,
        /// id in the file
        id: u32,
        /// number of tokens
        vocab_size: usize,
    },
    /// no supported architecture uses this kind of tokenizer
    #[error(
        "tokenizers of kind '{kind}' are not supported. Use a model with a byte-level BPE (`gpt2`) or a SentencePiece \
         (`llama`) tokenizer"
    )]
    UnsupportedKind {
        /// kind in the file
        kind: String,
    },
    /// a file cannot be read
    #[error("{path} could not be read: {reason}")]
    Unreadable {
        /// path of the file
        path: PathBuf,
        /// cause
        reason: String,
    },
    /// a file is not a valid tokenizer file
    #[error("{path} is not a usable tokenizer file: {reason}. Download it again")]
    BadFile {
        /// path of the file
        path: PathBuf,
        /// fault
        reason: String,
    },
    /// an id is outside the vocabulary
    #[error("token id {id} does not exist, because the vocabulary has {vocab_size} tokens")]
    NoSuchToken {
        /// requested id
        id: u32,
        /// number of tokens
        vocab_size: usize,
    },
    /// the tokenizer failed on a text
    #[error("the text could not be tokenized: {reason}")]
    Encode {
        /// message of the library
        reason: String,
    },
    /// a chat template is not valid Jinja
    #[error("the model's chat template is invalid: {reason}")]
    BadTemplate {
        /// fault and line
        reason: String,
    },
    /// a chat template rejects these messages (`raise_exception`), or fails on them
    #[error("the model's chat template does not accept this conversation: {reason}")]
    Template {
        /// message of the template, or the fault
        reason: String,
    },
}
