//! Folded text: spellings of the same words made equal, for search, mentions and quotations.
//!
//! ```text
//! "Jo\u{308}rg’s har-\nbour" ──► FoldedText "Jörg's har|bour" + segments ──► match ──► byte range of the original
//! ```
//! Equal are: canonically equivalent letters (normal form C), presentation forms (ligatures, full-width letters), every kind
//! of white space, of quotation marks and of dashes; characters without a width are left out. White space of one line end
//! between letters of a script without spaces is left out, too.
//!
//! Invariants: 1. A range begins and ends with a character that was matched. 2. A word divided at a line end matches itself
//! whole, and with its hyphen. 3. Superscripts stay apart from digits: `10²` is not `102`.
//! Source: UAX #15 (normal forms), UAX #14 (scripts without spaces), Unicode 3.13 D145 (caseless matching).

use std::ops::Range;

use unicode_normalization::char::{canonical_combining_class, is_combining_mark};
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::characters::{is_hyphen, is_invisible, is_presentation_form, is_unspaced, unified};

/// A hyphen and a line end within a word; a soft hyphen, because folded text has none.
const DIVISION: char = '\u{AD}';

/// A part of the folded text and its source.
#[derive(Debug, Clone, Copy)]
struct Segment {
    /// first byte in the folded text
    folded: usize,
    /// first byte in the original
    original: usize,
    /// bytes in the original
    n_bytes: usize,
    /// true if the bytes correspond one to one
    is_copy: bool,
}

/// A text with its spellings made equal.
#[derive(Debug)]
pub struct FoldedText<'t> {
    original: &'t str,
    text: String,
    segments: Vec<Segment>,
    ignores_case: bool,
    has_divisions: bool,
}

impl<'t> FoldedText<'t> {
    /// Folds a text, but not its case.
    pub fn new(text: &'t str) -> Self {
        Self::folded(text, false)
    }

    /// Folds a text and its case.
    pub fn ignoring_case(text: &'t str) -> Self {
        Self::folded(text, true)
    }

    fn folded(original: &'t str, ignores_case: bool) -> Self {
        let mut folded = FoldedText {
            original,
            text: String::with_capacity(original.len()),
            segments: Vec::new(),
            ignores_case,
            has_divisions: false,
        };
        let mut at = 0;
        while let Some(rest) = original.get(at..).filter(|rest| !rest.is_empty()) {
            at += folded.push_next(at, rest);
        }
        folded
    }

    /// Folds the first character of `rest`, with those that belong to it. Returns their bytes.
    fn push_next(&mut self, at: usize, rest: &str) -> usize {
        let Some(first) = rest.chars().next() else { return rest.len() };
        let n_plain = plain_bytes(rest, self.ignores_case);
        if n_plain > 0 {
            self.push(at, n_plain, rest.get(..n_plain).unwrap_or_default(), true);
            return n_plain;
        }
        if first.is_whitespace() {
            return self.push_white_space(at, rest);
        }
        if is_hyphen(first)
            && let Some(n_bytes) = division_bytes(self.original.get(..at).unwrap_or_default(), rest)
        {
            self.has_divisions = true;
            self.push(at, n_bytes, DIVISION.encode_utf8(&mut [0; 2]), false);
            return n_bytes;
        }
        if is_invisible(first) {
            return first.len_utf8();
        }
        let cluster = rest.get(..cluster_bytes(rest)).unwrap_or(rest);
        let is_plain = cluster.len() == 1 && !(self.ignores_case && first.is_ascii_uppercase());
        if is_plain && unified(first).is_none() {
            self.push(at, 1, cluster, true);
            return 1;
        }
        let mut out = String::new();
        cluster.nfc().for_each(|c| self.fold_char(c, &mut out));
        self.push(at, cluster.len(), &out, out == cluster);
        cluster.len()
    }

    fn push_white_space(&mut self, at: usize, rest: &str) -> usize {
        let after = rest.trim_start_matches(|c: char| c.is_whitespace() || is_invisible(c));
        let n_bytes = rest.len() - after.len();
        let gap = rest.get(..n_bytes).unwrap_or_default();
        let is_unspaced = self.text.ends_with(is_unspaced) && after.starts_with(is_unspaced);
        if !(is_unspaced && n_line_ends(gap) == 1) {
            self.push(at, n_bytes, " ", n_bytes == 1);
        }
        n_bytes
    }

    fn fold_char(&self, c: char, out: &mut String) {
        match unified(c) {
            Some(text) => out.push_str(text),
            None if is_presentation_form(c) => std::iter::once(c).nfkc().for_each(|c| self.push_in_case(c, out)),
            None => self.push_in_case(c, out),
        }
    }

    fn push_in_case(&self, c: char, out: &mut String) {
        match self.ignores_case {
            // Uppercase first: it makes ß and SS equal, and both forms of sigma.
            true => out.extend(c.to_uppercase().flat_map(char::to_lowercase)),
            false => out.push(c),
        }
    }

    fn push(&mut self, original: usize, n_bytes: usize, text: &str, is_copy: bool) {
        let folded = self.text.len();
        self.text.push_str(text);
        match self.segments.last_mut() {
            Some(last) if is_copy && last.is_copy && last.original + last.n_bytes == original => last.n_bytes += n_bytes,
            _ => self.segments.push(Segment { folded, original, n_bytes, is_copy }),
        }
    }

    /// The folded text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Places of `passage`, which is folded the same way, by the folded text's bytes.
    pub fn find<'a>(&'a self, passage: &'a FoldedText<'_>) -> impl Iterator<Item = Range<usize>> + 'a {
        let first = passage.text.chars().next();
        let is_exact = !self.has_divisions && !passage.has_divisions;
        let exact = first.filter(|_| is_exact).map(|_| self.text.match_indices(passage.text.as_str()).map(|(at, _)| at));
        let begins = first.filter(|_| !is_exact).map(|first| self.text.match_indices(first).map(|(at, _)| at));
        let starts = exact.into_iter().flatten().chain(begins.into_iter().flatten());
        starts.filter_map(|at| Some(at..self.match_at(at, passage)?))
    }

    /// End of `passage`, if it begins at this byte of the folded text.
    pub fn match_at(&self, at: usize, passage: &FoldedText<'_>) -> Option<usize> {
        let mut have = self.text.get(at..)?;
        let mut want = passage.text.as_str();
        while let Some(wanted) = want.chars().next() {
            let there = have.chars().next();
            let (takes_there, takes_wanted) = match (wanted, there) {
                (DIVISION, Some(DIVISION | '-')) | ('-', Some(DIVISION)) => (true, true),
                (DIVISION, _) => (false, true),
                (_, Some(DIVISION)) => (true, false),
                (wanted, Some(there)) if wanted == there => (true, true),
                _ => return None,
            };
            have = have.get(there.filter(|_| takes_there).map_or(0, char::len_utf8)..)?;
            want = want.get(if takes_wanted { wanted.len_utf8() } else { 0 }..)?;
            if (wanted, there) == ('-', Some(DIVISION)) {
                // The passage may have a space in place of the line end.
                want = want.strip_prefix(' ').unwrap_or(want);
            }
        }
        Some(self.text.len() - have.len())
    }

    /// Bytes of the original for bytes of the folded text.
    pub fn original_range(&self, range: &Range<usize>) -> Range<usize> {
        let start = self.segment_of(range.start).map_or(self.original.len(), |s| match s.is_copy {
            true => s.original + (range.start - s.folded),
            false => s.original,
        });
        let end = range.end.checked_sub(1).and_then(|last| self.segment_of(last)).map_or(start, |s| match s.is_copy {
            true => s.original + (range.end - s.folded),
            false => s.original + s.n_bytes,
        });
        start..end.max(start)
    }

    fn segment_of(&self, byte: usize) -> Option<&Segment> {
        let n_before = self.segments.partition_point(|s| s.folded <= byte);
        self.segments.get(n_before.checked_sub(1)?)
    }

    /// True if the range splits no word and no number.
    pub fn is_whole(&self, range: &Range<usize>) -> bool {
        let (mut outwards, mut onwards) = (self.before(range.start), self.after(range.end));
        let (left, right) = ([outwards.next(), outwards.next()], [onwards.next(), onwards.next()]);
        let inside = self.text.get(range.clone()).unwrap_or_default();
        let (first, last) = (inside.chars().next(), inside.chars().next_back());
        // A minus sign is part of the number that follows it.
        let is_signed = matches!(left[0], Some('-' | '\u{2212}')) && first.is_some_and(|c| c.is_ascii_digit());
        let is_divided = [left[0], right[0], first, last].contains(&Some(DIVISION));
        !is_signed && !is_divided && !joins(first, left) && !joins(last, right)
    }

    /// True if no letter and no digit of a word is next to the range, on either side.
    pub fn is_free(&self, range: &Range<usize>) -> bool {
        let inside = self.text.get(range.clone()).unwrap_or_default();
        let is_free = |edge: Option<char>, next: Option<char>| {
            let is_unspaced = edge.is_some_and(is_unspaced) || next.is_some_and(is_unspaced);
            next.is_none_or(|c| c != DIVISION && !is_combining_mark(c) && (is_unspaced || !c.is_alphanumeric()))
        };
        is_free(inside.chars().next(), self.before(range.start).next())
            && is_free(inside.chars().next_back(), self.after(range.end).next())
    }

    /// Characters before a byte of the folded text, from the last on. Dashes keep their kind.
    fn before(&self, byte: usize) -> impl Iterator<Item = char> + '_ {
        let text = self.text.get(..byte).unwrap_or_default();
        text.char_indices().rev().map(|(at, c)| self.kind_of(at, c))
    }

    fn after(&self, byte: usize) -> impl Iterator<Item = char> + '_ {
        let text = self.text.get(byte..).unwrap_or_default();
        text.char_indices().map(move |(at, c)| self.kind_of(byte + at, c))
    }

    fn kind_of(&self, at: usize, c: char) -> char {
        let original = || self.original.get(self.original_range(&(at..at + 1)).start..)?.chars().next();
        if c == '-' { original().unwrap_or(c) } else { c }
    }
}

/// Bytes of ASCII letters and digits that stay as they are, up to one that a mark may follow.
fn plain_bytes(text: &str, ignores_case: bool) -> usize {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() && !(ignores_case && byte.is_ascii_uppercase());
    let n = text.bytes().take_while(is_plain).count();
    if text.as_bytes().get(n).is_some_and(|next| !next.is_ascii()) { n.saturating_sub(1) } else { n }
}

/// True if a word continues from `edge`, the last character inside, to the two next ones outside.
fn joins(edge: Option<char>, outside: [Option<char>; 2]) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let [next, beyond] = outside;
    match next {
        Some(c) if is_combining_mark(c) => true,
        Some(c) if is_hyphen(c) || c == '\'' => is_word(edge) && is_word(beyond),
        Some('.' | ',' | ':' | '/') => is_digit(edge) && is_digit(beyond),
        Some(c) if is_unspaced(c) || edge.is_some_and(is_unspaced) => false,
        _ => is_word(edge) && is_word(next),
    }
}

/// Bytes of a hyphen and a line end that divide a word; None if `text`, which begins with a hyphen, does not.
fn division_bytes(before: &str, text: &str) -> Option<usize> {
    let hyphen = text.chars().next()?.len_utf8();
    let gap_on = text.get(hyphen..)?;
    let after = gap_on.trim_start();
    let gap = gap_on.get(..gap_on.len() - after.len())?;
    let is_word = before.ends_with(|c: char| c.is_alphanumeric() || is_combining_mark(c));
    (is_word && n_line_ends(gap) == 1 && after.starts_with(char::is_alphanumeric)).then_some(hyphen + gap.len())
}

/// Number of line ends: LF, CR, CR LF, and the line separator.
fn n_line_ends(gap: &str) -> usize {
    gap.matches(['\n', '\r', '\u{2028}', '\u{85}']).count() - gap.matches("\r\n").count()
}

/// Bytes of the first character with those that can compose with it.
fn cluster_bytes(text: &str) -> usize {
    let mut chars = text.chars();
    let first = chars.next().map_or(0, char::len_utf8);
    let composes = |c: &char| {
        !c.is_ascii() && (canonical_combining_class(*c) != 0 || is_nfc_quick(std::iter::once(*c)) == IsNormalized::Maybe)
    };
    first + chars.take_while(composes).map(char::len_utf8).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, passage: &str) -> Option<String> {
        let (text, passage) = (FoldedText::new(text), FoldedText::new(passage));
        let range = text.find(&passage).find(|range| text.is_whole(range))?;
        Some(text.original[text.original_range(&range)].to_owned())
    }

    #[test]
    fn same_words_are_found_in_any_spelling() {
        for (text, passage, want) in [
            ("Der a\u{308}lteste hieß Jo\u{308}rg.", "älteste hieß Jörg", "a\u{308}lteste hieß Jo\u{308}rg"),
            ("Der älteste.", "a\u{308}lteste", "älteste"),
            ("Was\u{AD}ser\u{200B}mühle", "Wassermühle", "Was\u{AD}ser\u{200B}mühle"),
            ("x 12\u{202F}000\u{A0}km", "12 000 km", "12\u{202F}000\u{A0}km"),
            ("the \u{FB01}rst o\u{FB03}ce", "first office", "\u{FB01}rst o\u{FB03}ce"),
            ("ＡＢＣ　１２", "ABC 12", "ＡＢＣ　１２"),
            ("a \u{2013} b\u{2014}c", "a - b-c", "a \u{2013} b\u{2014}c"),
            ("\u{201E}So\u{201C} sei es", "\u{AB}So\u{BB} sei es", "\u{201E}So\u{201C} sei es"),
            ("the har-\nbour bell", "harbour bell", "har-\nbour bell"),
            ("the har\u{AD}\r\nbour", "harbour", "har\u{AD}\r\nbour"),
            ("the har-\nbour bell", "har- bour", "har-\nbour"),
            ("a non-\ntoxic day", "non-toxic", "non-\ntoxic"),
            ("harbour", "har-\nbour", "harbour"),
            ("山の上の\n水車は三人", "上の水車", "上の\n水車"),
            ("각", "\u{1100}\u{1161}\u{11A8}", "각"),
        ] {
            assert_eq!(found(text, passage).as_deref(), Some(want), "{passage}");
        }
    }

    #[test]
    fn other_words_stay_apart() {
        for (text, passage) in [
            ("10² sacks", "102 sacks"),
            ("the har-\nbour", "har"),
            ("the har-\nbour", "har-"),
            ("the har-\nbour", "bour"),
            ("Jorg", "Jörg"),
            ("Jo\u{308}rg", "Jo"),
            ("one\n\ntwo", "onetwo"),
            ("a b", "ab"),
            ("mill-stone", "mill"),
            ("x", ""),
        ] {
            assert_eq!(found(text, passage), None, "{passage}");
        }
        assert_eq!(found("the mill\u{2014}sold twice", "the mill").as_deref(), Some("the mill"));
        assert_eq!(found("1939\u{2013}1945", "1945").as_deref(), Some("1945"));
    }

    #[test]
    fn case_is_ignored_by_unicode() {
        for (text, word) in [("STRASSE", "straße"), ("ΟΔΟΣ", "οδος"), ("ÉLAN", "e\u{301}lan"), ("ЖУК", "жук"), ("ſo", "SO")]
        {
            let (text, word) = (FoldedText::ignoring_case(text), FoldedText::ignoring_case(word));
            assert_eq!(text.find(&word).count(), 1, "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn ranges_are_parts_of_any_text(text in "[\\PC\\n -]{0,40}", from in 0usize..40, n in 1usize..8) {
            let folded = FoldedText::new(&text);
            let passage: String = text.chars().skip(from).take(n).collect();
            for range in folded.find(&FoldedText::new(&passage)) {
                proptest::prop_assert!(text.get(folded.original_range(&range)).is_some_and(|part| !part.is_empty()));
            }
            let all = folded.original_range(&(0..folded.text.len()));
            proptest::prop_assert!(text.get(all).is_some());
        }
    }
}
