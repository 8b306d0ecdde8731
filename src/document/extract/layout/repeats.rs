//! Repeated drawing: the same glyph in almost the same place, as for bold or a shadow, counts once.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::glyph::Glyph;

/// The same glyph within this share of its size is a repeated drawing.
const DISTANCE: f64 = 0.1;
/// Largest distance along the line, as a share of the advance: two equal letters of a narrow font stand side by side.
const ADVANCE: f64 = 0.4;

/// Number of earlier glyphs of one square that are compared.
const SQUARE_GLYPHS: usize = 32;

/// Glyphs without repeated drawings.
pub fn without_repeats(mut glyphs: Vec<Glyph>) -> Vec<Glyph> {
    let hasher = RandomState::new();
    // Last glyph of each kind in each square of the page, and the one before it.
    let mut last: HashMap<(u64, i64, i64), usize> = HashMap::with_capacity(glyphs.len());
    let mut earlier: Vec<Option<usize>> = vec![None; glyphs.len()];
    let mut is_repeated = vec![false; glyphs.len()];
    for (i, glyph) in glyphs.iter().enumerate() {
        if glyph.text.trim().is_empty() {
            continue;
        }
        // Half an edge is the distance, so a repeated drawing is in the same square or in one of the three nearest.
        let edge = (glyph.size * DISTANCE * 2.0).max(1e-3);
        let kind = hasher.hash_one((glyph.text.as_str(), (glyph.size * 16.0).round() as i64));
        let [x, y] = [0, 1].map(|axis| glyph.origin[axis] / edge);
        let near = |at: f64| [at.floor() as i64, (at.floor() + if at - at.floor() < 0.5 { -1.0 } else { 1.0 }) as i64];
        let is_repeat = near(x).into_iter().flat_map(|x| near(y).map(|y| (kind, x, y))).any(|key| {
            let chain = std::iter::successors(last.get(&key).copied(), |at| earlier.get(*at).copied().flatten());
            chain.take(SQUARE_GLYPHS).filter_map(|at| glyphs.get(at)).any(|other| is_same(other, glyph))
        });
        if is_repeat {
            is_repeated[i] = true;
        } else {
            earlier[i] = last.insert((kind, x.floor() as i64, y.floor() as i64), i);
        }
    }
    let mut is_repeated = is_repeated.into_iter();
    glyphs.retain(|_| !is_repeated.next().unwrap_or(false));
    glyphs
}

fn is_same(a: &Glyph, b: &Glyph) -> bool {
    let moved = [0, 1].map(|axis| b.origin[axis] - a.origin[axis]);
    let along = (moved[0] * b.direction[0] + moved[1] * b.direction[1]).abs();
    let across = (moved[0] * b.direction[1] - moved[1] * b.direction[0]).abs();
    let near = DISTANCE * b.size;
    let limit = if b.advance > 0.0 { near.min(ADVANCE * b.advance) } else { near };
    a.text == b.text && along < limit && across < near
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(text: &str, at: f64, size: f64, advance: f64) -> Vec<Glyph> {
        let glyph = |(i, c): (usize, char)| Glyph {
            text: c.to_string(),
            origin: [at + i as f64 * advance, 700.0],
            direction: [1.0, 0.0],
            size,
            advance,
            floats: false,
        };
        text.chars().enumerate().map(glyph).collect()
    }

    fn read(glyphs: Vec<Glyph>) -> String {
        without_repeats(glyphs).into_iter().map(|glyph| glyph.text).collect()
    }

    #[test]
    fn glyphs_drawn_twice_count_once_even_after_many_others() {
        let line = |at| write(&"word ".repeat(100), at, 10.0, 5.0);
        assert_eq!(read([line(10.0), line(10.3)].concat()).replace(' ', ""), "word".repeat(100));
    }

    #[test]
    fn equal_letters_of_a_narrow_font_are_two() {
        assert_eq!(read(write("11 2001", 10.0, 44.0, 3.5)), "11 2001");
    }
}
