//! The engine: a worker thread that owns the compute device, the model and the KV cache.

mod command;
mod handle;
mod sampler;

pub use command::*;
pub use handle::{EngineHandle, EnginePort, StopWatch};
