//! Persistent chats: storage, search, export, and recovery after a crash or corruption.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test fails by panicking")]

mod common;
mod files;
mod kill;
mod store;
mod writer;
