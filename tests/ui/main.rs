//! The window, driven by accessible labels against a scripted engine.

// A helper that cannot go on fails its test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod behaviour;
mod chats;
mod check;
mod dashboard;
mod documents;
mod fake;
#[path = "../model/gguf_writer.rs"]
#[allow(dead_code, reason = "the tests of model files use the rest")]
mod gguf_writer;
mod keeping;
mod looks;
mod models;
mod most_read;
mod reading;
mod recorded;
mod settings;
mod timeline;
