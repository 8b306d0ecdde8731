//! Scores as the device wrote them, sorted into what a policy is given.
//!
//! ```text
//! readback: bounds [H, P, 2] │ the same of the next layer, expected │ scores [H, n_keys] of the tail and of runs
//!             └─► PageBounds ◄──────────────── ScoreTotals ◄────────────────────────────────────┴─► ScoreRuns ─► PageScores [G][tokens]
//! ```
//! 1. A token's score is the logarithm of its attention weight among all tokens that were scored, the highest of its group's
//!    query heads: these are of one scale, q · k of different heads are not. 2. Bounds are of that scale as well, each query
//!    head's from its own attention before the highest of a group is taken, and never below the score of a token in their page.
//!
//! Pure. Shapes: H query heads, G KV heads, P complete pages.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::gpu::kernels::page_bounds::UNBOUNDED;
use crate::kv::policy::fidelity::mean_mass;
use crate::kv::policy::log_sum_exp;

/// Attention mass of every token for each of `n_kv_head` heads, from the scores of all query heads.
pub fn head_masses(scores: &[Vec<f32>], n_kv_head: usize) -> Vec<Vec<f64>> {
    let group = (scores.len() / n_kv_head.max(1)).max(1);
    let of_group = |heads: &[Vec<f32>]| mean_mass(&heads.iter().map(Vec::as_slice).collect::<Vec<_>>());
    scores.chunks_exact(group).map(of_group).collect()
}

/// Scores of the tokens of some pages, the best of each group of query heads.
pub struct PageScores {
    /// by page: where its scores begin, in pages
    place: Vec<Option<usize>>,
    /// `[G][pages with scores * 64]`
    heads: Vec<Vec<f32>>,
}

impl crate::kv::policy::TokenScores for PageScores {
    fn page(&self, kv_head: usize, page: usize) -> Option<&[f32]> {
        let at = (*self.place.get(page)?)? * KV_PAGE_TOKENS;
        self.heads.get(kv_head)?.get(at..at + KV_PAGE_TOKENS)
    }
}

/// Pages whose tokens are being scored: run by run into the readback buffer.
#[derive(Default)]
pub struct ScoreRuns {
    /// pages in the order of their scores
    pub pages: Vec<u32>,
    /// keys of each run
    pub runs: Vec<usize>,
    /// where in the readback buffer the first run begins, and where the last ends
    pub begin: u64,
    /// where they end
    pub end: u64,
}

impl ScoreRuns {
    /// Nothing yet; the first run begins at `begin`.
    pub fn new(begin: u64) -> ScoreRuns {
        ScoreRuns { begin, end: begin, ..ScoreRuns::default() }
    }

    /// One more run, behind the others: scores f32 `[H, n_keys]` of the tokens of `pages`.
    pub fn add_run(&mut self, pages: &[u32], scores: &mut Vec<f32>, of_run: Vec<f32>) {
        if !of_run.is_empty() {
            self.pages.extend_from_slice(pages);
            self.runs.push(pages.len() * KV_PAGE_TOKENS);
            scores.extend(of_run);
        }
    }

    /// The runs of another one, behind these.
    pub fn append(&mut self, other: ScoreRuns) {
        self.pages.extend(other.pages);
        self.runs.extend(other.runs);
    }

    /// The scores of each query head in the order of pages, which are all of them.
    pub fn in_order(&self, scores: &[f32], n_head: usize) -> Vec<Vec<f32>> {
        let mut heads = vec![vec![0.0; self.pages.len() * KV_PAGE_TOKENS]; n_head];
        let mut pages = self.pages.as_slice();
        for (run, n_keys) in self.runs(scores, n_head) {
            let (here, later) = pages.split_at(n_keys / KV_PAGE_TOKENS);
            for (head, of_head) in heads.iter_mut().zip(run.chunks_exact(n_keys)) {
                for (page, scores) in here.iter().zip(of_head.chunks_exact(KV_PAGE_TOKENS)) {
                    let at = *page as usize * KV_PAGE_TOKENS;
                    if let Some(place) = head.get_mut(at..at + KV_PAGE_TOKENS) {
                        place.copy_from_slice(scores);
                    }
                }
            }
            pages = later;
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

/// Logarithm of the attention of each query head `[H]`, of all tokens that were scored.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreTotals(Vec<f32>);

impl ScoreTotals {
    /// Nothing was scored yet.
    pub fn none(n_head: usize) -> ScoreTotals {
        ScoreTotals(vec![f32::NEG_INFINITY; n_head])
    }

    /// Scores f32 `[H, n_keys]` of more tokens.
    pub fn add(&mut self, scores: &[f32]) {
        let n_keys = scores.len() / self.0.len().max(1);
        if n_keys > 0 {
            for (total, of_head) in self.0.iter_mut().zip(scores.chunks_exact(n_keys)) {
                *total = log_sum_exp(&[*total, log_sum_exp(of_head)]);
            }
        }
    }

    /// Those of each run.
    pub fn add_runs(&mut self, scoring: &ScoreRuns, scores: &[f32]) {
        let n_head = self.0.len();
        scoring.runs(scores, n_head).into_iter().for_each(|(run, _)| self.add(run));
    }

    fn of(&self, head: usize) -> Option<f32> {
        self.0.get(head).copied().filter(|total| total.is_finite())
    }
}

/// Bounds of a layer's pages as the device wrote them.
#[derive(Debug, Clone, Default)]
pub struct PageBounds {
    /// `[H, P]`: upper and lower
    pages: Vec<[f32; 2]>,
    /// `[H]`: the highest upper bound of those of which something is known
    highest: Vec<f32>,
}

impl PageBounds {
    /// Of `[H, P]`.
    pub fn new(pages: Vec<[f32; 2]>, n_head: usize) -> PageBounds {
        let n_pages = pages.len() / n_head.max(1);
        let known = |head: &[[f32; 2]]| head.iter().map(|[upper, _]| *upper).filter(|upper| *upper < UNBOUNDED).reduce(f32::max);
        let highest = (0..n_head).map(|head| known(&pages[head * n_pages..][..n_pages]).unwrap_or(0.0)).collect();
        PageBounds { pages, highest }
    }

    /// By how much the highest bound of each query head exceeds the logarithm of its attention; 0 where that is not known.
    pub fn above(&self, totals: &ScoreTotals) -> Vec<f32> {
        let above = |(head, highest): (usize, &f32)| highest - totals.of(head).unwrap_or(*highest);
        self.highest.iter().enumerate().map(above).collect()
    }

    /// Bounds `[G, P]` on logarithms of attention weights, where the highest of each query head is `above` 0: the most that any
    /// query head of a group may make of a page, and what one of them makes of each of its tokens at least.
    pub fn of_weights(&self, above: &[f32], n_kv_head: usize) -> Vec<[f32; 2]> {
        let n_head = self.highest.len().max(1);
        let (group, n_pages) = ((n_head / n_kv_head.max(1)).max(1), self.pages.len() / n_head);
        let mut bounds = vec![[f32::NEG_INFINITY; 2]; n_kv_head * n_pages];
        let heads = self.pages.chunks_exact(n_pages.max(1)).zip(&self.highest).zip(above);
        for (head, ((pages, highest), above)) in heads.enumerate() {
            let of_group = &mut bounds[head / group * n_pages..][..n_pages];
            for ([upper, lower], [of_head, least]) in of_group.iter_mut().zip(pages) {
                *upper = upper.max(of_head - highest + above);
                *lower = lower.max(least - highest + above);
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

    /// Sorts the scores of all runs in.
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

    /// The better of a group's query heads for each key. `scores` is f32 `[H, n_keys]`.
    fn add_run(&mut self, scores: &[f32], n_keys: usize, totals: &ScoreTotals) {
        let group = totals.0.len() / self.heads.len().max(1);
        for (g, (head, of_group)) in self.heads.iter_mut().zip(scores.chunks_exact(group * n_keys)).enumerate() {
            let begin = head.len();
            head.resize(begin + n_keys, f32::NEG_INFINITY);
            for (i, of_head) in of_group.chunks_exact(n_keys).enumerate() {
                let from = totals.of(g * group + i).unwrap_or(0.0);
                for (best, score) in head[begin..].iter_mut().zip(of_head) {
                    let score = score - from;
                    // What is no number may be anything.
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

    /// Scores of pages that hold one number each, `[query head][page]`.
    fn run(heads: &[&[f32]]) -> Vec<f32> {
        heads.iter().flat_map(|pages| pages.iter().flat_map(|score| [*score; KV_PAGE_TOKENS])).collect()
    }

    fn totals(scoring: &ScoreRuns, scores: &[f32], n_head: usize) -> ScoreTotals {
        let mut totals = ScoreTotals::none(n_head);
        totals.add_runs(scoring, scores);
        totals
    }

    #[test]
    fn page_bounds_are_of_the_scale_of_weights_whatever_the_heads_are() {
        // Two query heads of one KV head over two pages; q · k of the first is small, of the second large. A third page is not
        // scored, and a tail is.
        let keys = [[1.0, 3.0, 2.0], [90.0, 50.0, 99.0]];
        let tail = [4.0, 80.0];
        let bounds = PageBounds::new(keys.as_flattened().iter().map(|key| [key + 0.5, key - 9.0]).collect(), 2);
        let mut totals = ScoreTotals::none(2);
        // From the best page of each query head: of 3.5 and of 99.5.
        assert_eq!(bounds.of_weights(&bounds.above(&totals), 1), [[-2.0, -11.5], [0.0, -9.5], [0.0, -9.5]]);
        totals.add(&tail);
        let mut scoring = ScoreRuns::new(0);
        (scoring.pages, scoring.runs) = (vec![0, 1], vec![2 * KV_PAGE_TOKENS]);
        let scores = run(&[&keys[0][..2], &keys[1][..2]]);
        totals.add_runs(&scoring, &scores);
        let mut tokens = PageScores::none(1, 3);
        tokens.add(&scoring, &scores, &totals);
        let weights = bounds.of_weights(&bounds.above(&totals), 1);
        for page in 0..2 {
            let best = tokens.page(0, page).unwrap()[0];
            assert!(best <= weights[page][0] && best <= 0.0, "page {page}: {best} of {weights:?}");
        }
        // Head 1 has all its attention on page 0, as far as is known; page 2 may hold e^9 of that.
        assert!((weights[2][0] - (99.5 - 90.0 - 64f32.ln())).abs() < 1e-3, "{weights:?}");
    }

    #[test]
    fn page_bounds_of_a_query_head_that_is_far_above_its_attention_say_nothing_of_the_others() {
        // The bounds of the first query head reach 101 and it makes no more than 110 of all keys, as one that looks at the newest
        // tokens; those of the second tell pages apart.
        let pages = vec![[100.0, -90.0], [101.0, -90.0], [99.0, -90.0], [6.0, 2.0], [2.5, -1.0], [9.0, 1.0]];
        let bounds = PageBounds::new(pages, 2);
        let totals = ScoreTotals(vec![110.0, 5.0]);
        let weights = bounds.of_weights(&bounds.above(&totals), 1);
        assert_eq!(weights, [[1.0, -3.0], [-2.5, -6.0], [4.0, -4.0]]);
        let unknown = PageBounds::new(vec![[UNBOUNDED, -UNBOUNDED], [3.0, 1.0]], 1);
        assert_eq!(unknown.of_weights(&unknown.above(&ScoreTotals(vec![4.0])), 1), [[UNBOUNDED, -UNBOUNDED], [-1.0, -3.0]]);
    }

    #[test]
    fn page_tokens_are_logarithms_of_the_highest_attention_weight_in_a_group() {
        // Two query heads of one KV head, of which the second counts from 100 more; pages 3 and 1, in the next run page 0.
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
    fn page_tokens_that_are_no_number_may_be_anything_and_weigh_nothing_on_others() {
        let mut scoring = ScoreRuns::new(0);
        (scoring.pages, scoring.runs) = (vec![0, 1], vec![2 * KV_PAGE_TOKENS]);
        for strange in [f32::NAN, f32::INFINITY] {
            let mut tokens = PageScores::none(1, 2);
            let scores = run(&[&[strange, 7.0]]);
            tokens.add(&scoring, &scores, &totals(&scoring, &scores, 1));
            assert_eq!(tokens.page(0, 0).map(|s| s[0]), Some(f32::INFINITY));
            assert!(tokens.page(0, 1).is_some_and(|s| s[0].is_finite()), "{strange}");
        }
        let mut tokens = PageScores::none(1, 2);
        let scores = run(&[&[f32::NEG_INFINITY; 2]]);
        tokens.add(&scoring, &scores, &totals(&scoring, &scores, 1));
        assert_eq!(tokens.page(0, 1).map(|s| s[0]), Some(f32::NEG_INFINITY));
    }

    #[test]
    fn scores_in_order_are_by_page() {
        let mut scoring = ScoreRuns::new(0);
        (scoring.pages, scoring.runs) = (vec![1, 0], vec![2 * KV_PAGE_TOKENS]);
        let scores = [[7.0; KV_PAGE_TOKENS], [8.0; KV_PAGE_TOKENS]].concat();
        let heads = scoring.in_order(&scores, 1);
        assert_eq!((heads[0][0], heads[0][KV_PAGE_TOKENS]), (8.0, 7.0));
    }
}
