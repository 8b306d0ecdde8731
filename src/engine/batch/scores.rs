//! Token scores of one row of several, as its policy is given them.
//!
//! ```text
//! run by run f32 [H, n_keys], the first of which are the row's own ─► RowScores ─► PageTokens: best of each group of heads
//! ```
//! Pure. Shapes: H query heads, G KV heads.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::kv::policy::TokenScores;

/// Scores of the tokens of some pages.
pub(super) struct RowScores {
    /// in the order of their scores
    pages: Vec<u32>,
    /// `[H][pages * 64]`
    heads: Vec<Vec<f32>>,
}

/// The best of each group of query heads.
pub(super) struct PageTokens {
    /// by page: where its scores begin
    place: Vec<Option<usize>>,
    /// `[G][pages with scores * 64]`
    heads: Vec<Vec<f32>>,
}

impl TokenScores for PageTokens {
    fn page(&self, kv_head: usize, page: usize) -> Option<&[f32]> {
        let at = (*self.place.get(page)?)?;
        self.heads.get(kv_head)?.get(at..at + KV_PAGE_TOKENS)
    }
}

impl RowScores {
    /// No page has scores.
    pub fn none(n_head: usize) -> RowScores {
        RowScores { pages: Vec::new(), heads: vec![Vec::new(); n_head] }
    }

    /// Adds those of `pages`, with which the scores `[H, n_keys]` begin.
    pub fn add(&mut self, pages: &[u32], scores: &[f32], n_keys: usize) {
        let n_own = pages.len() * KV_PAGE_TOKENS;
        for (head, scores) in self.heads.iter_mut().zip(scores.chunks_exact(n_keys.max(1))) {
            head.extend_from_slice(&scores[..n_own]);
        }
        self.pages.extend_from_slice(pages);
    }

    /// What a policy sees. Each query head counts from its `highest`; where pages were not scored, from its best key.
    pub fn tokens(&self, n_kv_head: usize, n_pages: usize, highest: &[f32]) -> PageTokens {
        let group = self.heads.len() / n_kv_head.max(1);
        let best_key = |scores: &Vec<f32>| scores.iter().copied().filter(|x| x.is_finite()).fold(f32::NEG_INFINITY, f32::max);
        let mut heads = vec![vec![f32::NEG_INFINITY; self.pages.len() * KV_PAGE_TOKENS]; n_kv_head];
        for (h, scores) in self.heads.iter().enumerate() {
            let from = highest.get(h).copied().unwrap_or_else(|| best_key(scores));
            for (best, score) in heads[h / group].iter_mut().zip(scores) {
                let score = score - from;
                // What is no number may be anything.
                *best = if score.is_nan() { f32::INFINITY } else { best.max(score) };
            }
        }
        let mut place = vec![None; n_pages];
        for (i, page) in self.pages.iter().enumerate() {
            if let Some(place) = place.get_mut(*page as usize) {
                *place = Some(i * KV_PAGE_TOKENS);
            }
        }
        PageTokens { place, heads }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_the_best_of_a_group_and_only_of_the_rows_own_pages() {
        // Four query heads of two KV heads; two runs of two pages, of which the row asked for two and one.
        let run = |first: f32| -> Vec<f32> {
            (0..4).flat_map(|h| (0..2).flat_map(move |p| vec![first + h as f32 + 10.0 * p as f32; KV_PAGE_TOKENS])).collect()
        };
        let mut scores = RowScores::none(4);
        scores.add(&[3, 1], &run(0.0), 2 * KV_PAGE_TOKENS);
        scores.add(&[0], &run(100.0), 2 * KV_PAGE_TOKENS);
        let first = |tokens: &PageTokens, head, page| tokens.page(head, page).map(|scores| (scores.len(), scores[0]));
        let counted = scores.tokens(2, 5, &[1.0, 0.0, 0.0, 9.0]);
        assert_eq!(
            [3, 1, 0, 2, 4].map(|page| first(&counted, 0, page)),
            [Some((64, 1.0)), Some((64, 11.0)), Some((64, 101.0)), None, None]
        );
        assert_eq!(first(&counted, 1, 3), Some((64, 2.0)));
        // Without bounds, from each head's best key.
        assert_eq!(first(&scores.tokens(2, 5, &[]), 1, 3), Some((64, -100.0)));
    }

    #[test]
    fn tokens_that_are_no_numbers_may_be_anything() {
        let mut scores = RowScores::none(1);
        scores.add(&[0], &[f32::NAN; KV_PAGE_TOKENS], KV_PAGE_TOKENS);
        assert_eq!(scores.tokens(1, 1, &[0.0]).page(0, 0).map(|s| s[0]), Some(f32::INFINITY));
    }
}
