//! Chats that outlive the window: what is kept, found, exported, and left after a kill or a damaged file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test fails by panicking")]

mod common;
mod files;
mod kill;
mod store;
mod writer;
