//! Quotation marks: the passages that an answer puts between them, in any language.
//!
//! ```text
//! »… « and „…“ and “…” ──► opening mark, its closing marks ──► passages of enough words
//! ```
//! Limits: a quotation ends in its paragraph. Straight and curly apostrophes open none; `‘…’` does.

use crate::document::characters::is_unspaced;

/// Fewest words of a quotation; shorter ones are names and titles.
const MIN_WORDS: usize = 3;
/// Fewest characters of a quotation in a script without spaces.
const MIN_CHARS: usize = 8;

/// Pairs of marks: the opening one, and all that close it.
const PAIRS: [(char, &[char]); 16] = [
    ('"', &['"']),
    ('\u{201C}', &['\u{201D}']),
    // German, Polish
    ('\u{201E}', &['\u{201C}', '\u{201D}', '"']),
    ('\u{201F}', &['\u{201D}']),
    // Swedish
    ('\u{201D}', &['\u{201D}']),
    ('\u{2018}', &['\u{2019}']),
    ('\u{201A}', &['\u{2018}', '\u{2019}']),
    ('\u{AB}', &['\u{BB}']),
    // Danish, German books; Finnish
    ('\u{BB}', &['\u{AB}', '\u{BB}']),
    ('\u{2039}', &['\u{203A}']),
    ('\u{203A}', &['\u{2039}', '\u{203A}']),
    ('\u{300C}', &['\u{300D}']),
    ('\u{300E}', &['\u{300F}']),
    ('\u{301D}', &['\u{301E}', '\u{301F}']),
    ('\u{FF02}', &['\u{FF02}']),
    ('\u{FF62}', &['\u{FF63}']),
];

/// Marks that close in most languages; they open only in front of a word.
const CLOSING_FIRST: [char; 5] = ['"', '\u{201D}', '\u{BB}', '\u{203A}', '\u{FF02}'];

/// True for a mark that opens or closes a quotation.
pub fn is_quotation_mark(c: char) -> bool {
    PAIRS.iter().any(|(open, close)| *open == c || close.contains(&c))
}

/// Passages of enough words between quotation marks of one paragraph.
pub(super) fn quoted_passages(answer: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some((start, open)) = next_opening(answer, at) {
        let inside = start + open.len_utf8();
        at = inside;
        if let Some((end, close)) = closing(answer, inside, open) {
            let passage = answer.get(inside..end).unwrap_or_default().trim();
            out.extend(Some(passage).filter(|passage| is_long_enough(passage)));
            at = end + close.len_utf8();
        }
    }
    out
}

fn is_long_enough(passage: &str) -> bool {
    let words = passage.split_whitespace().filter(|word| word.contains(|c: char| c.is_alphanumeric() && !is_unspaced(c)));
    words.count() >= MIN_WORDS || passage.chars().filter(|c| c.is_alphanumeric() && is_unspaced(*c)).count() >= MIN_CHARS
}

/// Next mark that can open a quotation.
fn next_opening(answer: &str, from: usize) -> Option<(usize, char)> {
    let rest = answer.get(from..)?;
    rest.char_indices().map(|(at, c)| (from + at, c)).find(|&(at, c)| {
        let before = answer.get(..at).and_then(|b| b.chars().next_back());
        let after = answer.get(at + c.len_utf8()..).and_then(|a| a.chars().next());
        let is_opening = PAIRS.iter().any(|(open, _)| *open == c);
        let begins_word =
            || !before.is_some_and(|c| c.is_alphanumeric() && !is_unspaced(c)) && after.is_some_and(|c| !c.is_whitespace());
        is_opening && (!CLOSING_FIRST.contains(&c) || begins_word())
    })
}

/// End of the quotation that `open` began, in the same paragraph, and its mark. Quotations between the same marks within it
/// are part of it.
fn closing(answer: &str, from: usize, open: char) -> Option<(usize, char)> {
    let rest = answer.get(from..)?;
    let paragraph = rest.get(..rest.find("\n\n").unwrap_or(rest.len()))?;
    let (_, closers) = PAIRS.iter().find(|(mark, _)| *mark == open)?;
    let follows = |at: usize, c: char| paragraph.get(at + c.len_utf8()..).and_then(|a| a.chars().next());
    // An apostrophe, or a mark in front of a word, closes nothing.
    let is_within = |at: usize, c: char| {
        let is_plain = matches!(c, '"' | '\u{2019}' | '\u{2018}');
        is_plain && follows(at, c).is_some_and(|c| c.is_alphanumeric() && !is_unspaced(c))
    };
    let closings = || paragraph.char_indices().filter(|&(at, c)| closers.contains(&c) && !is_within(at, c));
    let mut depth = 1_usize;
    let balanced = paragraph.char_indices().find(|&(at, c)| {
        if closers.contains(&c) && !is_within(at, c) {
            depth -= 1;
        } else if c == open {
            depth += 1;
        }
        depth == 0
    });
    balanced.or_else(|| closings().next()).map(|(at, c)| (from + at, c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passages_are_found_between_the_marks_of_any_language() {
        for answer in [
            "says \"one two three\".",
            "says “one two three”.",
            "sagt „one two three“.",
            "mówi „one two three”.",
            "sagt „one two three\".",
            "säger ”one two three”.",
            "dit « one two three ».",
            "dit «\u{202F}one two three\u{A0}».",
            "siger »one two three«.",
            "sanoo »one two three».",
            "says ‘one two three’.",
            "sagt ‚one two three‘.",
            "dit ‹ one two three ›.",
            "sagt ›one two three‹.",
            "「one two three」と",
            "『one two three』と",
        ] {
            assert_eq!(quoted_passages(answer), ["one two three"], "{answer}");
        }
        assert_eq!(quoted_passages("本文には「山の上の水車は三人」とある。"), ["山の上の水車は三人"]);
        assert_eq!(quoted_passages("书上说“磨坊属于三个兄弟”。"), ["磨坊属于三个兄弟"]);
        assert_eq!(quoted_passages("a «b «c d e» f» and «g h i»"), ["b «c d e» f", "g h i"]);
        assert_eq!(quoted_passages("„Aber “Nein” sagte er“ und „eins zwei drei“").last(), Some(&"eins zwei drei"));
    }

    #[test]
    fn names_apostrophes_and_single_marks_are_no_quotations() {
        for answer in [
            "„Die Mühle“ und «le moulin» und 'so what'",
            "『水車小屋の物語』を読む",
            "the miller's and the brothers' old mill's",
            "the miller’s and the brothers’ old mill’s",
            "5\" wide and 6\" high and more",
            "» one two three",
            "one two three ”",
            "“one\n\ntwo three”",
            "«»",
        ] {
            assert_eq!(quoted_passages(answer), Vec::<&str>::new(), "{answer}");
        }
        assert_eq!(quoted_passages("‘the miller’s old dog’ barked"), ["the miller’s old dog"]);
    }

    proptest::proptest! {
        #[test]
        fn any_answer_has_passages_of_its_own(answer in "[a-c „“”«»\"‘’「」\\n]{0,60}") {
            for passage in quoted_passages(&answer) {
                proptest::prop_assert!(answer.contains(passage));
            }
        }
    }
}
