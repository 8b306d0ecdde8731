//! Finds the quotations of an answer in the documents, or says that they are not there.
//!
//! ```text
//! He says "the harbour was built" ──► Quote { text, found: document, page, bytes }
//! ```
//! Invariants: 1. what is found stands in the document word for word, in order, with nothing between but white space;
//! 2. no word or number is cut: "is 4821" is not found in "is 48210", nor "toxic" in "non-toxic"; 3. the bytes found
//! are the quoted words and nothing around them.
//! A comma at the end of a quotation belongs to the sentence around it and may be missing in the document.

use std::ops::Range;

use super::Document;

/// Fewest words of a quotation: shorter ones are names and titles.
const MIN_WORDS: usize = 3;

/// Where a passage stands.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Place {
    /// which document, from 0
    pub document: usize,
    /// which page, from 0
    pub page: usize,
    /// bytes of [`Document::text`]
    pub bytes: Range<usize>,
}

/// A quotation in an answer.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Quote {
    /// without its marks
    pub text: String,
    /// where it stands; None says that it is in no document
    pub found: Option<Place>,
}

/// The quotations of `answer` (`"…"` or `“…”`, three words and more), each looked up in `documents`.
pub fn find_quotes(answer: &str, documents: &[Document]) -> Vec<Quote> {
    let quoted = quoted_passages(answer).into_iter();
    quoted.map(|text| Quote { text: text.to_owned(), found: locate(text, documents) }).collect()
}

/// Where `passage` stands: as it is, or else with other white space between its words.
pub fn locate(passage: &str, documents: &[Document]) -> Option<Place> {
    let passage = passage.trim();
    if !passage.contains(char::is_alphanumeric) {
        return None;
    }
    let without_comma = passage.strip_suffix(',').map(str::trim_end);
    std::iter::once(passage).chain(without_comma).find_map(|passage| {
        let place = |(document, bytes): (usize, Range<usize>)| {
            let page = documents.get(document)?.page_of(bytes.start);
            Some(Place { document, page, bytes })
        };
        let exact = |(i, d): (usize, &Document)| Some((i, find_exact(passage, &d.text)?));
        let spaced = |(i, d): (usize, &Document)| Some((i, find_words(passage, &d.text)?));
        let found = documents.iter().enumerate().find_map(exact).or_else(|| documents.iter().enumerate().find_map(spaced));
        found.and_then(place)
    })
}

fn find_exact(passage: &str, text: &str) -> Option<Range<usize>> {
    if passage.is_empty() {
        return None;
    }
    let mut matches = text.match_indices(passage).map(|(at, found)| at..at + found.len());
    matches.find(|range| is_whole(text, range))
}

fn find_words(passage: &str, text: &str) -> Option<Range<usize>> {
    let mut words = passage.split_whitespace();
    let first = words.next()?;
    let rest: Vec<&str> = words.collect();
    let mut starts = text.match_indices(first).map(|(at, _)| at);
    starts.find_map(|start| {
        let mut end = start + first.len();
        for word in &rest {
            let after = text.get(end..)?;
            let gap = after.len() - after.trim_start().len();
            if gap == 0 || !after.get(gap..)?.starts_with(word) {
                return None;
            }
            end += gap + word.len();
        }
        Some(start..end).filter(|range| is_whole(text, range))
    })
}

/// The range cuts no word and no number.
fn is_whole(text: &str, range: &Range<usize>) -> bool {
    let (Some(before), Some(inside), Some(after)) = (text.get(..range.start), text.get(range.clone()), text.get(range.end..))
    else {
        return false;
    };
    let first = inside.chars().next();
    let last = inside.chars().next_back();
    let mut outwards = before.chars().rev();
    let mut onwards = after.chars();
    let left = [outwards.next(), outwards.next()];
    let right = [onwards.next(), onwards.next()];
    // A minus sign is part of the number that follows it.
    let signed = matches!(left[0], Some('-' | '\u{2212}')) && first.is_some_and(|c| c.is_ascii_digit());
    !signed && !joins(first, left) && !joins(last, right)
}

/// A word goes on from `edge`, the last character inside, over the two next ones outside.
fn joins(edge: Option<char>, outside: [Option<char>; 2]) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let [next, beyond] = outside;
    match next {
        Some('\u{300}'..='\u{36F}') => true,
        Some('-' | '\u{2010}' | '\u{2011}' | '\'' | '\u{2019}') => is_word(edge) && is_word(beyond),
        Some('.' | ',' | ':' | '/') => is_digit(edge) && is_digit(beyond),
        _ => is_word(edge) && is_word(next),
    }
}

/// What stands between quotation marks inside one paragraph, and has enough words.
fn quoted_passages(answer: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some((start, open)) = next_opening(answer, at) {
        let inside = start + open.len_utf8();
        match closing(answer, inside, open) {
            Some(end) => {
                let passage = answer.get(inside..end).unwrap_or_default().trim();
                let is_word = |w: &&str| w.contains(char::is_alphanumeric);
                if passage.split_whitespace().filter(is_word).count() >= MIN_WORDS {
                    out.push(passage);
                }
                at = end + if open == '"' { 1 } else { '\u{201D}'.len_utf8() };
            }
            None => at = inside,
        }
    }
    out
}

/// The next mark that can open a quotation.
fn next_opening(answer: &str, from: usize) -> Option<(usize, char)> {
    let rest = answer.get(from..)?;
    rest.char_indices().map(|(at, c)| (from + at, c)).find(|&(at, c)| match c {
        '\u{201C}' => true,
        '"' => {
            let before = answer.get(..at).and_then(|b| b.chars().next_back());
            let after = answer.get(at + 1..).and_then(|a| a.chars().next());
            !before.is_some_and(char::is_alphanumeric) && after.is_some_and(|c| !c.is_whitespace())
        }
        _ => false,
    })
}

/// Where the quotation that `open` began ends, inside the paragraph.
fn closing(answer: &str, from: usize, open: char) -> Option<usize> {
    let rest = answer.get(from..)?;
    let paragraph = rest.get(..rest.find("\n\n").unwrap_or(rest.len()))?;
    let close = if open == '"' { '"' } else { '\u{201D}' };
    let follows = |at: usize| paragraph.get(at + close.len_utf8()..).and_then(|a| a.chars().next());
    let mut marks = paragraph.match_indices(close).map(|(at, _)| at);
    marks.find(|&at| close != '"' || !follows(at).is_some_and(char::is_alphanumeric)).map(|at| from + at)
}
