//! The engine: a worker thread that owns the compute device, the model and the KV cache.

mod command;
mod handle;
mod sampler;

pub use command::*;
pub use handle::{EngineHandle, EnginePort, StopWatch};

/// Starts the worker. `wake` is called after every event.
pub fn spawn(wake: impl Fn() + Send + 'static) -> EngineHandle {
    let (handle, port) = EngineHandle::pair(wake);
    std::thread::spawn(move || {
        while let Ok(command) = port.commands.recv() {
            if let EngineCommand::LoadModel { .. } = command {
                port.emit(EngineEvent::ModelFailed("this build has no engine".to_owned()));
            }
        }
    });
    handle
}

/// The tokenizer of a model, without loading its weights.
///
/// # Errors
/// A model or a tokenizer that cannot be read.
pub fn tokenizer(source: &ModelSource) -> Result<crate::token::Tokenizer, crate::model::ModelError> {
    use crate::model::{ModelError, ModelFile, TokenizerSource};
    let none = |why: &str| ModelError::NoTokenizer(why.to_owned());
    let ModelSource::Path(path) = source else { return Err(none("this build has no engine")) };
    match ModelFile::open(path)?.tokenizer()? {
        TokenizerSource::Gguf(vocab) => {
            crate::token::Tokenizer::from_gguf(&vocab).map_err(|e| ModelError::NoTokenizer(e.to_string()))
        }
        TokenizerSource::HuggingFace(_) => Err(none("a folder is read as a whole")),
    }
}
