//! Viewer: the page of a document on screen, the highlighted passage, and the search. A search reads the text once.

use std::ops::Range;

use crate::app::answer::citations::SourceLocation;
use crate::app::state::open_document::DocId;
use crate::document::{Document, FoldedText};

/// The page on screen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Viewer {
    /// its document
    pub doc: DocId,
    /// from 0
    pub page: usize,
    /// bytes of the text that are highlighted
    pub marked: Option<Range<usize>>,
    /// text in the search field
    pub search: String,
    /// which match is marked, from 1, and how many there are
    pub matches: Option<(usize, usize)>,
    /// scroll to the highlighted passage
    pub is_new: bool,
    /// the answer whose attended pages are listed; None for the last one
    pub answer: Option<u64>,
}

impl Viewer {
    /// Shows the first page.
    pub fn of(doc: DocId) -> Viewer {
        Viewer { doc, ..Viewer::default() }
    }

    /// Shows a passage.
    pub fn at(spot: SourceLocation) -> Viewer {
        Viewer { doc: spot.doc, page: spot.page, marked: Some(spot.bytes), is_new: true, ..Viewer::default() }
    }

    /// Goes to a page.
    pub fn go_to_page(&mut self, page: usize) {
        self.page = page;
        self.is_new = false;
    }

    /// Highlights the next match, or the one before; wraps at the ends.
    pub fn find(&mut self, document: &Document, backwards: bool) {
        let found = matches(&document.text, &self.search);
        let here = match &self.marked {
            Some(marked) => marked.start,
            None => document.pages.get(self.page).map_or(0, |page| page.first_byte),
        };
        let is_marked = |range: &Range<usize>| self.marked.as_ref() == Some(range);
        let next = match backwards {
            false => found.iter().position(|range| range.start >= here && !is_marked(range)).unwrap_or(0),
            true => found.iter().rposition(|range| range.start < here).unwrap_or(found.len().saturating_sub(1)),
        };
        self.matches = Some((if found.is_empty() { 0 } else { next + 1 }, found.len()));
        if let Some(range) = found.get(next) {
            self.page = document.page_of(range.start);
            self.marked = Some(range.clone());
            self.is_new = true;
        }
    }
}

/// Matches of the words, in any case and any spelling.
fn matches(text: &str, words: &str) -> Vec<Range<usize>> {
    let (text, words) = (FoldedText::ignoring_case(text), FoldedText::ignoring_case(words.trim()));
    let mut covered_until = 0;
    let is_new = |range: &Range<usize>| {
        let is_new = range.start >= covered_until;
        covered_until = if is_new { range.end } else { covered_until };
        is_new
    };
    text.find(&words).filter(is_new).map(|range| text.original_range(&range)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        Document::from_bytes("a.txt", "The lamp.\u{0C}A Lamp and\nanother lamp.\u{0C}Nothing.".as_bytes()).unwrap()
    }

    #[test]
    fn search_goes_from_match_to_match_and_around() {
        let (document, mut viewer) = (document(), Viewer { search: "lamp ".into(), ..Viewer::default() });
        let mut seen = Vec::new();
        for _ in 0..4 {
            viewer.find(&document, false);
            seen.push((viewer.page, viewer.matches.unwrap()));
        }
        assert_eq!(seen, [(0, (1, 3)), (1, (2, 3)), (1, (3, 3)), (0, (1, 3))]);
        viewer.find(&document, true);
        assert_eq!((viewer.page, viewer.matches), (1, Some((3, 3))));
        viewer.search = "a LAMP and another".into();
        viewer.find(&document, false);
        assert_eq!(viewer.matches, Some((1, 1)), "over a line end");
        viewer.search = "absent".into();
        viewer.find(&document, false);
        assert_eq!(viewer.matches, Some((0, 0)));
    }
}
