//! Tokenizers and chat templates against other implementations.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails here")]

mod golden;
mod support;
mod templates;
mod text;
