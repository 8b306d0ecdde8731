//! Score conversion: from raw GPU scores and bounds to the log attention weights that a policy reads.
//!
//! ```text
//! readback: bounds [H, P, 2] │ estimated bounds of the next layer │ scores [H, n_keys] of the tail and of runs
//!             └─► PageBounds ◄──────────────── ScoreTotals ◄───────────────────────────┴─► ScoreRuns ─► PageScores [G][tokens]
//! ```
//! 1. The score of a token is its log attention weight among all scored tokens, the maximum over the query heads of its
//!    group. Weights of different heads have one scale; q · k values do not.
//! 2. Bounds have that scale too: each query head is normalized by its own attention before the maximum over the group.
//!    So a bound is never below the score of a token in its page.
//!
//! Pure. Shapes: H query heads, G KV heads, P complete pages.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::gpu::kernels::page_bounds::UNBOUNDED;
use crate::kv::policy::fidelity::mean_mass;
use crate::kv::policy::log_sum_exp;

/// Attention mass of every token for each of `n_kv_head` heads, from the scores of all query heads.
pub fn head_masses(scores: &[Vec<f32>], n_kv_head: usize) -> Vec<Vec<f64>> {
    let group = (scores.len() / n_kv_head.max(1)).max(1);
    let group_scores = |heads: &[Vec<f32>]| mean_mass(&heads.iter().map(Vec::as_slice).collect::<Vec<_>>());
    scores.chunks_exact(group).map(group_scores).collect()
}

/// Token scores of some pages, the maximum over each group of query heads.
pub struct PageScores {
    /// by page: index of its scores, in pages
    place: Vec<Option<usize>>,
    /// `[G][scored pages * 64]`
    heads: Vec<Vec<f32>>,
}

impl crate::kv::policy::TokenScores for PageScores {
    fn page(&self, kv_head: usize, page: usize) -> Option<&[f32]> {
        let at = (*self.place.get(page)?)? * KV_PAGE_TOKENS;
        self.heads.get(kv_head)?.get(at..at + KV_PAGE_TOKENS)
    }
}

/// Pages being scored, in runs of the readback buffer.
#[derive(Default)]
pub struct ScoreRuns {
    /// pages in the order of their scores
    pub pages: Vec<u32>,
    /// number of keys per run
    pub runs: Vec<usize>,
    /// offset of the first run in the readback buffer
    pub begin: u64,
    /// end of the last run
    pub end: u64,
}

impl ScoreRuns {
    /// No runs; the first will begin at `begin`.
    pub fn new(begin: u64) -> ScoreRuns {
        ScoreRuns { begin, end: begin, ..ScoreRuns::default() }
    }

    /// Appends a run: scores f32 `[H, n_keys]` of the tokens of `pages`.
    pub fn add_run(&mut self, pages: &[u32], scores: &mut Vec<f32>, run_scores: Vec<f32>) {
        if !run_scores.is_empty() {
            self.pages.extend_from_slice(pages);
            self.runs.push(pages.len() * KV_PAGE_TOKENS);
            scores.extend(run_scores);
        }
    }

    /// Appends the runs of another instance.
    pub fn append(&mut self, other: ScoreRuns) {
        self.pages.extend(other.pages);
        self.runs.extend(other.runs);
    }

    /// Scores of each query head in page order; the runs must have all pages.
    pub fn in_order(&self, scores: &[f32], n_head: usize) -> Vec<Vec<f32>> {
        let mut heads = vec![vec![0.0; self.pages.len() * KV_PAGE_TOKENS]; n_head];
        let mut pages = self.pages.as_slice();
        for (run, n_keys) in self.runs(scores, n_head) {
            let (run_pages, other_pages) = pages.split_at(n_keys / KV_PAGE_TOKENS);
            for (head, head_scores) in heads.iter_mut().zip(run.chunks_exact(n_keys)) {
                for (page, scores) in run_pages.iter().zip(head_scores.chunks_exact(KV_PAGE_TOKENS)) {
                    let at = *page as usize * KV_PAGE_TOKENS;
                    if let Some(place) = head.get_mut(at..at + KV_PAGE_TOKENS) {
                        place.copy_from_slice(scores);
                    }
                }
            }
            pages = other_pages;
        }
        heads
    }

    /// Scores f32 `[H, n_keys]` of each run.
    fn runs<'a>(&self, mut scores: &'a [f32], n_head: usize) -> Vec<(&'a [f32], usize)> {
        let mut runs = Vec::with_capacity(self.runs.len());
        for n_keys in &self.runs {
            let (run, rest) = scores.split_at(n_head * n_keys);
            runs.push((run, *n_keys));
            scores = rest;
        }
        runs
    }
}

/// Log-sum-exp of the scores of each query head `[H]`, over all scored tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreTotals(Vec<f32>);

impl ScoreTotals {
    /// No scores.
    pub fn none(n_head: usize) -> ScoreTotals {
        ScoreTotals(vec![f32::NEG_INFINITY; n_head])
    }

    /// Adds scores f32 `[H, n_keys]` of more tokens.
    pub fn add(&mut self, scores: &[f32]) {
        let n_keys = scores.len() / self.0.len().max(1);
        if n_keys > 0 {
            for (total, head_scores) in self.0.iter_mut().zip(scores.chunks_exact(n_keys)) {
                *total = log_sum_exp(&[*total, log_sum_exp(head_scores)]);
            }
        }
    }

    /// Adds the scores of each run.
    pub fn add_runs(&mut self, scoring: &ScoreRuns, scores: &[f32]) {
        let n_head = self.0.len();
        scoring.runs(scores, n_head).into_iter().for_each(|(run, _)| self.add(run));
    }

    fn of(&self, head: usize) -> Option<f32> {
        self.0.get(head).copied().filter(|total| total.is_finite())
    }
}

/// Raw bounds of the pages of a layer, as the GPU wrote them.
#[derive(Debug, Clone, Default)]
pub struct PageBounds {
    /// `[H, P]`: upper and lower
    pages: Vec<[f32; 2]>,
    /// `[H]`: the highest finite upper bound
    highest: Vec<f32>,
}

impl PageBounds {
    /// Bounds from `[H, P]` pairs.
    pub fn new(pages: Vec<[f32; 2]>, n_head: usize) -> PageBounds {
        let n_pages = pages.len() / n_head.max(1);
        let finite_upper =
            |head: &[[f32; 2]]| head.iter().map(|[upper, _]| *upper).filter(|upper| *upper < UNBOUNDED).reduce(f32::max);
        let highest = (0..n_head).map(|head| finite_upper(&pages[head * n_pages..][..n_pages]).unwrap_or(0.0)).collect();
        PageBounds { pages, highest }
    }

    /// Bound slack of each query head: its highest bound minus the log-sum-exp of its scores. 0 if that is unknown.
    pub fn slack(&self, totals: &ScoreTotals) -> Vec<f32> {
        let slack = |(head, highest): (usize, &f32)| highest - totals.of(head).unwrap_or(*highest);
        self.highest.iter().enumerate().map(slack).collect()
    }

    /// Bounds `[G, P]` on log attention weights, with the highest bound of each query head at `slack`. Upper: maximum
    /// weight that any query head of the group may give a page. Lower: minimum weight that one of them gives each of
    /// its tokens.
    pub fn of_weights(&self, slack: &[f32], n_kv_head: usize) -> Vec<[f32; 2]> {
        let n_head = self.highest.len().max(1);
        let (group, n_pages) = ((n_head / n_kv_head.max(1)).max(1), self.pages.len() / n_head);
        let mut bounds = vec![[f32::NEG_INFINITY; 2]; n_kv_head * n_pages];
        let heads = self.pages.chunks_exact(n_pages.max(1)).zip(&self.highest).zip(slack);
        for (head, ((pages, highest), slack)) in heads.enumerate() {
            let group_bounds = &mut bounds[head / group * n_pages..][..n_pages];
            for ([upper, lower], [upper_of_head, lower_of_head]) in group_bounds.iter_mut().zip(pages) {
                *upper = upper.max(upper_of_head - highest + slack);
                *lower = lower.max(lower_of_head - highest + slack);
            }
        }
        bounds
    }
}

impl PageScores {
    /// No page has scores.
    pub fn none(n_kv_head: usize, n_pages: usize) -> PageScores {
        PageScores { place: vec![None; n_pages], heads: vec![Vec::new(); n_kv_head] }
    }

    /// Adds the scores of all runs.
    pub fn add(&mut self, scoring: &ScoreRuns, scores: &[f32], totals: &ScoreTotals) {
        let n_head = totals.0.len();
        let first_place = self.heads.first().map_or(0, |head| head.len() / KV_PAGE_TOKENS);
        for (run, n_keys) in scoring.runs(scores, n_head) {
            self.add_run(run, n_keys, totals);
        }
        for (i, page) in scoring.pages.iter().enumerate() {
            if let Some(place) = self.place.get_mut(*page as usize) {
                *place = Some(first_place + i);
            }
        }
    }

    /// Maximum over the query heads of each group, per key. `scores` is f32 `[H, n_keys]`.
    fn add_run(&mut self, scores: &[f32], n_keys: usize, totals: &ScoreTotals) {
        let group = totals.0.len() / self.heads.len().max(1);
        for (g, (head, group_scores)) in self.heads.iter_mut().zip(scores.chunks_exact(group * n_keys)).enumerate() {
            let begin = head.len();
            head.resize(begin + n_keys, f32::NEG_INFINITY);
            for (i, head_scores) in group_scores.chunks_exact(n_keys).enumerate() {
                let total = totals.of(g * group + i).unwrap_or(0.0);
                for (best, score) in head[begin..].iter_mut().zip(head_scores) {
                    let score = score - total;
                    // A NaN score counts as unbounded.
                    *best = if score.is_nan() { f32::INFINITY } else { best.max(score) };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::policy::TokenScores;

    /// Scores of pages with one constant score each, `[query head][page]`.
    fn run(heads: &[&[f32]]) -> Vec<f32> {
        heads.iter().flat_map(|pages| pages.iter().flat_map(|score| [*score; KV_PAGE_TOKENS])).collect()
    }

    fn totals(scoring: &ScoreRuns, scores: &[f32], n_head: usize) -> ScoreTotals {
        let mut totals = ScoreTotals::none(n_head);
        totals.add_runs(scoring, scores);
        totals
    }

    #[test]
    fn page_bounds_have_the_scale_of_weights_for_all_heads() {
        // Two query heads of one KV head over two pages; q · k of the first is small, of the second large. A third page
        // is not scored; a tail is.
        let keys = [[1.0, 3.0, 2.0], [90.0, 50.0, 99.0]];
        let tail = [4.0, 80.0];
        let bounds = PageBounds::new(keys.as_flattened().iter().map(|key| [key + 0.5, key - 9.0]).collect(), 2);
        let mut totals = ScoreTotals::none(2);
        // Relative to the highest bound of each query head: 3.5 and 99.5.
        assert_eq!(bounds.of_weights(&bounds.slack(&totals), 1), [[-2.0, -11.5], [0.0, -9.5], [0.0, -9.5]]);
        totals.add(&tail);
        let mut scoring = ScoreRuns::new(0);
        (scoring.pages, scoring.runs) = (vec![0, 1], vec![2 * KV_PAGE_TOKENS]);
        let scores = run(&[&keys[0][..2], &keys[1][..2]]);
        totals.add_runs(&scoring, &scores);
        let mut tokens = PageScores::none(1, 3);
        tokens.add(&scoring, &scores, &totals);
        let weights = bounds.of_weights(&bounds.slack(&totals), 1);
        for page in 0..2 {
            let best = tokens.page(0, page).unwrap()[0];
            assert!(best <= weights[page][0] && best <= 0.0, "page {page}: {best} of {weights:?}");
        }
        // Head 1 has all known attention on page 0; page 2 may hold e^9 times that.
        assert!((weights[2][0] - (99.5 - 90.0 - 64f32.ln())).abs() < 1e-3, "{weights:?}");
    }

    #[test]
    fn page_bounds_ignore_a_query_head_whose_attention_is_elsewhere() {
        // The bounds of the first query head reach 101, but the log-sum-exp of its scores is 110, as in a head that
        // attends to the newest tokens. The bounds of the second head separate the pages.
        let pages = vec![[100.0, -90.0], [101.0, -90.0], [99.0, -90.0], [6.0, 2.0], [2.5, -1.0], [9.0, 1.0]];
        let bounds = PageBounds::new(pages, 2);
        let totals = ScoreTotals(vec![110.0, 5.0]);
        let weights = bounds.of_weights(&bounds.slack(&totals), 1);
        assert_eq!(weights, [[1.0, -3.0], [-2.5, -6.0], [4.0, -4.0]]);
        let unbounded = PageBounds::new(vec![[UNBOUNDED, -UNBOUNDED], [3.0, 1.0]], 1);
        assert_eq!(unbounded.of_weights(&unbounded.slack(&ScoreTotals(vec![4.0])), 1), [[UNBOUNDED, -UNBOUNDED], [-1.0, -3.0]]);
    }

    #[test]
    fn page_scores_are_log_weights_of_the_best_query_head() {
        // Two query heads of one KV head, the second with scores higher by 100; pages 3 and 1, then page 0 in the next
        // run.
        let mut scoring = ScoreRuns::new(0);
        scoring.pages = vec![3, 1, 0];
        scoring.runs = vec![2 * KV_PAGE_TOKENS, KV_PAGE_TOKENS];
        let scores = [run(&[&[1.0, 2.0], &[103.0, 100.0]]), run(&[&[0.0], &[100.0]])].concat();
        let mut tokens = PageScores::none(1, 5);
        tokens.add(&scoring, &scores, &totals(&scoring, &scores, 2));
        let weights = |scores: [f64; 3]| scores.map(|s| s.exp() / (64.0 * scores.iter().map(|s| s.exp()).sum::<f64>()));
        let (first, second) = (weights([1.0, 2.0, 0.0]), weights([3.0, 0.0, 0.0]));
        for (place, page) in [3, 1, 0].into_iter().enumerate() {
            let got = tokens.page(0, page).unwrap();
            let want = first[place].max(second[place]).ln() as f32;
            assert!(got.len() == 64 && got.iter().all(|score| (score - want).abs() < 1e-3), "page {page}: {} for {want}", got[0]);
        }
        assert!(tokens.page(0, 2).is_none() && tokens.page(0, 4).is_none());
    }

    #[test]
    fn invalid_scores_are_unbounded_and_do_not_affect_others() {
        let mut scoring = ScoreRuns::new(0);
        (scoring.pages, scoring.runs) = (vec![0, 1], vec![2 * KV_PAGE_TOKENS]);
        for invalid in [f32::NAN, f32::INFINITY] {
            let mut tokens = PageScores::none(1, 2);
            let scores = run(&[&[invalid, 7.0]]);
            tokens.add(&scoring, &scores, &totals(&scoring, &scores, 1));
            assert_eq!(tokens.page(0, 0).map(|s| s[0]), Some(f32::INFINITY));
            assert!(tokens.page(0, 1).is_some_and(|s| s[0].is_finite()), "{invalid}");
        }
        let mut tokens = PageScores::none(1, 2);
        let scores = run(&[&[f32::NEG_INFINITY; 2]]);
        tokens.add(&scoring, &scores, &totals(&scoring, &scores, 1));
        assert_eq!(tokens.page(0, 1).map(|s| s[0]), Some(f32::NEG_INFINITY));
    }

    #[test]
    fn scores_in_order_are_in_page_order() {
        let mut scoring = ScoreRuns::new(0);
        (scoring.pages, scoring.runs) = (vec![1, 0], vec![2 * KV_PAGE_TOKENS]);
        let scores = [[7.0; KV_PAGE_TOKENS], [8.0; KV_PAGE_TOKENS]].concat();
        let heads = scoring.in_order(&scores, 1);
        assert_eq!((heads[0][0], heads[0][KV_PAGE_TOKENS]), (8.0, 7.0));
    }
}
