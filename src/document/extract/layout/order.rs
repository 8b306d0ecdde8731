//! Reading order: columns that were drawn line by line, and pages that were drawn out of order.
//!
//! Source: Breuel, "High Performance Document Layout Analysis", 2003: a line precedes another that is below it in the same
//! column, or to the right of it if none stands between.

use super::blocks;
use super::glyph::Letter;
use super::lines::Line;
use super::prose::is_prose;
use super::tables::{is_same_row, rows_of_columns};

/// Gap between two columns, at least, ems.
const GUTTER: f64 = 0.8;
/// Distance of the starts of a column's lines, at most, ems.
const ALIGNED: f64 = 0.35;
/// Distance from line to line inside of a column, at most, ems.
const NEXT_LINE: f64 = 2.6;
/// Lines of a column, at least.
const N_LINES: usize = 3;
/// Largest number of columns.
const MAX_PARTS: usize = 40;
/// Largest number of lines that are put in order by their places.
const MAX_SORTED: usize = 300;

/// Lines in reading order.
pub fn reading_order(lines: Vec<Line>, letters: &[Letter], is_rtl: bool) -> Vec<Line> {
    let lines = if is_out_of_order(&lines, is_rtl) {
        sorted(rows_of_pieces(lines, letters), is_rtl)
    } else {
        blocks::in_order(lines, is_rtl)
    };
    let lines = rows_of_columns(lines, letters);
    let rows: Vec<Row> = lines.iter().map(|line| Row::of(line, letters, is_rtl)).collect();
    let mut out = Vec::with_capacity(lines.len());
    let mut from = 0;
    while let Some(line) = lines.get(from) {
        let Some((n, starts)) = columns_at(&rows, from) else {
            out.push(line.clone());
            from += 1;
            continue;
        };
        let region = from..from + n;
        match columns(rows.get(region.clone()).unwrap_or_default(), &starts, letters) {
            Some(columns) => out.extend(columns),
            None => out.extend_from_slice(lines.get(region).unwrap_or_default()),
        }
        from += n;
    }
    out
}

/// True if many lines stand above the one that was drawn before but not in a later column, or before it on the same baseline.
fn is_out_of_order(lines: &[Line], is_rtl: bool) -> bool {
    let is_later = |a: &Line, b: &Line| if is_rtl { b.end <= a.start } else { b.start >= a.end };
    let is_back = |pair: &[Line]| match pair {
        [a, b] if a.axis != b.axis => false,
        [a, b] if is_same_row(a, b) => is_later(b, a),
        [a, b] => a.below - b.below > 0.5 * a.size && !is_later(a, b),
        _ => false,
    };
    let n_back = lines.windows(2).filter(|pair| is_back(pair)).count();
    lines.len() <= MAX_SORTED && n_back >= 2 && n_back * 3 >= lines.len()
}

/// Lines with the pieces of each baseline joined if they stand apart.
fn rows_of_pieces(lines: Vec<Line>, letters: &[Letter]) -> Vec<Line> {
    let edges = |piece: &Vec<usize>| {
        let placed = || piece.iter().filter_map(|i| letters.get(*i));
        let start = placed().map(|letter| letter.start).fold(f64::INFINITY, f64::min);
        (start, placed().map(|letter| letter.end).fold(f64::NEG_INFINITY, f64::max))
    };
    let mut rows: Vec<Line> = Vec::with_capacity(lines.len());
    for line in lines {
        let own: Vec<(f64, f64)> = line.pieces.iter().map(edges).collect();
        let is_apart = |row: &Line| {
            let mut others = row.pieces.iter().map(edges);
            others.all(|(start, end)| own.iter().all(|(from, to)| end <= *from || start >= *to))
        };
        match rows.iter_mut().find(|row| is_same_row(row, &line) && is_apart(row)) {
            Some(row) => line.pieces.into_iter().for_each(|piece| row.push(piece, letters)),
            None => rows.push(line),
        }
    }
    rows
}

fn sorted(mut lines: Vec<Line>, is_rtl: bool) -> Vec<Line> {
    lines.sort_by(|a, b| (a.axis, a.below).partial_cmp(&(b.axis, b.below)).unwrap_or(std::cmp::Ordering::Equal));
    let overlaps = |a: &Line, b: &Line| a.start < b.end && b.start < a.end;
    let is_before = |a: &Line, b: &Line| if is_rtl { a.start >= b.end } else { a.end <= b.start };
    let precedes = |a: &Line, b: &Line| {
        if a.axis != b.axis {
            return a.axis < b.axis;
        }
        if overlaps(a, b) {
            return a.below < b.below;
        }
        let between = |c: &&Line| c.axis == a.axis && c.below > a.below.min(b.below) && c.below < a.below.max(b.below);
        is_before(a, b) && !lines.iter().filter(between).any(|c| overlaps(a, c) && overlaps(c, b))
    };
    let n_before = |b: &Line| lines.iter().filter(|a| precedes(a, b)).count();
    let mut n_before: Vec<usize> = lines.iter().map(n_before).collect();
    let mut order: Vec<usize> = Vec::with_capacity(lines.len());
    // Lines above all others first; a circle is cut at its uppermost line.
    let mut left: Vec<usize> = (0..lines.len()).collect();
    while let Some(at) = left.iter().enumerate().min_by_key(|(_, i)| n_before.get(**i)).map(|(at, _)| at) {
        let next = left.remove(at);
        for other in &left {
            if let (Some(a), Some(b), Some(n)) = (lines.get(next), lines.get(*other), n_before.get_mut(*other)) {
                *n -= usize::from(precedes(a, b)).min(*n);
            }
        }
        order.push(next);
    }
    order.into_iter().filter_map(|i| lines.get(i).cloned()).collect()
}

/// A line cut at its wide gaps.
struct Row {
    axis: usize,
    below: f64,
    size: f64,
    /// letters, start and end of each part in reading order; places are mirrored on a page that is read from the right
    parts: Vec<(Vec<usize>, f64, f64)>,
}

impl Row {
    fn of(line: &Line, letters: &[Letter], is_rtl: bool) -> Row {
        let numbers = line.pieces.iter().flatten().copied();
        let mut all: Vec<(usize, &Letter)> = numbers.filter_map(|i| letters.get(i).map(|letter| (i, letter))).collect();
        all.retain(|(_, letter)| !letter.is_space());
        // A stable sort: accents and kerned letters stay in the order that they were drawn in.
        let mut parts: Vec<(Vec<usize>, f64, f64)> = Vec::new();
        if !all.is_sorted_by(|a, b| a.1.start <= b.1.start) {
            all.sort_by(|a, b| a.1.start.total_cmp(&b.1.start));
        }
        for (i, letter) in all {
            match parts.last_mut() {
                Some((part, _, end)) if letter.start - *end < GUTTER * line.size => {
                    part.push(i);
                    *end = end.max(letter.end);
                }
                _ => parts.push((vec![i], letter.start, letter.end)),
            }
        }
        if is_rtl {
            parts.reverse();
            parts.iter_mut().for_each(|(_, start, end)| (*start, *end) = (-*end, -*start));
        }
        Row { axis: line.axis, below: line.below, size: line.size, parts }
    }

    /// True if nothing of the row stands over the place just before `start`.
    fn leaves_free(&self, start: f64) -> bool {
        let edge = start - ALIGNED * self.size;
        self.parts.iter().all(|(_, from, to)| *to <= edge || *from >= edge)
    }

    fn begins_at(&self, start: f64) -> bool {
        self.parts.iter().skip(1).any(|(_, from, _)| (from - start).abs() <= ALIGNED * self.size)
    }
}

/// Number of rows from `from` on that are lines of prose in columns, and the starts of all columns but the first.
fn columns_at(rows: &[Row], from: usize) -> Option<(usize, Vec<f64>)> {
    let first = rows.get(from)?;
    if first.parts.len() > MAX_PARTS {
        return None;
    }
    let mut best: Option<(usize, f64)> = None;
    for (_, start, _) in first.parts.iter().skip(1) {
        let n = extent(rows.get(from..)?, *start);
        if n >= N_LINES && best.is_none_or(|(most, _)| n > most) {
            best = Some((n, *start));
        }
    }
    let (n, start) = best?;
    let region = rows.get(from..from + n)?;
    let n_both = |start: f64| region.iter().filter(|row| row.begins_at(start)).count();
    let is_shared = |start: f64| region.iter().all(|row| row.leaves_free(start)) && n_both(start) * 10 >= n * 6;
    let mut starts: Vec<f64> = first.parts.iter().skip(1).map(|(_, start, _)| *start).filter(|start| is_shared(*start)).collect();
    if !starts.contains(&start) {
        starts = vec![start];
    }
    Some((n, starts))
}

/// Number of rows that share a gutter before `start`; the last one has text on both sides.
fn extent(rows: &[Row], start: f64) -> usize {
    let mut n = 0;
    let mut before: Option<&Row> = None;
    for (i, row) in rows.iter().enumerate() {
        let follows = before.is_none_or(|before| {
            before.axis == row.axis && (0.0..=NEXT_LINE * before.size.max(row.size)).contains(&(row.below - before.below))
        });
        let in_columns =
            row.leaves_free(start) && row.parts.first().is_some_and(|(_, from, _)| *from < start || row.parts.len() == 1);
        if !follows || !in_columns {
            break;
        }
        if row.begins_at(start) {
            n = i + 1;
        }
        before = Some(row);
    }
    n
}

/// Lines of a region, column by column; None if they are rows of a table.
fn columns(rows: &[Row], starts: &[f64], letters: &[Letter]) -> Option<Vec<Line>> {
    let column_of = |start: f64, size: f64| starts.iter().filter(|edge| start >= **edge - ALIGNED * size).count();
    let mut cells: Vec<Vec<Line>> = vec![Vec::new(); starts.len() + 1];
    for row in rows {
        let mut columns: Vec<Vec<usize>> = vec![Vec::new(); starts.len() + 1];
        for (part, start, _) in &row.parts {
            if let Some(column) = columns.get_mut(column_of(*start, row.size)) {
                column.extend(part);
            }
        }
        for (cells, column) in cells.iter_mut().zip(columns).filter(|(_, column)| !column.is_empty()) {
            cells.push(Line::of(column, letters));
        }
    }
    if !cells.iter().all(|column| is_prose(column, letters)) {
        return None;
    }
    for column in &mut cells {
        if let Some(first) = column.first_mut() {
            first.begins_block = true;
        }
    }
    Some(cells.into_iter().flatten().collect())
}
