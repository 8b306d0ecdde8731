//! The importance-aware chunk tree: finds the wanted number of most important tokens with few evaluations.
//!
//! ```text
//! initial chunks ─ evaluate ─► queue by upper bound ─ front ─┬► every token beats the rest, or it cannot be split: important
//!                                   ▲                         ├► small: opened, its tokens wait for their turn one by one
//!                                   │                         └► split in two, evaluate one half ─┐
//!                                   └──────────── halves ◄────────────────────────────────────────┘
//! wanted tokens confirmed, or as many opened that beat the front ─► stop; the rest is desert, neighbors of one kind are merged
//! ```
//! 1. Where all chunks can be split to single tokens, exactly the wanted number of most important tokens is found.
//! 2. Never fewer than wanted are confirmed, unless there are fewer; more only by chunks that cannot be split.
//! 3. A range is evaluated once at most, so never more ranges than a full tree has. A chunk of n tokens that is opened counts as
//!    the n - 1 splits that would have come to the same.
//! 4. A score that is not a number counts as the most important one: it is confirmed even past the wanted number.
//!
//! Owner thread: any; pure. Units: tokens, scores of any scale, higher is more important.
//!
//! Limits: importance of a chunk is that of its best token; ties go to evaluated, then to narrower, then to earlier chunks.
//!
//! Source: LeoAM, section 4.2 and figure 10. The paper counts one evaluation for each split (8 chunks and 4 splits are its 12),
//! though equation 2 has two; here one is enough where it can be: the half without the best score gives away that the other
//! half has it, and a half about which nothing follows inherits its parent's bound and is evaluated only if it comes to the
//! front.

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

/// What is known of the scores of a range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    upper: f32,
    lower: f32,
    /// a token of the range has the score `upper`
    is_attained: bool,
}

/// Answers the tree's questions about a range of tokens.
pub trait Evaluate {
    /// Bounds on the scores of the tokens of a range: one evaluation.
    fn bounds(&mut self, range: TokenRange) -> Bounds;

    /// Where to split a range, strictly inside it; none where it is read as a whole or not at all.
    fn split_at(&self, range: TokenRange) -> Option<usize>;

    /// Scores of every token of a range that is small enough to be opened at once.
    fn tokens(&self, _range: TokenRange) -> Option<&[f32]> {
        None
    }
}

/// Neighboring tokens that matter, or none of which does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// its tokens
    pub range: TokenRange,
    /// else it is a part of the attention desert
    pub is_important: bool,
}

/// What the tree found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selected {
    /// ascending, covering what the tree was given; touching chunks of one kind are one. May be the next step's chunks.
    pub chunks: Vec<Chunk>,
    /// ranges evaluated, the initial chunks among them
    pub n_evaluations: usize,
}

/// Chunks in the order of their upper bounds.
pub struct Tree<E> {
    oracle: E,
    queue: BinaryHeap<Node>,
    n_evaluations: usize,
    opened: Opened,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    range: TokenRange,
    bounds: Bounds,
    /// else the bounds are those of its parent
    is_evaluated: bool,
}

impl TokenRange {
    /// Tokens `start..end`; empty where they cross.
    pub fn new(start: usize, end: usize) -> TokenRange {
        TokenRange { start, end: end.max(start) }
    }

    /// Tokens in it.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// No token in it.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The multiple of `step` nearest to its middle, if one is strictly inside.
    pub fn middle(&self, step: usize) -> Option<usize> {
        let half = self.start + self.len() / 2;
        let below = half / step.max(1) * step.max(1);
        let inside = |at: &usize| self.start < *at && *at < self.end;
        let (below, above) = (Some(below).filter(inside), Some(below + step.max(1)).filter(inside));
        match (below, above) {
            (Some(b), Some(a)) => Some(if half - b <= a - half { b } else { a }),
            (b, a) => b.or(a),
        }
    }
}

impl Bounds {
    /// Bounds that no token need attain, as abstracts give them.
    pub fn outer(upper: f32, lower: f32) -> Bounds {
        let upper = most_if_nan(upper);
        Bounds { upper, lower: if lower.is_nan() { f32::NEG_INFINITY } else { lower.min(upper) }, is_attained: false }
    }

    /// The least bounds of tokens whose scores are known; of no token, nothing is below.
    pub fn of_scores(scores: &[f32]) -> Bounds {
        // Lanes that do not wait for each other, since most of an evaluation's time is spent here.
        let (eights, rest) = scores.as_chunks::<8>();
        let mut upper = [f32::NEG_INFINITY; 8];
        let mut lower = [f32::INFINITY; 8];
        for eight in eights {
            for ((score, upper), lower) in eight.iter().zip(&mut upper).zip(&mut lower) {
                let score = most_if_nan(*score);
                *upper = if score > *upper { score } else { *upper };
                *lower = if score < *lower { score } else { *lower };
            }
        }
        let rest = || rest.iter().copied().map(most_if_nan);
        let upper = upper.into_iter().chain(rest()).fold(f32::NEG_INFINITY, f32::max);
        let lower = lower.into_iter().chain(rest()).fold(upper, f32::min);
        Bounds { upper, lower, is_attained: true }
    }

    /// No token scores more.
    pub fn upper(&self) -> f32 {
        self.upper
    }

    /// No token scores less.
    pub fn lower(&self) -> f32 {
        self.lower
    }
}

/// A score that is not a number comes from a key that is none: better read than lost.
fn most_if_nan(score: f32) -> f32 {
    if score.is_nan() { f32::INFINITY } else { score }
}

impl Selected {
    /// Ranges that matter: ascending, disjoint, not touching.
    pub fn important(&self) -> impl Iterator<Item = TokenRange> {
        self.chunks.iter().filter(|c| c.is_important).map(|c| c.range)
    }
}

impl<E: Evaluate> Tree<E> {
    /// Evaluates the initial chunks: disjoint ranges, of which empty ones are left out.
    pub fn new(chunks: impl IntoIterator<Item = TokenRange>, mut oracle: E) -> Tree<E> {
        let nodes: Vec<Node> = chunks
            .into_iter()
            .filter(|range| !range.is_empty())
            .map(|range| Node { range, bounds: oracle.bounds(range), is_evaluated: true })
            .collect();
        Tree { oracle, n_evaluations: nodes.len(), queue: nodes.into(), opened: Opened::default() }
    }

    /// Confirms the `n_wanted` most important tokens.
    pub fn select(mut self, n_wanted: usize) -> Selected {
        let mut important = Vec::new();
        let mut n_missing = n_wanted;
        // Opened tokens that a whole chunk does not come before, though it may bring more than is missing.
        let mut n_before = 0;
        // What is neither confirmed nor known to be desert, opened tokens among it.
        let mut n_left: usize = self.queue.iter().map(|node| node.range.len()).sum();
        while let Some(front) = self.queue.peek().copied() {
            let may_be_anything = n_wanted > 0 && front.bounds.upper == f32::INFINITY;
            let tokens = self.oracle.tokens(front.range);
            let is_inside = |at: &usize| front.range.start < *at && *at < front.range.end;
            let middle = if tokens.is_none() { self.oracle.split_at(front.range).filter(is_inside) } else { None };
            let is_whole = tokens.is_none() && middle.is_none();
            if !may_be_anything && (n_missing == 0 || self.opened.has(n_missing, front.bounds.upper, is_whole)) {
                break;
            }
            self.queue.pop();
            if n_missing < n_left && !front.is_evaluated {
                let bounds = self.evaluate(front.range);
                self.queue.push(Node { bounds, is_evaluated: true, ..front });
                continue;
            }
            let is_confirmed = n_left <= n_missing || self.is_confirmed(&front, n_missing);
            if !is_confirmed {
                if let Some(scores) = tokens {
                    self.n_evaluations += scores.len().saturating_sub(1);
                    self.opened.add(front.range, scores);
                    continue;
                }
                if let Some(at) = middle {
                    self.split(&front, at);
                    continue;
                }
                n_before = self.opened.n_from(front.bounds.upper);
            }
            n_left -= front.range.len();
            n_missing = n_missing.saturating_sub(front.range.len());
            important.push(Chunk { range: front.range, is_important: true });
        }
        let desert = self.queue.iter().map(|node| Chunk { range: node.range, is_important: false });
        let chunks = important.into_iter().chain(desert).chain(self.opened.best(n_missing.max(n_before), n_wanted > 0)).collect();
        Selected { chunks: merge(chunks), n_evaluations: self.n_evaluations }
    }

    /// Whether every token of the chunk at the front is wanted, whatever the others are.
    fn is_confirmed(&self, front: &Node, n_missing: usize) -> bool {
        let next_upper = self.queue.peek().map_or(f32::NEG_INFINITY, |next| next.bounds.upper);
        let lower = front.bounds.lower;
        let fits = || front.range.len() + self.opened.n_from(lower) <= n_missing;
        lower >= next_upper && (lower == f32::INFINITY || fits())
    }

    /// Evaluates the second half; the first is known by it, or inherits what is known of both.
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
    /// Another one begins where this ends, and is of the same kind.
    fn goes_on(&self, next: &Chunk) -> bool {
        next.is_important == self.is_important && self.range.end == next.range.start
    }
}

/// Ascending, touching chunks of one kind as one.
fn merge(mut chunks: Vec<Chunk>) -> Vec<Chunk> {
    // Stable, since that is fast where most are in order.
    chunks.sort_by_key(|chunk| chunk.range);
    chunks.dedup_by(|next, chunk| {
        let is_one = chunk.goes_on(next);
        if is_one {
            chunk.range.end = next.range.end;
        }
        is_one
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

/// Tokens of chunks that were opened.
#[derive(Debug, Default)]
struct Opened {
    ranges: Vec<TokenRange>,
    /// of their tokens, one range after the other
    scores: Vec<f32>,
    /// so many scores reach this one, at least; how many there were when that was found
    n_best: usize,
    nth_best: f32,
    n_seen: usize,
}

impl Opened {
    fn add(&mut self, range: TokenRange, scores: &[f32]) {
        self.ranges.push(range);
        self.scores.extend(scores.iter().copied().map(most_if_nan));
    }

    /// Tokens that score `least` or more.
    fn n_from(&self, least: f32) -> usize {
        self.scores.iter().filter(|score| **score >= least).count()
    }

    /// Surely `n` tokens score `least` or more. Looks only now and then, unless it must be `exact`: a chunk that is opened in
    /// vain costs less than looking.
    fn has(&mut self, n: usize, least: f32, exact: bool) -> bool {
        if self.n_seen > 0 && n <= self.n_best && self.nth_best >= least {
            return true;
        }
        let n_scores = self.scores.len();
        if n_scores < n || n_scores == self.n_seen && n == self.n_best {
            return false;
        }
        if exact {
            return self.n_from(least) >= n;
        }
        if n_scores < self.n_seen + self.n_seen / 8 {
            return false;
        }
        (self.n_best, self.nth_best, self.n_seen) = (n, nth_best(&self.scores, n), n_scores);
        self.nth_best >= least
    }

    /// Everything that was opened, ascending: the `n` best tokens matter, and with `anything` those that may be anything. Ties go
    /// to the chunk that was opened first.
    fn best(&self, n: usize, anything: bool) -> Vec<Chunk> {
        let nth_best = if n == 0 { f32::INFINITY } else { nth_best(&self.scores, n) };
        let n_ties = n.saturating_sub(self.scores.iter().filter(|score| **score > nth_best).count());
        let ties = self.scores.iter().enumerate().filter(|(_, score)| **score == nth_best).map(|(i, _)| i);
        let last_tie = ties.take(n_ties).last();
        let matters = |i: usize, score: f32| {
            let is_tie = score == nth_best && last_tie.is_some_and(|last| i <= last);
            score > nth_best || is_tie || anything && score == f32::INFINITY
        };
        let first_score = |next: &mut usize, range: &TokenRange| Some(std::mem::replace(next, *next + range.len()));
        let mut opened: Vec<(TokenRange, usize)> =
            self.ranges.iter().copied().zip(self.ranges.iter().scan(0, first_score)).collect();
        opened.sort_unstable_by_key(|(range, _)| range.start);
        let mut chunks: Vec<Chunk> = Vec::with_capacity(2 * opened.len());
        for (range, first) in opened {
            for (i, score) in self.scores[first..first + range.len()].iter().enumerate() {
                let token = range.start + i;
                let next = Chunk { range: TokenRange::new(token, token + 1), is_important: matters(first + i, *score) };
                match chunks.last_mut() {
                    Some(last) if last.goes_on(&next) => last.range.end = next.range.end,
                    _ => chunks.push(next),
                }
            }
        }
        chunks
    }
}

/// The `n`-th highest of `scores`, the lowest where they are fewer.
fn nth_best(scores: &[f32], n: usize) -> f32 {
    let mut sorted: Vec<i32> = scores.iter().map(|score| in_order(score.to_bits().cast_signed())).collect();
    match sorted.len().min(n).checked_sub(1) {
        Some(last) => {
            let at = sorted.len() - 1 - last;
            f32::from_bits(in_order(*sorted.select_nth_unstable(at).1).cast_unsigned())
        }
        None => f32::NEG_INFINITY,
    }
}

/// The bits of a number as an integer of the same order as [`f32::total_cmp`] has; its own inverse.
fn in_order(bits: i32) -> i32 {
    bits ^ ((bits >> 31) & i32::MAX)
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
