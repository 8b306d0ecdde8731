//! Blocks of lines: one that was drawn after the text that it precedes goes before it.
//!
//! Source: ISO 32000-2 gives no order of drawing; programs draw a heading or a left column last when it was added last.

use super::lines::Line;
use super::tables::{columns, is_same_row};

/// Lines of each of two blocks that change places, at least.
const N_LINES: usize = 3;
/// The same, at most.
const MAX_LINES: usize = 200;

/// Lines with a heading that was drawn last at the top, and a left column before the one to its right.
pub fn in_order(lines: Vec<Line>, is_rtl: bool) -> Vec<Line> {
    let mut blocks = columns(&lines);
    let of = |block: &std::ops::Range<usize>| lines.get(block.clone()).unwrap_or_default();
    if let [rest @ .., last] = blocks.as_slice()
        && !rest.is_empty()
        && is_above(of(last), lines.get(..last.start).unwrap_or_default())
    {
        blocks.rotate_right(1);
    }
    for at in 1..blocks.len() {
        if let (Some(before), Some(block)) = (blocks.get(at - 1), blocks.get(at))
            && precedes(of(block), of(before), is_rtl)
        {
            blocks.swap(at - 1, at);
        }
    }
    if blocks.is_sorted_by_key(|block| block.start) {
        return lines;
    }
    blocks.iter().flat_map(of).cloned().collect()
}

/// True if a block stands above all other lines.
fn is_above(block: &[Line], others: &[Line]) -> bool {
    let lowest = block.iter().map(|line| line.below).fold(f64::NEG_INFINITY, f64::max);
    let axis = block.first().map(|line| line.axis);
    others.iter().all(|line| Some(line.axis) == axis && line.below - lowest > 0.5 * line.size)
}

/// True if a block stands beside another, row by row, on the side that is read first.
fn precedes(block: &[Line], other: &[Line], is_rtl: bool) -> bool {
    let (first, second) = if is_rtl { (other, block) } else { (block, other) };
    let end = first.iter().map(|line| line.end).fold(f64::NEG_INFINITY, f64::max);
    let start = second.iter().map(|line| line.start).fold(f64::INFINITY, f64::min);
    // A bound for the comparison of every two lines.
    let n_lines = [block.len(), other.len()];
    if n_lines.iter().any(|n| !(N_LINES..=MAX_LINES).contains(n)) || end > start {
        return false;
    }
    let n_beside = block.iter().filter(|line| other.iter().any(|row| is_same_row(row, line))).count();
    n_beside * 10 >= block.len() * 6
}
