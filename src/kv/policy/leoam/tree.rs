//! Importance-aware chunk tree: finds the n most important tokens with few evaluations.
//!
//! ```text
//! initial chunks ─ evaluate ─► queue by upper bound ─ front ─┬► every token beats the rest, or unsplittable: important
//!                                   ▲                         ├► small: expanded, its tokens compete one by one
//!                                   │                         └► split in two, evaluate one half ─┐
//!                                   └──────────── halves ◄────────────────────────────────────────┘
//! n tokens confirmed, or n expanded tokens beat the front ─► stop; the rest is desert, adjacent chunks of one kind merge
//! ```
//! 1. If all chunks can be split to single tokens, exactly the n most important tokens are found.
//! 2. At least n tokens are confirmed, unless there are fewer. More than n only through unsplittable chunks.
//! 3. A range is evaluated at most once, so never more ranges than in a full tree. Expanding a chunk of m tokens counts
//!    as the m - 1 splits it replaces.
//! 4. A NaN score counts as the most important one: it is confirmed even beyond n.
//!
//! Owner thread: any; pure. Units: tokens, scores of any scale, higher is more important.
//!
//! Limits: the importance of a chunk is that of its best token. Ties go to evaluated, then narrower, then earlier
//! chunks.
//!
//! Source: LeoAM §4.2 Fig. 10. The paper counts one evaluation per split (8 chunks and 4 splits are its 12), though
//! LeoAM §4.2 eq. 2 has two. Here one suffices where possible: if one half lacks the best score, the other half has it.
//! A half of unknown score inherits the bound of its parent, and is evaluated only when it reaches the front.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Tokens `start..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenRange {
    /// first token
    pub start: usize,
    /// one past the last
    pub end: usize,
}

/// Bounds of the scores of a range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    upper: f32,
    lower: f32,
    /// true if a token has the score `upper`
    is_attained: bool,
}

/// Evaluation of token ranges, for the tree.
pub trait Evaluate {
    /// Bounds of the scores of a range: one evaluation.
    fn bounds(&mut self, range: TokenRange) -> Bounds;

    /// Position to split a range, strictly inside. None if it cannot be split.
    fn split_at(&self, range: TokenRange) -> Option<usize>;

    /// Scores of all tokens of a range that is small enough to be expanded.
    fn tokens(&self, _range: TokenRange) -> Option<&[f32]> {
        None
    }
}

/// Adjacent tokens that are all important, or all unimportant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// tokens
    pub range: TokenRange,
    /// true if important; otherwise part of the attention desert
    pub is_important: bool,
}

/// Result of the tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selected {
    /// chunks, ascending, covering the input; adjacent chunks of one kind are merged. May be the initial chunks of the
    /// next step.
    pub chunks: Vec<Chunk>,
    /// number of evaluated ranges, including the initial chunks
    pub n_evaluations: usize,
}

/// Queue of chunks by upper bound.
pub struct Tree<E> {
    oracle: E,
    queue: BinaryHeap<Node>,
    n_evaluations: usize,
    expanded: Expanded,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    range: TokenRange,
    bounds: Bounds,
    /// false if the bounds are inherited from the parent
    is_evaluated: bool,
}

impl TokenRange {
    /// Tokens `start..end`; empty if `end < start`.
    pub fn new(start: usize, end: usize) -> TokenRange {
        TokenRange { start, end: end.max(start) }
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// True if it has no token.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The multiple of `step` nearest to the middle, if one is strictly inside.
    pub fn middle(&self, step: usize) -> Option<usize> {
        let half = self.start + self.len() / 2;
        let below = half / step.max(1) * step.max(1);
        let is_strictly_inside = |at: &usize| self.start < *at && *at < self.end;
        let (below, above) = (Some(below).filter(is_strictly_inside), Some(below + step.max(1)).filter(is_strictly_inside));
        match (below, above) {
            (Some(b), Some(a)) => Some(if half - b <= a - half { b } else { a }),
            (b, a) => b.or(a),
        }
    }
}

impl Bounds {
    /// Bounds that no token need reach, as from page abstracts.
    pub fn outer(upper: f32, lower: f32) -> Bounds {
        let upper = infinity_if_nan(upper);
        Bounds { upper, lower: if lower.is_nan() { f32::NEG_INFINITY } else { lower.min(upper) }, is_attained: false }
    }

    /// Tightest bounds of known scores. Of no scores, -infinity.
    pub fn of_scores(scores: &[f32]) -> Bounds {
        // Independent lanes, because most of the evaluation time is spent here.
        let (eights, rest) = scores.as_chunks::<8>();
        let mut upper = [f32::NEG_INFINITY; 8];
        let mut lower = [f32::INFINITY; 8];
        for eight in eights {
            for ((score, upper), lower) in eight.iter().zip(&mut upper).zip(&mut lower) {
                let score = infinity_if_nan(*score);
                *upper = if score > *upper { score } else { *upper };
                *lower = if score < *lower { score } else { *lower };
            }
        }
        let rest = || rest.iter().copied().map(infinity_if_nan);
        let upper = upper.into_iter().chain(rest()).fold(f32::NEG_INFINITY, f32::max);
        let lower = lower.into_iter().chain(rest()).fold(upper, f32::min);
        Bounds { upper, lower, is_attained: true }
    }

    /// Upper bound.
    pub fn upper(&self) -> f32 {
        self.upper
    }

    /// Lower bound.
    pub fn lower(&self) -> f32 {
        self.lower
    }
}

/// Maps NaN to infinity: a token with a NaN score must be read.
fn infinity_if_nan(score: f32) -> f32 {
    if score.is_nan() { f32::INFINITY } else { score }
}

impl Selected {
    /// Important ranges: ascending, disjoint, not adjacent.
    pub fn important(&self) -> impl Iterator<Item = TokenRange> {
        self.chunks.iter().filter(|c| c.is_important).map(|c| c.range)
    }
}

impl<E: Evaluate> Tree<E> {
    /// Evaluates the initial chunks, which are disjoint ranges. Skips empty ones.
    pub fn new(chunks: impl IntoIterator<Item = TokenRange>, mut oracle: E) -> Tree<E> {
        let nodes: Vec<Node> = chunks
            .into_iter()
            .filter(|range| !range.is_empty())
            .map(|range| Node { range, bounds: oracle.bounds(range), is_evaluated: true })
            .collect();
        Tree { oracle, n_evaluations: nodes.len(), queue: nodes.into(), expanded: Expanded::default() }
    }

    /// Confirms the `n_wanted` most important tokens.
    pub fn select(mut self, n_wanted: usize) -> Selected {
        let mut important = Vec::new();
        let mut n_remaining = n_wanted;
        // Expanded tokens that rank before the last whole chunk, which may exceed the budget.
        let mut n_before = 0;
        // Tokens neither confirmed nor known to be desert, including expanded ones.
        let mut n_undecided: usize = self.queue.iter().map(|node| node.range.len()).sum();
        while let Some(front) = self.queue.peek().copied() {
            let is_unbounded = n_wanted > 0 && front.bounds.upper == f32::INFINITY;
            let tokens = self.oracle.tokens(front.range);
            let is_inside = |at: &usize| front.range.start < *at && *at < front.range.end;
            let middle = if tokens.is_none() { self.oracle.split_at(front.range).filter(is_inside) } else { None };
            let is_whole = tokens.is_none() && middle.is_none();
            if !is_unbounded && (n_remaining == 0 || self.expanded.has_enough(n_remaining, front.bounds.upper, is_whole)) {
                break;
            }
            self.queue.pop();
            if n_remaining < n_undecided && !front.is_evaluated {
                let bounds = self.evaluate(front.range);
                self.queue.push(Node { bounds, is_evaluated: true, ..front });
                continue;
            }
            let is_confirmed = n_undecided <= n_remaining || self.is_confirmed(&front, n_remaining);
            if !is_confirmed {
                if let Some(scores) = tokens {
                    self.n_evaluations += scores.len().saturating_sub(1);
                    self.expanded.add(front.range, scores);
                    continue;
                }
                if let Some(at) = middle {
                    self.split(&front, at);
                    continue;
                }
                n_before = self.expanded.n_from(front.bounds.upper);
            }
            n_undecided -= front.range.len();
            n_remaining = n_remaining.saturating_sub(front.range.len());
            important.push(Chunk { range: front.range, is_important: true });
        }
        let desert = self.queue.iter().map(|node| Chunk { range: node.range, is_important: false });
        let chunks =
            important.into_iter().chain(desert).chain(self.expanded.best(n_remaining.max(n_before), n_wanted > 0)).collect();
        Selected { chunks: merge(chunks), n_evaluations: self.n_evaluations }
    }

    /// True if every token of the front chunk is selected, whatever the other scores are.
    fn is_confirmed(&self, front: &Node, n_remaining: usize) -> bool {
        let next_upper = self.queue.peek().map_or(f32::NEG_INFINITY, |next| next.bounds.upper);
        let lower = front.bounds.lower;
        let fits = || front.range.len() + self.expanded.n_from(lower) <= n_remaining;
        lower >= next_upper && (lower == f32::INFINITY || fits())
    }

    /// Splits a range and evaluates its second half. The bounds of the first half follow from it, or are inherited.
    fn split(&mut self, parent: &Node, at: usize) {
        let first = TokenRange::new(parent.range.start, at);
        let second = TokenRange::new(at, parent.range.end);
        let bounds = self.evaluate(second);
        self.queue.push(Node { range: second, bounds, is_evaluated: true });
        let has_best = parent.bounds.is_attained && bounds.upper < parent.bounds.upper;
        let lower = if has_best && first.len() == 1 { parent.bounds.upper } else { parent.bounds.lower };
        let inherited = Bounds { lower, is_attained: has_best, ..parent.bounds };
        self.queue.push(Node { range: first, bounds: inherited, is_evaluated: has_best });
    }

    fn evaluate(&mut self, range: TokenRange) -> Bounds {
        self.n_evaluations += 1;
        self.oracle.bounds(range)
    }
}

impl Chunk {
    /// True if `next` is adjacent and of the same kind.
    fn continues_with(&self, next: &Chunk) -> bool {
        next.is_important == self.is_important && self.range.end == next.range.start
    }
}

/// Sorts chunks and merges adjacent ones of one kind.
fn merge(mut chunks: Vec<Chunk>) -> Vec<Chunk> {
    // A stable sort, which is fast for mostly sorted input.
    chunks.sort_by_key(|chunk| chunk.range);
    chunks.dedup_by(|next, chunk| {
        let is_continued = chunk.continues_with(next);
        if is_continued {
            chunk.range.end = next.range.end;
        }
        is_continued
    });
    chunks
}

impl Ord for Node {
    fn cmp(&self, other: &Self) -> Ordering {
        let ties = || self.is_evaluated.cmp(&other.is_evaluated).then(self.bounds.lower.total_cmp(&other.bounds.lower));
        let by_upper = self.bounds.upper.total_cmp(&other.bounds.upper);
        by_upper.then_with(ties).then_with(|| other.range.cmp(&self.range))
    }
}

impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Node {}

/// Tokens of expanded chunks.
#[derive(Debug, Default)]
struct Expanded {
    ranges: Vec<TokenRange>,
    /// scores of their tokens, one range after the other
    scores: Vec<f32>,
    /// `n_best` scores are at least `nth_best`, as of `n_checked` scores
    n_best: usize,
    nth_best: f32,
    n_checked: usize,
}

impl Expanded {
    fn add(&mut self, range: TokenRange, scores: &[f32]) {
        self.ranges.push(range);
        self.scores.extend(scores.iter().copied().map(infinity_if_nan));
    }

    /// Number of tokens with a score of at least `least`.
    fn n_from(&self, least: f32) -> usize {
        self.scores.iter().filter(|score| **score >= least).count()
    }

    /// True if `n` tokens surely have a score of at least `least`. Unless `exact`, checks only now and then: expanding
    /// a chunk in vain costs less than a check.
    fn has_enough(&mut self, n: usize, least: f32, exact: bool) -> bool {
        if self.n_checked > 0 && n <= self.n_best && self.nth_best >= least {
            return true;
        }
        let n_scores = self.scores.len();
        if n_scores < n || n_scores == self.n_checked && n == self.n_best {
            return false;
        }
        if exact {
            return self.n_from(least) >= n;
        }
        if n_scores < self.n_checked + self.n_checked / 8 {
            return false;
        }
        (self.n_best, self.nth_best, self.n_checked) = (n, nth_best(&self.scores, n), n_scores);
        self.nth_best >= least
    }

    /// All expanded tokens as ascending chunks. The `n` best are important and, with `anything`, all unbounded ones.
    /// Ties go to the chunk expanded first.
    fn best(&self, n: usize, include_unbounded: bool) -> Vec<Chunk> {
        let nth_best = if n == 0 { f32::INFINITY } else { nth_best(&self.scores, n) };
        let n_ties = n.saturating_sub(self.scores.iter().filter(|score| **score > nth_best).count());
        let ties = self.scores.iter().enumerate().filter(|(_, score)| **score == nth_best).map(|(i, _)| i);
        let last_tie = ties.take(n_ties).last();
        let is_important_at = |i: usize, score: f32| {
            let is_tie = score == nth_best && last_tie.is_some_and(|last| i <= last);
            score > nth_best || is_tie || include_unbounded && score == f32::INFINITY
        };
        let first_score = |next: &mut usize, range: &TokenRange| Some(std::mem::replace(next, *next + range.len()));
        let mut expanded: Vec<(TokenRange, usize)> =
            self.ranges.iter().copied().zip(self.ranges.iter().scan(0, first_score)).collect();
        expanded.sort_unstable_by_key(|(range, _)| range.start);
        let mut chunks: Vec<Chunk> = Vec::with_capacity(2 * expanded.len());
        for (range, first) in expanded {
            for (i, score) in self.scores[first..first + range.len()].iter().enumerate() {
                let token = range.start + i;
                let next = Chunk { range: TokenRange::new(token, token + 1), is_important: is_important_at(first + i, *score) };
                match chunks.last_mut() {
                    Some(last) if last.continues_with(&next) => last.range.end = next.range.end,
                    _ => chunks.push(next),
                }
            }
        }
        chunks
    }
}

/// The `n`-th highest score, or the lowest if there are fewer.
fn nth_best(scores: &[f32], n: usize) -> f32 {
    let mut sorted: Vec<i32> = scores.iter().map(|score| to_ordered(score.to_bits().cast_signed())).collect();
    match sorted.len().min(n).checked_sub(1) {
        Some(last) => {
            let at = sorted.len() - 1 - last;
            f32::from_bits(to_ordered(*sorted.select_nth_unstable(at).1).cast_unsigned())
        }
        None => f32::NEG_INFINITY,
    }
}

/// Maps the bits of a float to an integer with the order of [`f32::total_cmp`]. Its own inverse.
fn to_ordered(bits: i32) -> i32 {
    bits ^ ((bits >> 31) & i32::MAX)
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
