//! Citations of an answer: its quotations, and the mentions that a list misses.
//!
//! ```text
//! answer ──┬► text between quotation marks ────────────────► find_quotes ──► Quote, Marked
//!          └► the built-in model's: quoted document text ──► Unmarked; mentions that a list misses ──► MissingMention
//! ```

use std::borrow::Borrow;

use super::mentions::List;
use super::quotes::{DocumentTexts, Quote, QuoteKind, find_quotes, parts};
use crate::document::Document;

/// Beginnings of the built-in model's answers that quote no document: no answer found, and self-description.
const UNQUOTED_ANSWERS: [&str; 2] = ["I cannot find that", "I am the small model"];
/// Endings of the built-in model's answers to yes/no questions.
const OUTCOMES: [&str; 2] = [" So yes.", " So no."];

/// Quoted text of an answer of the built-in model that is no list; None if it quotes nothing.
fn without_own_words(answer: &str) -> Option<&str> {
    let answer = answer.trim();
    let is_own = answer.is_empty() || UNQUOTED_ANSWERS.iter().any(|start| answer.starts_with(start));
    let without_outcome = || OUTCOMES.iter().find_map(|outcome| answer.strip_suffix(outcome)).unwrap_or(answer);
    (!is_own).then(without_outcome)
}

/// [`find_quotes`], with more for the built-in model (`whole`), which answers in quoted document text without marks. Such an
/// answer is one quotation, or its parts with their places; text of the model's own is none. A list has one quotation per
/// item, followed by the mentions that it misses.
pub fn quotes_in(answer: &str, whole: bool, documents: &[impl Borrow<Document>]) -> Vec<Quote> {
    let mut quotes = find_quotes(answer, documents);
    if !whole || documents.is_empty() {
        return quotes;
    }
    let list = List::of(answer);
    let texts = DocumentTexts::of(documents);
    if quotes.is_empty() {
        let passages = list.as_ref().map_or_else(|| without_own_words(answer).into_iter().collect(), |list| list.items.clone());
        let quote = |(text, found): (&str, _)| Quote { text: text.to_owned(), kind: QuoteKind::Unmarked, found };
        quotes.extend(passages.into_iter().flat_map(|passage| parts(passage, &texts)).map(quote));
    }
    let missing = list.map(|list| list.missing(&texts)).unwrap_or_default();
    quotes.extend(missing.into_iter().filter_map(|place| {
        let text = documents.get(place.document)?.borrow().text.get(place.bytes.clone())?.to_owned();
        Some(Quote { text, kind: QuoteKind::MissingMention, found: Some(place) })
    }));
    quotes
}
