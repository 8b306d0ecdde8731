//! Citations: quotations and mentions in an answer, located in the documents' text.
//!
//! ```text
//! answer text ─► quotes: spans between quotation marks ─► page, byte range, or "not found"
//!             └► mentions: a list that claims to be complete ─► mentions that it misses
//! ```

mod answer;
mod marks;
mod mentions;
mod quotes;

pub use answer::quotes_in;
pub use marks::is_quotation_mark;
pub use mentions::{MAX_MISSING_MENTIONS, mentions_of};
pub use quotes::{PassageLocation, Quote, QuoteKind, find_quotes, locate};
