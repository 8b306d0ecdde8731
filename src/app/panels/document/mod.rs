//! Document panels: the card of an open document, its pages, and files that are being read.

pub mod document_card;
pub mod document_view;
pub mod file_progress;
