//! Repeated drawing: the same glyph in almost the same place, as for bold, counts once, and the same run near it, as for a shadow.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::glyph::Glyph;

/// The same glyph within this share of its size is a repeated drawing.
const DISTANCE: f64 = 0.1;
/// Largest distance along the line, as a share of the advance: two equal letters of a narrow font stand side by side.
const ADVANCE: f64 = 0.4;

/// The same run of glyphs within this share of its size is a shadow.
const SHADOW: f64 = 0.3;
/// Number of earlier runs that a run is compared with.
const SHADOW_RUNS: usize = 32;
/// Letters of a shadow, at least.
const SHADOW_LETTERS: usize = 4;
/// A glyph further from the end of the one before begins a run; a shadow's distance varies by half of it. Ems.
const STEP: f64 = 0.1;

/// Number of earlier glyphs of one square that are compared.
const SQUARE_GLYPHS: usize = 32;

/// Glyphs without repeated drawings.
pub fn without_repeats(mut glyphs: Vec<Glyph>) -> Vec<Glyph> {
    let hasher = RandomState::new();
    // Last glyph of each kind in each square of the page, and the one before it.
    let mut last: HashMap<(u64, i64, i64), usize> = HashMap::with_capacity(glyphs.len());
    let mut earlier: Vec<Option<usize>> = vec![None; glyphs.len()];
    let mut is_repeated = shadows(&glyphs);
    for (i, glyph) in glyphs.iter().enumerate() {
        if is_blank(glyph) || is_repeated[i] {
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
    if !is_repeated.contains(&true) {
        return glyphs;
    }
    // Spaces inside of a repeated drawing are repeated with it.
    let mut before: Option<usize> = None;
    for i in (0..glyphs.len()).filter(|i| glyphs.get(*i).is_some_and(|glyph| !is_blank(glyph))) {
        if let Some(before) = before.filter(|before| is_repeated[*before] && is_repeated[i]) {
            is_repeated[before..i].fill(true);
        }
        before = Some(i);
    }
    let mut is_repeated = is_repeated.into_iter();
    glyphs.retain(|_| !is_repeated.next().unwrap_or(false));
    glyphs
}

/// True for each glyph of a run that was drawn shortly before, a little aside.
fn shadows(glyphs: &[Glyph]) -> Vec<bool> {
    let mut is_shadow = vec![false; glyphs.len()];
    let mut starts: Vec<usize> = Vec::new();
    let mut before: Option<&Glyph> = None;
    for (i, glyph) in glyphs.iter().enumerate() {
        let step = before.map_or(Step::Back, |before| Step::of(before, glyph));
        before = Some(glyph);
        if step == Step::None || is_blank(glyph) || is_shadow.get(i) == Some(&true) {
            continue;
        }
        if step == Step::Back {
            let n = starts.iter().rev().take(SHADOW_RUNS).map(|first| n_repeated(glyphs, *first, i)).max().unwrap_or(0);
            let run = glyphs.get(i..i + n).unwrap_or_default();
            if run.iter().filter(|glyph| !is_blank(glyph)).count() >= SHADOW_LETTERS {
                is_shadow.iter_mut().skip(i).take(n).for_each(|is_shadow| *is_shadow = true);
                continue;
            }
        }
        starts.push(i);
    }
    is_shadow
}

/// Place of a glyph, as seen from the end of the one before.
#[derive(PartialEq)]
enum Step {
    /// just there
    None,
    /// further along the line
    Forward,
    /// anywhere else
    Back,
}

impl Step {
    fn of(before: &Glyph, glyph: &Glyph) -> Step {
        let moved = [0, 1].map(|axis| glyph.origin[axis] - before.origin[axis]);
        let along = moved[0] * before.direction[0] + moved[1] * before.direction[1] - before.advance;
        let across = moved[0] * before.direction[1] - moved[1] * before.direction[0];
        let limit = STEP * glyph.size;
        match () {
            () if across.abs() > limit || along < -limit => Step::Back,
            () if along > limit => Step::Forward,
            () => Step::None,
        }
    }
}

fn is_blank(glyph: &Glyph) -> bool {
    glyph.text.trim().is_empty()
}

/// Number of glyphs from `second` on that are those from `first` on, all moved by the same short way.
fn n_repeated(glyphs: &[Glyph], first: usize, second: usize) -> usize {
    let moved = |n: usize| {
        let (a, b) = (glyphs.get(first + n)?, glyphs.get(second + n)?);
        (a.text == b.text).then(|| ([0, 1].map(|axis| b.origin[axis] - a.origin[axis]), b.size))
    };
    let Some((way, size)) = moved(0).filter(|(way, size)| way[0].hypot(way[1]) < SHADOW * size) else { return 0 };
    let is_alike =
        |n: &usize| moved(*n).is_some_and(|(other, _)| (other[0] - way[0]).hypot(other[1] - way[1]) <= STEP / 2.0 * size);
    (0..second - first).take_while(is_alike).count()
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
    fn shadows_count_once_and_their_spaces_too() {
        for offset in [0.8, 1.2, 2.5] {
            assert_eq!(
                read([write("11 sacks", 10.0, 10.0, 5.0), write("11 sacks", 10.0 + offset, 10.0, 5.0)].concat()),
                "11 sacks"
            );
        }
        assert_eq!(read([write("11 sacks", 10.0, 10.0, 5.0), write("11 sacks", 60.0, 10.0, 5.0)].concat()), "11 sacks11 sacks");
        assert_eq!(read(write("11111111......", 10.0, 10.0, 2.5)), "11111111......");
        let line = [write("an ", 0.0, 10.0, 5.0), write("old mill", 15.0, 10.0, 5.0), write("old mill", 15.3, 10.0, 5.0)];
        assert_eq!(read([line.concat(), write(" stood", 55.0, 10.0, 5.0)].concat()), "an old mill stood");
    }

    #[test]
    fn equal_letters_of_a_narrow_font_are_two() {
        assert_eq!(read(write("11 2001", 10.0, 44.0, 3.5)), "11 2001");
    }
}
