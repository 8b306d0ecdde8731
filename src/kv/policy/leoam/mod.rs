//! LeoAM policy: page bounds, a chunk tree over known token scores, and a budget by rate or attention mass.
//!
//! ```text
//! page bounds ─► candidates: pages in VRAM that may matter ─► the GPU scores their tokens
//!             └► offloaded candidates: the best elsewhere by bound ─► the CPU scores those in RAM, the GPU those read from disk
//! pages with scores: chunks of 8 to 64 tokens ────────┐
//! other pages: one chunk each, with a corrected bound ┴─► Tree ─► the best tokens per KV head ─► Selection
//!                                                         └─► density of this layer ─► chunks of its next step
//! ```
//! 1. A page without token scores is read as a whole. 2. Each KV head has its own tree.
//! 3. With bounds only, this is Quest at the same rate. 4. Pages with negligible total attention are not fetched; pages
//!    in VRAM fill the budget, as far as possible.
//!
//! Shapes: G KV heads, P pages; densities `[L]`. Units: tokens; scores as in [`LayerView`].
//!
//! Sources: LeoAM §4.2 (tree), LeoAM §4.2 eq. 2, LeoAM §4.2 eq. 3, LeoAM §6.1
//! (10 %, first two layers 50 %; chunks of 64, and of 8 in those layers and the first steps). Difference: a page without
//! scores counts by its mean token mass, estimated from its bound and from scored pages with similar bounds. By its best
//! token it would always win: a maximum over 64 keys and all dimensions is far too high, and would select 63 other tokens
//! with it. Candidates on disk are read and scored as well (LeoAM §4.3 reads them whole, by their bounds).

pub mod abstracts;
mod initial_chunks;
pub mod pipeline;
pub mod tree;

use std::ops::Range;

use rayon::prelude::*;

use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::gpu::kernels::selection::SelectionSizes;
use crate::kv::policy::attention_mass::{Share, log_mass, log_sum_exp, tokens_of_mass};
use crate::kv::policy::view::page_tokens;
use crate::kv::policy::{LayerView, Policy, PolicySpec, Selection, SelectionBudget, Tier, unique};
use initial_chunks::initial_chunks;
use tree::{Bounds, Evaluate, TokenRange, Tree};

/// Initial chunk size of the first layers and steps, with a high density.
const FINE_CHUNK_TOKENS: usize = 8;
/// Initial chunk size elsewhere.
const CHUNK_TOKENS: usize = KV_PAGE_TOKENS;
/// Negligible attention mass: a page is scored if its best token may hold this fraction divided by the number of
/// tokens.
const NEGLIGIBLE_MASS: f32 = 1e-3;
/// Attention mass outside VRAM that is not fetched.
const UNFETCHED_MASS: f32 = 2e-2;
/// Attention mass of a token from which its page is an unpredicted candidate.
const HIGH_MASS: f32 = 1e-2;
/// Pages with the highest bounds that are scored, per page that is read: by the CPU those of them that are offloaded.
const OFFLOADED_SCORED_PER_READ: usize = 2;
/// Maximum of pages that the GPU scores, or of offloaded pages whose bounds may be tight, per page that is read. It keeps the
/// scoring work independent of the context length, and has to be large: a maximum over 64 keys is a loose bound, so the best
/// tokens are often not in the pages with the best bounds.
const MAX_SCORED_PER_READ: usize = 10;
/// Number of scored tokens, over all KV heads, from which several threads are faster.
const PARALLEL_TOKENS: usize = 16_384;
/// Weight of the newest step in the running bound slack.
const NEWEST_WEIGHT: f32 = 0.2;
/// Natural logarithm of the tokens per page.
const LN_PAGE_TOKENS: f32 = 6.0 * std::f32::consts::LN_2;
const _: () = assert!(KV_PAGE_TOKENS == 64);
/// Percentage of the expected steps that counts as early; LeoAM §6.1 has 5 to 10 %.
const EARLY_STEPS_PERCENT: usize = 10;

/// The LeoAM policy, with its state for each layer.
#[derive(Debug, Clone)]
pub struct LeoAm {
    spec: PolicySpec,
    /// by layer: fraction of important blocks in the last step
    densities: Vec<Option<f64>>,
    /// by layer, then KV head: bound slack in the last step
    bound_slacks: Vec<Vec<BoundSlack>>,
}

/// Bound slack: gap between page bounds and known values.
#[derive(Debug, Clone, Copy, Default)]
struct BoundSlack {
    /// minimum gap to the best token of a page; 0 if unknown
    minimum: f32,
    /// gap to the mean log mass of pages with such a bound
    mass: Option<f32>,
    /// minimum gap, so far, to the best token of pages with much attention; none without such pages
    high_mass: Option<f32>,
}

/// Selection of one KV head.
#[derive(Debug, Clone)]
struct HeadSelection {
    ranges: Vec<TokenRange>,
    n_evaluations: usize,
    slack: BoundSlack,
}

/// Known scores and bounds of one KV head.
struct HeadOracle<'a> {
    view: &'a LayerView<'a>,
    kv_head: usize,
    /// gap between page bounds and log page masses, if known
    mass_slack: Option<f32>,
}

impl HeadSelection {
    fn without_evaluation(ranges: Vec<TokenRange>) -> HeadSelection {
        HeadSelection { ranges, n_evaluations: 0, slack: BoundSlack::default() }
    }
}

impl Policy for LeoAm {
    /// Pages in VRAM that may hold non-negligible attention for any KV head. Ascending.
    fn candidates(&self, view: &LayerView) -> Vec<u32> {
        self.vram_pages_reaching(view, negligible(view))
    }

    /// Pages in VRAM in which a token may hold much attention: worth another wait if they were not predicted.
    fn unpredicted_candidates(&self, view: &LayerView) -> Vec<u32> {
        if self.spec.tree { self.vram_pages_reaching(view, HIGH_MASS.ln()) } else { Vec::new() }
    }

    /// Offloaded pages with the highest bounds for any KV head, ascending; all of them if half of the pages are read.
    /// Also those that may hold much attention if their bounds are as tight as the tightest of such a page so far,
    /// because then only the keys separate pages. At most ten times as many as are read.
    fn offloaded_candidates(&self, view: &LayerView) -> Vec<u32> {
        if !self.spec.tree {
            return Vec::new();
        }
        let free = self.spec.free_pages(view.n_pages());
        let n_wanted = self.spec.n_wanted(view.layer, free.len() * KV_PAGE_TOKENS).div_ceil(KV_PAGE_TOKENS);
        let mut pages = Vec::new();
        for kv_head in (0..view.n_kv_head).filter(|kv_head| self.is_partial(view, *kv_head)) {
            let mut best: Vec<(f32, usize)> = free.clone().map(|page| (view.page_bounds(kv_head, page).upper(), page)).collect();
            let (n_best, n_max) = (best.len().min(OFFLOADED_SCORED_PER_READ * n_wanted), MAX_SCORED_PER_READ * n_wanted);
            let by_bound = |a: &(f32, usize), b: &(f32, usize)| b.0.total_cmp(&a.0);
            if n_max < best.len() {
                best.select_nth_unstable_by(n_max, by_bound);
                best.truncate(n_max);
            }
            if n_best < best.len() {
                best.select_nth_unstable_by(n_best, by_bound);
            }
            let minimum = HIGH_MASS.ln() + self.last_slack(view.layer, kv_head).high_mass.unwrap_or(f32::NEG_INFINITY);
            let (first, others) = best.split_at(n_best);
            let other_candidates = others.iter().filter(|(upper, _)| *upper >= minimum);
            let offloaded =
                first.iter().chain(other_candidates).map(|(_, page)| *page).filter(|page| view.tiers[*page] != Tier::Vram);
            pages.extend(offloaded.map(|page| page as u32));
        }
        unique(pages)
    }

    /// A rate or number of tokens, from the candidates with the highest bounds. Without the tree, every page is a candidate.
    fn device_sizes(&self, layer: usize, n_pages: usize) -> Option<SelectionSizes> {
        if matches!(self.spec.amount, SelectionBudget::Mass { .. }) {
            return None;
        }
        let free = self.spec.free_pages(n_pages);
        let n_wanted = self.spec.n_wanted(layer, free.len() * KV_PAGE_TOKENS);
        let n_read = n_wanted.div_ceil(KV_PAGE_TOKENS);
        let n_candidates = match self.spec.tree {
            true => [n_read, (MAX_SCORED_PER_READ * n_read).min(free.len())],
            false => [free.len(); 2],
        };
        let least = (NEGLIGIBLE_MASS / (n_pages * KV_PAGE_TOKENS).max(1) as f32).ln();
        let (n_sink, n_recent) = (free.start, n_pages - free.end);
        let n_best = if self.spec.tree { (OFFLOADED_SCORED_PER_READ * n_read).min(free.len()) } else { free.len() };
        Some(SelectionSizes { n_pages, n_sink, n_recent, n_candidates, n_best, n_wanted, least })
    }

    /// Pages that attention will probably read, from known scores and the bound slack of the layer.
    fn predict(&self, view: &LayerView) -> Vec<u32> {
        let ranges: Vec<_> = self.select_heads(view).into_iter().map(|head| head.ranges).collect();
        Selection::new(&self.spec, view, &ranges, 0).pages
    }

    /// Selects tokens. Updates the density and the bound slack of the layer for its next step.
    fn select(&mut self, view: &LayerView) -> Selection {
        let heads = self.select_heads(view);
        let n_evaluations = heads.iter().map(|head| head.n_evaluations).sum();
        self.set_slack(view.layer, heads.iter().map(|head| head.slack).collect());
        let ranges: Vec<_> = heads.into_iter().map(|head| head.ranges).collect();
        self.record_density(view, &ranges);
        Selection::new(&self.spec, view, &ranges, n_evaluations)
    }
}

impl LeoAm {
    /// A policy without history.
    pub fn new(spec: PolicySpec) -> LeoAm {
        LeoAm { spec, densities: Vec::new(), bound_slacks: Vec::new() }
    }

    /// Pages in VRAM whose best token may reach this score for any KV head. Ascending.
    fn vram_pages_reaching(&self, view: &LayerView, least_score: f32) -> Vec<u32> {
        if !self.spec.tree {
            return (0..view.n_pages()).filter(|page| view.tiers[*page] == Tier::Vram).map(|page| page as u32).collect();
        }
        let free = self.spec.free_pages(view.n_pages());
        let mut is_candidate = vec![false; view.n_pages()];
        for kv_head in 0..view.n_kv_head {
            if !self.is_partial(view, kv_head) {
                continue;
            }
            let min_slack = self.last_slack(view.layer, kv_head).minimum;
            let may_reach = |page| view.page_bounds(kv_head, page).upper() - min_slack >= least_score;
            free.clone().filter(|page| may_reach(*page)).for_each(|page| is_candidate[page] = true);
        }
        let is_in_vram = |page: &usize| is_candidate[*page] && view.tiers[*page] == Tier::Vram;
        (0..view.n_pages()).filter(is_in_vram).map(|page| page as u32).collect()
    }

    /// True if some but not all free pages are read.
    fn is_partial(&self, view: &LayerView, kv_head: usize) -> bool {
        let free = self.spec.free_pages(view.n_pages());
        let n_free = free.len() * KV_PAGE_TOKENS;
        let mut n_wanted = self.spec.n_wanted(view.layer, n_free);
        if let SelectionBudget::Mass { mass, .. } = self.spec.amount {
            let share = |page| Share::of_bound(view.page_bounds(kv_head, page).upper(), KV_PAGE_TOKENS);
            n_wanted = n_wanted.max(tokens_of_mass(free.map(share).collect(), &[], mass));
        }
        (1..n_free).contains(&n_wanted)
    }

    /// Selection of every KV head.
    fn select_heads(&self, view: &LayerView) -> Vec<HeadSelection> {
        let select = |kv_head| self.select_head(view, kv_head);
        let n_scored = (0..view.n_pages()).filter(|page| view.page_scores(0, *page).is_some()).count() * KV_PAGE_TOKENS;
        // Dispatching heads to other threads costs a tenth of a millisecond.
        if view.n_kv_head * n_scored < PARALLEL_TOKENS {
            return (0..view.n_kv_head).map(select).collect();
        }
        (0..view.n_kv_head).into_par_iter().map(select).collect()
    }

    /// Selection of one KV head.
    fn select_head(&self, view: &LayerView, kv_head: usize) -> HeadSelection {
        let free = self.spec.free_tokens(view.n_pages());
        let pages = self.spec.free_pages(view.n_pages());
        let n_minimum = self.spec.n_wanted(view.layer, free.len());
        if n_minimum == free.len() {
            return HeadSelection::without_evaluation(vec![free]);
        }
        if n_minimum == 0 && !matches!(self.spec.amount, SelectionBudget::Mass { .. }) {
            return HeadSelection::without_evaluation(Vec::new());
        }
        let slack = match view.scores {
            Some(_) => self.slack(view, kv_head),
            None => self.last_slack(view.layer, kv_head),
        };
        let oracle = HeadOracle { view, kv_head, mass_slack: slack.mass };
        let pages = oracle.worth_reading(pages);
        let mut n_wanted = n_minimum;
        let mut n_evaluations = 0;
        if let SelectionBudget::Mass { mass, .. } = self.spec.amount {
            let shares = oracle.shares(&pages);
            n_evaluations += shares.len();
            n_wanted = n_wanted.max(tokens_of_mass(shares, &self.always_log_masses(view, kv_head), mass));
        }
        let chunk_tokens = self.chunk_tokens(view);
        let chunks: Vec<TokenRange> = pages.iter().flat_map(|page| oracle.chunks(*page, chunk_tokens)).collect();
        let selected = Tree::new(chunks, oracle).select(n_wanted);
        let n_evaluations = n_evaluations + selected.n_evaluations;
        HeadSelection { ranges: selected.important().collect(), n_evaluations, slack }
    }

    /// Measures the bound slack of a KV head. Skips the mass if nothing depends on it: with a rate budget, and every
    /// page scored in VRAM.
    fn slack(&self, view: &LayerView, kv_head: usize) -> BoundSlack {
        let pages = self.spec.free_pages(view.n_pages());
        let last_slack = self.last_slack(view.layer, kv_head);
        let best = bound_slacks(view, kv_head, pages.clone(), |scores| Bounds::of_scores(scores).upper());
        let minimum = best.iter().map(|(_, slack)| *slack).reduce(f32::min).unwrap_or(0.0);
        let of_high_mass = best.iter().filter(|(best, _)| *best >= HIGH_MASS.ln()).map(|(_, slack)| *slack);
        let high_mass = of_high_mass.chain(last_slack.high_mass).reduce(f32::min);
        let is_scored_in_vram = |page| view.tiers[page] == Tier::Vram && view.page_scores(kv_head, page).is_some();
        let by_mass = matches!(self.spec.amount, SelectionBudget::Mass { .. }) || !pages.clone().all(is_scored_in_vram);
        let mass =
            if by_mass { mean_slack(&bound_slacks(view, kv_head, pages, log_mass), last_slack.mass) } else { last_slack.mass };
        BoundSlack { minimum, high_mass, mass }
    }

    /// Bound slack of a KV head in the last step of a layer.
    fn last_slack(&self, layer: usize, kv_head: usize) -> BoundSlack {
        self.bound_slacks.get(layer).and_then(|heads| heads.get(kv_head)).copied().unwrap_or_default()
    }

    fn set_slack(&mut self, layer: usize, heads: Vec<BoundSlack>) {
        if self.bound_slacks.len() <= layer {
            self.bound_slacks.resize(layer + 1, Vec::new());
        }
        self.bound_slacks[layer] = heads;
    }

    /// Log masses of the always-read pages with known scores.
    fn always_log_masses(&self, view: &LayerView, kv_head: usize) -> Vec<f32> {
        let free = self.spec.free_pages(view.n_pages());
        let always_pages = (0..view.n_pages()).filter(|page| !free.contains(page));
        always_pages.filter_map(|page| view.page_scores(kv_head, page)).map(log_mass).collect()
    }

    /// True for first layers and early steps, in which much matters.
    fn is_fine(&self, view: &LayerView) -> bool {
        self.spec.is_first(view.layer) || view.step * 100 < view.n_steps * EARLY_STEPS_PERCENT
    }

    /// Initial chunk size if token scores are known: in fine layers and steps by LeoAM §4.2 eq. 2, once their density
    /// is known.
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

    /// Records the fraction of important blocks, over all KV heads.
    fn record_density(&mut self, view: &LayerView, ranges: &[Vec<TokenRange>]) {
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

/// Number of blocks that ascending disjoint ranges touch.
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

/// Known value and bound slack of each page that has both.
fn bound_slacks(view: &LayerView, kv_head: usize, pages: Range<usize>, value_of: impl Fn(&[f32]) -> f32) -> Vec<(f32, f32)> {
    let slack = |page| {
        let value = value_of(view.page_scores(kv_head, page)?);
        Some((value, view.page_bounds(kv_head, page).upper() - value))
    };
    pages.filter_map(slack).filter(|(_, slack)| slack.is_finite()).collect()
}

/// Slack that gives a page the mean mass of pages with its bound, from scored pages and the slack `learned` in earlier
/// steps. Most pages hold next to nothing, a few nearly as much as their bounds allow.
fn mean_slack(bound_slacks: &[(f32, f32)], last_slack: Option<f32>) -> Option<f32> {
    if bound_slacks.is_empty() {
        return last_slack;
    }
    let negated: Vec<f32> = bound_slacks.iter().map(|(_, slack)| -slack).collect();
    let now = log_sum_exp(&negated) - (negated.len() as f32).ln();
    let share = |log: f32, share: f32| log + share.ln();
    Some(-last_slack.map_or(now, |last_slack| log_sum_exp(&[share(now, NEWEST_WEIGHT), share(-last_slack, 1.0 - NEWEST_WEIGHT)])))
}

/// Score below which all tokens together hold at most [`NEGLIGIBLE_MASS`].
fn negligible(view: &LayerView) -> f32 {
    (NEGLIGIBLE_MASS / view.n_tokens().max(1) as f32).ln()
}

impl<'a> HeadOracle<'a> {
    /// Pages worth reading: those in VRAM, and the others except the least, which together hold [`UNFETCHED_MASS`].
    /// Their mass comes from scores, otherwise from the mean of pages with similar bounds. Without any scores, every
    /// token counts as reaching the bound.
    fn worth_reading(&self, pages: Range<usize>) -> Vec<usize> {
        let log_mass_at = |page: usize| match self.view.page_scores(self.kv_head, page) {
            Some(scores) => log_mass(scores),
            None => self.view.page_bounds(self.kv_head, page).upper() - self.mass_slack.unwrap_or(-LN_PAGE_TOKENS),
        };
        let (mut worth_reading, offloaded_pages): (Vec<usize>, Vec<usize>) =
            pages.partition(|page| self.view.tiers[*page] == Tier::Vram);
        let mut offloaded_pages: Vec<(f32, usize)> = offloaded_pages.into_iter().map(|page| (log_mass_at(page), page)).collect();
        offloaded_pages.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut unfetched_mass = 0.0;
        worth_reading.extend(offloaded_pages.into_iter().filter_map(|(log_mass, page)| {
            unfetched_mass += log_mass.exp();
            (unfetched_mass > UNFETCHED_MASS).then_some(page)
        }));
        worth_reading.sort_unstable();
        worth_reading
    }

    /// Scores of a range within a page, if known.
    fn scores(&self, range: TokenRange) -> Option<&'a [f32]> {
        let scores = self.view.page_scores(self.kv_head, range.start / KV_PAGE_TOKENS)?;
        let first = range.start % KV_PAGE_TOKENS;
        scores.get(first..first + range.len())
    }

    /// Estimated log mass of a page with these bounds.
    fn log_mass_of(&self, bounds: Bounds) -> f32 {
        bounds.upper() - self.mass_slack.unwrap_or(0.0)
    }

    fn page_bounds(&self, range: TokenRange) -> Bounds {
        self.view.page_bounds(self.kv_head, range.start / KV_PAGE_TOKENS)
    }

    /// Splits a page into chunks of `chunk_tokens` if its scores are known; otherwise one chunk.
    fn chunks(&self, page: usize, chunk_tokens: usize) -> impl Iterator<Item = TokenRange> + use<> {
        let range = page_tokens(page);
        let step = if self.scores(range).is_some() { chunk_tokens } else { KV_PAGE_TOKENS };
        (range.start..range.end).step_by(step).map(move |start| TokenRange::new(start, start + step))
    }

    /// Estimated attention mass of pages, per token if their scores are known.
    fn shares(&self, pages: &[usize]) -> Vec<Share> {
        let share = |range: TokenRange| match self.scores(range) {
            Some(scores) => Share::of_scores(scores),
            None => {
                let log_mass = self.log_mass_of(self.page_bounds(range));
                Share { upper: log_mass - LN_PAGE_TOKENS, log_mass, n_tokens: range.len() }
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
        Bounds::outer(self.log_mass_of(bounds) - LN_PAGE_TOKENS, bounds.lower())
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
