//! Reasoning marks: how models write the beginning and the end of a block in which they think.
//!
//! ```text
//! "<think>", "[THINK]", "<|START_THINKING|>", "<|channel|>analysis<|message|>" ──► opening mark ──► how its block ends
//! ```
//! A tag counts by the word in its name, in any case, so `<longcat_think>` needs no entry here. Invariants: 1. A tag whose word
//! is also common in other markup (`<analysis>`) ends only with its own closing tag. 2. Tags of one block may differ:
//! `</thinking>` ends `<think>`.

/// Opening and closing bracket of a tag. The first pair that matches counts.
const BRACKETS: [(&str, &str); 4] = [("<|", "|>"), ("<", ">"), ("[", "]"), ("\u{25C1}", "\u{25B7}")];
/// Words in the names of tags that mark nothing but reasoning.
const CERTAIN_WORDS: [&str; 3] = ["think", "thought", "reasoning"];
/// Words in the names of tags that may be other markup.
const OTHER_WORDS: [&str; 5] = ["reason", "scratchpad", "analysis", "reflection", "monologue"];
/// Beginnings of names in `<|…|>`, and true for an opening tag.
const NAME_PREFIXES: [(&str, bool); 4] = [("begin_of_", true), ("start_", true), ("end_of_", false), ("end_", false)];
/// Marks that are no tags of their own: the opening one and its closing one.
const PHRASES: [(&str, &str); 4] = [
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|channel>thought", "<channel|>"),
    ("<unused94>thought", "<unused95>"),
    ("Here is my thought process:", "Here is my response:"),
];
/// Around the name of a channel.
const CHANNEL: (&str, &str) = ("<|channel|>", "<|message|>");
/// Begins the answer of a model with channels.
const FINAL_CHANNEL: &str = "<|channel|>final<|message|>";
/// Tokens that are parts of these marks.
const PARTS: [&str; 8] = [
    "<|channel|>",
    "<|message|>",
    "<|channel>",
    "<channel|>",
    "<|inner_prefix|>",
    "<|inner_suffix|>",
    "<unused94>",
    "<unused95>",
];
/// Longest mark, bytes.
const MAX_MARK_BYTES: usize = 80;

/// True for a character that may begin a mark.
pub(super) fn may_begin_mark(c: char) -> bool {
    matches!(c, '<' | '[' | '\u{25C1}' | 'H')
}

/// True for a token that is a mark or a part of one, which is shown even if it is a control token.
pub(super) fn is_reasoning_mark(token: &str) -> bool {
    PARTS.contains(&token) || Tag::parse(token).is_some_and(|tag| tag.len == token.len())
}

/// The opening mark that a prompt ends with: the answer continues its block.
pub(super) fn opening_at_end(prompt: &str) -> Option<&str> {
    let prompt = prompt.trim_end();
    let begins = prompt.char_indices().rev().take(MAX_MARK_BYTES).filter(|(_, c)| may_begin_mark(*c));
    let mut marks = begins.filter_map(|(at, _)| prompt.get(at..));
    marks.find(|mark| Opening::parse(mark).is_some_and(|opening| opening.len == mark.len()))
}

/// A tag with a word of reasoning in its name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tag {
    /// index of its brackets
    brackets: usize,
    /// name in lower case
    name: String,
    is_opening: bool,
    /// bytes
    len: usize,
}

impl Tag {
    /// The tag at the beginning of a text.
    fn parse(text: &str) -> Option<Tag> {
        let brackets = BRACKETS.iter().position(|(open, _)| text.starts_with(open))?;
        let (open, close) = BRACKETS.get(brackets)?;
        let inside_on = text.get(open.len()..)?;
        let end = inside_on.char_indices().take(MAX_MARK_BYTES).find(|(at, _)| inside_on[*at..].starts_with(close))?.0;
        let inside = inside_on.get(..end)?.trim().to_lowercase();
        let mut is_opening = !inside.starts_with('/');
        let mut name = inside.trim_start_matches('/').trim_start();
        if let Some((prefix, opens)) = NAME_PREFIXES.iter().find(|(prefix, _)| *open == "<|" && name.starts_with(prefix)) {
            name = name.get(prefix.len()..)?;
            is_opening = *opens;
        }
        let is_of_square = |name: &str| matches!(name, "think" | "thinking");
        let is_mark = name.chars().all(is_of_name) && !name.starts_with("no") && (*open != "[" || is_of_square(name));
        let has_word = CERTAIN_WORDS.iter().chain(&OTHER_WORDS).any(|word| name.contains(word));
        (is_mark && has_word).then(|| Tag { brackets, name: name.to_owned(), is_opening, len: open.len() + end + close.len() })
    }

    fn is_certain(&self) -> bool {
        CERTAIN_WORDS.iter().any(|word| self.name.contains(word))
    }

    /// True for tags of the same block.
    fn fits(&self, other: &Tag) -> bool {
        self.brackets == other.brackets && (self.name == other.name || self.is_certain() && other.is_certain())
    }

    /// End of the block that this tag opened; `inside` is the text after the tag. Blocks within it are part of it. Of a
    /// complete text, the first closing tag counts if none ends every block.
    fn end_of_block(&self, inside: &str, is_complete: bool) -> Option<(usize, usize)> {
        let (mut depth, mut first) = (1_usize, None);
        for (at, _) in inside.match_indices(BRACKETS.get(self.brackets)?.0) {
            let Some(tag) = inside.get(at..).and_then(Tag::parse).filter(|tag| tag.fits(self)) else { continue };
            let range = (at, at + tag.len);
            // The text may speak of the tag.
            let is_word = tag.is_opening && inside.get(range.1..).is_some_and(|after| after.starts_with(' '));
            if !tag.is_opening {
                depth -= 1;
                first = first.or(Some(range));
            } else if !is_word {
                depth += 1;
            }
            if depth == 0 {
                return Some(range);
            }
        }
        first.filter(|_| is_complete)
    }
}

/// End of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Tag(Tag),
    Phrase(&'static str),
    /// the mark is all of it
    Mark,
}

/// An opening mark at the beginning of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opening {
    /// bytes
    pub len: usize,
    end: End,
}

impl Opening {
    /// The opening mark at the beginning of a text.
    pub fn parse(text: &str) -> Option<Opening> {
        if text.starts_with(FINAL_CHANNEL) {
            return Some(Opening { len: FINAL_CHANNEL.len(), end: End::Mark });
        }
        let (open, close) = CHANNEL;
        if let Some(name_on) = text.strip_prefix(open) {
            let end = name_on.find(close).filter(|end| *end <= MAX_MARK_BYTES)?;
            return Some(Opening { len: open.len() + end + close.len(), end: End::Phrase(FINAL_CHANNEL) });
        }
        if let Some((open, close)) = PHRASES.iter().find(|(open, _)| text.starts_with(open)) {
            return Some(Opening { len: open.len(), end: End::Phrase(close) });
        }
        let tag = Tag::parse(text).filter(|tag| tag.is_opening)?;
        Some(Opening { len: tag.len, end: End::Tag(tag) })
    }

    /// True if all of a text may be the beginning of an opening mark.
    pub fn may_begin(text: &str) -> bool {
        let is_of_phrase =
            || [FINAL_CHANNEL].iter().chain(PHRASES.iter().map(|(open, _)| open)).any(|open| open.starts_with(text));
        let is_of_channel = || text.starts_with(CHANNEL.0) && !text.contains(CHANNEL.1);
        let is_of_tag = || {
            let begins = |open: &str| open.starts_with(text) || text.strip_prefix(open).is_some_and(is_part_of_name);
            BRACKETS.iter().any(|(open, _)| begins(open))
        };
        !text.is_empty() && text.len() <= MAX_MARK_BYTES && (is_of_phrase() || is_of_channel() || is_of_tag())
    }

    /// True for a mark that nothing but reasoning has, so that its block may lack an end.
    pub fn is_certain(&self) -> bool {
        match &self.end {
            End::Tag(tag) => tag.is_certain(),
            End::Phrase(_) => true,
            End::Mark => false,
        }
    }

    /// Beginning and end of the closing mark; `inside` is the text after the opening one.
    pub fn end_of_block(&self, inside: &str, is_complete: bool) -> Option<(usize, usize)> {
        match &self.end {
            End::Tag(tag) => tag.end_of_block(inside, is_complete),
            End::Phrase(close) => inside.find(close).map(|at| (at, at + close.len())),
            End::Mark => Some((0, 0)),
        }
    }
}

/// Bytes of the closing mark at the beginning of a text.
pub(super) fn closing_len(text: &str) -> Option<usize> {
    let tag = || Tag::parse(text).filter(|tag| !tag.is_opening && tag.is_certain()).map(|tag| tag.len);
    PHRASES.iter().map(|(_, close)| *close).find(|close| text.starts_with(close)).map(str::len).or_else(tag)
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | ':' | '-' | '.')
}

/// True for the beginning of a name with white space around it.
fn is_part_of_name(text: &str) -> bool {
    let name = text.strip_suffix('|').unwrap_or(text).trim();
    name.chars().all(is_of_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_known_by_the_word_in_their_name() {
        for (open, close) in [
            ("<think>", "</think>"),
            ("<Think >", "</ THINK>"),
            ("<thinking>", "</think>"),
            ("<thoughts>", "</thoughts>"),
            ("<seed:think>", "</seed:think>"),
            ("<longcat_think>", "</longcat_think>"),
            ("<scratchpad>", "</scratchpad>"),
            ("<inner_monologue>", "</inner_monologue>"),
            ("[THINK]", "[/THINK]"),
            ("<|think|>", "<|/think|>"),
            ("<|begin_of_thought|>", "<|end_of_thought|>"),
            ("<|START_THINKING|>", "<|END_THINKING|>"),
            ("<|inner_prefix|>", "<|inner_suffix|>"),
            ("<unused94>thought", "<unused95>"),
            ("\u{25C1}think\u{25B7}", "\u{25C1}/think\u{25B7}"),
            ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
        ] {
            let opening = Opening::parse(open).unwrap();
            assert_eq!((opening.len, opening.end_of_block(close, true)), (open.len(), Some((0, close.len()))), "{open}");
            assert!((1..open.len()).filter_map(|end| open.get(..end)).all(Opening::may_begin), "{open}");
        }
        for other in
            ["<table>", "<no_think>", "<think about it>", "[Analysis]", "[reasoning]", "</think>", "<think", "think>", ""]
        {
            assert_eq!(Opening::parse(other), None, "{other}");
        }
        assert!(!Opening::may_begin("<b>") && !Opening::may_begin("<if a") && !Opening::may_begin("[1]"));
    }

    #[test]
    fn block_ends_with_the_tag_of_its_depth() {
        let end = |open: &str, inside: &str| Opening::parse(open).unwrap().end_of_block(inside, true);
        assert_eq!(end("<think>", "a<think>b</think>c</think>d"), Some((18, 26)));
        assert_eq!(end("<think>", "the <think> tag</think>"), Some((15, 23)));
        assert_eq!(end("<think>", "a<think>b</think>c"), Some((9, 17)), "the last text of a block that goes on");
        assert_eq!(end("<analysis>", "a</think>b</analysis>"), Some((10, 21)));
        assert_eq!(end("<analysis>", "a</think>b"), None);
    }

    #[test]
    fn prompt_that_opens_a_block_is_known() {
        assert_eq!(opening_at_end("<|im_start|>assistant\n<think>\n"), Some("<think>"));
        assert_eq!(opening_at_end("<|im_start|>assistant\n<longcat_think>\n"), Some("<longcat_think>"));
        assert_eq!(opening_at_end("<think>\n\n</think>\n\n"), None);
        assert_eq!(opening_at_end("é<"), None);
    }

    #[test]
    fn tokens_of_marks_are_known() {
        for token in
            ["<think>", "</think>", "[/THINK]", "<|channel|>", "<|message|>", "<channel|>", "<unused95>", "<|END_THINKING|>"]
        {
            assert!(is_reasoning_mark(token), "{token}");
        }
        for token in ["<|im_end|>", "<|end|>", "</s>", "think", "<unused1>"] {
            assert!(!is_reasoning_mark(token), "{token}");
        }
    }
}
