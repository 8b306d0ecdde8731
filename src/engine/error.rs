//! Why the engine could not do what it was asked, as sentences for a person.

use crate::gpu::GpuError;
use crate::kv::KvError;
use crate::model::ModelError;
use crate::token::TokenError;

/// Errors of the engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// a policy with numbers that cannot be
    #[error("{0}")]
    Policy(String),
    /// nothing is loaded
    #[error("no model is loaded; choose one first")]
    NoModel,
    /// a synthetic model was asked a question
    #[error("this synthetic model has no tokenizer: it is for measuring speed only")]
    NoText,
    /// the prompt does not fit the model's window
    #[error(
        "the prompt has {tokens} tokens and the context holds {limit}; shorten the document{advice}, or open a model with a \
         longer window"
    )]
    TooLong {
        /// tokens of the prompt
        tokens: usize,
        /// tokens that fit
        limit: usize,
        /// a further choice, where there is one
        advice: String,
    },
    /// a prompt of no tokens
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
    /// the shape of a model that the kernels cannot run
    #[error("this model cannot be run: {0}")]
    Shape(String),
    /// the model file
    #[error(transparent)]
    Model(#[from] ModelError),
    /// tokenizer or template
    #[error(transparent)]
    Token(#[from] TokenError),
    /// the cache
    #[error(transparent)]
    Kv(#[from] KvError),
    /// the trace file
    #[error("the trace could not be written ({0}); choose another file with --trace")]
    Trace(String),
    /// the device
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

impl EngineError {
    /// The device was lost underneath.
    pub fn is_device_lost(&self) -> bool {
        let gpu = match self {
            EngineError::Gpu(e) | EngineError::Kv(KvError::Gpu(e)) | EngineError::Model(ModelError::Gpu(e)) => e,
            _ => return false,
        };
        matches!(gpu, GpuError::Lost(_))
    }

    /// What was asked for was at fault, not the machine.
    pub fn is_bad_input(&self) -> bool {
        match self {
            // A name that fits no adapter is a mistyped flag.
            EngineError::Gpu(GpuError::NoSuchAdapter { .. }) => true,
            EngineError::Gpu(_) | EngineError::Kv(KvError::Gpu(_)) | EngineError::Model(ModelError::Gpu(_)) => false,
            EngineError::Kv(KvError::TransferGone | KvError::NoThread(_) | KvError::NoOffloadTier) => false,
            _ => true,
        }
    }
}
