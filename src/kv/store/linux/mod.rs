//! Linux I/O: one io_uring on one thread, direct files, preallocated blocks. Its portable fallback is [`thread_pool`].
//!
//! [`thread_pool`]: crate::kv::store::thread_pool

mod files;
mod registration;
mod ring;

pub use files::{allocate, free_bytes, open_direct};
pub use ring::Ring;
