//! Quotations of an answer, each with the place where it stands in a document, or none.
//!
//! ```text
//! finished answer ──► Search ──► [thread] ──► Cited ──► a row under the answer ──► the page, highlighted
//! ```
//! Invariant: what is shown as found stands there word for word; see [`crate::document::find_quotes`].

use std::ops::Range;
use std::sync::Arc;

use super::chat::DocId;
use crate::document::{Document, quotes_in};

/// Where a passage stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// in which document
    pub doc: DocId,
    /// on which page, from 0
    pub page: usize,
    /// bytes of its text
    pub bytes: Range<usize>,
}

/// A quotation and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cited {
    /// as the answer has it
    pub text: String,
    /// none: it is in no document of the chat
    pub found: Option<Spot>,
}

/// Quotations that are to be looked up.
#[derive(Debug, Clone)]
pub struct Search {
    /// whose answer it is
    pub exchange: u64,
    /// the answer
    pub answer: String,
    /// an answer without quotation marks is one quotation
    pub whole: bool,
    /// where they may stand
    pub docs: Vec<(DocId, Arc<Document>)>,
}

impl Search {
    /// Looks every quotation up; takes as long as reading the documents once for each.
    pub fn run(&self) -> Vec<Cited> {
        let documents: Vec<Arc<Document>> = self.docs.iter().map(|(_, document)| document.clone()).collect();
        let quotes = quotes_in(&self.answer, self.whole, &documents);
        let cited = quotes.into_iter().map(|quote| {
            let found = quote.found.and_then(|place| {
                let (doc, _) = self.docs.get(place.document)?;
                Some(Spot { doc: *doc, page: place.page, bytes: place.bytes })
            });
            Cited { text: quote.text, found }
        });
        cited.collect()
    }
}
