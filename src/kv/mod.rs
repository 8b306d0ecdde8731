//! The KV cache in three tiers: VRAM, RAM and the disk.
//!
//! ```text
//! cache: tail, pool, slots (VRAM) ◄─► transfer (a thread) ◄─► lower: RAM, and the disk through store
//!   ▲ layout: what the budget is spent on   ▲ residency: which page has a frame
//! bounds of pages ─► policy, tree: which tokens attention reads ─► pipeline: how many of them travel packed
//! ```
//! 1. A page is 64 tokens of one layer, all KV heads.
//! 2. Only `residency` and [`lower`] change where a page is; it stays readable where it was until the copy is complete.
//! 3. Attention over the whole context reads every page wherever it is; a [`policy`] makes it read those that matter.

mod bandwidth_limit;
pub mod budget;
mod cpu_scores;
mod error;
mod layout;
pub mod occupancy;
pub mod offload;
pub mod policy;
mod quantize_page;
mod residency;
pub mod store;
mod transfer;
mod vram;

pub use error::KvError;
pub use layout::{BLOCKS_PER_PAGE, KvSpec, SegmentShape, VramPlan, plan_pool};
pub use quantize_page::quantize_page;
pub use transfer::{OffloadReport, PageReadback};
pub use vram::{BlockTable, CodecRates, PagedBuffer, RamKeys, SelectedStream, StagedBatch, StreamCost, VramCache};
