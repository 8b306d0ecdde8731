//! Everything that can be wrong with a model file, as sentences for the person who opened it.

use crate::base::DimsError;
use crate::gpu::GpuError;

/// A model that cannot be used, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// the operating system refused
    #[error("cannot read {path}: {source}")]
    Io {
        /// file or folder
        path: String,
        /// why
        source: std::io::Error,
    },
    /// neither a GGUF file nor a Hugging Face folder
    #[error("{path} is not a model: {found}; open a .gguf file, or a folder with config.json, tokenizer.json and *.safetensors")]
    NotAModel {
        /// what was opened
        path: String,
        /// what it looks like instead
        found: String,
    },
    /// the bytes end too early
    #[error(
        "the model file is cut short: {what} needs {needed} bytes at byte {offset}, but only {available} are left; \
         download the file again"
    )]
    Truncated {
        /// what was being read
        what: String,
        /// where
        offset: usize,
        /// bytes wanted
        needed: u64,
        /// bytes left
        available: u64,
    },
    /// the bytes contradict the format
    #[error("the model file is damaged: {what} is {got}, but it must be {must}; download the file again")]
    Damaged {
        /// which field
        what: String,
        /// what it holds
        got: String,
        /// what is allowed
        must: String,
    },
    /// a model in several files, of which some are not there
    #[error("the model has {n_parts} parts, but {missing} is missing beside this one; download it too")]
    MissingPart {
        /// how many there should be
        n_parts: usize,
        /// file names
        missing: String,
    },
    /// what is wrong with one of several files
    #[error("{part}: {source}")]
    Part {
        /// its file name
        part: String,
        /// why
        source: Box<ModelError>,
    },
    /// a GGUF version this program does not read
    #[error("GGUF version {0} is not supported (versions 2 and 3 are); convert the model again with a current llama.cpp")]
    Version(u32),
    /// a weight type without a decoder
    #[error("tensor '{tensor}' has the weight type {ty}, which is not supported; use a file with one of: {supported}")]
    TensorType {
        /// which tensor
        tensor: String,
        /// the type's name, or its number
        ty: String,
        /// names of the supported types
        supported: String,
    },
    /// an architecture without a plan
    #[error("the architecture '{name}' is not supported; supported are: {supported}")]
    Architecture {
        /// what the file says
        name: String,
        /// what would work
        supported: String,
    },
    /// a metadata key that must be there
    #[error("the model's {place} has no '{key}'; the file is incomplete, download or convert it again")]
    MissingKey {
        /// `GGUF metadata` or `config.json`
        place: &'static str,
        /// which key
        key: String,
    },
    /// a metadata value that makes no sense
    #[error("the model's {place} says {key} = {got}, but it must be {must}")]
    BadValue {
        /// `GGUF metadata` or `config.json`
        place: &'static str,
        /// which key
        key: String,
        /// the value
        got: String,
        /// what is allowed
        must: String,
    },
    /// dimensions that no real model has
    #[error(transparent)]
    Dims(#[from] DimsError),
    /// a tensor that the architecture needs
    #[error("the model has no tensor '{0}', which its architecture needs; the file is incomplete, download or convert it again")]
    MissingTensor(String),
    /// a tensor whose shape contradicts the metadata
    #[error("tensor '{tensor}' has the shape {got}, but the model's metadata asks for {expected}")]
    Shape {
        /// which tensor
        tensor: String,
        /// from the metadata, outermost dimension first
        expected: String,
        /// in the file, outermost dimension first
        got: String,
    },
    /// a known feature that is not built yet
    #[error("{0}")]
    Unsupported(String),
    /// a folder whose files do not fit together
    #[error("{path}: {problem}")]
    Folder {
        /// which file or folder
        path: String,
        /// what is wrong and what to do
        problem: String,
    },
    /// nothing to turn text into tokens with
    #[error("the model has no tokenizer: {0}")]
    NoTokenizer(String),
    /// the user stopped it
    #[error("loading was stopped")]
    Cancelled,
    /// the device said no
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// bytes and values that do not belong together (a caller's mistake)
    #[error("{op}: {got} given, {expected} expected")]
    Sizes {
        /// which function
        op: &'static str,
        /// what it got
        got: String,
        /// what it needs
        expected: String,
    },
}

impl ModelError {
    pub(crate) fn damaged(what: impl Into<String>, got: impl ToString, must: impl Into<String>) -> ModelError {
        ModelError::Damaged { what: what.into(), got: got.to_string(), must: must.into() }
    }
}
