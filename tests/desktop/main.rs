//! The program on a desktop: its package, and a check that it never opens a network socket.

// A failing helper fails its test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[cfg(target_os = "linux")]
#[path = "../common/mod.rs"]
mod common;
#[cfg(target_os = "linux")]
mod network;
mod package;
