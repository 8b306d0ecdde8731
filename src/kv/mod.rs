//! The KV cache: blocks of 16 tokens of one layer and one KV head, in segments that are allocated as the context grows.

mod cache;
mod error;
mod layout;
pub mod lower;
pub mod store;

pub use cache::{KvCache, Segment};
pub use error::KvError;
pub use layout::{KvSpec, SegmentShape, plan_segments};
