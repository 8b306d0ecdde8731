//! Citations: quotations and mentions in an answer, located in the document's text.
//!
//! ```text
//! answer text ─► quotes: spans between quotation marks ─► page, byte range, or "not found"
//!             └► mentions: a list that claims to be complete ─► mentions that the list leaves out
//! ```

mod answer;
mod mentions;
mod quotes;

pub use answer::quotes_in;
pub use mentions::{MAX_LEFT_OUT, mentions_of};
pub use quotes::{Place, Quote, QuoteKind, find_quotes, locate};
