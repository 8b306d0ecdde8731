//! Lines: letters in drawing order to pieces of lines, and pieces on one baseline to lines.

use super::bidi::has_rtl;
use super::glyph::Letter;

/// A wider gap ends a column or a cell, ems.
pub const COLUMN: f64 = 2.5;
/// A longer step back begins a new piece; a shorter one is kerning or an accent, ems.
const BACK: f64 = 0.6;
/// Largest offset from the baseline on the same line, for superscripts and note marks, ems.
pub const RAISED: f64 = 0.55;
/// Distance from the label of a form field above its text, at most, ems.
const LABEL: f64 = 2.5;
/// Number of earlier lines that text of a form field is compared with.
const FLOAT_LINES: usize = 4000;

/// A line: numbers of letters, grouped in pieces that were drawn in one go.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// letters of each piece, in drawing order
    pub pieces: Vec<Vec<usize>>,
    /// see [`Letter::axis`]
    pub axis: usize,
    /// see [`Letter::below`]
    pub below: f64,
    /// start of the leftmost letter
    pub start: f64,
    /// end of the rightmost letter
    pub end: f64,
    /// largest em size
    pub size: f64,
    /// em size of the first letter
    pub first_size: f64,
    /// see [`Letter::floats`]
    pub floats: bool,
    /// true if a letter runs from right to left
    pub has_rtl: bool,
    /// true if a paragraph begins here, whatever the distance
    pub begins_block: bool,
}

impl Line {
    /// Line of some letters, which are one piece.
    pub fn of(piece: Vec<usize>, letters: &[Letter]) -> Line {
        let mut line = Line { start: f64::INFINITY, end: f64::NEG_INFINITY, ..Line::default() };
        line.push(piece, letters);
        line
    }

    /// Adds a piece.
    pub fn push(&mut self, piece: Vec<usize>, letters: &[Letter]) {
        for letter in piece.iter().filter_map(|i| letters.get(*i)) {
            self.take(letter);
        }
        self.pieces.push(piece);
    }

    fn take(&mut self, letter: &Letter) {
        if self.start == f64::INFINITY {
            self.first_size = letter.size;
        }
        self.axis = letter.axis;
        self.floats |= letter.floats;
        self.has_rtl |= has_rtl(&letter.text);
        // The baseline is that of the largest letters.
        if letter.size > self.size * 1.02 {
            (self.size, self.below) = (letter.size, letter.below);
        }
        self.start = self.start.min(letter.start);
        self.end = self.end.max(letter.end);
    }

    /// True if `other`, which was drawn later, goes on in this line. Only text of form fields and from right to left goes back.
    fn is_beside(&self, other: &Line, letters: &[Letter]) -> bool {
        if self.axis != other.axis || (self.below - other.below).abs() > RAISED * self.size.max(other.size) {
            return false;
        }
        if other.floats {
            // A box may stand in a gap of the line.
            let over = |letter: &Letter| letter.end.min(other.end) - letter.start.max(other.start) > BACK * letter.size;
            let mut numbers = self.pieces.iter().flatten();
            return !numbers.any(|i| letters.get(*i).is_some_and(|letter| !letter.is_space() && over(letter)));
        }
        let goes_back = other.start < self.end - BACK * self.size.min(other.size);
        if goes_back && !(self.has_rtl || other.has_rtl) {
            return false;
        }
        let size = self.size.min(other.size);
        let overlap = self.end.min(other.end) - self.start.max(other.start);
        overlap <= BACK * size
    }

    /// Distance from the end of one line to the start of the other; less than 0 if one stands in a gap of the other.
    fn distance(&self, other: &Line) -> f64 {
        (other.start - self.end).max(self.start - other.end)
    }

    /// Distance from a line that is close above; None if it is not.
    fn distance_below(&self, other: &Line) -> Option<f64> {
        let overlaps = self.start < other.end && other.start < self.end;
        let distance = self.below - other.below;
        let is_close = self.axis == other.axis && overlaps && (0.0..=LABEL * self.size.max(other.size)).contains(&distance);
        is_close.then_some(distance)
    }

    /// Letters of the line in visual order, cut at wide gaps.
    pub fn cells<'a>(&self, letters: &'a [Letter]) -> Vec<Vec<&'a Letter>> {
        let of = |piece: &Vec<usize>| piece.iter().filter_map(|i| letters.get(*i)).collect::<Vec<&Letter>>();
        let start = |piece: &[&Letter]| piece.first().map_or(0.0, |letter| letter.start);
        let (mut pieces, mut floating): (Vec<_>, Vec<_>) =
            self.pieces.iter().map(of).partition(|piece| piece.iter().any(|letter| !letter.floats));
        pieces.sort_by(|a, b| start(a).total_cmp(&start(b)));
        let mut all: Vec<&Letter> = pieces.into_iter().flatten().collect();
        if self.has_rtl {
            all.sort_by(|a, b| (a.start + a.end).total_cmp(&(b.start + b.end)));
        }
        floating.sort_by(|a, b| start(a).total_cmp(&start(b)));
        for piece in floating {
            let place = all.iter().position(|letter| !letter.is_space() && letter.start >= start(&piece)).unwrap_or(all.len());
            all.splice(place..place, piece);
        }
        let mut cells: Vec<Vec<&Letter>> = Vec::new();
        let mut end = f64::NEG_INFINITY;
        for letter in all {
            match cells.last_mut() {
                Some(cell) if letter.start - end <= COLUMN * letter.size.max(cell.last().map_or(0.0, |l| l.size)) => {
                    cell.push(letter)
                }
                _ => cells.push(vec![letter]),
            }
            end = if letter.is_space() && letter.end < end { end } else { letter.end };
        }
        cells
    }
}

/// Lines of a page in drawing order.
pub fn lines(letters: &[Letter]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for piece in pieces(letters) {
        let floats = piece.first().and_then(|i| letters.get(*i)).is_some_and(|letter| letter.floats);
        let line = Line::of(piece, letters);
        let n_tried = if floats { FLOAT_LINES } else { 1 };
        let beside = lines.iter_mut().rev().take(n_tried).filter(|other| other.is_beside(&line, letters));
        match beside.min_by(|a, b| a.distance(&line).total_cmp(&b.distance(&line))) {
            Some(other) => line.pieces.into_iter().for_each(|piece| other.push(piece, letters)),
            None if floats => {
                let place = lines.iter().enumerate().filter_map(|(i, other)| Some((i, line.distance_below(other)?)));
                let above = place.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(lines.len(), |(i, _)| i + 1);
                lines.insert(above, line);
            }
            None => lines.push(line),
        }
    }
    lines
}

/// Pieces: letters that follow each other along a baseline.
fn pieces(letters: &[Letter]) -> Vec<Vec<usize>> {
    let mut pieces: Vec<Vec<usize>> = Vec::new();
    let mut pen: Option<Pen> = None;
    for (i, letter) in letters.iter().enumerate() {
        match &mut pen {
            Some(pen) if pen.continues(letter) => {
                pen.advance(letter);
                if let Some(piece) = pieces.last_mut() {
                    piece.push(i);
                }
            }
            _ => {
                pieces.push(vec![i]);
                pen = Some(Pen::at(letter));
            }
        }
    }
    pieces
}

/// End of the last letter of a piece.
struct Pen {
    end: f64,
    below: f64,
    size: f64,
    axis: usize,
    floats: bool,
}

impl Pen {
    fn at(letter: &Letter) -> Pen {
        Pen { end: letter.end, below: letter.below, size: letter.size, axis: letter.axis, floats: letter.floats }
    }

    fn continues(&self, letter: &Letter) -> bool {
        let size = self.size.max(letter.size);
        let gap = (letter.start - self.end) / size;
        (self.axis, self.floats) == (letter.axis, letter.floats)
            && (letter.below - self.below).abs() <= RAISED * size
            && (-BACK..=COLUMN).contains(&gap)
    }

    fn advance(&mut self, letter: &Letter) {
        // A superscript moves the pen along the line, not off it.
        if letter.size >= self.size * 0.9 {
            self.below = letter.below;
        }
        self.end = letter.end;
        self.size = self.size.max(letter.size);
    }
}
