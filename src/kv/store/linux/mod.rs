//! What is Linux's alone: one io_uring on one thread, direct files, reserved blocks. Its portable twin is [`threads`].
//!
//! [`threads`]: crate::kv::store::threads

mod files;
mod registration;
mod ring;

pub use files::{allocate, free_bytes, open_direct};
pub use ring::Ring;
