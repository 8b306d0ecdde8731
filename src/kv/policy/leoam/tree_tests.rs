//! Chunk tree tests: compared with LeoAM §4.2 Fig. 10, and with sorting all tokens.

use std::cell::Cell;

use proptest::prelude::*;

use super::*;

/// Oracle with all scores; some chunks are unsplittable, and chunks larger than `exact_tokens` have only loose bounds.
struct KnownScores<'a> {
    scores: &'a [f32],
    smallest: usize,
    whole_from: usize,
    exact_tokens: usize,
    looseness: f32,
    /// chunks of up to this size can be expanded
    open_tokens: usize,
    n_calls: &'a Cell<usize>,
}

impl Evaluate for KnownScores<'_> {
    fn bounds(&mut self, range: TokenRange) -> Bounds {
        self.n_calls.set(self.n_calls.get() + 1);
        let exact = Bounds::of_scores(&self.scores[range.start..range.end]);
        if range.len() <= self.exact_tokens {
            return exact;
        }
        Bounds::outer(exact.upper() + self.looseness, exact.lower() - self.looseness)
    }

    fn split_at(&self, range: TokenRange) -> Option<usize> {
        range.middle(self.smallest).filter(|_| range.start < self.whole_from)
    }

    fn tokens(&self, range: TokenRange) -> Option<&[f32]> {
        let is_small = range.len() <= self.open_tokens && range.start < self.whole_from;
        is_small.then(|| &self.scores[range.start..range.end])
    }
}

fn exact<'a>(scores: &'a [f32], smallest: usize, n_calls: &'a Cell<usize>) -> KnownScores<'a> {
    KnownScores { scores, smallest, whole_from: usize::MAX, exact_tokens: usize::MAX, looseness: 0.0, open_tokens: 0, n_calls }
}

fn chunks_of(n_tokens: usize, size: usize) -> Vec<TokenRange> {
    (0..n_tokens).step_by(size).map(|start| TokenRange::new(start, n_tokens.min(start + size))).collect()
}

/// Number of evaluations of the full tree.
fn full_tree(range: TokenRange, smallest: usize) -> usize {
    let split = |at| full_tree(TokenRange::new(range.start, at), smallest) + full_tree(TokenRange::new(at, range.end), smallest);
    1 + range.middle(smallest).map_or(0, split)
}

fn tokens(selected: &Selected) -> Vec<usize> {
    selected.important().flat_map(|range| range.start..range.end).collect()
}

fn ranges(selected: &Selected) -> Vec<(usize, usize, bool)> {
    selected.chunks.iter().map(|c| (c.range.start, c.range.end, c.is_important)).collect()
}

/// 32 tokens: one of chunk 0, one of chunk 2 and the four of chunk 7 are important.
fn figure_10(of_chunk_2: usize) -> Vec<f32> {
    let mut scores: Vec<f32> = (0..32).map(|token| 0.05 + 0.001 * (token % 4) as f32).collect();
    (scores[0], scores[of_chunk_2]) = (0.7, 0.6);
    scores[28..].copy_from_slice(&[0.75, 0.9, 0.85, 0.8]);
    scores
}

#[test]
fn tree_of_figure_10_finds_six_tokens_in_twelve_evaluations() {
    let (scores, n_calls) = (figure_10(11), Cell::new(0));
    let selected = Tree::new(chunks_of(32, 4), exact(&scores, 1, &n_calls)).select(6);
    assert_eq!(tokens(&selected), [0, 11, 28, 29, 30, 31]);
    assert_eq!(ranges(&selected), [(0, 1, true), (1, 11, false), (11, 12, true), (12, 28, false), (28, 32, true)]);
    assert_eq!(selected.n_evaluations, n_calls.get());
    assert!(selected.n_evaluations <= 12, "{}", selected.n_evaluations);
}

#[test]
fn tree_of_figure_10_needs_no_more_for_any_token_of_chunk_2() {
    for token in 8..12 {
        let (scores, n_calls) = (figure_10(token), Cell::new(0));
        let selected = Tree::new(chunks_of(32, 4), exact(&scores, 1, &n_calls)).select(6);
        assert_eq!(tokens(&selected), [0, token, 28, 29, 30, 31]);
        assert!(selected.n_evaluations <= 12, "{} for token {token}", selected.n_evaluations);
    }
}

#[test]
fn tree_seeded_with_the_chunks_it_found_evaluates_deserts_once() {
    let (scores, n_calls) = (figure_10(11), Cell::new(0));
    let first = Tree::new(chunks_of(32, 4), exact(&scores, 1, &n_calls)).select(6);
    let again = Tree::new(first.chunks.iter().map(|c| c.range), exact(&scores, 1, &n_calls)).select(6);
    assert_eq!(again.chunks, first.chunks);
    assert_eq!(again.n_evaluations, 5);
}

#[test]
fn tree_selects_unsplittable_chunks_as_a_whole() {
    let (scores, n_calls) = (figure_10(11), Cell::new(0));
    let oracle = KnownScores { whole_from: 8, ..exact(&scores, 1, &n_calls) };
    let selected = Tree::new(chunks_of(32, 4), oracle).select(6);
    assert_eq!(tokens(&selected), [0, 8, 9, 10, 11, 28, 29, 30, 31]);
}

#[test]
fn tree_of_equal_scores_confirms_the_requested_number() {
    let (scores, n_calls) = ([0.5; 32], Cell::new(0));
    for n_wanted in 0..=40 {
        let selected = Tree::new(chunks_of(32, 8), exact(&scores, 1, &n_calls)).select(n_wanted);
        assert_eq!(tokens(&selected).len(), n_wanted.min(32));
    }
}

#[test]
fn tree_without_budget_or_tokens_selects_nothing() {
    let n_calls = Cell::new(0);
    assert_eq!(Tree::new([], exact(&[], 1, &n_calls)).select(5), Selected::default());
    let none = Tree::new(chunks_of(32, 8), exact(&[f32::NAN; 32], 1, &n_calls)).select(0);
    assert_eq!(ranges(&none), [(0, 32, false)]);
    assert_eq!(none.n_evaluations, 4);
}

#[test]
fn tree_with_a_full_budget_evaluates_only_initial_chunks() {
    let (scores, n_calls) = (figure_10(11), Cell::new(0));
    let selected = Tree::new(chunks_of(32, 4), exact(&scores, 1, &n_calls)).select(32);
    assert_eq!((ranges(&selected), selected.n_evaluations), (vec![(0, 32, true)], 8));
}

#[test]
fn nan_bounds_are_unbounded() {
    let bounds = Bounds::outer(f32::NAN, f32::NAN);
    assert_eq!((bounds.upper(), bounds.lower()), (f32::INFINITY, f32::NEG_INFINITY));
    let bounds = Bounds::of_scores(&[1.0, f32::NAN, -1.0]);
    assert_eq!((bounds.upper(), bounds.lower()), (f32::INFINITY, -1.0));
    let crossed = Bounds::outer(1.0, 2.0);
    assert_eq!((crossed.upper(), crossed.lower()), (1.0, 1.0));
}

#[test]
fn middle_is_a_multiple_of_the_step_strictly_inside() {
    for (start, end, step, at) in [
        (0, 64, 16, Some(32)),
        (0, 48, 16, Some(16)),
        (0, 16, 16, None),
        (0, 100, 64, Some(64)),
        (8, 24, 16, Some(16)),
        (17, 31, 16, None),
        (3, 3, 1, None),
        (3, 4, 1, None),
        (3, 5, 0, Some(4)),
    ] {
        assert_eq!(TokenRange::new(start, end).middle(step), at, "{start}..{end} by {step}");
    }
}

fn score() -> impl Strategy<Value = f32> {
    prop_oneof![8 => -3.0f32..3.0, 4 => (-2i8..3).prop_map(f32::from), 1 => Just(f32::NAN), 1 => Just(f32::NEG_INFINITY)]
}

fn cut(n_tokens: usize, sizes: &[usize]) -> Vec<TokenRange> {
    let mut start = 0;
    let mut chunks = Vec::new();
    for size in sizes.iter().cycle() {
        if start == n_tokens {
            break;
        }
        chunks.push(TokenRange::new(start, n_tokens.min(start + size)));
        start = n_tokens.min(start + size);
    }
    chunks
}

/// The `n`-th best score, with NaN above all.
fn nth_best_of(scores: &[f32], n: usize) -> Option<f32> {
    let mut sorted: Vec<f32> = scores.iter().copied().map(infinity_if_nan).collect();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    n.checked_sub(1).and_then(|last| sorted.get(last.min(sorted.len().saturating_sub(1))).copied())
}

proptest! {
    #[test]
    fn tree_split_to_tokens_selects_the_best(
        scores in prop::collection::vec(score(), 0..200), sizes in prop::collection::vec(1usize..40, 1..6),
        n_wanted in 0usize..220, exact_tokens in 1usize..64, looseness in 0.0f32..4.0, open_tokens in 0usize..20,
    ) {
        let n_calls = Cell::new(0);
        let chunks = cut(scores.len(), &sizes);
        let oracle = KnownScores { exact_tokens, looseness, open_tokens, ..exact(&scores, 1, &n_calls) };
        let selected = Tree::new(chunks.clone(), oracle).select(n_wanted);
        let found = tokens(&selected);
        let n_nan = scores.iter().filter(|s| s.is_nan()).count();
        let n_expected = if n_wanted == 0 { 0 } else { n_wanted.max(n_nan).min(scores.len()) };
        prop_assert_eq!(found.len(), n_expected);
        if let Some(least) = nth_best_of(&scores, n_expected) {
            let is_best = |token: &usize| infinity_if_nan(scores[*token]) >= least;
            prop_assert!(found.iter().all(is_best));
            prop_assert!((0..scores.len()).filter(|t| infinity_if_nan(scores[*t]) > least).all(|t| found.contains(&t)));
        }
        prop_assert!(selected.n_evaluations == n_calls.get() || open_tokens > 1);
        prop_assert!(selected.n_evaluations <= chunks.iter().map(|c| full_tree(*c, 1)).sum());
    }

    #[test]
    fn tree_with_unsplittable_chunks_covers_its_input_and_the_budget(
        scores in prop::collection::vec(score(), 0..200), sizes in prop::collection::vec(1usize..40, 1..6),
        n_wanted in 1usize..220, smallest in 1usize..17, whole_from in 0usize..220, open_tokens in 0usize..20,
    ) {
        let n_calls = Cell::new(0);
        let chunks = cut(scores.len(), &sizes);
        let oracle = KnownScores { whole_from, open_tokens, ..exact(&scores, smallest, &n_calls) };
        let selected = Tree::new(chunks.clone(), oracle).select(n_wanted);
        let found = tokens(&selected);
        prop_assert!(found.len() >= n_wanted.min(scores.len()));
        prop_assert!((0..scores.len()).filter(|t| scores[*t].is_nan()).all(|t| found.contains(&t)));
        for chunk in chunks.iter().filter(|c| c.start >= whole_from) {
            let n_found = found.iter().filter(|t| (chunk.start..chunk.end).contains(*t)).count();
            prop_assert!(n_found == 0 || n_found == chunk.len());
        }
        // A whole chunk is read only if fewer than the selected number of tokens beat its best one.
        let best = |c: &TokenRange| scores[c.start..c.end].iter().copied().map(infinity_if_nan).fold(f32::NEG_INFINITY, f32::max);
        for chunk in chunks.iter().filter(|c| c.start >= whole_from && found.contains(&c.start) && best(c) < f32::INFINITY) {
            let n_better = scores[..whole_from.min(scores.len())].iter().filter(|s| infinity_if_nan(**s) > best(chunk)).count();
            prop_assert!(n_better < n_wanted || smallest > 1, "{n_better} of {n_wanted}");
        }
        let covered: Vec<usize> = selected.chunks.iter().flat_map(|c| c.range.start..c.range.end).collect();
        prop_assert_eq!(covered, (0..scores.len()).collect::<Vec<_>>());
        prop_assert!(selected.chunks.windows(2).all(|pair| pair[0].is_important != pair[1].is_important));
        let smallest = if open_tokens > 0 { 1 } else { smallest };
        prop_assert!(selected.n_evaluations <= chunks.iter().map(|c| full_tree(*c, smallest)).sum());
    }
}
