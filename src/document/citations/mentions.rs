//! Mentions that a list of the built-in model leaves out.
//!
//! ```text
//! - Savane is Lumira Tone.        every Savane in the documents ──► those that no item says ──► the words around each
//! - Savane: no more mentions.
//! ```
//! Invariants: 1. a mention is the name as a word of its own, in the letters of the list: `Savane's` and `_Savane_` are, `Savanes` is none;
//! 2. what an item says is not left out wherever the same words stand.

use std::borrow::Borrow;
use std::ops::Range;

use super::quotes::{Place, matching_len, offset_in};
use crate::document::Document;
use crate::document::text::BLANK_LINE;

/// How the model ends a list; the line begins with what was asked for.
const NO_MORE: &str = ": no more mentions.";
/// Most words before a mention that are told with it.
const WORDS_BEFORE: usize = 12;
/// Most words from a mention on that are told.
const WORDS_FROM: usize = 40;
/// Most mentions that are told of: as many say that there are as many or more.
pub const MAX_LEFT_OUT: usize = 100;

/// A list of mentions, with which the model says that there are no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List<'a> {
    /// what is mentioned
    name: &'a str,
    /// each from its mention to the end of a sentence
    pub items: Vec<&'a str>,
}

impl<'a> List<'a> {
    /// The list that an answer is, if it is one.
    pub fn of(answer: &'a str) -> Option<List<'a>> {
        let list = answer.trim().strip_suffix(NO_MORE)?;
        let (items, last) = list.rsplit_once('\n').unwrap_or(("", list));
        let name = last.strip_prefix("- ")?.trim();
        let items = items.trim().strip_prefix("- ").map(|items| items.split("\n- ").collect());
        (!name.is_empty()).then(|| List { name, items: items.unwrap_or_default() })
    }

    /// Where the documents mention the name and no item does: the words around each mention, in their order.
    pub fn left_out(&self, documents: &[impl Borrow<Document>]) -> Vec<Place> {
        let numbered = documents.iter().map(|d| d.borrow()).enumerate();
        let places = numbered.flat_map(|(document, it)| {
            self.left_out_of(&it.text).into_iter().map(move |bytes| Place { document, page: it.page_of(bytes.start), bytes })
        });
        places.take(MAX_LEFT_OUT).collect()
    }

    fn left_out_of(&self, text: &str) -> Vec<Range<usize>> {
        let said_from = |at: usize| {
            let here = text.get(at..)?;
            let lengths = self.items.iter().filter_map(|item| matching_len(item, here));
            lengths.max().filter(|n| *n > 0)
        };
        let (mut left_out, mut told_until) = (Vec::new(), 0);
        for at in mentions_of(text, self.name) {
            if let Some(n) = said_from(at) {
                told_until = told_until.max(at + n);
            } else if at >= told_until {
                // Mentions of one sentence are told of once.
                let passage = around(text, at);
                told_until = passage.end;
                left_out.push(passage);
            }
            if left_out.len() == MAX_LEFT_OUT {
                break;
            }
        }
        left_out
    }
}

/// Where a name stands, first bytes: as a word of its own, or as words.
pub fn mentions_of<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_free = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    text.match_indices(name).map(|(at, _)| at).filter(move |&at| {
        let (before, after) = (text.get(..at).unwrap_or_default(), text.get(at + name.len()..).unwrap_or_default());
        is_free(before.chars().next_back()) && is_free(after.chars().next())
    })
}

/// The words around a byte, within its sentence and paragraph.
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
