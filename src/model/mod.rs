//! Model files (untrusted bytes), quantised block formats, and architectures as data.

mod arch;
mod error;
mod file;
pub mod find;
mod fingerprint;
pub mod gguf;
mod mapped;
mod meta;
pub mod place;
pub mod plan;
pub mod quant;
mod safetensors_dir;
pub mod split;
mod synthetic;
mod tensors;

pub use error::ModelError;
pub use file::{ModelFile, TokenizerSource, read_vocab};
pub use meta::{ModelMeta, RecommendedSampling};
pub use quant::TensorType;
pub use safetensors_dir::{HfTokenizerFiles, path_name};
pub use synthetic::SHAPES;
pub use tensors::{TensorEntry, TensorInfo, TensorTable};
