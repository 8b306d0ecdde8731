//! What an answer takes from the documents, and what it leaves out of them.
//!
//! ```text
//! answer ──┬► between quotation marks ─────────────────► find_quotes ──► Quote, Marked
//!          └► the built-in model's: in the document's words but for its own ──► Unmarked; of a list also what is missing ──► LeftOut
//! ```

use std::borrow::Borrow;

use super::Document;
use super::mentions::List;
use super::quotes::{Quote, QuoteKind, find_quotes, parts};

/// What the built-in model says in words of its own: that a document has no answer, and what it is.
const OWN_ANSWERS: [&str; 2] = ["I cannot find that", "I am the small model"];
/// How it ends the answer to a question for yes or no.
const OUTCOMES: [&str; 2] = [" So yes.", " So no."];

/// What an answer of the built-in model says in a document's words: all of a list's items, or one passage, or nothing.
fn without_own_words(answer: &str) -> Vec<&str> {
    let answer = answer.trim();
    if answer.is_empty() || OWN_ANSWERS.iter().any(|own| answer.starts_with(own)) {
        return Vec::new();
    }
    List::of(answer).map_or_else(
        || vec![OUTCOMES.iter().find_map(|outcome| answer.strip_suffix(outcome)).unwrap_or(answer)],
        |list| list.items,
    )
}

/// [`find_quotes`]; with `whole`, an answer without quotation marks is one quotation (the built-in model answers in the
/// document's own words), or the parts of it that are found and those that are not; what it says in its own words is none.
/// After these come mentions that a list leaves out, as the document has them.
pub fn quotes_in(answer: &str, whole: bool, documents: &[impl Borrow<Document>]) -> Vec<Quote> {
    let mut quotes = find_quotes(answer, documents);
    if !whole || documents.is_empty() {
        return quotes;
    }
    if quotes.is_empty() {
        let quote = |(text, found): (&str, _)| Quote { text: text.to_owned(), kind: QuoteKind::Unmarked, found };
        let passages = without_own_words(answer).into_iter();
        quotes.extend(passages.flat_map(|passage| parts(passage, documents)).map(quote));
    }
    let left_out = List::of(answer).map(|list| list.left_out(documents)).unwrap_or_default();
    quotes.extend(left_out.into_iter().filter_map(|place| {
        let text = documents.get(place.document)?.borrow().text.get(place.bytes.clone())?.to_owned();
        Some(Quote { text, kind: QuoteKind::LeftOut, found: Some(place) })
    }));
    quotes
}
