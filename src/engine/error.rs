//! Errors of the engine, each with a message for the user.

use crate::gpu::GpuError;
use crate::kv::KvError;
use crate::model::ModelError;
use crate::token::TokenError;

/// Errors of the engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// invalid parameters of a policy
    #[error("{0}")]
    Policy(String),
    /// no model is loaded
    #[error("no model is loaded; choose one first")]
    NoModel,
    /// a text request to a synthetic model
    #[error("this synthetic model has no tokenizer: it is for measuring speed only")]
    NoText,
    /// the prompt exceeds the context
    #[error(
        "the prompt has {tokens} tokens and the context holds {limit}; shorten the document{advice}, or open a model with a \
         longer window"
    )]
    TooLong {
        /// tokens of the prompt
        tokens: usize,
        /// tokens that fit
        limit: usize,
        /// further advice; may be empty
        advice: String,
    },
    /// the prompt has no tokens
    #[error("there is nothing to answer: the prompt is empty")]
    Empty,
    /// a token id outside the vocabulary
    #[error("token id {id} is outside the model's vocabulary of {vocab_size}")]
    BadToken {
        /// the id
        id: u32,
        /// V
        vocab_size: usize,
    },
    /// a model shape that no kernel supports
    #[error("this model cannot be run: {0}")]
    Shape(String),
    /// error of the model file
    #[error(transparent)]
    Model(#[from] ModelError),
    /// error of the tokenizer or chat template
    #[error(transparent)]
    Token(#[from] TokenError),
    /// error of the KV cache
    #[error(transparent)]
    Kv(#[from] KvError),
    /// the trace file cannot be written
    #[error("the trace could not be written ({0}); choose another file with --trace")]
    Trace(String),
    /// error of the GPU
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

impl EngineError {
    /// True if the device was lost.
    pub fn is_device_lost(&self) -> bool {
        let gpu = match self {
            EngineError::Gpu(e) | EngineError::Kv(KvError::Gpu(e)) | EngineError::Model(ModelError::Gpu(e)) => e,
            _ => return false,
        };
        matches!(gpu, GpuError::Lost(_))
    }

    /// True if the request was at fault, not the machine.
    pub fn is_bad_input(&self) -> bool {
        match self {
            // A name that matches no adapter is a mistyped flag.
            EngineError::Gpu(GpuError::NoSuchAdapter { .. }) => true,
            EngineError::Gpu(_) | EngineError::Kv(KvError::Gpu(_)) | EngineError::Model(ModelError::Gpu(_)) => false,
            EngineError::Kv(KvError::TransferGone | KvError::NoThread(_) | KvError::NoOffloadTier) => false,
            _ => true,
        }
    }
}
