//! Window tests by accessible labels, against a scripted engine.

// A failing helper fails its test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod chats;
mod dashboard;
mod document_view;
mod documents;
mod exact_check;
#[path = "../model/gguf_writer.rs"]
#[allow(dead_code, reason = "the tests of model files use the rest")]
mod gguf_writer;
mod interaction;
mod mock_engine;
mod models;
mod notices;
mod page_attention;
mod persistence;
mod recorded;
mod settings;
mod several_documents;
mod snapshots;
mod timeline;
