//! H2O baselines: heavy hitters by token, by chunk, and one layer ahead. They need every key.
//!
//! ```text
//! scores of all tokens ─ softmax ─► + attention of earlier steps ─► best tokens (h2o, prefetch) or chunks of 64 (h2o-chunked)
//!                                                                   half of the budget; the newest tokens are the other half
//! ```
//! 1. Attention of a token accumulates over all steps of the policy: a heavy hitter remains one.
//! 2. A page with unknown scores counts by its bound; a page with NaN scores counts as the heaviest.
//! 3. `prefetch` selects like `h2o`; the caller runs it one layer early.
//!
//! Shapes: accumulated attention f32 `[layer * G + kv_head][P * 64]`. Units: tokens.
//!
//! Limits: attention during prefill is not counted; 4 bytes per token, layer and KV head.
//!
//! Sources: LeoAM §6.1 (baselines 1 to 3); H2O §4 (arXiv 2306.14048): column sums of attention, half of the budget for
//! heavy hitters, half for recent tokens. Here the column sums are over the best query head of a group. The kinds
//! differ only in granularity; a chunk counts as its best token, as in LeoAM §4.1.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::kv::policy::leoam::tree::TokenRange;
use crate::kv::policy::{LayerView, Policy, PolicySpec, Selection};

/// Heavy hitters and recent tokens.
#[derive(Debug, Clone)]
pub struct H2o {
    spec: PolicySpec,
    /// tokens that are selected together
    unit: usize,
    /// accumulated attention by layer and KV head, then token
    attention: Vec<Vec<f32>>,
}

impl Policy for H2o {
    /// All pages, in any tier.
    fn candidates(&self, view: &LayerView) -> Vec<u32> {
        (0..view.n_pages() as u32).collect()
    }

    /// Accumulates the attention of this step, and selects by the sum.
    fn select(&mut self, view: &LayerView) -> Selection {
        let free = self.spec.free_tokens(view.n_pages());
        let n_wanted = self.spec.n_wanted(view.layer, free.len());
        let unit = self.unit;
        let n_evaluations = view.n_tokens() / unit;
        let n_recent = n_wanted / 2 / unit * unit;
        let recent = TokenRange::new(free.end - n_recent, free.end);
        let rest = TokenRange::new(free.start, recent.start);
        let select_head = |kv_head| {
            let attention = self.accumulate(view, kv_head);
            let mut ranges = heaviest(attention, rest, unit, n_wanted - n_recent);
            ranges.push(recent);
            ranges
        };
        let ranges: Vec<Vec<TokenRange>> = (0..view.n_kv_head).map(select_head).collect();
        Selection::new(&self.spec, view, &ranges, n_evaluations * view.n_kv_head)
    }
}

impl H2o {
    /// Selects single tokens; without accumulated attention.
    pub fn by_token(spec: PolicySpec) -> H2o {
        H2o { spec, unit: 1, attention: Vec::new() }
    }

    /// Selects chunks of 64 tokens; without accumulated attention.
    pub fn by_chunk(spec: PolicySpec) -> H2o {
        H2o { unit: KV_PAGE_TOKENS, ..H2o::by_token(spec) }
    }

    /// Accumulated attention of every token, including this step.
    fn accumulate(&mut self, view: &LayerView, kv_head: usize) -> &[f32] {
        let idx = view.layer * view.n_kv_head + kv_head;
        if self.attention.len() <= idx {
            self.attention.resize(idx + 1, Vec::new());
        }
        let sums = &mut self.attention[idx];
        sums.resize(view.n_tokens(), 0.0);
        for (sum, weight) in sums.iter_mut().zip(attention_weights(view, kv_head)) {
            *sum += weight;
        }
        sums
    }
}

/// Softmax over the tokens of all pages; infinite for NaN.
fn attention_weights(view: &LayerView, kv_head: usize) -> Vec<f32> {
    let mut weights = Vec::with_capacity(view.n_tokens());
    for page in 0..view.n_pages() {
        match view.page_scores(kv_head, page) {
            Some(scores) => weights.extend_from_slice(scores),
            None => weights.extend([view.page_bounds(kv_head, page).upper(); KV_PAGE_TOKENS]),
        }
    }
    let best = weights.iter().copied().filter(|w| w.is_finite()).reduce(f32::max).unwrap_or(0.0);
    let mut total = 0.0;
    for weight in &mut weights {
        *weight = if weight.is_nan() { f32::INFINITY } else { (*weight - best).exp() };
        total += if weight.is_finite() { *weight } else { 0.0 };
    }
    if total > 0.0 {
        weights.iter_mut().for_each(|weight| *weight /= total);
    }
    weights
}

/// The heaviest units, until they have `n_wanted` tokens. The earlier unit wins a tie.
fn heaviest(attention: &[f32], within: TokenRange, unit: usize, n_wanted: usize) -> Vec<TokenRange> {
    let heaviest_of = |start: usize| {
        let unit = TokenRange::new(start, within.end.min(start + unit));
        let heaviest = attention[unit.start..unit.end].iter().copied().fold(f32::NEG_INFINITY, f32::max);
        (heaviest, unit)
    };
    let mut units: Vec<(f32, TokenRange)> = (within.start..within.end).step_by(unit).map(heaviest_of).collect();
    let n_units = n_wanted.div_ceil(unit);
    if n_units < units.len() {
        units.select_nth_unstable_by(n_units, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        units.truncate(n_units);
    }
    units.into_iter().map(|(_, unit)| unit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::policy::SelectionBudget;
    use crate::kv::policy::testing::Recorded;

    /// 22 pages, 20 of them free; low scores except for the given tokens.
    fn recorded(high: &[(usize, f32)]) -> Recorded {
        let mut scores = vec![-6.0; 22 * 64];
        high.iter().for_each(|(token, score)| scores[*token] = *score);
        Recorded::of(vec![scores])
    }

    fn has(selection: &Selection, token: usize) -> bool {
        let block = selection.blocks[0].iter().find(|selected| selected.block as usize == token / 16);
        block.is_some_and(|selected| selected.tokens >> (token % 16) & 1 == 1)
    }

    fn spec() -> PolicySpec {
        PolicySpec { amount: SelectionBudget::Rate(0.1), ..PolicySpec::default() }
    }

    #[test]
    fn h2o_selects_heavy_and_newest_tokens() {
        let selection = H2o::by_token(spec()).select(&recorded(&[(200, 0.0), (700, -1.0)]).view(4));
        // 128 of 1280 free tokens are selected: the 64 newest, and 64 heavy ones.
        assert!(has(&selection, 200) && has(&selection, 700) && !has(&selection, 701));
        assert!((20 * 64..21 * 64).all(|newest| has(&selection, newest)));
        assert_eq!(selection.n_tokens(), 128 + 128);
        assert_eq!(selection.n_evaluations, 22 * 64);
    }

    #[test]
    fn h2o_chunked_reads_whole_pages_and_evaluates_each_once() {
        let selection = H2o::by_chunk(spec()).select(&recorded(&[(200, 0.0), (700, -1.0)]).view(4));
        assert_eq!((selection.pages.as_slice(), selection.n_evaluations), ([0, 3, 20, 21].as_slice(), 22));
    }

    #[test]
    fn h2o_accumulates_attention_over_steps() {
        let mut policy = H2o::by_token(spec());
        policy.select(&recorded(&[(200, 0.0)]).view(4));
        let later = policy.select(&recorded(&[(700, 0.0)]).view(4));
        assert!(has(&later, 200) && has(&later, 700));
        let other_layer = policy.select(&recorded(&[(700, 0.0)]).view(5));
        assert!(!has(&other_layer, 200));
    }

    #[test]
    fn h2o_drops_truncated_tokens() {
        let mut policy = H2o::by_token(spec());
        policy.select(&recorded(&[(700, 0.0)]).view(4));
        let shorter = policy.select(&Recorded::random(0, 1, 5).view(4));
        assert!(shorter.blocks[0].iter().all(|selected| selected.block < 20));
        assert_eq!(policy.attention[4].len(), 5 * 64);
    }

    #[test]
    fn attention_of_a_step_sums_to_one_unless_scores_are_nan() {
        for (score, expected) in [(-6.0, 1.0), (1000.0, 1.0), (f32::NEG_INFINITY, 0.0), (f32::NAN, f32::INFINITY)] {
            let sum: f32 = attention_weights(&Recorded::of(vec![vec![score; 64]]).view(0), 0).iter().sum();
            assert!(sum == expected || (sum - expected).abs() < 1e-4, "{sum} of {score}");
        }
    }
}
