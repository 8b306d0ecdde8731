//! Engine: a worker thread that owns the compute device, the model and the KV cache.
//!
//! ```text
//! EngineCommand ─► worker ─► runner: encode ─► sequence: prefill, decode ─► EngineEvent
//!                              gpu_model (buffers, bind groups) ◄─ forward (recording) ◄─ submit_pacer (submits)
//! ```
//! 1. API: [`EngineCommand`] and [`EngineEvent`], nothing else. Neither contains GPU buffers or token ids of an answer.
//! 2. One thread owns the device. 3. All queues are bounded.

pub mod api;
mod context;
mod error;
mod handle;
mod link_bandwidth;
pub mod measure;
mod memory_fit;
mod observe;
mod runner;
mod sampler;
mod scheduler;
mod selection;
mod sequence;
mod worker;

pub use crate::kv::occupancy::{NEVER_READ, PageCopies, TierOccupancy, TierUsage};
pub use crate::kv::policy::{PolicyKind, PolicySpec, SelectionBudget, Tier};
pub use api::*;
pub use context::kv_storage::FolderHook;
pub use context::saved_documents;
pub use error::EngineError;
pub use handle::{CancelFlag, Detail, EngineHandle, EnginePort};
pub use memory_fit::{MemoryFit, MemoryNeeds};
pub use runner::tokenizer;
pub use worker::{spawn, spawn_with};
