//! Model errors. Each message names the fault, then the remedy.

use crate::base::DimsError;
use crate::gpu::GpuError;

/// Error of a model that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// an I/O error of the operating system
    #[error("could not read {path}: {source}")]
    Io {
        /// file or folder
        path: String,
        /// cause
        source: std::io::Error,
    },
    /// neither a GGUF file nor a Hugging Face folder
    #[error("{path} is not a model: {found}. Open a .gguf file, or a folder with config.json, tokenizer.json and *.safetensors")]
    NotAModel {
        /// path that was opened
        path: String,
        /// what the path is instead
        found: String,
    },
    /// the file ends too early
    #[error(
        "the model file is truncated: {what} needs {needed} bytes at byte {offset}, but only {available} are left. \
         Download the file again"
    )]
    Truncated {
        /// item that was being read
        what: String,
        /// its position, bytes
        offset: usize,
        /// bytes it needs
        needed: u64,
        /// bytes left in the file
        available: u64,
    },
    /// a field contradicts the format
    #[error("the model file is corrupt: {what} is {got}, but it must be {must}. Download the file again")]
    Corrupt {
        /// name of the field
        what: String,
        /// its value
        got: String,
        /// allowed values
        must: String,
    },
    /// parts of a split model are missing
    #[error("the model has {n_parts} parts, but {missing} is missing from their folder. Download it too")]
    MissingPart {
        /// number of parts
        n_parts: usize,
        /// names of the missing files
        missing: String,
    },
    /// an error in one part of a split model
    #[error("{part}: {source}")]
    Part {
        /// file name of the part
        part: String,
        /// cause
        source: Box<ModelError>,
    },
    /// an unsupported version of GGUF
    #[error("GGUF version {0} is not supported, only versions 2 and 3 are. Convert the model again with a current llama.cpp")]
    Version(u32),
    /// a tensor type without a decoder
    #[error("tensor '{tensor}' has the weight type {ty}, which is not supported. Use a file with one of: {supported}")]
    TensorType {
        /// name of the tensor
        tensor: String,
        /// name of the type, or its number
        ty: String,
        /// names of the supported types
        supported: String,
    },
    /// an unsupported architecture
    #[error("the architecture '{name}' is not supported. Choose a model with one of: {supported}")]
    Architecture {
        /// architecture in the file
        name: String,
        /// names of the supported ones
        supported: String,
    },
    /// a required metadata key is missing
    #[error("the model's {place} has no '{key}', so it is incomplete. Download or convert it again")]
    MissingKey {
        /// `GGUF metadata` or `config.json`
        place: &'static str,
        /// name of the key
        key: String,
    },
    /// a metadata value is not allowed
    #[error("the model's {place} has {key} = {got}, but it must be {must}. Choose another file of this model")]
    BadValue {
        /// `GGUF metadata` or `config.json`
        place: &'static str,
        /// name of the key
        key: String,
        /// its value
        got: String,
        /// allowed values
        must: String,
    },
    /// dimensions outside of the limits
    #[error(transparent)]
    Dims(#[from] DimsError),
    /// a required tensor is missing
    #[error("the model has no tensor '{0}', which its architecture needs. Download or convert it again")]
    MissingTensor(String),
    /// a tensor's shape contradicts the metadata
    #[error(
        "tensor '{tensor}' has the shape {got}, but the model's metadata requires {expected}. Download or convert the file again"
    )]
    Shape {
        /// name of the tensor
        tensor: String,
        /// shape by the metadata, outermost dimension first
        expected: String,
        /// shape in the file, outermost dimension first
        got: String,
    },
    /// an unsupported feature, as a sentence
    #[error("{0}")]
    Unsupported(String),
    /// files of a folder contradict each other
    #[error("{path}: {problem}")]
    Folder {
        /// path of the file or folder
        path: String,
        /// fault and remedy
        problem: String,
    },
    /// the model has no tokenizer
    #[error("the model has no tokenizer: {0}")]
    NoTokenizer(String),
    /// no thread could be started
    #[error("a thread that loads weights could not be started ({0}); close other programs and try again")]
    NoThread(String),
    /// the user cancelled loading
    #[error("loading was cancelled")]
    Cancelled,
    /// an error of the GPU
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// lengths that do not match (a bug of the caller)
    #[error("{op} got {got}, but expects {expected}. Please report this bug")]
    Sizes {
        /// name of the function
        op: &'static str,
        /// lengths given
        got: String,
        /// lengths expected
        expected: String,
    },
}

impl ModelError {
    pub(crate) fn corrupt(what: impl Into<String>, got: impl ToString, must: impl Into<String>) -> ModelError {
        ModelError::Corrupt { what: what.into(), got: got.to_string(), must: must.into() }
    }
}
