//! The store: every fault of a disk is an input here, and no answer to it is ever a wrong page.
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
