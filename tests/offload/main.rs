//! Offload tier tests: under tiny budgets and failing disks, every fetched page equals the page that was put.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod budgets;
mod common;
mod faults;
mod kill;
mod random_ops;
mod read_ahead;
mod scratch;
