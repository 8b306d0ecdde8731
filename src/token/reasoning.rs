//! Reasoning: the blocks in which a model thinks before it answers, told from the answer.
//!
//! ```text
//! "<think>Perhaps …</think>It is …" ──► reasoning │ answer
//! ```
//! A block begins at the start of a line, outside of code. Invariants: 1. A block at the start that does not end is reasoning
//! to its end; a later one is text. 2. The pieces of [`ReasoningFilter`] join to [`without_reasoning`] of the whole text, if it
//! begins no block before its closing mark.

use std::borrow::Cow;
use std::ops::Range;

/// Marks of a block: the opening one and its closing one.
const MARKS: [(&str, &str); 12] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<thoughts>", "</thoughts>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
    ("<|channel>thought", "<channel|>"),
    ("\u{25C1}think\u{25B7}", "\u{25C1}/think\u{25B7}"),
];

/// True for a token that begins or ends a block, which is shown even if it is a control token.
pub(super) fn is_reasoning_mark(token: &str) -> bool {
    MARKS.iter().any(|(open, close)| token == *open || token == *close)
}

/// The opening mark that a prompt ends with: the answer continues its block.
pub(super) fn opening_at_end(prompt: &str) -> Option<&'static str> {
    MARKS.iter().map(|(open, _)| *open).find(|open| prompt.trim_end().ends_with(open))
}

/// Reasoning, without its marks, and the rest of a text.
pub fn split_reasoning(text: &str) -> (String, Cow<'_, str>) {
    let blocks = blocks_of(text, true);
    let inner = |range: &Range<usize>| {
        let block = text.get(range.clone()).unwrap_or_default().trim();
        let opened = MARKS.iter().find_map(|(open, _)| block.strip_prefix(open)).unwrap_or(block);
        MARKS.iter().find_map(|(_, close)| opened.strip_suffix(close)).unwrap_or(opened).trim()
    };
    let reasoning: Vec<&str> = blocks.iter().map(inner).filter(|part| !part.is_empty()).collect();
    (reasoning.join("\n\n"), outside(text, &blocks, text.len()))
}

/// The text without its reasoning.
pub fn without_reasoning(text: &str) -> Cow<'_, str> {
    outside(text, &blocks_of(text, true), text.len())
}

/// Text outside of the blocks, up to a byte.
fn outside<'t>(text: &'t str, blocks: &[Range<usize>], end: usize) -> Cow<'t, str> {
    if blocks.is_empty() {
        return Cow::Borrowed(text.get(..end).unwrap_or(text));
    }
    let mut out = String::new();
    let mut at = 0;
    for block in blocks {
        out.push_str(text.get(at..block.start.min(end)).unwrap_or_default());
        at = block.end;
    }
    out.push_str(text.get(at..end).unwrap_or_default());
    Cow::Owned(out)
}

/// Blocks with the white space after them. If the text goes on, a block that has not ended counts, and so does a line that may
/// begin with a mark.
fn blocks_of(text: &str, is_complete: bool) -> Vec<Range<usize>> {
    let mut blocks: Vec<Range<usize>> = Vec::new();
    // Most texts have no mark at all.
    if !text.contains(['<', '[', '\u{25C1}']) {
        return blocks;
    }
    let with_space = |end: usize| text.len() - text.get(end..).unwrap_or_default().trim_start().len();
    let mut at = 0;
    if let Some(end) = end_without_beginning(text).filter(|_| is_complete) {
        at = with_space(end);
        blocks.push(0..at);
    }
    while let Some(begin) = next_line_with_mark(text, at, is_complete) {
        let rest = text.get(begin..).unwrap_or_default();
        let Some((open, close)) = MARKS.iter().find(|(open, _)| rest.starts_with(open)) else {
            blocks.push(begin..text.len());
            break;
        };
        let closed =
            rest.get(open.len()..).and_then(|inside| inside.find(close)).map(|end| begin + open.len() + end + close.len());
        let is_first = outside(text, &blocks, begin).trim().is_empty();
        match closed {
            Some(end) => {
                at = with_space(end);
                blocks.push(begin..at);
            }
            None if is_first || !is_complete => {
                blocks.push(begin..text.len());
                break;
            }
            None => at = begin + open.len(),
        }
    }
    blocks
}

/// Next byte from `from` on that begins a line, or follows a block, and has an opening mark; of a text that goes on, also the
/// beginning of one at its end.
fn next_line_with_mark(text: &str, from: usize, is_complete: bool) -> Option<usize> {
    let lines = text.get(from..)?.split_inclusive('\n').scan(from, |at, line| {
        let begin = *at + (line.len() - line.trim_start().len());
        *at += line.len();
        Some((begin, line.trim_start()))
    });
    let is_code = |begin: usize| !text.get(..begin).unwrap_or_default().matches("```").count().is_multiple_of(2);
    let may_begin = |begin: usize, line: &str| {
        let is_last = begin + line.len() == text.len();
        let is_part = |open: &str| !is_complete && is_last && !line.is_empty() && open.starts_with(line);
        MARKS.iter().any(|(open, _)| line.starts_with(open) || is_part(open))
    };
    let mut lines = lines.filter(|(begin, line)| may_begin(*begin, line) && !is_code(*begin));
    lines.next().map(|(begin, _)| begin)
}

/// End of a closing mark on a line of its own that no opening mark precedes: the prompt had it.
fn end_without_beginning(text: &str) -> Option<usize> {
    MARKS.iter().find_map(|(open, close)| {
        let at = text.find(close)?;
        let (before, after) = (text.get(..at)?, text.get(at + close.len()..)?);
        let begins_line = before.is_empty() || before.ends_with('\n');
        let is_own_line = begins_line && (after.is_empty() || after.starts_with(['\n', '\r']));
        (is_own_line && !before.contains(open) && !before.contains("```")).then_some(at + close.len())
    })
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

    #[test]
    fn prompt_that_opens_a_block_is_known() {
        assert_eq!(opening_at_end("<|im_start|>assistant\n<think>\n"), Some("<think>"));
        assert_eq!(opening_at_end("<think>\n\n</think>\n\n"), None);
    }

    proptest::proptest! {
        #[test]
        fn pieces_join_to_the_answer(parts in proptest::collection::vec(
            proptest::sample::select(vec!["<think>", "</think>", "<", "thi", "a", "\n", " ", "```", "[THINK]", "[/THINK]"]), 0..12)) {
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
