//! LeoAM: bounds of pages, a tree where scores of tokens are known, and as much as the rate or the mass asks for.
//!
//! ```text
//! page bounds ─► candidates: the best pages in VRAM ─► the device scores their tokens
//! pages with scores: chunks of 8 or 64 tokens ─┐
//! other pages: one chunk each, bound corrected ┴─► Tree ─► the best tokens per KV head ─► Selection
//!                                                    └─► density of this layer ─► chunks of its next step
//! ```
//! 1. What cannot be split is read as a whole page. 2. Each KV head has its own tree.
//! 3. Bounds order pages and never leave one out: with nothing but bounds this is Quest at the same rate.
//!
//! Shapes: G KV heads, P pages; densities `[L]`. Units: tokens; scores as [`LayerView`] has them.
//!
//! Limits: a chunk of 8 is read with its block of 16, so that more than the rate may be read where chunks are that fine.
//!
//! Source: LeoAM, sections 4.2 (tree, equations 2 and 3), 4.3 (disk chunks stay whole) and 6.1 (10 %, first two layers 50 %;
//! chunks of 64, of 8 in those layers and the first steps). Where we differ: bounds of pages without scores are moved down by
//! how much too high they usually are, of this KV head, where scores are known. A maximum over 64 keys and all
//! dimensions is so much above its best token that the disk would always win against VRAM otherwise.

use std::ops::Range;

use super::mass::{Share, log_mass, tokens_of_mass};
use super::view::page_tokens;
use super::{Amount, LayerView, Selection, SelectiveSpec, Tier};
use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::kv::tree::{Bounds, Evaluate, TokenRange, Tree};

/// Initial chunk of the first layers and steps, where their density is high.
const FINE_CHUNK_TOKENS: usize = 8;
/// Initial chunk elsewhere.
const CHUNK_TOKENS: usize = KV_PAGE_TOKENS;
/// Share of the expected steps that counts as the first ones; the paper has 5 to 10 %.
const EARLY_STEPS_PERCENT: usize = 10;
/// Pages whose tokens are scored, by the pages that the wanted tokens would fill.
const CANDIDATE_FACTOR: usize = 4;

/// The policy, and what it learned of each layer.
#[derive(Debug, Clone)]
pub struct LeoAm {
    spec: SelectiveSpec,
    /// by layer: share of blocks that held something important in its last step
    densities: Vec<Option<f64>>,
}

/// What is known of the tokens of one KV head.
struct HeadOracle<'a> {
    view: &'a LayerView<'a>,
    kv_head: usize,
    /// no chunk is split to fewer tokens
    smallest: usize,
    /// how much higher bounds are than the best tokens
    excess: f32,
}

/// The number m of initial chunks, of 8 to 64 tokens, that equation 2 gives the fewest evaluations:
/// `f(m) = m * sum over i < log2(n / m) of (2 density)^i`. `density` is the share of chunks that are split since they hold
/// something important, 1 less the attention desert rate.
///
/// From one power of two to the next, chunks take the same number of levels (of 33 tokens as many as of 64), so f is least
/// where they have 8, 16, 32 or 64 tokens; these are compared by equation 2 itself. Equation 3 is meant as f(m) - f(m - 1), but
/// is printed without the factor m - 1 of its second sum.
pub fn initial_chunks(n_tokens: usize, density: f64) -> usize {
    let [first, finer @ ..] = [64, 32, 16, 8].map(|size| n_tokens.div_ceil(size).max(1));
    let n_evaluations = |m| expected_evaluations(n_tokens, m, density);
    finer.into_iter().fold(first, |best, m| if n_evaluations(m) < n_evaluations(best) { m } else { best })
}

/// Equation 2, with whole levels.
fn expected_evaluations(n_tokens: usize, m: usize, density: f64) -> f64 {
    let n_level = n_tokens.div_ceil(m).next_power_of_two().trailing_zeros();
    (0..n_level).map(|level| m as f64 * (2.0 * density).powi(level as i32)).sum()
}

impl LeoAm {
    /// Nothing is known of any layer yet.
    pub fn new(spec: SelectiveSpec) -> LeoAm {
        LeoAm { spec, densities: Vec::new() }
    }

    /// Pages in VRAM that are likely to hold what any KV head wants, ascending.
    pub fn candidates(&self, view: &LayerView) -> Vec<u32> {
        if !self.spec.tree {
            return (0..view.n_pages()).filter(|page| view.tiers[*page] == Tier::Vram).map(|page| page as u32).collect();
        }
        let free = self.spec.free_pages(view.n_pages());
        let mut is_candidate = vec![false; view.n_pages()];
        for kv_head in 0..view.n_kv_head {
            let n_pages = self.n_candidates(view, kv_head);
            let mut pages: Vec<(f32, usize)> = free.clone().map(|p| (view.page_bounds(kv_head, p).upper(), p)).collect();
            if n_pages < pages.len() {
                pages.select_nth_unstable_by(n_pages, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            }
            pages.iter().take(n_pages).for_each(|(_, page)| is_candidate[*page] = true);
        }
        if matches!(self.spec.amount, Amount::Mass { .. }) {
            // The mass of what is always read decides how much more is.
            is_candidate[..free.start].fill(true);
            is_candidate[free.end..].fill(true);
        }
        let in_vram = |page: &usize| is_candidate[*page] && view.tiers[*page] == Tier::Vram;
        (0..view.n_pages()).filter(in_vram).map(|page| page as u32).collect()
    }

    /// Pages of a KV head worth scoring: none where all or none are read anyway.
    fn n_candidates(&self, view: &LayerView, kv_head: usize) -> usize {
        let free = self.spec.free_pages(view.n_pages());
        let n_free = free.len() * KV_PAGE_TOKENS;
        let mut n_wanted = self.spec.n_wanted(view.layer, n_free);
        if let Amount::Mass { mass, .. } = self.spec.amount {
            let share = |page| Share::of_bound(view.page_bounds(kv_head, page).upper(), KV_PAGE_TOKENS);
            n_wanted = n_wanted.max(tokens_of_mass(free.map(share).collect(), &[], mass));
        }
        if n_wanted >= n_free { 0 } else { (n_wanted * CANDIDATE_FACTOR).div_ceil(KV_PAGE_TOKENS) }
    }

    /// Pages that attention will probably read, by what is known so far.
    pub fn expect(&self, view: &LayerView) -> Vec<u32> {
        let (ranges, _) = self.select_heads(view);
        Selection::new(&self.spec, view, &ranges, 0).pages
    }

    fn select_heads(&self, view: &LayerView) -> (Vec<Vec<TokenRange>>, Vec<usize>) {
        (0..view.n_kv_head).map(|kv_head| self.select_head(view, kv_head)).unzip()
    }

    /// What attention reads. Learns the layer's density for its next step.
    pub fn select(&mut self, view: &LayerView) -> Selection {
        let (ranges, n_evaluations) = self.select_heads(view);
        self.note_density(view, &ranges);
        Selection::new(&self.spec, view, &ranges, n_evaluations.into_iter().sum())
    }

    /// What matters to a KV head, and how many evaluations that took.
    fn select_head(&self, view: &LayerView, kv_head: usize) -> (Vec<TokenRange>, usize) {
        let free = self.spec.free_tokens(view.n_pages());
        let pages = self.spec.free_pages(view.n_pages());
        let n_least = self.spec.n_wanted(view.layer, free.len());
        if n_least == free.len() {
            return (vec![free], 0);
        }
        if n_least == 0 && !matches!(self.spec.amount, Amount::Mass { .. }) {
            return (Vec::new(), 0);
        }
        let smallest = if self.is_fine(view) && self.spec.tree { FINE_CHUNK_TOKENS } else { KV_BLOCK_TOKENS };
        let excess = usual_excess(view, kv_head, pages.clone(), |scores| Bounds::of_scores(scores).upper());
        let oracle = HeadOracle { view, kv_head, smallest, excess };
        let mut n_wanted = n_least;
        let mut n_evaluations = 0;
        if let Amount::Mass { mass, .. } = self.spec.amount {
            let shares = oracle.shares(pages.clone());
            n_evaluations += shares.len();
            n_wanted = n_wanted.max(tokens_of_mass(shares, &self.always(view, kv_head), mass));
        }
        let chunk_tokens = self.chunk_tokens(view);
        let chunks: Vec<TokenRange> = pages.flat_map(|page| oracle.chunks(page, chunk_tokens)).collect();
        if !self.spec.tree {
            // Blocks are only what is read of the tokens: each of those was evaluated.
            n_evaluations +=
                chunks.iter().filter_map(|chunk| oracle.scores(*chunk)).map(|scores| scores.len() - 1).sum::<usize>();
        }
        let selected = Tree::new(chunks, oracle).select(n_wanted);
        (selected.important().collect(), n_evaluations + selected.n_evaluations)
    }

    /// Logarithms of the mass of pages always read, as far as their scores are known.
    fn always(&self, view: &LayerView, kv_head: usize) -> Vec<f32> {
        let free = self.spec.free_pages(view.n_pages());
        let always = (0..view.n_pages()).filter(|page| !free.contains(page));
        always.filter_map(|page| view.page_scores(kv_head, page)).map(log_mass).collect()
    }

    /// The layer or the step is one where much matters.
    fn is_fine(&self, view: &LayerView) -> bool {
        self.spec.is_first(view.layer) || view.step * 100 < view.n_steps * EARLY_STEPS_PERCENT
    }

    /// Initial chunk where scores of tokens are known: by equation 2 in fine layers and steps, once their density is.
    fn chunk_tokens(&self, view: &LayerView) -> usize {
        if !self.spec.tree {
            return KV_BLOCK_TOKENS;
        }
        if !self.is_fine(view) {
            return CHUNK_TOKENS;
        }
        let Some(density) = self.densities.get(view.layer).copied().flatten() else { return FINE_CHUNK_TOKENS };
        let n_tokens = self.spec.free_tokens(view.n_pages()).len();
        let chunk_tokens = n_tokens.div_ceil(initial_chunks(n_tokens, density)).next_power_of_two();
        chunk_tokens.clamp(FINE_CHUNK_TOKENS, CHUNK_TOKENS)
    }

    /// Share of blocks that hold something important, over all KV heads.
    fn note_density(&mut self, view: &LayerView, ranges: &[Vec<TokenRange>]) {
        let n_blocks = self.spec.free_tokens(view.n_pages()).len() / KV_BLOCK_TOKENS * view.n_kv_head;
        if n_blocks == 0 {
            return;
        }
        if self.densities.len() <= view.layer {
            self.densities.resize(view.layer + 1, None);
        }
        let n_important: usize = ranges.iter().map(|ranges| count_blocks(ranges)).sum();
        self.densities[view.layer] = Some(n_important as f64 / n_blocks as f64);
    }
}

/// Blocks that ascending disjoint ranges touch.
fn count_blocks(ranges: &[TokenRange]) -> usize {
    let mut n_blocks = 0;
    let mut next = 0;
    for range in ranges {
        let (first, end) = ((range.start / KV_BLOCK_TOKENS).max(next), range.end.div_ceil(KV_BLOCK_TOKENS));
        n_blocks += end.saturating_sub(first);
        next = end.max(next);
    }
    n_blocks
}

/// How much higher bounds of pages are than what is `known` of their scores, at least, for three quarters of the pages that
/// have both: a page that is not here is rather read in vain than missed.
fn usual_excess(view: &LayerView, kv_head: usize, pages: Range<usize>, known: impl Fn(&[f32]) -> f32) -> f32 {
    let excess = |page| Some(view.page_bounds(kv_head, page).upper() - known(view.page_scores(kv_head, page)?));
    let mut all: Vec<f32> = pages.filter_map(excess).filter(|excess| excess.is_finite()).collect();
    let quarter = all.len() / 4;
    if all.is_empty() { 0.0 } else { *all.select_nth_unstable_by(quarter, f32::total_cmp).1 }
}

impl<'a> HeadOracle<'a> {
    /// Scores of a range within a page, where they are known.
    fn scores(&self, range: TokenRange) -> Option<&'a [f32]> {
        let scores = self.view.page_scores(self.kv_head, range.start / KV_PAGE_TOKENS)?;
        let first = range.start % KV_PAGE_TOKENS;
        scores.get(first..first + range.len())
    }

    fn page_bounds(&self, range: TokenRange) -> Bounds {
        self.view.page_bounds(self.kv_head, range.start / KV_PAGE_TOKENS)
    }

    /// A page as chunks of `chunk_tokens` where its scores are known, else as one.
    fn chunks(&self, page: usize, chunk_tokens: usize) -> impl Iterator<Item = TokenRange> + use<> {
        let range = page_tokens(page);
        let step = if self.scores(range).is_some() { chunk_tokens } else { KV_PAGE_TOKENS };
        (range.start..range.end).step_by(step).map(move |start| TokenRange::new(start, start + step))
    }

    /// What pages may hold of the attention mass: by block where their scores are known.
    fn shares(&self, pages: Range<usize>) -> Vec<Share> {
        let mass_excess = usual_excess(self.view, self.kv_head, pages.clone(), log_mass);
        let share = |range: TokenRange| match self.scores(range) {
            Some(scores) => Share::of_scores(scores),
            None => {
                let upper = self.page_bounds(range).upper();
                Share { upper: upper - self.excess, log_mass: upper - mass_excess, n_tokens: range.len() }
            }
        };
        pages.flat_map(|page| self.chunks(page, KV_BLOCK_TOKENS)).map(share).collect()
    }
}

impl Evaluate for HeadOracle<'_> {
    fn bounds(&mut self, range: TokenRange) -> Bounds {
        match self.scores(range) {
            Some(scores) => Bounds::of_scores(scores),
            None => {
                let bounds = self.page_bounds(range);
                Bounds::outer(bounds.upper() - self.excess, bounds.lower())
            }
        }
    }

    fn split_at(&self, range: TokenRange) -> Option<usize> {
        self.scores(range)?;
        range.middle(self.smallest)
    }
}

#[cfg(test)]
#[path = "leoam_tests.rs"]
mod tests;
