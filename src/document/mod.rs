//! Files to text with pages, and quotations back to their place.
//!
//! ```text
//! file ──► Reader ──► FileFormat ──► text: here; PDF, DOCX, EPUB, HTML: in a process of its own ──► Document { text, pages }
//! Document ──► join_for_prompt ──► user turn
//! answer + documents ──► quotes_in ──► which page and bytes, or "not there"; what a list leaves out
//! documents that were read ──► library: which there are, and when they were last used
//! ```

pub mod catalog;
pub mod citations;
mod encoding;
mod error;
mod extract;
mod file_format;
mod folder;
mod ingest;
mod pages;
mod progress;
pub mod sandbox;
mod text;

pub use citations::quotes_in;
pub use citations::{MAX_LEFT_OUT, mentions_of};
pub use citations::{Place, Quote, QuoteKind, find_quotes, locate};
pub use error::DocumentError;
pub use extract::{ExtractError, Extracted, Part};
pub use file_format::FileFormat;
pub use folder::documents_in;
pub use ingest::Reader;
pub use progress::Watch;
pub use text::{BLANK_LINE, ContentHash, Document, PageSpan, Section, join_for_prompt, join_texts};
