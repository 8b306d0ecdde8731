//! Glyph layout: the glyphs of a page to words, lines and paragraphs.
//!
//! ```text
//! glyphs in drawing order ──► same line and near? ──► words, lines ──► text
//! ```
//! Invariants: 1. Drawing order is kept, because current programs draw in reading order and columns then stay apart. 2. A
//! glyph drawn twice in one place, as for bold, counts once. 3. Hyphens at line ends stay, as on the page.
//! Units: points on the page; gaps as shares of the glyph size.

/// A glyph with its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Glyph {
    /// its characters
    pub text: String,
    /// start of its baseline
    pub origin: [f64; 2],
    /// writing direction, of length 1
    pub direction: [f64; 2],
    /// em size
    pub size: f64,
    /// advance to the next glyph
    pub advance: f64,
}

/// A wider gap between two glyphs is a space.
const SPACE: f64 = 0.17;
/// A wider gap ends a column or a cell.
const COLUMN: f64 = 2.5;
/// A longer step back begins a new line; a shorter one is kerning or an accent.
const BACK: f64 = 0.6;
/// Largest offset from the baseline on the same line, for superscripts and note marks.
const RAISED: f64 = 0.55;
/// A larger distance between lines begins a paragraph.
const PARAGRAPH: f64 = 1.75;
/// The same glyph within this distance is a repeated drawing.
const REPEAT_DISTANCE: f64 = 0.1;
/// Number of earlier glyphs that are checked for a repetition.
const REPEAT_GLYPHS: usize = 200;

/// Text of a page.
pub fn page_text(glyphs: &[Glyph]) -> String {
    let mut page = Page::default();
    for (i, glyph) in glyphs.iter().enumerate() {
        let before = glyphs.get(i.saturating_sub(REPEAT_GLYPHS)..i).unwrap_or_default();
        if !before.iter().rev().any(|other| is_same(other, glyph)) {
            page.add(glyph);
        }
    }
    page.finish()
}

fn is_same(a: &Glyph, b: &Glyph) -> bool {
    let near = REPEAT_DISTANCE * b.size;
    a.text == b.text && (a.origin[0] - b.origin[0]).abs() < near && (a.origin[1] - b.origin[1]).abs() < near
}

/// End of the last glyph.
struct Pen {
    at: [f64; 2],
    direction: [f64; 2],
    size: f64,
}

/// Position of a glyph relative to the last one.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    /// in the same word
    SameWord,
    /// in the next word
    Space,
    /// further along the line
    Column,
    /// on another line
    Line,
    /// in another paragraph, or elsewhere on the page
    Paragraph,
}

#[derive(Default)]
struct Page {
    text: String,
    pen: Option<Pen>,
    /// largest size in the current line, which decides the distance to the next line
    line_size: f64,
}

impl Page {
    fn add(&mut self, glyph: &Glyph) {
        let letters = readable(&glyph.text);
        if letters.is_empty() {
            return;
        }
        let step = self.pen.as_ref().map(|pen| step(pen, glyph, self.line_size));
        match step {
            None | Some(Step::SameWord) => {}
            Some(Step::Space) => self.space(" "),
            Some(Step::Column) => self.space("\t"),
            Some(Step::Line) => self.end_line("\n"),
            Some(Step::Paragraph) => self.end_line("\n\n"),
        }
        match step {
            Some(Step::SameWord | Step::Space | Step::Column) => self.line_size = self.line_size.max(glyph.size),
            None | Some(Step::Line | Step::Paragraph) => self.line_size = glyph.size,
        }
        if letters.trim().is_empty() {
            self.space(" ");
        } else {
            self.text.push_str(&letters);
        }
        let end = [0, 1].map(|i| glyph.origin[i] + glyph.direction[i] * glyph.advance);
        // A superscript moves the pen along the line, not off it.
        let at = match (&self.pen, step) {
            (Some(pen), Some(Step::SameWord | Step::Space)) if glyph.size < pen.size * 0.9 => on_line(pen, end),
            _ => end,
        };
        let size = match step {
            Some(Step::SameWord | Step::Space) => self.line_size,
            _ => glyph.size,
        };
        self.pen = Some(Pen { at, direction: glyph.direction, size });
    }

    fn space(&mut self, gap: &str) {
        if !self.text.is_empty() && !self.text.ends_with([' ', '\t', '\n']) {
            self.text.push_str(gap);
        }
    }

    fn end_line(&mut self, end: &str) {
        self.text.truncate(self.text.trim_end_matches([' ', '\t']).len());
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push_str(end);
        }
    }

    fn finish(mut self) -> String {
        self.text.truncate(self.text.trim_end().len());
        self.text
    }
}

/// Projection of `point` on the pen's line.
fn on_line(pen: &Pen, point: [f64; 2]) -> [f64; 2] {
    let along = dot(minus(point, pen.at), pen.direction);
    [0, 1].map(|i| pen.at[i] + pen.direction[i] * along)
}

fn step(pen: &Pen, glyph: &Glyph, line_size: f64) -> Step {
    if dot(pen.direction, glyph.direction) < 0.98 {
        return Step::Paragraph;
    }
    let moved = minus(glyph.origin, pen.at);
    let along = dot(moved, pen.direction);
    // Down the page for text that runs to the right.
    let below = moved[0] * pen.direction[1] - moved[1] * pen.direction[0];
    let size = pen.size.max(glyph.size);
    if below.abs() <= RAISED * size && along >= -BACK * size {
        let gap = along / size;
        return match () {
            () if gap > COLUMN => Step::Column,
            () if gap > SPACE => Step::Space,
            () => Step::SameWord,
        };
    }
    let apart = below / line_size.max(glyph.size).max(f64::MIN_POSITIVE);
    if (0.0..=PARAGRAPH).contains(&apart) { Step::Line } else { Step::Paragraph }
}

fn minus(a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
    [a[0] - b[0], a[1] - b[1]]
}

fn dot(a: [f64; 2], b: [f64; 2]) -> f64 {
    a[0] * b[0] + a[1] * b[1]
}

/// Characters of a glyph as typed text: ligatures split, invisible characters removed.
fn readable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{FB00}' => out.push_str("ff"),
            '\u{FB01}' => out.push_str("fi"),
            '\u{FB02}' => out.push_str("fl"),
            '\u{FB03}' => out.push_str("ffi"),
            '\u{FB04}' => out.push_str("ffl"),
            '\u{FB05}' | '\u{FB06}' => out.push_str("st"),
            // A soft hyphen that is drawn is a hyphen.
            '\u{AD}' => out.push('-'),
            '\u{A0}' | '\u{2000}'..='\u{200A}' | '\u{202F}' | '\u{3000}' | '\t' | '\n' | '\r' => out.push(' '),
            '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}' => {}
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Glyphs of `text` at a position, half an em wide.
    fn write(out: &mut Vec<Glyph>, text: &str, at: [f64; 2], size: f64) {
        for (i, c) in text.chars().enumerate() {
            let origin = [at[0] + i as f64 * size * 0.5, at[1]];
            out.push(Glyph { text: c.to_string(), origin, direction: [1.0, 0.0], size, advance: size * 0.5 });
        }
    }

    #[test]
    fn lines_words_and_paragraphs_follow_the_gaps() {
        let mut glyphs = Vec::new();
        write(&mut glyphs, "The har-", [10.0, 700.0], 10.0);
        write(&mut glyphs, "bour", [10.0, 688.0], 10.0);
        write(&mut glyphs, "was", [33.0, 688.0], 10.0);
        write(&mut glyphs, "Next", [10.0, 660.0], 10.0);
        write(&mut glyphs, "Cell", [200.0, 660.0], 10.0);
        assert_eq!(page_text(&glyphs), "The har-\nbour was\n\nNext\tCell");
    }

    #[test]
    fn repeated_glyphs_count_once_and_superscripts_stay_on_their_line() {
        let mut glyphs = Vec::new();
        write(&mut glyphs, "Bold", [10.0, 700.0], 10.0);
        write(&mut glyphs, "Bold", [10.2, 700.0], 10.0);
        write(&mut glyphs, "x", [10.0, 680.0], 10.0);
        write(&mut glyphs, "2", [15.0, 684.0], 6.0);
        write(&mut glyphs, "+ 1", [20.0, 680.0], 10.0);
        assert_eq!(page_text(&glyphs), "Bold\n\nx2 + 1");
    }

    #[test]
    fn rotated_text_reads_along_its_own_line() {
        let upwards =
            |c: &str, y: f64| Glyph { text: c.into(), origin: [50.0, y], direction: [0.0, 1.0], size: 10.0, advance: 5.0 };
        let glyphs = [upwards("u", 100.0), upwards("p", 105.0), upwards("!", 114.0)];
        assert_eq!(page_text(&glyphs), "up !");
    }

    #[test]
    fn ligatures_and_invisible_marks_become_plain_letters() {
        assert_eq!(readable("\u{FB01}n\u{200B}e\u{A0}so\u{AD}"), "fine so-");
    }
}
