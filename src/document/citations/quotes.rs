//! Finds the quotations of an answer in the documents, or says that they are not there.
//!
//! ```text
//! He says "the harbour was built" ──► Quote { text, found: document, page, bytes }
//! ```
//! Invariants: 1. what is found stands in the document word for word, in order, with nothing between but white space, and
//! words divided at line ends count as whole; 2. no word or number is cut: "is 4821" is not found in "is 48210", nor "toxic"
//! in "non-toxic" or "non-" at a line end; 3. the bytes found are the quoted words and nothing around them; 4. marks that
//! only look different are the same: straight and curly apostrophes and quotation marks.
//! A comma at the end of a quotation belongs to the sentence around it and may be missing in the document, and so does the case
//! of its first letter: `the bell was cast` stands where a sentence begins `The bell was cast`.

use std::borrow::Borrow;
use std::ops::Range;

use crate::document::Document;

/// Fewest words of a quotation: shorter ones are names and titles.
const MIN_WORDS: usize = 3;

/// Fewest words of a part of an answer that is no quotation as a whole: fewer in a row are anybody's.
const MIN_PART_WORDS: usize = 5;
/// Most words of such an answer that is taken apart.
const MAX_WORDS: usize = 64;

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

/// How an answer has a quotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum QuoteKind {
    /// between quotation marks
    Marked,
    /// as a whole, or as a part of one that has no marks
    Unmarked,
    /// not at all: a mention that a list leaves out which says that there are no more
    #[serde(rename = "LeftOut")]
    MissingMention,
}

/// A quotation in an answer.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Quote {
    /// without its marks
    pub text: String,
    /// how the answer has it
    pub kind: QuoteKind,
    /// where it stands; None says that it is in no document
    pub found: Option<Place>,
}

/// The quotations of `answer` (`"…"` or `“…”`, three words and more), each looked up in `documents`.
pub fn find_quotes(answer: &str, documents: &[impl Borrow<Document>]) -> Vec<Quote> {
    let quoted = quoted_passages(answer).into_iter();
    quoted.map(|text| Quote { text: text.to_owned(), kind: QuoteKind::Marked, found: locate(text, documents) }).collect()
}

/// `answer` in parts: runs of words, as long as they can be, that stand in a document, and what lies between those. All of it is
/// one part where it stands there, and where it is too long to be taken apart.
pub(super) fn parts<'a>(answer: &'a str, documents: &[impl Borrow<Document>]) -> Vec<(&'a str, Option<Place>)> {
    let words: Vec<&str> = answer.split_whitespace().collect();
    let whole = locate(answer, documents);
    if whole.is_some() || words.len() > MAX_WORDS {
        return vec![(answer, whole)];
    }
    let start = |word: &str| offset_in(answer, word);
    let run = |from: usize, to: usize| {
        let (first, last) = (words.get(from)?, words.get(to.checked_sub(1)?)?);
        Some(answer.get(start(first)..start(last) + last.len())?.trim_matches(|c: char| !c.is_alphanumeric()))
    };
    let found = |from: usize, to: usize| run(from, to).and_then(|run| Some((run, locate_as_said(run, documents)?)));
    let rest = |from: usize, to: usize| run(from, to).filter(|run| from < to && !run.is_empty()).map(|run| (run, None));
    let (mut parts, mut from, mut told) = (Vec::new(), 0, 0);
    while from + MIN_PART_WORDS <= words.len() {
        // What a run that is found begins with is found too.
        let ends: Vec<usize> = (from + MIN_PART_WORDS..=words.len()).collect();
        let n_found = ends.partition_point(|to| found(from, *to).is_some());
        let to = n_found.checked_sub(1).and_then(|last| ends.get(last)).copied();
        if let Some((to, (run, place))) = to.and_then(|to| Some((to, found(from, to)?))) {
            parts.extend(rest(told, from));
            parts.push((run, Some(place)));
            told = to;
        }
        from = to.unwrap_or(from + 1);
    }
    match parts.is_empty() {
        true => vec![(answer, None)],
        false => parts.into_iter().chain(rest(told, words.len())).collect(),
    }
}

/// Where a part of a text begins in it, bytes.
pub(super) fn offset_in(text: &str, part: &str) -> usize {
    part.as_ptr().addr() - text.as_ptr().addr()
}

/// Where `passage` stands: as it is, or else with the other case of its first letter.
pub fn locate(passage: &str, documents: &[impl Borrow<Document>]) -> Option<Place> {
    let passage = passage.trim();
    locate_as_said(passage, documents).or_else(|| locate_as_said(&in_other_case(passage)?, documents))
}

/// Where `passage` stands: as it is, or else with other white space between its words and words divided at line ends.
fn locate_as_said(passage: &str, documents: &[impl Borrow<Document>]) -> Option<Place> {
    if !passage.contains(char::is_alphanumeric) {
        return None;
    }
    let without_comma = passage.strip_suffix(',').map(str::trim_end);
    std::iter::once(passage).chain(without_comma).find_map(|passage| {
        let place = |(document, bytes): (usize, Range<usize>)| {
            let page = documents.get(document)?.borrow().page_of(bytes.start);
            Some(Place { document, page, bytes })
        };
        let texts = || documents.iter().map(|d| d.borrow().text.as_str()).enumerate();
        let exact = texts().find_map(|(i, text)| Some((i, find_exact(passage, text)?)));
        exact.or_else(|| texts().find_map(|(i, text)| Some((i, find_words(passage, text)?)))).and_then(place)
    })
}

/// The passage with the other case of its first letter, where that has one.
fn in_other_case(passage: &str) -> Option<String> {
    let first = passage.chars().next()?;
    let other: String = if first.is_lowercase() { first.to_uppercase().collect() } else { first.to_lowercase().collect() };
    let rest = passage.get(first.len_utf8()..)?;
    other.chars().ne([first]).then(|| other + rest)
}

fn find_exact(passage: &str, text: &str) -> Option<Range<usize>> {
    if passage.is_empty() {
        return None;
    }
    let mut matches = text.match_indices(passage).map(|(at, found)| at..at + found.len());
    matches.find(|range| is_whole(text, range))
}

fn find_words(passage: &str, text: &str) -> Option<Range<usize>> {
    let first = folded(passage.chars().next()?);
    let starts = text.char_indices().filter(|(_, c)| folded(*c) == first).map(|(at, _)| at);
    starts.filter_map(|at| Some(at..at + matching_len(passage, text.get(at..)?)?)).find(|range| is_whole(text, range))
}

/// Bytes at the front of `text` that say what `passage` says.
pub(super) fn matching_len(passage: &str, text: &str) -> Option<usize> {
    let (mut wanted, mut rest) = (passage, text);
    while let Some(want) = wanted.chars().next() {
        let have = rest.chars().next()?;
        if want.is_whitespace() {
            (wanted, rest) = (wanted.trim_start(), after_white_space(rest)?);
        } else if folded(want) == folded(have) {
            (wanted, rest) = (wanted.get(want.len_utf8()..)?, rest.get(have.len_utf8()..)?);
            // A compound whose own hyphen stands at the line end.
            if is_hyphen(want) && wanted.starts_with(char::is_alphanumeric) && rest.starts_with(char::is_whitespace) {
                rest = after_line_end(rest)?;
            }
        } else {
            // A word divided at the line end.
            rest = after_division(rest)?;
        }
    }
    Some(text.len() - rest.len())
}

fn after_white_space(text: &str) -> Option<&str> {
    let after = text.trim_start();
    (after.len() < text.len()).then_some(after)
}

/// What follows white space with a line end in it, but no blank line.
fn after_line_end(text: &str) -> Option<&str> {
    let after = text.trim_start();
    let gap = text.get(..text.len() - after.len())?;
    (gap.matches('\n').count() == 1).then_some(after)
}

/// What follows a hyphen at a line end, where a word goes on.
fn after_division(text: &str) -> Option<&str> {
    let after = after_line_end(text.strip_prefix(is_hyphen)?)?;
    after.starts_with(char::is_alphanumeric).then_some(after)
}

fn is_hyphen(c: char) -> bool {
    matches!(c, '-' | '\u{2010}' | '\u{2011}' | '\u{AD}')
}

/// Marks that only look different are one.
fn folded(c: char) -> char {
    match c {
        '\u{2018}' | '\u{2019}' => '\'',
        '\u{201C}' | '\u{201D}' => '"',
        '\u{2010}' | '\u{2011}' => '-',
        c => c,
    }
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
    !signed && !joins(first, left) && !joins(last, right) && !is_divided(before, inside) && !is_divided(inside, after)
}

/// A word goes on from one text to the next, over a hyphen at a line end.
fn is_divided(before: &str, after: &str) -> bool {
    let hyphen = |text: &str| text.strip_suffix(is_hyphen).is_some_and(|word| word.ends_with(char::is_alphanumeric));
    let gap = before.get(before.trim_end().len()..).unwrap_or_default();
    let ends_divided = hyphen(before.trim_end()) && gap.matches('\n').count() == 1 && after.starts_with(char::is_alphanumeric);
    let begins_divided = before.ends_with(char::is_alphanumeric) && after_division(after).is_some();
    let between = hyphen(before) && after_line_end(after).is_some_and(|rest| rest.starts_with(char::is_alphanumeric));
    ends_divided || begins_divided || between
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
