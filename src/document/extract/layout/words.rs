//! Words: which gaps of a line are spaces, by the line's own gaps.
//!
//! Source: the distribution of gaps of one line. Letters of a word stand equally far apart, whether that is nothing or a
//! quarter of an em, and gaps between words are wider.

use super::glyph::Letter;

/// A wider gap is a space if the line gives no other measure, ems.
const SPACE: f64 = 0.15;
/// A wider gap between two marks, such as points, is a space, ems.
const SPACE_MARKS: f64 = 0.2;
/// A wider gap between two letters of a script without spaces is a space, ems.
const SPACE_IDEOGRAPHS: f64 = 0.5;
/// Letters that stand further apart are spaced for emphasis, as in headings, ems.
const SPACED: f64 = 0.13;
/// Largest distance of such letters, ems; wider is a row of cells.
const SPACED_MAX: f64 = 0.9;
/// Gaps of words are wider than gaps of letters by this, ems.
const STEP: f64 = 0.06;
/// The same in a short line, ems.
const STEP_SHORT: f64 = 0.1;

/// True before each letter if a space precedes it; white space itself is false.
pub fn spaces(cell: &[&Letter]) -> Vec<bool> {
    let letters: Vec<(usize, &Letter)> = cell.iter().enumerate().filter(|(_, l)| !l.is_space()).map(|(i, l)| (i, *l)).collect();
    let pairs: Vec<Pair> = letters.windows(2).filter_map(Pair::of).collect();
    let mut out = vec![false; cell.len()];
    let joins_spaces = is_spaced_by_spaces(&pairs, &letters);
    let limit = threshold(&pairs, joins_spaces);
    for pair in &pairs {
        let limit = match () {
            () if pair.is_ideographic => limit.max(SPACE_IDEOGRAPHS),
            () if pair.are_marks => SPACE_MARKS,
            () => limit,
        };
        if let Some(out) = out.get_mut(pair.second) {
            *out = (pair.has_space && !joins_spaces) || pair.gap > limit;
        }
    }
    out
}

/// Two letters that follow each other.
struct Pair {
    /// number of the second one
    second: usize,
    /// gap between them, ems
    gap: f64,
    /// true if white space was drawn between them
    has_space: bool,
    /// true if both are of a script without spaces
    is_ideographic: bool,
    /// true if both are marks, such as the points of a leader, whose gaps are their own
    are_marks: bool,
    /// true if both are digits
    are_digits: bool,
}

impl Pair {
    fn of(pair: &[(usize, &Letter)]) -> Option<Pair> {
        let [(i, a), (j, b)] = pair else { return None };
        let size = a.size.max(b.size).max(f64::MIN_POSITIVE);
        let is = |test: fn(char) -> bool| a.text.chars().next_back().is_some_and(test) && b.text.chars().next().is_some_and(test);
        Some(Pair {
            second: *j,
            gap: (b.start - a.end) / size,
            has_space: *j > i + 1,
            is_ideographic: is(is_ideograph),
            are_marks: is(|c| !c.is_alphanumeric()),
            are_digits: is(|c| c.is_ascii_digit()),
        })
    }
}

/// Gap above which a space is seen.
fn threshold(pairs: &[Pair], joins_spaces: bool) -> f64 {
    let measured = pairs.iter().filter(|pair| (joins_spaces || !pair.has_space) && !pair.are_marks);
    let mut gaps: Vec<f64> = measured.map(|pair| pair.gap).collect();
    gaps.sort_by(f64::total_cmp);
    let (n, has_spaces) = (gaps.len(), pairs.iter().any(|pair| pair.has_space) && !joins_spaces);
    let Some(median) = gaps.get(n / 2).copied().filter(|_| n >= 3) else { return SPACE };
    let widest = gaps.last().copied().unwrap_or(median);
    // The widest step from one gap to the next, above the gaps of letters.
    let steps = gaps.windows(2).filter_map(|pair| match pair {
        [a, b] if *a >= median - STEP && *b > median + STEP => Some((b - a, (a + b) / 2.0)),
        _ => None,
    });
    let step = steps.max_by(|a, b| a.0.total_cmp(&b.0));
    let all_digits = pairs.iter().all(|pair| pair.are_digits);
    if median > SPACED {
        let is_uniform = widest - gaps.first().copied().unwrap_or(widest) < 0.35 * median + STEP;
        return match step {
            // Every second gap or more is wide: these are short cells, not letters of words.
            _ if median > SPACED_MAX || (all_digits && median > SPACE) => SPACE,
            Some((width, middle)) if !is_uniform && width > (0.3 * median).max(STEP) => middle,
            _ if is_uniform && (n >= 5 || has_spaces || median <= 2.5 * SPACE) => f64::INFINITY,
            _ => SPACE.max(median + STEP),
        };
    }
    // Without white space in a long line, words are told by their gaps alone.
    match step {
        Some((width, middle)) if !has_spaces && (n >= 12 && width >= STEP || n >= 6 && width >= STEP_SHORT) && middle < SPACE => {
            let n_above = gaps.iter().filter(|gap| **gap > middle).count();
            if n_above * 3 <= n { middle } else { SPACE }
        }
        _ => SPACE,
    }
}

/// True for `C H A P T E R  O N E`, single letters with white space between them; the gaps then tell the words.
fn is_spaced_by_spaces(pairs: &[Pair], letters: &[(usize, &Letter)]) -> bool {
    let text: Vec<char> = letters.iter().filter_map(|(_, letter)| letter.text.chars().next()).collect();
    let is_alphabet = |pair: &[char]| matches!(pair, [a, b] if u32::from(*a) + 1 == u32::from(*b));
    pairs.len() >= 4
        && pairs.iter().all(|pair| pair.has_space || pair.gap > SPACE)
        && pairs.iter().filter(|pair| pair.has_space).count() * 2 > pairs.len()
        && text.iter().all(|c| c.is_alphabetic())
        && text.windows(2).filter(|pair| is_alphabet(pair)).count() * 2 < pairs.len()
}

fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{2E80}'..='\u{30FF}' | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}'
        | '\u{FF00}'..='\u{FFEF}' | '\u{20000}'..='\u{3FFFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Letters of `text`, half an em wide; `|` is a gap of `word` more, a space a drawn space.
    fn read(text: &str, between: f64, word: f64) -> String {
        let (mut letters, mut at) = (Vec::new(), 0.0);
        for c in text.chars() {
            if c == '|' {
                at += word * 10.0;
                continue;
            }
            letters.push(Letter {
                text: c.to_string(),
                start: at,
                end: at + 5.0,
                below: 0.0,
                size: 10.0,
                axis: 0,
                floats: false,
            });
            at += 5.0 + between * 10.0;
        }
        let cell: Vec<&Letter> = letters.iter().collect();
        let mut out = String::new();
        for (letter, space) in cell.iter().zip(spaces(&cell)).filter(|(letter, _)| !letter.is_space()) {
            out.push_str(if space { " " } else { "" });
            out.push_str(&letter.text);
        }
        out
    }

    #[test]
    fn narrow_and_wide_lines_have_their_words() {
        let line = "the|upper|mill|belonged|to|three|brothers";
        for (between, word) in [(0.0, 0.25), (0.0, 0.145), (-0.02, 0.13), (0.05, 0.2), (0.24, 0.5), (0.3, 0.4), (0.1, 0.3)] {
            assert_eq!(read(line, between, word), line.replace('|', " "), "{between} {word}");
        }
    }

    #[test]
    fn words_with_drawn_spaces_are_not_cut_at_kerning() {
        assert_eq!(read("grease the axle on Monday T|om", 0.0, 0.1), "grease the axle on Monday Tom");
        assert_eq!(read("CHAPTER ONE", 0.3, 0.0), "CHAPTER ONE");
        assert_eq!(read("C H A P T E R|||O N E", 0.0, 0.3), "CHAPTER ONE");
        assert_eq!(read("A B C D E F G", 0.0, 0.0), "A B C D E F G");
    }

    #[test]
    fn short_cells_stay_apart_and_ideographs_together() {
        assert_eq!(read("1|2|3|4|5|6", 0.0, 0.5), "1 2 3 4 5 6");
        assert_eq!(read("a|b", 0.0, 0.4), "a b");
        assert_eq!(read("the|old|mill", 0.0, 0.13), "the old mill");
        assert_eq!(read("山の上|の水車", 0.0, 0.3), "山の上の水車");
    }
}
