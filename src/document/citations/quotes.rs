//! Quotations: finds the quotations of an answer in the documents, or reports that they are missing.
//!
//! ```text
//! It reads "the harbour was built" ──► Quote { text, found: document, page, bytes }
//! ```
//! Invariants: 1. Found text matches word for word, in order, with only white space between; words divided at line ends count
//! as whole. 2. No word or number is split: "is 4821" does not match in "is 48210", nor "toxic" in "non-toxic" or after
//! "non-" at a line end. 3. The byte range covers the quoted words and nothing else. 4. Spellings of the same words are equal
//! ([`FoldedText`]).
//! A comma at the end of a quotation belongs to the answer's sentence, so the document may lack it. So does the case of its
//! letters: `THE BELL WAS CAST` matches `The bell was cast`, unless a document has it in capitals, too.

use std::borrow::Borrow;
use std::ops::Range;
use std::sync::OnceLock;

use super::marks::quoted_passages;
use crate::document::Document;
use crate::document::folded_text::FoldedText;

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

/// Quotations of `answer`, between the marks of any language, each located in `documents`.
pub fn find_quotes(answer: &str, documents: &[impl Borrow<Document>]) -> Vec<Quote> {
    let passages = quoted_passages(answer);
    if passages.is_empty() {
        return Vec::new();
    }
    let texts = DocumentTexts::of(documents);
    let quote = |text: &str| Quote { text: text.to_owned(), kind: QuoteKind::Marked, found: texts.locate(text) };
    passages.into_iter().map(quote).collect()
}

/// Splits `answer` into the longest runs of words that a document has, and the text between them. An answer that is found as
/// a whole, or is too long to split, is one part.
pub(super) fn parts<'a>(answer: &'a str, texts: &DocumentTexts<'_>) -> Vec<(&'a str, Option<PassageLocation>)> {
    let words: Vec<&str> = answer.split_whitespace().collect();
    let whole = texts.locate(answer);
    if whole.is_some() || words.len() > MAX_WORDS {
        return vec![(answer, whole)];
    }
    let start = |word: &str| offset_in(answer, word);
    let run = |from: usize, to: usize| {
        let (first, last) = (words.get(from)?, words.get(to.checked_sub(1)?)?);
        Some(answer.get(start(first)..start(last) + last.len())?.trim_matches(|c: char| !c.is_alphanumeric()))
    };
    let found = |from: usize, to: usize| run(from, to).and_then(|run| Some((run, texts.locate_exact_case(run)?)));
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

/// Location of `passage`, in any case if no document has it in its own.
pub fn locate(passage: &str, documents: &[impl Borrow<Document>]) -> Option<PassageLocation> {
    DocumentTexts::of(documents).locate(passage)
}

/// Texts of documents, folded to be searched.
pub(super) struct DocumentTexts<'d> {
    documents: Vec<(&'d Document, FoldedText<'d>)>,
    /// the same in one case, made when it is first needed
    ignoring_case: OnceLock<Vec<(&'d Document, FoldedText<'d>)>>,
}

impl<'d> DocumentTexts<'d> {
    /// Folds every document.
    pub fn of(documents: &'d [impl Borrow<Document>]) -> Self {
        let folded = |document: &'d Document| (document, FoldedText::new(&document.text));
        DocumentTexts { documents: documents.iter().map(|d| folded(d.borrow())).collect(), ignoring_case: OnceLock::new() }
    }

    /// Documents, each with its folded text.
    pub fn iter(&self) -> impl Iterator<Item = &(&'d Document, FoldedText<'d>)> {
        self.documents.iter()
    }

    /// Location of `passage`, in any case if no document has it in its own.
    pub fn locate(&self, passage: &str) -> Option<PassageLocation> {
        let passage = passage.trim();
        let in_other_case = || self.locate_exact_case(&in_other_case(passage)?);
        self.locate_exact_case(passage).or_else(in_other_case).or_else(|| self.locate_ignoring_case(passage))
    }

    /// Location of `passage` verbatim, or else in another spelling of the same words.
    fn locate_exact_case(&self, passage: &str) -> Option<PassageLocation> {
        let find = |passage: &str| find(passage, &FoldedText::new(passage), &self.documents);
        without_comma(passage).find_map(find)
    }

    fn locate_ignoring_case(&self, passage: &str) -> Option<PassageLocation> {
        let folded = |(document, _): &(&'d Document, _)| (*document, FoldedText::ignoring_case(&document.text));
        let documents = self.ignoring_case.get_or_init(|| self.documents.iter().map(folded).collect());
        without_comma(passage).find_map(|passage| find(passage, &FoldedText::ignoring_case(passage), documents))
    }
}

/// The passage, and the same without a comma at its end; nothing if it has no letters.
fn without_comma(passage: &str) -> impl Iterator<Item = &str> {
    let without_comma = passage.strip_suffix([',', '\u{3001}', '\u{FF0C}', '\u{60C}']).map(str::trim_end);
    let has_letters = passage.contains(char::is_alphanumeric);
    std::iter::once(passage).chain(without_comma).filter(move |_| has_letters)
}

fn find(passage: &str, folded: &FoldedText<'_>, documents: &[(&Document, FoldedText<'_>)]) -> Option<PassageLocation> {
    let mut other = None;
    for (i, (document, text)) in documents.iter().enumerate() {
        for range in text.find(folded).filter(|range| text.is_whole(range)) {
            let bytes = text.original_range(&range);
            let is_verbatim = document.text.get(bytes.clone()) == Some(passage);
            let place = PassageLocation { document: i, page: document.page_of(bytes.start), bytes };
            if is_verbatim {
                return Some(place);
            }
            other.get_or_insert(place);
        }
    }
    other
}

/// The passage with its first letter in the other case; None if the letter has no case.
fn in_other_case(passage: &str) -> Option<String> {
    let first = passage.chars().next()?;
    let other: String = if first.is_lowercase() { first.to_uppercase().collect() } else { first.to_lowercase().collect() };
    let rest = passage.get(first.len_utf8()..)?;
    other.chars().ne([first]).then(|| other + rest)
}
