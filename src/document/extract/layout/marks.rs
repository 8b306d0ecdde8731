//! Marks over and under letters: the points of Hebrew and the short vowels of Arabic, which are drawn as glyphs of their own.
//!
//! Source: Unicode 17, chapter 9: such a mark follows its letter, whatever the order of drawing.

use unicode_bidi::{BidiClass, bidi_class};

use super::glyph::Letter;
use super::lines::RAISED;

/// Largest distance, in drawing order, of a mark and its letter.
const MAX_APART: usize = 200;
/// Distance from the start of a letter at which a mark still is that of the letter, ems.
const EDGE: f64 = 0.02;

/// Letters with the marks of right-to-left scripts joined to them.
pub fn joined(letters: Vec<Letter>) -> Vec<Letter> {
    let is_mark: Vec<bool> = letters.iter().map(|letter| letter.text.chars().all(is_mark)).collect();
    if !is_mark.contains(&true) {
        return letters;
    }
    let mut marks: Vec<(usize, usize)> = Vec::new();
    for (i, mark) in letters.iter().enumerate().filter(|(i, _)| is_mark.get(*i) == Some(&true)) {
        let near = (1..=MAX_APART).flat_map(|n| [i.checked_sub(n), i.checked_add(n)]).flatten();
        let holds = |at: &usize| is_mark.get(*at) == Some(&false) && letters.get(*at).is_some_and(|letter| holds(letter, mark));
        marks.extend(near.into_iter().find(holds).map(|base| (i, base)));
    }
    let mut joined: Vec<Option<Letter>> = letters.into_iter().map(Some).collect();
    for (i, base) in marks {
        let mark = joined.get_mut(i).and_then(Option::take);
        if let (Some(mark), Some(Some(base))) = (mark, joined.get_mut(base)) {
            base.text.push_str(&mark.text);
        }
    }
    joined.into_iter().flatten().collect()
}

/// True for a combining mark of Hebrew or Arabic.
fn is_mark(c: char) -> bool {
    matches!(c, '\u{591}'..='\u{8FF}' | '\u{FB1E}') && bidi_class(c) == BidiClass::NSM
}

/// True if a mark stands over a letter, or where the letter starts.
fn holds(letter: &Letter, mark: &Letter) -> bool {
    let edge = EDGE * letter.size;
    let at = mark.middle();
    letter.axis == mark.axis
        && !letter.is_space()
        && (letter.below - mark.below).abs() <= RAISED * letter.size.max(mark.size)
        && letter.start - edge <= at
        && at < letter.end - edge
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(text: &str, start: f64, width: f64) -> Letter {
        Letter { text: text.to_owned(), start, end: start + width, below: 0.0, size: 12.0, axis: 0, floats: false }
    }

    fn read(letters: Vec<Letter>) -> Vec<String> {
        joined(letters).into_iter().map(|letter| letter.text).collect()
    }

    #[test]
    fn marks_join_the_letter_that_they_stand_over_in_any_order_of_drawing() {
        for offset in [0.0, 2.0, 4.0] {
            let after = vec![letter("ש", 100.0, 6.0), letter("\u{5B8}", 100.0 + offset, 0.0), letter("ל", 94.0, 6.0)];
            assert_eq!(read(after), ["ש\u{5B8}", "ל"], "{offset}");
            let before = vec![letter("ל", 94.0, 6.0), letter("\u{5B8}", 100.0 + offset, 0.0), letter("ש", 100.0, 6.0)];
            assert_eq!(read(before), ["ל", "ש\u{5B8}"], "{offset}");
        }
    }

    #[test]
    fn marks_without_a_letter_and_latin_accents_stay() {
        assert_eq!(read(vec![letter("ש", 100.0, 6.0), letter("\u{5B8}", 130.0, 0.0)]), ["ש", "\u{5B8}"]);
        assert_eq!(read(vec![letter("u", 100.0, 6.0), letter("\u{308}", 102.0, 0.0)]), ["u", "\u{308}"]);
    }
}
