//! The KV cache: blocks of 16 tokens of one layer and one KV head, in segments that are allocated as the context grows.

pub mod budget;
mod cache;
mod error;
mod layout;
pub mod store;

pub use cache::{KvCache, Segment};
pub use error::KvError;
pub use layout::{KvSpec, SegmentShape, plan_segments};
