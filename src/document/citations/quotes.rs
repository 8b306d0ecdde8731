//! Quotations: finds the quotations of an answer in the documents, or reports that they are missing.
//!
//! ```text
//! It reads "the harbour was built" ──► Quote { text, found: document, page, bytes }
//! ```
//! Invariants: 1. Found text matches word for word, in order, with only white space between; words divided at line ends count
//! as whole. 2. No word or number is split: "is 4821" does not match in "is 48210", nor "toxic" in "non-toxic" or after
//! "non-" at a line end. 3. The byte range covers the quoted words and nothing else. 4. Typographic variants are equal:
//! straight and curly apostrophes and quotation marks.
//! A comma at the end of a quotation belongs to the answer's sentence, so the document may lack it. So does the case of the
//! first letter: `the bell was cast` matches a sentence that begins `The bell was cast`.

use std::borrow::Borrow;
use std::ops::Range;

use crate::document::Document;

/// Fewest words of a marked quotation; shorter ones are names and titles.
const MIN_WORDS: usize = 3;

/// Fewest words of a part of an unmarked quotation; shorter runs match by chance.
const MIN_PART_WORDS: usize = 5;
/// Longest unmarked answer that is split into parts, words.
const MAX_WORDS: usize = 64;

/// Location of a passage in the documents.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PassageLocation {
    /// index of the document
    pub document: usize,
    /// index of the page
    pub page: usize,
    /// byte range in [`Document::text`]
    pub bytes: Range<usize>,
}

/// Form of a quotation in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum QuoteKind {
    /// between quotation marks
    Marked,
    /// an answer without marks, or a part of one
    Unmarked,
    /// not in the answer: a mention that a list misses
    #[serde(rename = "LeftOut")]
    MissingMention,
}

/// A quotation of an answer.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Quote {
    /// text without marks
    pub text: String,
    /// form in the answer
    pub kind: QuoteKind,
    /// location; None if no document has the text
    pub found: Option<PassageLocation>,
}

/// Quotations of `answer` (`"…"` or `“…”`, three words or more), each located in `documents`.
pub fn find_quotes(answer: &str, documents: &[impl Borrow<Document>]) -> Vec<Quote> {
    let quoted = quoted_passages(answer).into_iter();
    quoted.map(|text| Quote { text: text.to_owned(), kind: QuoteKind::Marked, found: locate(text, documents) }).collect()
}

/// Splits `answer` into the longest runs of words that a document has, and the text between them. An answer that is found as
/// a whole, or is too long to split, is one part.
pub(super) fn parts<'a>(answer: &'a str, documents: &[impl Borrow<Document>]) -> Vec<(&'a str, Option<PassageLocation>)> {
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
    let found = |from: usize, to: usize| run(from, to).and_then(|run| Some((run, locate_exact_case(run, documents)?)));
    let rest = |from: usize, to: usize| run(from, to).filter(|run| from < to && !run.is_empty()).map(|run| (run, None));
    let (mut parts, mut from, mut done) = (Vec::new(), 0, 0);
    while from + MIN_PART_WORDS <= words.len() {
        // Every prefix of a found run is found too, so the search is binary.
        let ends: Vec<usize> = (from + MIN_PART_WORDS..=words.len()).collect();
        let n_found = ends.partition_point(|to| found(from, *to).is_some());
        let to = n_found.checked_sub(1).and_then(|last| ends.get(last)).copied();
        if let Some((to, (run, place))) = to.and_then(|to| Some((to, found(from, to)?))) {
            parts.extend(rest(done, from));
            parts.push((run, Some(place)));
            done = to;
        }
        from = to.unwrap_or(from + 1);
    }
    match parts.is_empty() {
        true => vec![(answer, None)],
        false => parts.into_iter().chain(rest(done, words.len())).collect(),
    }
}

/// Byte offset of a part in its text.
pub(super) fn offset_in(text: &str, part: &str) -> usize {
    part.as_ptr().addr() - text.as_ptr().addr()
}

/// Location of `passage`, with its first letter in either case.
pub fn locate(passage: &str, documents: &[impl Borrow<Document>]) -> Option<PassageLocation> {
    let passage = passage.trim();
    locate_exact_case(passage, documents).or_else(|| locate_exact_case(&in_other_case(passage)?, documents))
}

/// Location of `passage` verbatim, or with other white space and words divided at line ends.
fn locate_exact_case(passage: &str, documents: &[impl Borrow<Document>]) -> Option<PassageLocation> {
    if !passage.contains(char::is_alphanumeric) {
        return None;
    }
    let without_comma = passage.strip_suffix(',').map(str::trim_end);
    std::iter::once(passage).chain(without_comma).find_map(|passage| {
        let place = |(document, bytes): (usize, Range<usize>)| {
            let page = documents.get(document)?.borrow().page_of(bytes.start);
            Some(PassageLocation { document, page, bytes })
        };
        let texts = || documents.iter().map(|d| d.borrow().text.as_str()).enumerate();
        let exact = texts().find_map(|(i, text)| Some((i, find_exact(passage, text)?)));
        exact.or_else(|| texts().find_map(|(i, text)| Some((i, find_words(passage, text)?)))).and_then(place)
    })
}

/// The passage with its first letter in the other case; None if the letter has no case.
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

/// Bytes of `text` that match `passage` from the start; None if they do not match.
pub(super) fn matching_len(passage: &str, text: &str) -> Option<usize> {
    let (mut wanted, mut rest) = (passage, text);
    while let Some(want) = wanted.chars().next() {
        let have = rest.chars().next()?;
        if want.is_whitespace() {
            (wanted, rest) = (wanted.trim_start(), after_white_space(rest)?);
        } else if folded(want) == folded(have) {
            (wanted, rest) = (wanted.get(want.len_utf8()..)?, rest.get(have.len_utf8()..)?);
            // A compound whose hyphen is at the line end.
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

/// Text after white space with one line end; None if there is a blank line or no line end.
fn after_line_end(text: &str) -> Option<&str> {
    let after = text.trim_start();
    let gap = text.get(..text.len() - after.len())?;
    (gap.matches('\n').count() == 1).then_some(after)
}

/// Text after a hyphen at a line end; None unless the word continues.
fn after_division(text: &str) -> Option<&str> {
    let after = after_line_end(text.strip_prefix(is_hyphen)?)?;
    after.starts_with(char::is_alphanumeric).then_some(after)
}

fn is_hyphen(c: char) -> bool {
    matches!(c, '-' | '\u{2010}' | '\u{2011}' | '\u{AD}')
}

/// Maps typographic variants to one character.
fn folded(c: char) -> char {
    match c {
        '\u{2018}' | '\u{2019}' => '\'',
        '\u{201C}' | '\u{201D}' => '"',
        '\u{2010}' | '\u{2011}' => '-',
        c => c,
    }
}

/// True if the range splits no word and no number.
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

/// True if a word continues from one text to the next, over a hyphen at a line end.
fn is_divided(before: &str, after: &str) -> bool {
    let hyphen = |text: &str| text.strip_suffix(is_hyphen).is_some_and(|word| word.ends_with(char::is_alphanumeric));
    let gap = before.get(before.trim_end().len()..).unwrap_or_default();
    let ends_divided = hyphen(before.trim_end()) && gap.matches('\n').count() == 1 && after.starts_with(char::is_alphanumeric);
    let begins_divided = before.ends_with(char::is_alphanumeric) && after_division(after).is_some();
    let between = hyphen(before) && after_line_end(after).is_some_and(|rest| rest.starts_with(char::is_alphanumeric));
    ends_divided || begins_divided || between
}

/// True if a word continues from `edge`, the last character inside, to the two next ones outside.
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

/// Passages of enough words between quotation marks of one paragraph.
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

/// Next mark that can open a quotation.
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

/// End of the quotation that `open` began, in the same paragraph.
fn closing(answer: &str, from: usize, open: char) -> Option<usize> {
    let rest = answer.get(from..)?;
    let paragraph = rest.get(..rest.find("\n\n").unwrap_or(rest.len()))?;
    let close = if open == '"' { '"' } else { '\u{201D}' };
    let follows = |at: usize| paragraph.get(at + close.len_utf8()..).and_then(|a| a.chars().next());
    let mut marks = paragraph.match_indices(close).map(|(at, _)| at);
    marks.find(|&at| close != '"' || !follows(at).is_some_and(char::is_alphanumeric)).map(|at| from + at)
}
