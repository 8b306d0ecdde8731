//! The program on a desktop: its package, and that it never opens a socket to anywhere.

// A helper that cannot go on fails its test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[cfg(target_os = "linux")]
#[path = "../common/mod.rs"]
mod common;
#[cfg(target_os = "linux")]
mod network;
mod package;
