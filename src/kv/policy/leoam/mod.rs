//! LeoAM: bounds of pages, a tree where scores of tokens are known, and as much as the rate or the mass asks for.
//!
//! ```text
//! page bounds ─► candidates: pages in VRAM that may hold something ─► the device scores their tokens
//!             └► candidates below: the best by bound elsewhere ─► of those in RAM the processor scores them where they lie
//! pages with scores: chunks of 8 to 64 tokens ─┐
//! other pages: one chunk each, bound corrected ┴─► Tree ─► the best tokens per KV head ─► Selection
//!                                                    └─► density of this layer ─► chunks of its next step
//! ```
//! 1. What cannot be split is read as a whole page. 2. Each KV head has its own tree.
//! 3. With nothing but bounds this is Quest at the same rate. 4. Pages that hold next to nothing all together are not fetched:
//!    what is in VRAM fills the rate, as far as it goes.
//!
//! Shapes: G KV heads, P pages; densities `[L]`. Units: tokens; scores as [`LayerView`] has them.
//!
//! Source: LeoAM, sections 4.2 (tree, equations 2 and 3), 4.3 (disk chunks stay whole) and 6.1 (10 %, first two layers 50 %;
//! chunks of 64, of 8 in those layers and the first steps). Where we differ: a page without scores counts by what a token of it
//! holds on average, as far as its bound tells by what pages of such a bound with scores do. What cannot be split would always win
//! by its best token, which a maximum over 64 keys and all dimensions puts far too high, and 63 others would come with it.

pub mod abstracts;
pub mod pipeline;
pub mod tree;

use std::ops::Range;

use rayon::prelude::*;

use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::kv::policy::attention_mass::{Share, log_mass, log_sum_exp, tokens_of_mass};
use crate::kv::policy::view::page_tokens;
use crate::kv::policy::{LayerView, PolicySpec, Selection, SelectionBudget, Tier};
use tree::{Bounds, Evaluate, TokenRange, Tree};

/// Initial chunk of the first layers and steps, where their density is high.
const FINE_CHUNK_TOKENS: usize = 8;
/// Initial chunk elsewhere.
const CHUNK_TOKENS: usize = KV_PAGE_TOKENS;
/// Share of the attention mass that need not be looked for: a page is scored where its best token may hold as much, divided by
/// the number of tokens.
const NEGLIGIBLE_MASS: f32 = 1e-3;
/// Share of the attention mass that is not fetched, where it lies outside of VRAM.
const LEFT_OUT_MASS: f32 = 2e-2;
/// Share of the attention mass that a token may hold for which its page is scored although the estimate did not expect it.
const MUCH_MASS: f32 = 1e-2;
/// Of the pages that bounds put first, this many times as many are scored as would fill what is read.
const SCORED_BELOW: usize = 2;
/// And so many times, those that may hold much if their bounds are tight: scoring is not to grow with the context where reading does not.
const SCORED_BELOW_AT_MOST: usize = 10;
/// Scores of so many tokens, of all KV heads, take longer to look at than to hand to other threads.
const MANY_TOKENS: usize = 16_384;
/// Share of the newest step in what is learnt of how loose bounds are.
const NEWEST_SHARE: f32 = 0.2;
/// Logarithm of the tokens of a page, natural.
const PER_TOKEN: f32 = 6.0 * std::f32::consts::LN_2;
const _: () = assert!(KV_PAGE_TOKENS == 64);
/// Share of the expected steps that counts as the first ones; the paper has 5 to 10 %.
const EARLY_STEPS_PERCENT: usize = 10;

/// The policy, and what it learned of each layer.
#[derive(Debug, Clone)]
pub struct LeoAm {
    spec: PolicySpec,
    /// by layer: share of blocks that held something important in its last step
    densities: Vec<Option<f64>>,
    /// by layer, then KV head: how loose bounds were in its last step
    excesses: Vec<Vec<BoundSlack>>,
}

/// How much higher bounds of pages are than what is known of their scores.
#[derive(Debug, Clone, Copy, Default)]
struct BoundSlack {
    /// than their best tokens, at least; 0 where nothing is known
    least: f32,
    /// than the logarithm of the mean mass of pages of such a bound
    mass: Option<f32>,
    /// than the best tokens of pages that held much, at least so far; none where no page did
    telling: Option<f32>,
}

/// What matters to a KV head.
#[derive(Debug, Clone)]
struct HeadSelection {
    ranges: Vec<TokenRange>,
    n_evaluations: usize,
    excess: BoundSlack,
}

/// What is known of the tokens of one KV head.
struct HeadOracle<'a> {
    view: &'a LayerView<'a>,
    kv_head: usize,
    /// how much higher bounds of pages are than the logarithms of their mass, as far as that is known
    mass_excess: Option<f32>,
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

impl HeadSelection {
    fn without_a_look(ranges: Vec<TokenRange>) -> HeadSelection {
        HeadSelection { ranges, n_evaluations: 0, excess: BoundSlack::default() }
    }
}

impl LeoAm {
    /// Nothing is known of any layer yet.
    pub fn new(spec: PolicySpec) -> LeoAm {
        LeoAm { spec, densities: Vec::new(), excesses: Vec::new() }
    }

    /// Pages in VRAM that may hold any attention worth the name, of any KV head, ascending.
    pub fn candidates(&self, view: &LayerView) -> Vec<u32> {
        self.that_may_hold(view, negligible(view))
    }

    /// Pages in VRAM of which a token may hold much: those that nobody expected are worth waiting for.
    pub fn surprises(&self, view: &LayerView) -> Vec<u32> {
        if self.spec.tree { self.that_may_hold(view, MUCH_MASS.ln()) } else { Vec::new() }
    }

    /// Pages in VRAM whose best token may score as high as this, for any KV head, ascending.
    fn that_may_hold(&self, view: &LayerView, least_score: f32) -> Vec<u32> {
        if !self.spec.tree {
            return (0..view.n_pages()).filter(|page| view.tiers[*page] == Tier::Vram).map(|page| page as u32).collect();
        }
        let free = self.spec.free_pages(view.n_pages());
        let mut is_candidate = vec![false; view.n_pages()];
        for kv_head in 0..view.n_kv_head {
            if !self.has_choice(view, kv_head) {
                continue;
            }
            let least_excess = self.learnt(view.layer, kv_head).least;
            let may_matter = |page| view.page_bounds(kv_head, page).upper() - least_excess >= least_score;
            free.clone().filter(|page| may_matter(*page)).for_each(|page| is_candidate[page] = true);
        }
        let in_vram = |page: &usize| is_candidate[*page] && view.tiers[*page] == Tier::Vram;
        (0..view.n_pages()).filter(in_vram).map(|page| page as u32).collect()
    }

    /// Pages outside of VRAM that bounds put first, of any KV head, ascending: all of them where half is read. And those that may
    /// hold much if their bounds are as tight as the tightest of a page that did, since there only keys tell pages apart: all of
    /// them where a tenth is read, as it is by default, and no more than ten times what is read.
    pub fn candidates_below(&self, view: &LayerView) -> Vec<u32> {
        if !self.spec.tree {
            return Vec::new();
        }
        let free = self.spec.free_pages(view.n_pages());
        let n_wanted = self.spec.n_wanted(view.layer, free.len() * KV_PAGE_TOKENS).div_ceil(KV_PAGE_TOKENS);
        let mut pages = Vec::new();
        for kv_head in (0..view.n_kv_head).filter(|kv_head| self.has_choice(view, *kv_head)) {
            let mut best: Vec<(f32, usize)> = free.clone().map(|page| (view.page_bounds(kv_head, page).upper(), page)).collect();
            let (n_best, n_most) = (best.len().min(SCORED_BELOW * n_wanted), SCORED_BELOW_AT_MOST * n_wanted);
            let by_bound = |a: &(f32, usize), b: &(f32, usize)| b.0.total_cmp(&a.0);
            if n_most < best.len() {
                best.select_nth_unstable_by(n_most, by_bound);
                best.truncate(n_most);
            }
            if n_best < best.len() {
                best.select_nth_unstable_by(n_best, by_bound);
            }
            let least = MUCH_MASS.ln() + self.learnt(view.layer, kv_head).telling.unwrap_or(f32::NEG_INFINITY);
            let (first, others) = best.split_at(n_best);
            let of_others = others.iter().filter(|(upper, _)| *upper >= least);
            let below = first.iter().chain(of_others).map(|(_, page)| *page).filter(|page| view.tiers[*page] != Tier::Vram);
            pages.extend(below.map(|page| page as u32));
        }
        crate::kv::policy::unique(pages)
    }

    /// Neither all nor none of the pages are read anyway.
    fn has_choice(&self, view: &LayerView, kv_head: usize) -> bool {
        let free = self.spec.free_pages(view.n_pages());
        let n_free = free.len() * KV_PAGE_TOKENS;
        let mut n_wanted = self.spec.n_wanted(view.layer, n_free);
        if let SelectionBudget::Mass { mass, .. } = self.spec.amount {
            let share = |page| Share::of_bound(view.page_bounds(kv_head, page).upper(), KV_PAGE_TOKENS);
            n_wanted = n_wanted.max(tokens_of_mass(free.map(share).collect(), &[], mass));
        }
        (1..n_free).contains(&n_wanted)
    }

    /// Pages that attention will probably read, by what is known so far and by how loose the layer's bounds were.
    pub fn expect(&self, view: &LayerView) -> Vec<u32> {
        let ranges: Vec<_> = self.select_heads(view).into_iter().map(|head| head.ranges).collect();
        Selection::new(&self.spec, view, &ranges, 0).pages
    }

    /// What attention reads. Learns the layer's density and how loose its bounds are for its next step.
    pub fn select(&mut self, view: &LayerView) -> Selection {
        let heads = self.select_heads(view);
        let n_evaluations = heads.iter().map(|head| head.n_evaluations).sum();
        self.learn(view.layer, heads.iter().map(|head| head.excess).collect());
        let ranges: Vec<_> = heads.into_iter().map(|head| head.ranges).collect();
        self.note_density(view, &ranges);
        Selection::new(&self.spec, view, &ranges, n_evaluations)
    }

    /// What matters to each KV head.
    fn select_heads(&self, view: &LayerView) -> Vec<HeadSelection> {
        let select = |kv_head| self.select_head(view, kv_head);
        let n_scored = (0..view.n_pages()).filter(|page| view.page_scores(0, *page).is_some()).count() * KV_PAGE_TOKENS;
        // Handing heads to other threads costs a tenth of a millisecond.
        if view.n_kv_head * n_scored < MANY_TOKENS {
            return (0..view.n_kv_head).map(select).collect();
        }
        (0..view.n_kv_head).into_par_iter().map(select).collect()
    }

    /// What matters to a KV head.
    fn select_head(&self, view: &LayerView, kv_head: usize) -> HeadSelection {
        let free = self.spec.free_tokens(view.n_pages());
        let pages = self.spec.free_pages(view.n_pages());
        let n_least = self.spec.n_wanted(view.layer, free.len());
        if n_least == free.len() {
            return HeadSelection::without_a_look(vec![free]);
        }
        if n_least == 0 && !matches!(self.spec.amount, SelectionBudget::Mass { .. }) {
            return HeadSelection::without_a_look(Vec::new());
        }
        let excess = match view.scores {
            Some(_) => self.excess(view, kv_head),
            None => self.learnt(view.layer, kv_head),
        };
        let oracle = HeadOracle { view, kv_head, mass_excess: excess.mass };
        let pages = oracle.worth_reading(pages);
        let mut n_wanted = n_least;
        let mut n_evaluations = 0;
        if let SelectionBudget::Mass { mass, .. } = self.spec.amount {
            let shares = oracle.shares(&pages);
            n_evaluations += shares.len();
            n_wanted = n_wanted.max(tokens_of_mass(shares, &self.always(view, kv_head), mass));
        }
        let chunk_tokens = self.chunk_tokens(view);
        let chunks: Vec<TokenRange> = pages.iter().flat_map(|page| oracle.chunks(*page, chunk_tokens)).collect();
        let selected = Tree::new(chunks, oracle).select(n_wanted);
        let n_evaluations = n_evaluations + selected.n_evaluations;
        HeadSelection { ranges: selected.important().collect(), n_evaluations, excess }
    }

    /// How loose the bounds of a KV head turn out to be. The mass is not looked at where nothing depends on it: by rate, with
    /// every page scored in VRAM.
    fn excess(&self, view: &LayerView, kv_head: usize) -> BoundSlack {
        let pages = self.spec.free_pages(view.n_pages());
        let learnt = self.learnt(view.layer, kv_head);
        let best = excesses(view, kv_head, pages.clone(), |scores| Bounds::of_scores(scores).upper());
        let least = best.iter().map(|(_, excess)| *excess).reduce(f32::min).unwrap_or(0.0);
        let of_much = best.iter().filter(|(best, _)| *best >= MUCH_MASS.ln()).map(|(_, excess)| *excess);
        let telling = of_much.chain(learnt.telling).reduce(f32::min);
        let is_here = |page| view.tiers[page] == Tier::Vram && view.page_scores(kv_head, page).is_some();
        let by_mass = matches!(self.spec.amount, SelectionBudget::Mass { .. }) || !pages.clone().all(is_here);
        let mass = if by_mass { expected(&excesses(view, kv_head, pages, log_mass), learnt.mass) } else { learnt.mass };
        BoundSlack { least, telling, mass }
    }

    /// What a layer taught of a KV head.
    fn learnt(&self, layer: usize, kv_head: usize) -> BoundSlack {
        self.excesses.get(layer).and_then(|heads| heads.get(kv_head)).copied().unwrap_or_default()
    }

    fn learn(&mut self, layer: usize, heads: Vec<BoundSlack>) {
        if self.excesses.len() <= layer {
            self.excesses.resize(layer + 1, Vec::new());
        }
        self.excesses[layer] = heads;
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
            return 1;
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

/// What is `known` of the scores of pages, and how much higher their bounds are, for those that have both.
fn excesses(view: &LayerView, kv_head: usize, pages: Range<usize>, known: impl Fn(&[f32]) -> f32) -> Vec<(f32, f32)> {
    let excess = |page| {
        let known = known(view.page_scores(kv_head, page)?);
        Some((known, view.page_bounds(kv_head, page).upper() - known))
    };
    pages.filter_map(excess).filter(|(_, excess)| excess.is_finite()).collect()
}

/// The excess that gives a page what pages of its bound hold on average, by these of pages whose mass is known and what was
/// `learnt` of earlier steps: most hold next to nothing, and a few nearly as much as their bounds allow.
fn expected(excesses: &[(f32, f32)], learnt: Option<f32>) -> Option<f32> {
    if excesses.is_empty() {
        return learnt;
    }
    let tight: Vec<f32> = excesses.iter().map(|(_, excess)| -excess).collect();
    let now = log_sum_exp(&tight) - (tight.len() as f32).ln();
    let share = |log: f32, share: f32| log + share.ln();
    Some(-learnt.map_or(now, |learnt| log_sum_exp(&[share(now, NEWEST_SHARE), share(-learnt, 1.0 - NEWEST_SHARE)])))
}

/// The score below which tokens hold [`NEGLIGIBLE_MASS`] all together.
fn negligible(view: &LayerView) -> f32 {
    (NEGLIGIBLE_MASS / view.n_tokens().max(1) as f32).ln()
}

impl<'a> HeadOracle<'a> {
    /// Those in VRAM, and of the others all but the ones that hold [`LEFT_OUT_MASS`] together: by their scores where these are
    /// known, else by what pages of their bounds hold on average; where nothing was looked into, as if every token reached the
    /// bound.
    fn worth_reading(&self, pages: Range<usize>) -> Vec<usize> {
        let held = |page: usize| match self.view.page_scores(self.kv_head, page) {
            Some(scores) => log_mass(scores),
            None => self.view.page_bounds(self.kv_head, page).upper() - self.mass_excess.unwrap_or(-PER_TOKEN),
        };
        let (mut worth, elsewhere): (Vec<usize>, Vec<usize>) = pages.partition(|page| self.view.tiers[*page] == Tier::Vram);
        let mut elsewhere: Vec<(f32, usize)> = elsewhere.into_iter().map(|page| (held(page), page)).collect();
        elsewhere.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut left_out = 0.0;
        worth.extend(elsewhere.into_iter().filter_map(|(held, page)| {
            left_out += held.exp();
            (left_out > LEFT_OUT_MASS).then_some(page)
        }));
        worth.sort_unstable();
        worth
    }

    /// Scores of a range within a page, where they are known.
    fn scores(&self, range: TokenRange) -> Option<&'a [f32]> {
        let scores = self.view.page_scores(self.kv_head, range.start / KV_PAGE_TOKENS)?;
        let first = range.start % KV_PAGE_TOKENS;
        scores.get(first..first + range.len())
    }

    /// What a page of these bounds is taken to hold.
    fn log_mass_of(&self, bounds: Bounds) -> f32 {
        bounds.upper() - self.mass_excess.unwrap_or(0.0)
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

    /// What pages may hold of the attention mass: token by token where their scores are known.
    fn shares(&self, pages: &[usize]) -> Vec<Share> {
        let share = |range: TokenRange| match self.scores(range) {
            Some(scores) => Share::of_scores(scores),
            None => {
                let log_mass = self.log_mass_of(self.page_bounds(range));
                Share { upper: log_mass - PER_TOKEN, log_mass, n_tokens: range.len() }
            }
        };
        pages.iter().flat_map(|page| self.chunks(*page, 1)).map(share).collect()
    }
}

impl Evaluate for HeadOracle<'_> {
    fn bounds(&mut self, range: TokenRange) -> Bounds {
        if let Some(scores) = self.scores(range) {
            return Bounds::of_scores(scores);
        }
        let bounds = self.page_bounds(range);
        Bounds::outer(self.log_mass_of(bounds) - PER_TOKEN, bounds.lower())
    }

    fn split_at(&self, range: TokenRange) -> Option<usize> {
        self.scores(range)?;
        range.middle(FINE_CHUNK_TOKENS)
    }

    fn tokens(&self, range: TokenRange) -> Option<&[f32]> {
        if range.len() > FINE_CHUNK_TOKENS { None } else { self.scores(range) }
    }
}

#[cfg(test)]
mod tests;
