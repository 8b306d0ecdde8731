//! Glyph layout: the glyphs of a page to words, lines and paragraphs.
//!
//! ```text
//! glyphs in drawing order ──► repeats ──► marks ──► lines ──► order (columns, tables) ──► words, raised ──► bidi ──► text
//! ```
//! Invariants: 1. Drawing order is kept where it reads down the page, because current programs draw in reading order and
//! columns then stay apart. 2. A glyph drawn twice in one place, as for bold, counts once. 3. Hyphens at line ends stay, as
//! on the page. Units: points on the page; gaps as shares of the glyph size.

mod bidi;
mod blocks;
mod glyph;
mod lines;
mod marks;
mod order;
mod prose;
mod raised;
mod readable;
mod repeats;
mod tables;
mod words;

pub use glyph::{Glyph, UNKNOWN};

use glyph::{Letter, letters};
use lines::{Line, lines};

/// A larger distance between lines begins a paragraph.
const PARAGRAPH: f64 = 1.75;

/// Text of a page.
pub fn page_text(glyphs: Vec<Glyph>) -> String {
    let glyphs = repeats::without_repeats(glyphs);
    let page = bidi::Page::of(glyphs.iter().map(|glyph| glyph.text.as_str()));
    let letters = letters(glyphs);
    let letters = if page.has_rtl() { marks::joined(letters) } else { letters };
    let lines = lines(&letters);
    let lines = order::reading_order(lines, &letters, page.is_rtl());
    let lines: Vec<(Line, Vec<Vec<&Letter>>)> = lines.into_iter().map(|line| (line.clone(), line.cells(&letters))).collect();
    let is_logical = page.is_rtl_drawn_in_logical_order(lines.iter().flat_map(|(_, cells)| cells));
    let mut text = String::new();
    let mut before: Option<&Line> = None;
    for (line, cells) in &lines {
        let body = line_text(cells, page.is_rtl(), is_logical);
        if body.is_empty() {
            continue;
        }
        if let Some(before) = before {
            text.push_str(separator(before, line));
        }
        text.push_str(&body);
        before = Some(line);
    }
    without_repeated_marks(text)
}

/// One mark for letters next to each other that are not known.
fn without_repeated_marks(text: String) -> String {
    if !text.contains(UNKNOWN) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c == UNKNOWN && out.trim_end_matches(' ').ends_with(UNKNOWN) {
            out.truncate(out.trim_end_matches(' ').len());
        } else {
            out.push(c);
        }
    }
    out
}

fn line_text(cells: &[Vec<&Letter>], is_rtl_page: bool, is_logical: bool) -> String {
    let mut texts: Vec<String> = Vec::new();
    for cell in cells {
        let words = raised::marked(cell, &words::spaces(cell));
        let text = bidi::in_reading_order(&words, is_rtl_page, is_logical);
        if !text.is_empty() {
            texts.push(text);
        }
    }
    if is_rtl_page && texts.iter().any(|text| bidi::has_rtl(text)) && !is_logical {
        texts.reverse();
    }
    texts.join("\t")
}

/// Separator between two lines, by their distance.
fn separator(before: &Line, line: &Line) -> &'static str {
    let below = line.below - before.below;
    let size = before.size.max(line.first_size).max(f64::MIN_POSITIVE);
    let is_next = before.axis == line.axis && !line.begins_block && (0.0..=PARAGRAPH).contains(&(below / size));
    if is_next { "\n" } else { "\n\n" }
}
