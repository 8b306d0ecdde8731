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
mod quant;
mod real;
#[path = "../common/reference_forward.rs"]
mod reference_forward;
mod support;
