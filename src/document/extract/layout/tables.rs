//! Tables that were drawn column by column: their rows are put together again.

use super::glyph::Letter;
use super::lines::Line;
use super::prose::is_prose;

/// Largest distance between the baselines of a row, ems.
const SAME_ROW: f64 = 0.3;
/// Rows of such a table, at least.
const N_ROWS: usize = 3;
/// The same if the cells are numbers.
const N_ROWS_NUMBERS: usize = 2;
/// Letters of a cell, at most, on average; longer ones are lines of prose.
const CELL_LETTERS: usize = 22;

/// Lines with each run of table columns as rows.
pub fn rows_of_columns(lines: Vec<Line>, letters: &[Letter]) -> Vec<Line> {
    let columns = columns(&lines);
    let mut out: Vec<Line> = Vec::with_capacity(lines.len());
    let mut at = 0;
    while let Some(first) = columns.get(at) {
        let n = columns.iter().skip(at + 1).take_while(|column| is_beside(&lines, first, column, letters)).count();
        let last = columns.get(at + n).unwrap_or(first);
        let mut rows: Vec<Line> = lines.get(first.clone()).unwrap_or_default().to_vec();
        for line in lines.get(first.end..last.end).unwrap_or_default() {
            if let Some(row) = rows.iter_mut().find(|row| is_same_row(row, line)) {
                line.pieces.iter().for_each(|piece| row.push(piece.clone(), letters));
            }
        }
        out.extend(rows);
        at += n + 1;
    }
    out
}

/// Runs of lines that go down the page.
pub fn columns(lines: &[Line]) -> Vec<std::ops::Range<usize>> {
    let mut columns: Vec<std::ops::Range<usize>> = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let goes_down = i.checked_sub(1).and_then(|before| lines.get(before)).is_some_and(|before| {
            before.axis == line.axis && line.below > before.below && before.start < line.end && line.start < before.end
        });
        match columns.last_mut() {
            Some(column) if goes_down => column.end = i + 1,
            _ => columns.push(i..i + 1),
        }
    }
    columns
}

/// True if each line of `column` is the cell of a row that begins in `first`.
fn is_beside(lines: &[Line], first: &std::ops::Range<usize>, column: &std::ops::Range<usize>, letters: &[Letter]) -> bool {
    let of = |range: &std::ops::Range<usize>| lines.get(range.clone()).unwrap_or_default();
    let (first, column) = (of(first), of(column));
    let n_least = if column.len() == first.len() && are_numbers(column, letters) { N_ROWS_NUMBERS } else { N_ROWS };
    // A bound for the comparison of every two lines.
    let is_small = first.len() <= 200 && column.len() <= 200;
    if column.len() < n_least || first.len() < n_least || !is_small || column.len() * 10 < first.len() * 6 {
        return false;
    }
    // Lines between the rows may be long.
    let row_of = |line: &Line| first.iter().find(|row| is_same_row(row, line));
    let rows: Vec<Line> = column.iter().filter_map(row_of).cloned().collect();
    let end = rows.iter().map(|line| line.end).fold(f64::NEG_INFINITY, f64::max);
    let n_letters = |lines: &[Line]| lines.iter().flat_map(|line| line.pieces.iter().flatten()).count();
    let is_short = |lines: &[Line]| n_letters(lines) <= CELL_LETTERS * lines.len();
    rows.len() == column.len()
        && column.iter().all(|line| line.start >= end)
        && is_short(&rows)
        && is_short(column)
        && !(is_prose(first, letters) && is_prose(column, letters))
}

/// True if most letters of each line are digits.
fn are_numbers(lines: &[Line], letters: &[Letter]) -> bool {
    lines.iter().all(|line| {
        let texts = || line.pieces.iter().flatten().filter_map(|i| letters.get(*i)).filter(|letter| !letter.is_space());
        let n_digits = texts().filter(|letter| letter.text.chars().all(char::is_numeric)).count();
        n_digits > 0 && n_digits * 2 >= texts().count()
    })
}

/// True for lines on one baseline.
pub fn is_same_row(row: &Line, line: &Line) -> bool {
    row.axis == line.axis && (row.below - line.below).abs() <= SAME_ROW * row.size.max(line.size)
}
