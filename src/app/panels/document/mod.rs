//! Document panels: the card of a document, its pages, and files that are being opened.

pub mod document_card;
pub mod document_view;
pub mod file_progress;
