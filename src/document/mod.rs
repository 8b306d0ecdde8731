//! Files to text with pages, and quotations back to their place.
//!
//! ```text
//! file ──► Document { text, pages, content hash } ──► join_for_prompt ──► user turn
//! answer + documents ──► find_quotes ──► which page and bytes, or "not there"
//! documents that were read ──► library: which there are, and when they were last used
//! ```

mod error;
pub mod library;
mod quotes;
mod text;

pub use error::DocumentError;
pub use quotes::{Place, Quote, find_quotes, locate};
pub use text::{BLANK_LINE, ContentHash, Document, PageSpan, join_for_prompt, join_texts};
