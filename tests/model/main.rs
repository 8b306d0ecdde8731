//! Model files: parsing, weight types, and plans.

#![allow(clippy::unwrap_used)]

mod forward;
mod hf;
#[path = "../common/plain_forward.rs"]
mod plain_forward;
mod quant;
mod support;
