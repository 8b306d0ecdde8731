//! Argument for the model.

use std::path::PathBuf;

use clap::Args;

use crate::engine::ModelSource;

/// Model to use.
#[derive(Debug, Args, Default)]
pub struct ModelArg {
    /// GGUF file, or folder with config.json, tokenizer.json and *.safetensors [default: the built-in model]
    #[arg(long, value_name = "PATH", env = "STRATA_MODEL")]
    pub model: Option<PathBuf>,
}

impl ModelArg {
    /// The given model, or the built-in one.
    pub fn source(&self) -> ModelSource {
        match &self.model {
            Some(path) => ModelSource::Path(path.clone()),
            None => ModelSource::BuiltIn,
        }
    }
}
