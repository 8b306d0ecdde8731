//! Scores as the device wrote them, sorted into what a policy is given.
//!
//! ```text
//! readback: bounds [G, P], highest [H] │ of the next layer, expected │ token scores [H, n_keys], run by run
//!             └─► PageBounds                                            └─► Scoring ─► PageTokens [G][tokens]
//! ```
//! Pure. Shapes: H query heads, G KV heads, P complete pages.

use crate::base::limits::KV_PAGE_TOKENS;

/// Scores of the tokens of some pages, the best of each group of query heads.
pub(in crate::engine) struct PageTokens {
    /// by page: where its scores begin, in pages
    place: Vec<Option<usize>>,
    /// `[G][pages with scores * 64]`
    heads: Vec<Vec<f32>>,
}

impl crate::kv::policy::TokenScores for PageTokens {
    fn page(&self, kv_head: usize, page: usize) -> Option<&[f32]> {
        let at = (*self.place.get(page)?)? * KV_PAGE_TOKENS;
        self.heads.get(kv_head)?.get(at..at + KV_PAGE_TOKENS)
    }
}

/// Bounds of every page for every KV head, and what they are counted from.
#[derive(Default)]
pub(super) struct PageBounds {
    /// `[G, P]`: upper and lower
    pub bounds: Vec<[f32; 2]>,
    /// `[H]`: highest upper bound; none where pages were not scored
    pub highest: Vec<f32>,
}

impl PageBounds {
    /// Of `[G, P, 2]` and `[H, 2]`, as the kernel leaves them.
    pub fn new(bytes: &[u8], n_kv_head: usize, n_pages: usize) -> PageBounds {
        let pairs: Vec<[f32; 2]> = bytemuck::pod_collect_to_vec(bytes);
        let (bounds, highest) = pairs.split_at((n_kv_head * n_pages).min(pairs.len()));
        PageBounds { bounds: bounds.to_vec(), highest: highest.iter().map(|h| h[0]).collect() }
    }
}

/// Pages whose tokens are being scored: run by run into the readback buffer.
#[derive(Default)]
pub(in crate::engine) struct Scoring {
    /// pages in the order of their scores
    pub pages: Vec<u32>,
    /// keys of each run
    pub runs: Vec<usize>,
    /// where in the readback buffer the first run begins, and where the last ends
    pub begin: u64,
    pub end: u64,
}

impl Scoring {
    /// Nothing yet; the first run begins at `begin`.
    pub fn new(begin: u64) -> Scoring {
        Scoring { begin, end: begin, ..Scoring::default() }
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

impl PageTokens {
    /// No page has scores.
    pub fn none(n_kv_head: usize, n_pages: usize) -> PageTokens {
        PageTokens { place: vec![None; n_pages], heads: vec![Vec::new(); n_kv_head] }
    }

    /// Sorts the scores of all runs in. Each query head counts from its `highest`; where pages were not scored, from its best
    /// key.
    pub fn add(&mut self, scoring: &Scoring, scores: &[f32], n_head: usize, highest: &[f32]) {
        let runs = scoring.runs(scores, n_head);
        let mut highest = highest.to_vec();
        if highest.is_empty() {
            highest = vec![f32::NEG_INFINITY; n_head];
            for (run, n_keys) in &runs {
                for (highest, of_head) in highest.iter_mut().zip(run.chunks_exact(*n_keys)) {
                    *highest = of_head.iter().copied().filter(|x| x.is_finite()).fold(*highest, f32::max);
                }
            }
        }
        let first_place = self.heads.first().map_or(0, |head| head.len() / KV_PAGE_TOKENS);
        for (run, n_keys) in runs {
            self.add_run(run, n_keys, n_head, &highest);
        }
        for (i, page) in scoring.pages.iter().enumerate() {
            if let Some(place) = self.place.get_mut(*page as usize) {
                *place = Some(first_place + i);
            }
        }
    }

    /// The better of a group's query heads for each key. `scores` is f32 `[H, n_keys]`.
    fn add_run(&mut self, scores: &[f32], n_keys: usize, n_head: usize, highest: &[f32]) {
        let group = n_head / self.heads.len().max(1);
        for (g, (head, of_group)) in self.heads.iter_mut().zip(scores.chunks_exact(group * n_keys)).enumerate() {
            let begin = head.len();
            head.resize(begin + n_keys, f32::NEG_INFINITY);
            for (i, of_head) in of_group.chunks_exact(n_keys).enumerate() {
                let from = highest.get(g * group + i).copied().unwrap_or(0.0);
                for (best, score) in head.iter_mut().skip(begin).zip(of_head) {
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

    #[test]
    fn page_tokens_hold_the_best_of_a_group_counted_from_each_heads_highest() {
        // Two query heads of one KV head; pages 3 and 1, in two runs; in the third run page 0 alone.
        let page = |value: f32| vec![value; KV_PAGE_TOKENS];
        let run = |pages: &[[f32; 2]]| -> Vec<f32> {
            (0..2).flat_map(|head| pages.iter().flat_map(move |p| page(p[head])).collect::<Vec<_>>()).collect()
        };
        let mut scoring = Scoring::new(0);
        scoring.pages = vec![3, 1, 0];
        scoring.runs = vec![2 * KV_PAGE_TOKENS, KV_PAGE_TOKENS];
        let scores = [run(&[[1.0, 5.0], [4.0, 2.0]]), run(&[[f32::NAN, 0.0]])].concat();
        let mut tokens = PageTokens::none(1, 5);
        tokens.add(&scoring, &scores, 2, &[3.0, 9.0]);
        let first = |page| tokens.page(0, page).map(|scores| (scores.len(), scores[0]));
        assert_eq!(first(3), Some((64, -2.0)));
        assert_eq!(first(1), Some((64, 1.0)));
        assert_eq!(first(0), Some((64, f32::INFINITY)));
        assert_eq!((first(2), first(4)), (None, None));
    }

    #[test]
    fn page_tokens_added_later_come_after_what_is_there() {
        let mut tokens = PageTokens::none(1, 3);
        for (page, value) in [(2, 1.0), (0, 2.0)] {
            let mut scoring = Scoring::new(0);
            (scoring.pages, scoring.runs) = (vec![page], vec![KV_PAGE_TOKENS]);
            tokens.add(&scoring, &[value; KV_PAGE_TOKENS], 1, &[0.0]);
        }
        assert_eq!([0, 1, 2].map(|page| tokens.page(0, page).map(|s| s[0])), [Some(2.0), None, Some(1.0)]);
    }

    #[test]
    fn page_tokens_count_from_the_best_key_where_pages_were_not_scored() {
        let mut scoring = Scoring::new(0);
        (scoring.pages, scoring.runs) = (vec![0], vec![KV_PAGE_TOKENS]);
        let scores: Vec<f32> = (0..KV_PAGE_TOKENS).map(|i| i as f32).collect();
        let mut tokens = PageTokens::none(1, 1);
        tokens.add(&scoring, &scores, 1, &[]);
        assert_eq!(tokens.page(0, 0).map(|s| (s[0], s[63])), Some((-63.0, 0.0)));
    }

    #[test]
    fn scores_in_order_are_by_page() {
        let mut scoring = Scoring::new(0);
        (scoring.pages, scoring.runs) = (vec![1, 0], vec![2 * KV_PAGE_TOKENS]);
        let scores = [[7.0; KV_PAGE_TOKENS], [8.0; KV_PAGE_TOKENS]].concat();
        let heads = scoring.in_order(&scores, 1);
        assert_eq!((heads[0][0], heads[0][KV_PAGE_TOKENS]), (8.0, 7.0));
    }
}
