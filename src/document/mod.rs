//! Documents: files to text with pages, and quotations back to their location.
//!
//! ```text
//! file ──► Reader ──► FileFormat ──► text: in this process; PDF, DOCX, EPUB, HTML: sandboxed ──► Document { text, pages }
//! Document ──► join_for_prompt ──► user turn
//! answer + documents ──► quotes_in ──► page and byte range, or "not found"; mentions that a list misses
//! saved documents ──► catalog: names, models, last use
//! ```

pub mod catalog;
mod characters;
pub mod citations;
mod encoding;
mod error;
mod extract;
mod file_format;
mod folded_text;
mod folder;
mod ingest;
mod names;
mod pages;
mod progress;
pub mod sandbox;
mod text;

pub use citations::quotes_in;
pub use citations::{MAX_MISSING_MENTIONS, is_quotation_mark, mentions_of};
pub use citations::{PassageLocation, Quote, QuoteKind, find_quotes, locate};
pub use error::DocumentError;
pub use extract::{ExtractError, Extracted, Part};
pub use file_format::FileFormat;
pub use folded_text::FoldedText;
pub use folder::documents_in;
pub use ingest::Reader;
pub use names::distinct_names;
pub use pages::PageSpan;
pub use progress::Progress;
pub use text::{BLANK_LINE, ContentHash, Document, Section, join_for_prompt, join_texts};
