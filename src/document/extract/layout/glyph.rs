//! Glyphs as they are drawn, and letters with a position along and below their writing direction.

use super::readable::readable;

/// Mark in place of letters that are not known.
pub const UNKNOWN: char = '\u{FFFD}';

/// A glyph with its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Glyph {
    /// its characters; [`UNKNOWN`] if they cannot be known
    pub text: String,
    /// start of its baseline
    pub origin: [f64; 2],
    /// writing direction, of length 1
    pub direction: [f64; 2],
    /// em size
    pub size: f64,
    /// advance to the next glyph
    pub advance: f64,
    /// true for the text of a form field, which stands anywhere on the page but is drawn last
    pub floats: bool,
}

/// A glyph in the coordinates of its writing direction.
#[derive(Debug, Clone)]
pub struct Letter {
    /// readable characters; one space for white space
    pub text: String,
    /// start of its baseline along the writing direction
    pub start: f64,
    /// end of its advance along the writing direction
    pub end: f64,
    /// distance of its baseline below the origin of the page
    pub below: f64,
    /// em size
    pub size: f64,
    /// number of the writing direction; equal for letters that run alike
    pub axis: usize,
    /// see [`Glyph::floats`]
    pub floats: bool,
}

impl Letter {
    pub fn is_space(&self) -> bool {
        self.text == " "
    }

    /// Middle of its advance.
    pub fn middle(&self) -> f64 {
        (self.start + self.end) / 2.0
    }
}

/// Letters of glyphs in drawing order; a direction that turns only a little is the same axis.
pub fn letters(glyphs: Vec<Glyph>) -> Vec<Letter> {
    let mut axes: Vec<[f64; 2]> = Vec::new();
    let mut axis = 0;
    let mut letters = Vec::with_capacity(glyphs.len());
    for glyph in glyphs {
        let mut text = readable(&glyph.text);
        if text.is_empty() {
            continue;
        }
        if text.trim().is_empty() {
            " ".clone_into(&mut text);
        }
        let is_alike = |axis: &[f64; 2]| dot(*axis, glyph.direction) >= 0.98;
        if !axes.get(axis).is_some_and(is_alike) {
            let same = |axis: &[f64; 2]| dot(*axis, glyph.direction) >= 0.999_999;
            axis = axes.iter().rposition(same).unwrap_or(axes.len());
            if axis == axes.len() {
                axes.push(glyph.direction);
            }
        }
        let [x, y] = axes.get(axis).copied().unwrap_or(glyph.direction);
        let start = dot(glyph.origin, [x, y]);
        // Down the page for text that runs to the right.
        let below = glyph.origin[0] * y - glyph.origin[1] * x;
        let end = start + glyph.advance;
        letters.push(Letter { text, start, end, below, size: glyph.size, axis, floats: glyph.floats });
    }
    letters
}

fn dot(a: [f64; 2], b: [f64; 2]) -> f64 {
    a[0] * b[0] + a[1] * b[1]
}
