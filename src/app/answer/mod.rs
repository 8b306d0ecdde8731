//! Answers: citations, exact checks and measured page attention of an answer.

pub mod citations;
mod clipboard_export;
pub mod exact_check;
pub mod message_text;
pub mod page_attention;
pub mod question_scope;
