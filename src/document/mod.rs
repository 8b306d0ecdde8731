//! Files to text with pages, and quotations back to their place.
//!
//! ```text
//! file ──► Reader ──► Kind ──► text: here; PDF, DOCX, EPUB, HTML: in a process of its own ──► Document { text, pages }
//! Document ──► join_for_prompt ──► user turn
//! answer + documents ──► quotes_in ──► which page and bytes, or "not there"; what a list leaves out
//! documents that were read ──► library: which there are, and when they were last used
//! ```

mod answer;
mod encoding;
mod error;
mod extract;
mod folder;
mod kind;
pub mod library;
mod mentions;
mod pages;
mod quotes;
mod reader;
mod text;
mod watch;
pub mod worker;

pub use answer::quotes_in;
pub use error::DocumentError;
pub use extract::{ExtractError, Extracted, Part};
pub use folder::documents_in;
pub use kind::Kind;
pub use mentions::{MAX_LEFT_OUT, mentions_of};
pub use quotes::{Place, Quote, QuoteKind, find_quotes, locate};
pub use reader::Reader;
pub use text::{BLANK_LINE, ContentHash, Document, PageSpan, Section, join_for_prompt, join_texts};
pub use watch::Watch;
