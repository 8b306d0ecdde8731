//! The engine: a worker thread that owns the compute device, the model and the KV cache.

mod command;

pub use command::*;
