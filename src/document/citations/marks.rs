//! Quotation marks: the passages that an answer puts between them, in any language.
//!
//! ```text
//! »… « and „…“ and “…” ──► opening mark, its closing marks ──► passages of enough words
//! ```
//! Limits: a quotation ends in its paragraph. Straight and curly apostrophes open none; `‘…’` does, and so does LaTeX's ``…''.

use std::ops::Range;

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

/// LaTeX's marks.
const LATEX_OPENING: &str = "``";
const LATEX_CLOSING: &str = "''";

/// Hebrew prefixes, which are written together with the next word, at most two at a time.
const HEBREW_PREFIXES: [char; 7] = ['\u{5D1}', '\u{5D4}', '\u{5D5}', '\u{5DB}', '\u{5DC}', '\u{5DE}', '\u{5E9}'];

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
    loop {
        let opening = next_opening(answer, at);
        let latex = next_latex(answer, at).filter(|range| opening.is_none_or(|(start, _)| range.start < start));
        if let Some(range) = latex {
            let passage = answer.get(range.clone()).unwrap_or_default().trim();
            out.extend(Some(passage).filter(|passage| is_long_enough(passage)));
            at = range.end + LATEX_CLOSING.len();
            continue;
        }
        let Some((start, open)) = opening else { break };
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
        let (before, after) = (answer.get(..at).unwrap_or_default(), answer.get(at + c.len_utf8()..).unwrap_or_default());
        let is_opening = PAIRS.iter().any(|(open, _)| *open == c);
        let follows_word = before.ends_with(|c: char| c.is_alphanumeric() && !is_unspaced(c)) && !follows_prefix(before, after);
        let begins_word = || !follows_word && after.starts_with(|c: char| !c.is_whitespace());
        is_opening && (!CLOSING_FIRST.contains(&c) || begins_word())
    })
}

/// True for Hebrew prefixes before a mark. An abbreviation has one letter after its mark.
fn follows_prefix(before: &str, after: &str) -> bool {
    let n_letters = before.chars().rev().take_while(|c| c.is_alphanumeric()).count();
    let is_prefix = before.chars().rev().take(n_letters).all(|c| HEBREW_PREFIXES.contains(&c));
    n_letters <= 2 && is_prefix && after.chars().take_while(|c| is_hebrew(*c)).count() >= 2
}

fn is_hebrew(c: char) -> bool {
    matches!(c, '\u{5D0}'..='\u{5EA}')
}

fn is_hangul(c: char) -> bool {
    matches!(c, '\u{1100}'..='\u{11FF}' | '\u{3131}'..='\u{318E}' | '\u{AC00}'..='\u{D7A3}')
}

/// Bytes between the next marks of LaTeX in one paragraph. Runs of more backticks, or text with backticks, are code.
fn next_latex(answer: &str, from: usize) -> Option<Range<usize>> {
    let mut at = from;
    loop {
        at += answer.get(at..)?.find(LATEX_OPENING)?;
        let rest = answer.get(at..)?;
        let n_ticks = rest.len() - rest.trim_start_matches('`').len();
        let inside = at + n_ticks;
        let text = rest.get(n_ticks..)?;
        let end = text.find(LATEX_CLOSING).filter(|_| n_ticks == LATEX_OPENING.len());
        let is_text = |end: &usize| text.get(..*end).is_some_and(|text| !text.contains('`') && !text.contains("\n\n"));
        if let Some(end) = end.filter(is_text) {
            return Some(inside..inside + end);
        }
        // The next backticks end the code.
        let ticks = rest.get(..n_ticks)?;
        let code_end = text.find("\n\n").and_then(|end| text.get(..end)).unwrap_or(text).find(ticks);
        at = inside + code_end.map_or(0, |end| end + n_ticks);
    }
}

/// End of the quotation that `open` began, in the same paragraph, and its mark. Quotations between the same marks within it
/// are part of it.
fn closing(answer: &str, from: usize, open: char) -> Option<(usize, char)> {
    let rest = answer.get(from..)?;
    let paragraph = rest.get(..rest.find("\n\n").unwrap_or(rest.len()))?;
    let (_, closers) = PAIRS.iter().find(|(mark, _)| *mark == open)?;
    let follows = |at: usize, c: char| paragraph.get(at + c.len_utf8()..).and_then(|a| a.chars().next());
    // An apostrophe, or a mark in front of a word, closes nothing; but an ending may follow a closing mark: `"…"nin`, `’라고`.
    let is_within = |at: usize, c: char| {
        let next = follows(at, c).filter(|c| c.is_alphanumeric() && !is_unspaced(*c) && !is_hangul(*c));
        let follows_word =
            || paragraph.get(..at).is_some_and(|b| b.ends_with(|c: char| c.is_alphanumeric() || ".!?\u{2026}".contains(c)));
        match c {
            '"' => next.is_some_and(|next| !next.is_lowercase() || !follows_word()),
            '\u{2019}' | '\u{2018}' => next.is_some(),
            _ => false,
        }
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
            "\"one two three\"nin",
            "“one two three”라고",
            "\"one two three\"라고",
            "‘one two three’라고",
            "says ``one two three''.",
        ] {
            assert_eq!(quoted_passages(answer), ["one two three"], "{answer}");
        }
        assert_eq!(quoted_passages("本文には「山の上の水車は三人」とある。"), ["山の上の水車は三人"]);
        assert_eq!(quoted_passages("כתוב ש\"אחת שתיים שלוש\" ודי, 5 מ\"מ"), ["אחת שתיים שלוש"]);
        assert_eq!(quoted_passages("5 מ\"מ: \"אחת שתיים שלוש\"."), ["אחת שתיים שלוש"]);
        assert_eq!(quoted_passages("`a` ``so it was'' and \"so it is now\""), ["so it was", "so it is now"]);
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
            "```\none two three''\n```",
            "``one two three`` is code, and ''",
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
