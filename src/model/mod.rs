//! Model files (untrusted bytes), quantized block formats, and architectures as data.

pub mod arch;
pub mod discovery;
mod error;
mod file;
mod fingerprint;
pub mod gguf;
pub mod gguf_split;
mod metadata;
mod mmap;
pub mod quant;
mod safetensors;
mod synthetic;
mod tensors;
pub mod weights;

pub use error::ModelError;
pub use file::{ModelFile, TokenizerSource, read_vocab};
pub use metadata::{ModelMeta, RecommendedSampling};
pub use quant::TensorType;
pub use safetensors::{HfTokenizerFiles, path_name};
pub use synthetic::SHAPES;
pub use tensors::{TensorEntry, TensorInfo, TensorTable};
