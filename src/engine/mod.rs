//! The engine: a worker thread that owns the compute device, the model and the KV cache.
//!
//! ```text
//! EngineCommand ─► worker ─► loaded model: encode ─► turn: prefill, decode ─► EngineEvent
//!                              device_model (buffers, bind groups) ◄─ forward (what to record) ◄─ pace (when to submit)
//! ```
//! 1. [`EngineCommand`] and [`EngineEvent`] are the whole API; a front end sees no buffer and no token id of an answer.
//! 2. One thread owns the device. 3. All queues are bounded.

mod activations;
mod batch;
mod below;
pub mod bench_table;
mod command;
mod conversation;
mod device_model;
mod error;
mod fill;
mod fit;
mod forward;
mod handle;
pub mod library;
mod links;
mod loaded;
mod measure;
mod observe;
mod pace;
mod page_map;
mod sampler;
mod saved;
mod score;
mod selective;
mod steps;
mod summary;
mod turn;
mod weigh;
mod worker;

pub use crate::kv::occupancy::{NEVER_READ, PageCopies, TierOccupancy, TierUsage};
pub use crate::kv::policy::{PolicyKind, PolicySpec, SelectionBudget, Tier};
pub use below::FolderHook;
pub use command::*;
pub use error::EngineError;
pub use fit::{DeviceFacts, Fit, Needs};
pub use handle::{Detail, EngineHandle, EnginePort, StopWatch};
pub use links::LinkPeaks;
pub use loaded::tokenizer;
pub use page_map::PageMap;
pub use saved::{DocumentRef, LibraryAction, SavedDocument, SavedState};
pub use summary::*;
pub use turn::TurnPolicy;
pub use weigh::Weighed;
pub use worker::{spawn, spawn_with};
