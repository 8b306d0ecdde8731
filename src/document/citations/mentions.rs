//! Missing mentions: mentions of a name in the documents that a list of the built-in model does not include.
//!
//! ```text
//! - Savane is Lumira Tone.        every Savane in the documents ──► those in no item ──► the words around each
//! - Savane: no more mentions.
//! ```
//! Invariants: 1. A mention is the name as a word of its own, in any spelling of the list's letters ([`FoldedText`]):
//! `Savane's` and `_Savane_` are mentions, `Savanes` is none. 2. Text of an item is not missing, wherever the same words occur.

use std::ops::Range;

use super::quotes::{DocumentTexts, PassageLocation, offset_in};
use crate::document::folded_text::FoldedText;
use crate::document::text::BLANK_LINE;

/// End of a complete list; the line begins with the name.
const NO_MORE: &str = ": no more mentions.";
/// Largest number of words before a mention in its passage.
const WORDS_BEFORE: usize = 12;
/// Largest number of words from a mention on in its passage.
const WORDS_FROM: usize = 40;
/// Largest number of missing mentions that are reported.
pub const MAX_MISSING_MENTIONS: usize = 100;

/// A list of mentions that claims to be complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List<'a> {
    /// name that was asked for
    name: &'a str,
    /// items, each from the mention to the end of a sentence
    pub items: Vec<&'a str>,
}

impl<'a> List<'a> {
    /// Parses an answer; None if it is no such list.
    pub fn of(answer: &'a str) -> Option<List<'a>> {
        let list = answer.trim().strip_suffix(NO_MORE)?;
        let (items, last) = list.rsplit_once('\n').unwrap_or(("", list));
        let name = last.strip_prefix("- ")?.trim();
        let items = items.trim().strip_prefix("- ").map(|items| items.split("\n- ").collect());
        (!name.is_empty()).then(|| List { name, items: items.unwrap_or_default() })
    }

    /// Passages around the mentions that no item includes, in order.
    pub fn missing(&self, texts: &DocumentTexts<'_>) -> Vec<PassageLocation> {
        let items: Vec<FoldedText<'_>> = self.items.iter().map(|item| FoldedText::new(item)).collect();
        let places = texts.iter().enumerate().flat_map(|(document, (it, folded))| {
            missing_in(&it.text, folded, self.name, &items).into_iter().map(move |bytes| PassageLocation {
                document,
                page: it.page_of(bytes.start),
                bytes,
            })
        });
        places.take(MAX_MISSING_MENTIONS).collect()
    }
}

fn missing_in(text: &str, folded: &FoldedText<'_>, name: &str, items: &[FoldedText<'_>]) -> Vec<Range<usize>> {
    let (mut missing, mut covered_until) = (Vec::new(), 0);
    for mention in mentions_in(folded, &FoldedText::new(name)) {
        let item_end =
            items.iter().filter_map(|item| folded.match_at(mention.start, item)).filter(|end| *end > mention.start).max();
        let at = folded.original_range(&mention).start;
        if let Some(end) = item_end {
            covered_until = covered_until.max(folded.original_range(&(mention.start..end)).end);
        } else if at >= covered_until {
            // Further mentions in the same passage are covered by it.
            let passage = around(text, at);
            covered_until = passage.end;
            missing.push(passage);
        }
        if missing.len() == MAX_MISSING_MENTIONS {
            break;
        }
    }
    missing
}

/// Byte positions of a name's mentions, as a word or words of its own.
pub fn mentions_of(text: &str, name: &str) -> Vec<usize> {
    let folded = FoldedText::new(text);
    mentions_in(&folded, &FoldedText::new(name)).map(|range| folded.original_range(&range).start).collect()
}

fn mentions_in<'a>(text: &'a FoldedText<'_>, name: &'a FoldedText<'_>) -> impl Iterator<Item = Range<usize>> + 'a {
    text.find(name).filter(|range| text.is_free(range))
}

/// Passage of words around a byte, within its sentence and paragraph.
fn around(text: &str, at: usize) -> Range<usize> {
    let (before, from) = (text.get(..at).unwrap_or_default(), text.get(at..).unwrap_or_default());
    let before = before.rsplit(BLANK_LINE).next().unwrap_or_default();
    let from = from.split(BLANK_LINE).next().unwrap_or_default();
    let mut first = at;
    for word in before.split_whitespace().rev().take(WORDS_BEFORE).take_while(|word| !ends_sentence(word)) {
        first = offset_in(text, word);
    }
    let mut last = at;
    for word in from.split_whitespace().take(WORDS_FROM) {
        last = offset_in(text, word) + word.len();
        if ends_sentence(word) {
            break;
        }
    }
    first..last
}

fn ends_sentence(word: &str) -> bool {
    word.trim_end_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '.' | '!' | '?')).ends_with(['.', '!', '?'])
}
