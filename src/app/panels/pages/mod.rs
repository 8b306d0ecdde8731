//! Full pages: library, models, settings and help, in place of the conversation.

pub mod help;
pub mod library;
pub mod models;
pub mod settings;
