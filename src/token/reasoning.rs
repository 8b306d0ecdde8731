//! Reasoning: the blocks in which a model thinks before it answers, told from the answer.
//!
//! ```text
//! "<think>Perhaps …</think>It is …" ──► reasoning │ answer
//! ```
//! A block begins at the start of a line or after the end of a sentence, outside of code. Invariants: 1. A block that does not
//! end is reasoning to its end; but a later one is text if the line speaks of the mark, or if its tag may be other markup.
//! 2. The pieces of [`ReasoningFilter`] join to [`without_reasoning`] of the whole text, if it begins no block before its
//! closing mark.

use std::borrow::Cow;
use std::ops::Range;

use super::reasoning_marks::{Opening, closing_len, may_begin_mark};

/// A block of reasoning.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Block {
    /// bytes with the marks, and with the white space after them
    whole: Range<usize>,
    /// bytes between the marks
    inside: Range<usize>,
}

/// Reasoning, without its marks, and the rest of a text.
pub fn split_reasoning(text: &str) -> (String, Cow<'_, str>) {
    let blocks = blocks_of(text, true);
    let inside = blocks.iter().map(|block| text.get(block.inside.clone()).unwrap_or_default().trim());
    let reasoning: Vec<&str> = inside.filter(|part| !part.is_empty()).collect();
    (reasoning.join("\n\n"), outside(text, &blocks, text.len()))
}

/// The text without its reasoning.
pub fn without_reasoning(text: &str) -> Cow<'_, str> {
    outside(text, &blocks_of(text, true), text.len())
}

/// Text outside of the blocks, up to a byte.
fn outside<'t>(text: &'t str, blocks: &[Block], end: usize) -> Cow<'t, str> {
    if blocks.is_empty() {
        return Cow::Borrowed(text.get(..end).unwrap_or(text));
    }
    let mut out = String::new();
    let mut at = 0;
    for block in blocks {
        out.push_str(text.get(at..block.whole.start.min(end)).unwrap_or_default());
        at = block.whole.end;
    }
    out.push_str(text.get(at..end).unwrap_or_default());
    Cow::Owned(out)
}

/// Blocks of a text. If the text goes on, a block that has not ended counts, and so does the beginning of a mark at its end.
fn blocks_of(text: &str, is_complete: bool) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    // Most texts have no mark at all.
    if !text.contains(may_begin_mark) {
        return blocks;
    }
    let with_space = |end: usize| text.len() - text.get(end..).unwrap_or_default().trim_start().len();
    let mut at = 0;
    if let Some(mark) = end_without_beginning(text).filter(|_| is_complete) {
        at = with_space(mark.end);
        blocks.push(Block { whole: 0..at, inside: 0..mark.start });
    }
    while let Some(begin) = next_mark(text, at, is_complete) {
        let rest = text.get(begin..).unwrap_or_default();
        let to_end = |inside: usize| Block { whole: begin..text.len(), inside: inside..text.len() };
        let Some(opening) = Opening::parse(rest) else {
            blocks.push(to_end(text.len()));
            break;
        };
        let inside = begin + opening.len;
        let after = text.get(inside..).unwrap_or_default();
        let is_first = outside(text, &blocks, begin).trim().is_empty();
        let speaks_of_mark = after.starts_with(' ') || (is_complete && after.trim().is_empty());
        if let Some((end, next)) = opening.end_of_block(after, is_complete) {
            at = with_space(inside + next);
            blocks.push(Block { whole: begin..at, inside: inside..inside + end });
        } else if !is_complete || (opening.is_certain() && (is_first || !speaks_of_mark)) {
            blocks.push(to_end(inside));
            break;
        } else {
            at = inside;
        }
    }
    blocks
}

/// Next byte from `from` on that has an opening mark where a block may begin; of a text that goes on, also the beginning of one
/// at its end.
fn next_mark(text: &str, from: usize, is_complete: bool) -> Option<usize> {
    let marks = text.get(from..)?.match_indices(may_begin_mark).map(|(at, _)| from + at);
    let mut marks = marks.filter(|at| {
        let (before, rest) = (text.get(from..*at).unwrap_or_default(), text.get(*at..).unwrap_or_default());
        let opening = Opening::parse(rest);
        let is_mark = opening.is_some() || (!is_complete && Opening::may_begin(rest));
        // Within a line, a space after the mark shows that the sentence speaks of it.
        let is_spoken_of = || opening.is_some_and(|mark| rest.get(mark.len..).is_some_and(|after| after.starts_with(' ')));
        is_mark && (begins_line(before) || (ends_sentence(before) && !is_spoken_of())) && !is_in_code(text, *at)
    });
    marks.next()
}

/// True if a text ends with the beginning of a line.
fn begins_line(before: &str) -> bool {
    before.rsplit('\n').next().unwrap_or_default().trim().is_empty()
}

/// True if a text ends with a sentence.
fn ends_sentence(before: &str) -> bool {
    let ends =
        |c: char| matches!(c, '.' | '!' | '?' | '"' | '\u{201D}' | '\u{BB}' | '\u{2026}' | '\u{3002}' | '\u{FF01}' | '\u{FF1F}');
    before.trim_end_matches(' ').ends_with(ends)
}

/// True for a byte within a block of code.
fn is_in_code(text: &str, at: usize) -> bool {
    !text.get(..at).unwrap_or_default().matches("```").count().is_multiple_of(2)
}

/// A closing mark that no opening mark precedes, because the prompt had it: on a line of its own, or between two sentences.
fn end_without_beginning(text: &str) -> Option<Range<usize>> {
    for (at, _) in text.match_indices(may_begin_mark) {
        let (before, rest) = text.split_at_checked(at)?;
        if Opening::parse(rest).is_some() {
            return None;
        }
        let Some(len) = closing_len(rest) else { continue };
        let after = rest.get(len..).unwrap_or_default();
        let is_line = begins_line(before) && (after.is_empty() || after.starts_with(['\n', '\r']));
        let goes_on = !after.trim().is_empty() && !after.starts_with(['.', ',', ';', ':', '!', '?', ')', '`', '\'']);
        let is_between = goes_on && (begins_line(before) || ends_sentence(before));
        if (is_line || is_between) && !is_in_code(text, at) {
            return Some(at..at + len);
        }
    }
    None
}

/// Filter of an answer that arrives in pieces.
#[derive(Debug, Default)]
pub struct ReasoningFilter {
    text: String,
    /// bytes of the answer that were returned
    n_shown: usize,
    has_reasoning: bool,
}

impl ReasoningFilter {
    /// Text of the answer that `piece` completes; empty within reasoning.
    pub fn push(&mut self, piece: &str) -> String {
        self.text.push_str(piece);
        self.next(false)
    }

    /// Rest of the answer, once it has ended.
    pub fn finish(&mut self) -> String {
        self.next(true)
    }

    /// The answer so far. Unlike the pieces, it lacks reasoning that only its closing mark shows to be some.
    pub fn answer(&self) -> Cow<'_, str> {
        without_reasoning(&self.text)
    }

    /// True if the text so far has reasoning.
    pub fn has_reasoning(&self) -> bool {
        self.has_reasoning
    }

    fn next(&mut self, is_complete: bool) -> String {
        let blocks = blocks_of(&self.text, is_complete);
        // A closing mark without a beginning comes too late: the text before it was returned.
        let shown = outside(&self.text, &blocks, self.text.len());
        let next = shown.get(self.n_shown..).unwrap_or_default().to_owned();
        self.n_shown = self.n_shown.max(shown.len());
        self.has_reasoning |= !blocks.is_empty();
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_told_from_the_answer() {
        for (text, reasoning, answer) in [
            ("<think>Perhaps.</think>It is.", "Perhaps.", "It is."),
            ("\n<think>\nPerhaps.\n</think>\n\nIt is.", "Perhaps.", "\nIt is."),
            ("<thinking>a</thinking>\n<think>b</think>c", "a\n\nb", "c"),
            ("[THINK]a[/THINK]b", "a", "b"),
            ("One.\n<think>a</think>\nTwo.", "a", "One.\nTwo."),
            ("<think>It never ends.", "It never ends.", ""),
            ("Perhaps.\n</think>\n\nIt is.", "Perhaps.", "It is."),
            (
                "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b",
                "a<|end|><|start|>assistant",
                "b",
            ),
            ("<|channel|>final<|message|>It is.", "", "It is."),
            ("<think>a<think>b</think>c</think>It is.", "a<think>b</think>c", "It is."),
            ("<think>a</thinking>It is.", "a", "It is."),
            ("It is. <think>Was it?</think>", "Was it?", "It is. "),
            ("It is.\n<think>Was it?", "Was it?", "It is.\n"),
            ("Perhaps.</think>It is.", "Perhaps.", "It is."),
            ("Perhaps.\n</think>It is.", "Perhaps.", "It is."),
            ("<analysis>a</analysis>b", "a", "b"),
            ("<analysis>It is.", "", "<analysis>It is."),
            ("[Analysis]\nIt is.", "", "[Analysis]\nIt is."),
            ("The end is </think>.", "", "The end is </think>."),
            ("Which? <think> and </think> are tags.", "", "Which? <think> and </think> are tags."),
            ("Here it is.", "", "Here it is."),
            ("It is.", "", "It is."),
            ("Use the <think> tag, then </think>.", "", "Use the <think> tag, then </think>."),
            ("One.\n<think> is a tag.", "", "One.\n<think> is a tag."),
            ("```\n<think>a</think>\n```", "", "```\n<think>a</think>\n```"),
            ("", "", ""),
        ] {
            assert_eq!(split_reasoning(text), (reasoning.to_owned(), Cow::Borrowed(answer)), "{text}");
            assert_eq!(without_reasoning(text), answer);
        }
    }

    proptest::proptest! {
        #[test]
        fn pieces_join_to_the_answer(parts in proptest::collection::vec(
            proptest::sample::select(vec!["<think>", "</think>", "<", "thi", "a", ".", "\n", " ", "```", "[THINK]", "[/THINK]", "<analysis>"]), 0..12)) {
            let text: String = parts.concat();
            let mut filter = ReasoningFilter::default();
            let mut shown: String = text.chars().map(|c| filter.push(&c.to_string())).collect();
            shown += &filter.finish();
            if end_without_beginning(&text).is_none() {
                proptest::prop_assert_eq!(shown, without_reasoning(&text));
            }
        }
    }
}
