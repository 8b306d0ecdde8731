//! The window, driven by accessible labels against a scripted engine.

// A helper that cannot go on fails its test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod behaviour;
mod chats;
mod check;
mod dashboard;
mod documents;
mod fake;
mod looks;
mod reading;
mod recorded;
mod settings;
mod timeline;
