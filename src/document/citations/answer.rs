//! What an answer takes from the documents, and what it leaves out of them.
//!
//! ```text
//! answer ──┬► between quotation marks ─────────────────► find_quotes ──► Quote, Marked
//!          └► the built-in model's: in the document's words but for its own ──► Unmarked; of a list also what is missing ──► MissingMention
//! ```

use std::borrow::Borrow;

use super::mentions::List;
use super::quotes::{Quote, QuoteKind, find_quotes, parts};
use crate::document::Document;

/// What the built-in model says in words of its own: that a document has no answer, and what it is.
const OWN_ANSWERS: [&str; 2] = ["I cannot find that", "I am the small model"];
/// How it ends the answer to a question for yes or no.
const OUTCOMES: [&str; 2] = [" So yes.", " So no."];

/// What an answer of the built-in model that is no list says in a document's words; nothing where all are its own.
fn without_own_words(answer: &str) -> Option<&str> {
    let answer = answer.trim();
    let is_own = answer.is_empty() || OWN_ANSWERS.iter().any(|own| answer.starts_with(own));
    let without_outcome = || OUTCOMES.iter().find_map(|outcome| answer.strip_suffix(outcome)).unwrap_or(answer);
    (!is_own).then(without_outcome)
}

/// [`find_quotes`]; with `whole`, an answer without quotation marks is one quotation (the built-in model answers in the
/// document's own words), or the parts of it that are found and those that are not; what it says in its own words is none.
/// A list quotes item by item, and what it leaves out comes last, as the document has it.
pub fn quotes_in(answer: &str, whole: bool, documents: &[impl Borrow<Document>]) -> Vec<Quote> {
    let mut quotes = find_quotes(answer, documents);
    if !whole || documents.is_empty() {
        return quotes;
    }
    let list = List::of(answer);
    if quotes.is_empty() {
        let passages = list.as_ref().map_or_else(|| without_own_words(answer).into_iter().collect(), |list| list.items.clone());
        let quote = |(text, found): (&str, _)| Quote { text: text.to_owned(), kind: QuoteKind::Unmarked, found };
        quotes.extend(passages.into_iter().flat_map(|passage| parts(passage, documents)).map(quote));
    }
    let left_out = list.map(|list| list.left_out(documents)).unwrap_or_default();
    quotes.extend(left_out.into_iter().filter_map(|place| {
        let text = documents.get(place.document)?.borrow().text.get(place.bytes.clone())?.to_owned();
        Some(Quote { text, kind: QuoteKind::MissingMention, found: Some(place) })
    }));
    quotes
}
