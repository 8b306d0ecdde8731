//! Telemetry: rings, counters, exports, and GPU timestamps.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;

mod export;
mod history;
mod hub;
mod ledger;
mod saved;
mod timestamps;
