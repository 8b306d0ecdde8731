//! Citations: quotations of an answer, each with its location in a document, or without one.
//!
//! ```text
//! finished answer ──► Search ──► [thread] ──► Citation ──► a row under the answer ──► the page, highlighted
//! ```
//! Invariant: a citation with a location is word for word in that document; see [`crate::document::find_quotes`].

use std::ops::Range;
use std::sync::Arc;

use crate::app::state::open_document::DocId;
use crate::document::{Document, QuoteKind, is_quotation_mark, quotes_in};

/// Location of a passage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLocation {
    /// in which document
    pub doc: DocId,
    /// on which page, from 0
    pub page: usize,
    /// bytes of its text
    pub bytes: Range<usize>,
}

/// A quotation and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Citation {
    /// as in the answer; of a missing mention, as in the document
    pub text: String,
    /// how the answer marks it
    pub kind: QuoteKind,
    /// None if no document of the chat has it
    pub found: Option<SourceLocation>,
}

/// Target of the link to quotation number `i` of an answer, in its Markdown.
pub fn link_of(i: usize) -> String {
    format!("strata-quote:{i}")
}

/// A part of an answer with a link around each quotation that was found, and the numbers of those.
///
/// Left as they are: quotations with signs in them that Markdown might read, or with a paragraph's end, and those within code.
pub fn linked(text: &str, quotes: &[Citation]) -> (String, Vec<usize>) {
    let mut places: Vec<(Range<usize>, usize)> = Vec::new();
    for (i, quote) in quotes.iter().enumerate().filter(|(_, q)| q.found.is_some() && q.kind != QuoteKind::MissingMention) {
        let is_plain = !quote.text.contains(['[', ']', '*', '_', '`', '<', '>', '\\', '|', '$']) && !quote.text.contains("\n\n");
        let ranges = text.match_indices(quote.text.as_str()).map(|(at, found)| at..at + found.len());
        let mut ranges = ranges.filter(|range| !is_code(text, range.start));
        let place = ranges.find_map(|range| if quote.kind == QuoteKind::Marked { with_marks(text, range) } else { Some(range) });
        let is_new = |range: &Range<usize>| places.iter().all(|(other, _)| range.end <= other.start || other.end <= range.start);
        places.extend(place.filter(|range| is_plain && is_new(range)).map(|range| (range, i)));
    }
    places.sort_by_key(|(range, _)| range.start);
    let (mut out, mut at) = (String::new(), 0);
    for (range, i) in &places {
        out.push_str(text.get(at..range.start).unwrap_or_default());
        let words = text.get(range.clone()).unwrap_or_default().replace('\n', " ");
        out.push_str(&format!("[{words}]({})", link_of(*i)));
        at = range.end;
    }
    out.push_str(text.get(at..).unwrap_or_default());
    (out, places.into_iter().map(|(_, i)| i).collect())
}

/// True if the byte is inside code.
fn is_code(text: &str, at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    !before.matches('`').count().is_multiple_of(2) || before.rsplit('\n').next().is_some_and(|line| line.starts_with("    "))
}

/// The range with the quotation marks around it. None if there are none.
fn with_marks(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let (before, after) = (text.get(..range.start)?, text.get(range.end..)?);
    // French marks have a space within.
    let (outside, following) = (before.trim_end(), after.trim_start());
    let open = outside.chars().next_back().filter(|c| is_quotation_mark(*c))?;
    let close = following.chars().next().filter(|c| is_quotation_mark(*c))?;
    Some(outside.len() - open.len_utf8()..text.len() - following.len() + close.len_utf8())
}

/// A request to look up the quotations of an answer.
#[derive(Debug, Clone)]
pub struct Search {
    /// the exchange of the answer
    pub exchange: u64,
    /// the answer
    pub answer: String,
    /// an answer without quotation marks is one quotation
    pub whole: bool,
    /// the documents to search
    pub docs: Vec<(DocId, Arc<Document>)>,
}

impl Search {
    /// Looks up every quotation. Takes one pass over the documents for each.
    pub fn run(&self) -> Vec<Citation> {
        let documents: Vec<Arc<Document>> = self.docs.iter().map(|(_, document)| document.clone()).collect();
        let quotes = quotes_in(&self.answer, self.whole, &documents);
        let cited = quotes.into_iter().map(|quote| {
            let found = quote.found.and_then(|place| {
                let (doc, _) = self.docs.get(place.document)?;
                Some(SourceLocation { doc: *doc, page: place.page, bytes: place.bytes })
            });
            Citation { text: quote.text, kind: quote.kind, found }
        });
        cited.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cited(text: &str, is_found: bool) -> Citation {
        Citation {
            text: text.into(),
            kind: QuoteKind::Marked,
            found: is_found.then_some(SourceLocation { doc: 1, page: 0, bytes: 0..1 }),
        }
    }

    #[test]
    fn found_quotations_become_links_with_their_marks() {
        let quotes = [cited("it begun here", true), cited("never said so", false), cited("a plain end", true)];
        let (text, links) = linked("He says “it begun here”, not \"never said so\", and \"a plain end\".", &quotes);
        assert_eq!(
            text,
            "He says [“it begun here”](strata-quote:0), not \"never said so\", and [\"a plain end\"](strata-quote:2)."
        );
        assert_eq!(links, [0, 2]);
    }

    #[test]
    fn quotation_in_code_or_with_signs_of_markdown_stays_as_it_is() {
        for text in ["`\"one two three\"`", "    \"one two three\"", "```\n\"one two three\"\n```", "one two three", "\"one two"]
        {
            assert_eq!(linked(text, &[cited("one two three", true)]), (text.to_owned(), Vec::new()));
        }
        let text = "\"one [two](x) three\"";
        assert_eq!(linked(text, &[cited("one [two](x) three", true)]).0, text);
    }

    #[test]
    fn passage_without_marks_is_a_link_where_it_stands() {
        let passage = |text: &str| [Citation { kind: QuoteKind::Unmarked, ..cited(text, true) }];
        let (text, links) = linked("It says that the rents\nrose twice.", &passage("the rents\nrose twice"));
        assert_eq!((text.as_str(), links), ("It says that [the rents rose twice](strata-quote:0).", vec![0]));
        let whole = "    the rents rose";
        assert_eq!(linked(whole, &passage("the rents rose")), (whole.to_owned(), Vec::new()), "it is code");
        let two = "the rents\n\nrose twice";
        assert!(linked(two, &passage(two)).1.is_empty(), "a link is within a paragraph");
    }

    #[test]
    fn marks_of_other_languages_are_part_of_the_link() {
        for (open, close) in [("« ", " »"), ("„", "“"), ("»", "«"), ("「", "」")] {
            let answer = format!("x {open}one two three{close} y");
            let (text, _) = linked(&answer, &[cited("one two three", true)]);
            assert_eq!(text, format!("x [{open}one two three{close}](strata-quote:0) y"));
        }
    }

    #[test]
    fn quotation_within_another_is_one_link() {
        let (text, links) = linked("“one two three four”", &[cited("one two three four", true), cited("two three", true)]);
        assert_eq!((text.as_str(), links), ("[“one two three four”](strata-quote:0)", vec![0]));
    }
}
