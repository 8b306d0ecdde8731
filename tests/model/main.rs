//! Model files: parsing, weight types, and plans.

#![allow(clippy::unwrap_used)]

mod convert;
mod discovery;
mod fingerprint;
mod folder;
mod forward;
mod gguf;
mod gguf_writer;
mod hf;
mod max_allocation;
#[path = "../common/plain_forward.rs"]
mod plain_forward;
mod quant;
mod real;
mod support;
