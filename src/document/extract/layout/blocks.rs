//! Blocks of lines: one that was drawn after the text that it precedes goes before it.
//!
//! Source: ISO 32000-2 gives no order of drawing; programs draw a heading or a left column last when it was added last.

use super::lines::Line;
use super::tables::columns;

/// Lines of each of two blocks that change places, at least.
const N_LINES: usize = 3;

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
            && precedes(&Edges::of(of(block)), &Edges::of(of(before)), is_rtl)
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

/// Edges of a block.
struct Edges {
    axis: Option<usize>,
    n_lines: usize,
    start: f64,
    end: f64,
    top: f64,
    bottom: f64,
}

impl Edges {
    fn of(lines: &[Line]) -> Edges {
        let least = |of: fn(&Line) -> f64| lines.iter().map(of).fold(f64::INFINITY, f64::min);
        let most = |of: fn(&Line) -> f64| lines.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
        Edges {
            axis: lines.first().map(|line| line.axis),
            n_lines: lines.len(),
            start: least(|line| line.start),
            end: most(|line| line.end),
            top: least(|line| line.below),
            bottom: most(|line| line.below),
        }
    }
}

/// True if a block stands at the height of another, on the side that is read first.
fn precedes(block: &Edges, other: &Edges, is_rtl: bool) -> bool {
    let is_first = if is_rtl { block.start >= other.end } else { block.end <= other.start };
    let shared = block.bottom.min(other.bottom) - block.top.max(other.top);
    let height = (block.bottom - block.top).min(other.bottom - other.top);
    block.axis == other.axis && block.n_lines.min(other.n_lines) >= N_LINES && is_first && shared * 2.0 >= height
}
