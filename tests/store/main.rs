//! Page store tests: inject every disk fault, and check that no read ever returns a wrong page.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod common;
mod disk;
mod faults;
mod format;
mod io;
mod kill;
mod library;
mod pages;
mod random_ops;
