//! Right-to-left text: letters as they stand from left to right, to the order in which they are read.
//!
//! ```text
//! visual items ──► marks join their letters ──► levels (UAX #9) ──► runs turned round ──► plain letters (NFKC, NFC)
//! ```
//! Source: UAX #9, rule L2: the reordering of a line is its own inverse.

use unicode_bidi::{BidiClass, BidiInfo, Level, bidi_class};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::glyph::Letter;
use super::raised::Item;

/// Pairs of marks that are drawn as their mirror image from right to left.
const MIRRORED: [(char, char); 10] =
    [('(', ')'), ('[', ']'), ('{', '}'), ('<', '>'), ('«', '»'), ('‹', '›'), ('≤', '≥'), ('≪', '≫'), ('⟨', '⟩'), ('⟦', '⟧')];

/// True if a letter of `text` runs from right to left.
pub fn has_rtl(text: &str) -> bool {
    text.chars().any(is_rtl)
}

fn is_rtl(c: char) -> bool {
    c >= '\u{590}' && matches!(bidi_class(c), BidiClass::R | BidiClass::AL)
}

fn is_ltr(c: char) -> bool {
    c.is_ascii_alphabetic() || (c >= '\u{80}' && bidi_class(c) == BidiClass::L)
}

/// Number of letters of each direction on a page.
#[derive(Debug, Clone, Copy, Default)]
pub struct Page {
    n_rtl: usize,
    n_ltr: usize,
}

impl Page {
    /// Counts the letters of some texts.
    pub fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Page {
        let mut page = Page::default();
        for c in texts.flat_map(str::chars) {
            page.n_rtl += usize::from(is_rtl(c));
            page.n_ltr += usize::from(is_ltr(c));
        }
        page
    }

    /// True if a letter runs from right to left.
    pub fn has_rtl(self) -> bool {
        self.n_rtl > 0
    }

    /// True if most letters run from right to left.
    pub fn is_rtl(self) -> bool {
        self.n_rtl > self.n_ltr
    }

    /// True if right-to-left words stand on the page from left to right, as by a program without support of such scripts. Letters
    /// that only end a word, and the Arabic article, tell.
    pub fn is_rtl_drawn_in_logical_order<'a>(self, cells: impl Iterator<Item = &'a Vec<&'a Letter>>) -> bool {
        if self.n_rtl == 0 {
            return false;
        }
        let (mut n_visual, mut n_logical) = (0, 0);
        for cell in cells {
            let letters: Vec<char> =
                cell.iter().flat_map(|letter| letter.text.nfkc()).filter(|c| !is_combining_mark(*c)).collect();
            for word in letters.split(|c| !is_rtl(*c)).filter(|word| word.len() > 1) {
                let (Some(left), Some(right)) = (word.first(), word.last()) else { continue };
                n_visual += usize::from(ends_word(*left)) + usize::from(word.ends_with(&['\u{644}', '\u{627}']));
                n_logical += usize::from(ends_word(*right)) + usize::from(word.starts_with(&['\u{627}', '\u{644}']));
            }
        }
        n_logical >= 2 && n_logical > 2 * n_visual
    }
}

/// Hebrew final letters, Arabic te marbuta and alef maksura.
fn ends_word(c: char) -> bool {
    matches!(c, 'ך' | 'ם' | 'ן' | 'ף' | 'ץ' | '\u{629}' | '\u{649}')
}

/// Text of items that stand from left to right.
pub fn in_reading_order(items: &[Item<'_>], is_rtl_page: bool, is_logical: bool) -> String {
    let is_plain = !items.iter().any(|(text, _)| has_rtl(text));
    let text = if is_plain {
        items.iter().map(|(text, _)| text.as_ref()).collect()
    } else {
        let clusters = clusters(items);
        if is_logical { clusters.concat() } else { reordered(clusters, is_rtl_page) }
    };
    let text = if text.is_ascii() { text } else { text.nfc().collect() };
    text.trim().to_owned()
}

/// Items with combining marks joined to the letter that they stand over.
fn clusters(items: &[Item<'_>]) -> Vec<String> {
    let middle = |item: &Item<'_>| item.1.map(|letter| letter.middle());
    let is_mark = |item: &Item<'_>| item.0.chars().all(is_combining_mark);
    let mut clusters: Vec<(Option<f64>, String)> =
        items.iter().filter(|item| !is_mark(item)).map(|item| (middle(item), item.0.to_string())).collect();
    let distance = |a: Option<f64>, b: Option<f64>| a.zip(b).map_or(f64::INFINITY, |(a, b)| (a - b).abs());
    // Spaces have no place of their own: they stand at that of the letter before.
    let at_or_before = |last: &mut f64, (middle, _): &(Option<f64>, String)| {
        *last = middle.unwrap_or(*last).max(*last);
        Some(*last)
    };
    let places: Vec<f64> = clusters.iter().scan(f64::NEG_INFINITY, at_or_before).collect();
    for item in items.iter().filter(|item| is_mark(item)) {
        let at = middle(item);
        // Sorted by their middle, so the nearest are around the place of the mark.
        let place = places.partition_point(|middle| at.is_some_and(|at| *middle < at));
        let near = place.saturating_sub(3)..(place + 3).min(clusters.len());
        let nearest = near.min_by(|a, b| {
            let of = |i: &usize| clusters.get(*i).map_or(f64::INFINITY, |(middle, _)| distance(*middle, at));
            of(a).total_cmp(&of(b))
        });
        if let Some((_, text)) = nearest.and_then(|i| clusters.get_mut(i)) {
            text.push_str(&item.0);
        }
    }
    clusters.into_iter().map(|(_, text)| text).collect()
}

fn reordered(clusters: Vec<String>, is_rtl_page: bool) -> String {
    let n = |test: fn(char) -> bool| clusters.iter().flat_map(|text| text.chars()).filter(|c| test(*c)).count();
    // The letter at the edge where the lines of the page begin sets the direction, or else most of its letters.
    let is_rtl_line = if is_rtl_page {
        n(is_rtl) > n(is_ltr) || clusters.iter().rev().find_map(|t| strong(t)) == Some(true)
    } else {
        n(is_rtl) > n(is_ltr) && clusters.iter().find_map(|t| strong(t)) == Some(true)
    };
    let base = if is_rtl_line { Level::rtl() } else { Level::ltr() };
    // One character for each cluster, so that levels of characters are levels of clusters.
    let classes: Vec<char> =
        clusters.iter().map(|text| text.chars().find(|c| is_rtl(*c)).or(text.chars().next()).unwrap_or(' ')).collect();
    let (levels, order) = logical_order(&classes, base);
    // The levels are those of places, and reversing equal spans keeps each span in its place.
    let is_odd = |i: usize| levels.get(i).is_some_and(|level| level % 2 == 1);
    let read = |mirrors: bool| -> String {
        let text = |i: &usize| clusters.get(*i).map(|text| if mirrors && is_odd(*i) { mirrored(text) } else { plain(text) });
        order.iter().filter_map(text).collect()
    };
    let (mirror, same) = (read(true), read(false));
    if well_nested(&same) > well_nested(&mirror) { same } else { mirror }
}

/// Levels of the places of a line, and the places in reading order. The levels of a line as it stands are those of its text unless
/// a number takes another direction from the letters before it; the text read from the other end then has the levels.
fn logical_order(visual: &[char], base: Level) -> (Vec<u8>, Vec<usize>) {
    let standing = levels(visual, base);
    let order = reordered_places(&standing);
    if base.is_ltr() || !visual.iter().any(|c| c.is_numeric()) || stands_so(visual, &standing, &order, base) {
        return (standing, order);
    }
    let turned: Vec<char> = visual.iter().rev().copied().collect();
    let mut other = levels(&turned, base);
    other.reverse();
    let other_order = reordered_places(&other);
    if stands_so(visual, &other, &other_order, base) { (other, other_order) } else { (standing, order) }
}

/// True if the text of this order stands on the page as the line does.
fn stands_so(visual: &[char], levels_of_places: &[u8], order: &[usize], base: Level) -> bool {
    let is_odd = |i: usize| levels_of_places.get(i).is_some_and(|level| level % 2 == 1);
    let shown = |i: &usize| visual.get(*i).map(|c| if is_odd(*i) { mirror(*c) } else { *c });
    let text: Vec<char> = order.iter().filter_map(shown).collect();
    let places = reordered_places(&levels(&text, base));
    places.iter().filter_map(|i| order.get(*i)).copied().eq(0..visual.len())
}

fn levels(text: &[char], base: Level) -> Vec<u8> {
    let text: String = text.iter().collect();
    let info = BidiInfo::new(&text, Some(base));
    text.char_indices().map(|(at, _)| info.levels.get(at).map_or(0, |level| level.number())).collect()
}

/// Places after rule L2.
fn reordered_places(levels: &[u8]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..levels.len()).collect();
    let highest = levels.iter().copied().max().unwrap_or(0);
    for level in (1..=highest).rev() {
        let mut from = 0;
        while from < levels.len() {
            let run = levels.iter().skip(from).take_while(|other| **other >= level).count();
            if let Some(turned) = order.get_mut(from..from + run) {
                turned.reverse();
            }
            from += run.max(1);
        }
    }
    order
}

/// Direction of the first letter that has one; true from right to left.
fn strong(text: &str) -> Option<bool> {
    text.chars().find_map(|c| if is_rtl(c) { Some(true) } else { is_ltr(c).then_some(false) })
}

/// Presentation forms as their letters.
fn plain(text: &str) -> String {
    let is_form = |c: char| matches!(c, '\u{FB1D}'..='\u{FDFF}' | '\u{FE70}'..='\u{FEFC}');
    if text.contains(is_form) { text.nfkc().collect() } else { text.to_owned() }
}

fn mirrored(text: &str) -> String {
    plain(text).chars().map(mirror).collect()
}

fn mirror(c: char) -> char {
    let other = |(a, b): &(char, char)| if *a == c { Some(*b) } else { (*b == c).then_some(*a) };
    MIRRORED.iter().find_map(other).unwrap_or(c)
}

/// Number of brackets that close after they open, less those that do not.
fn well_nested(text: &str) -> i32 {
    MIRRORED.iter().fold(0, |sum, (open, close)| {
        let (mut depth, mut score) = (0, 0);
        for c in text.chars().filter(|c| c == open || c == close) {
            depth += if c == *open { 1 } else { -1 };
            score += if depth < 0 { -1 } else { 1 };
            depth = depth.max(0);
        }
        sum + score
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(visual: &str, is_rtl_page: bool) -> String {
        let items: Vec<Item<'_>> = visual.chars().map(|c| (c.to_string().into(), None)).collect();
        in_reading_order(&items, is_rtl_page, false)
    }

    fn turned(text: &str) -> String {
        text.chars().rev().collect()
    }

    #[test]
    fn hebrew_and_arabic_are_read_from_the_right() {
        assert_eq!(read(&turned("שלום עולם"), true), "שלום עולם");
        assert_eq!(read(&format!("{} 1662 {}", turned("נבנה"), turned("בשנת")), true), "בשנת 1662 נבנה");
        assert_eq!(read(&format!("{} 3.50 {}", turned("שקל"), turned("עלה")), true), "עלה 3.50 שקל");
    }

    #[test]
    fn latin_words_and_brackets_inside_keep_their_order() {
        let visual = format!("{} Big Ben {}", turned("בלונדון"), turned("השעון"));
        assert_eq!(read(&visual, true), "השעון Big Ben בלונדון");
        assert_eq!(read(&format!(".({}) {}", turned("כן"), turned("אמר")), true), "אמר (כן).");
        assert_eq!(read(&format!("The word {} means peace", turned("שלום")), false), "The word שלום means peace");
    }

    #[test]
    fn numbers_at_the_end_of_arabic_lines_keep_their_order() {
        // Signs beside digits after Arabic letters take the direction of the line.
        assert_eq!(read(&format!("%50 {}", turned("بنسبة")), true), "بنسبة 50%");
        assert_eq!(read(&format!("12-03-2024 {}", turned("العقد في")), true), "العقد في 2024-03-12");
        assert_eq!(read(&format!("50% {}", turned("בשיעור")), true), "בשיעור 50%");
        assert_eq!(read(&format!("{} %50 {}", turned("فقط"), turned("بنسبة")), true), "بنسبة 50% فقط");
    }

    #[test]
    fn lines_of_latin_pages_begin_with_their_left_letter() {
        assert_eq!(read(&format!("Said: {}.", turned("הולך לבית")), false), "Said: הולך לבית.");
        assert_eq!(read(&format!(".Said {}", turned("הולך לבית")), true), "הולך לבית Said.");
    }

    #[test]
    fn marks_after_a_space_join_the_letter_under_them() {
        let letter = |text: &str, start: f64, end: f64| Letter {
            text: text.to_owned(),
            start,
            end,
            below: 0.0,
            size: 12.0,
            axis: 0,
            floats: false,
        };
        let letters = [letter("ב", 0.0, 6.0), letter("א", 10.0, 16.0), letter("\u{5B8}", 13.0, 13.0), letter("ג", 16.0, 22.0)];
        let mut items: Vec<Item<'_>> = letters.iter().map(|letter| (letter.text.as_str().into(), Some(letter))).collect();
        items.insert(1, (" ".into(), None));
        assert_eq!(in_reading_order(&items, true, false), "גא\u{5B8} ב");
    }

    #[test]
    fn presentation_forms_become_letters_in_reading_order() {
        // Lam-alef is one glyph for two letters.
        assert_eq!(read("\u{FEE1}\u{FEFC}\u{FEB3}", true), "\u{633}\u{644}\u{627}\u{645}");
    }
}
