//! KV selection policies: from page bounds and token scores to the blocks that each KV head reads in a decode step.
//!
//! ```text
//! LayerView: page bounds, tiers ─► candidates: pages whose tokens should be scored ─► GPU, or the CPU for pages in RAM
//!            and their scores   ─► select ─► Selection: blocks per KV head, the pages they are in
//! ```
//! 1. No I/O and no GPU types: plain data in, a selection out. So every policy can be replayed from a recording.
//! 2. Sinks and recent pages are in every selection. Tokens outside complete pages are not part of the decision.
//! 3. A page or token with a missing or NaN bound or score is never excluded for that reason.
//!
//! Owner thread: the engine. Shapes: G KV heads, P complete pages of 64 tokens. Units: tokens, blocks of 16, pages of 64.
//!
//! Limits: the importance of a token for a KV head is that for its best query head.
//!
//! Sources: LeoAM §4 ([`leoam`]), LeoAM §6.1 (baselines, [`h2o`]), StreamingLLM §3.1 ([`window`]).

pub mod access_frequency;
mod attention_mass;
pub mod fidelity;
pub mod h2o;
pub mod leoam;
mod registry;
pub mod scores;
mod selection;
mod selection_cost;
mod spec;
mod unique;
mod view;
pub mod window;

use crate::gpu::kernels::selection::SelectionSizes;
pub use attention_mass::log_sum_exp;
pub use registry::{Lookahead, SpecError};
pub use selection::{SelectedBlock, Selection};
pub use selection_cost::selection_pays;
pub use spec::{PolicyKind, PolicySpec, SelectionBudget};
pub use unique::unique;
pub use view::{LayerView, Tier, TokenScores};

/// A policy with its state for one context.
pub trait Policy: std::fmt::Debug + Send + Sync {
    /// Pages whose tokens should be scored before selection, ascending.
    fn candidates(&self, view: &LayerView) -> Vec<u32>;

    /// Unpredicted candidates: further pages to score if only the [`Policy::candidates`] of an estimated query were
    /// scored. Ascending, and few, because scoring them needs another wait for the GPU.
    fn unpredicted_candidates(&self, _view: &LayerView) -> Vec<u32> {
        Vec::new()
    }

    /// Offloaded pages worth scoring, ascending: those with the highest bounds, up to twice as many as are read, and
    /// all that may hold much attention. The CPU should score them in RAM; they are not worth a transfer.
    fn offloaded_candidates(&self, _view: &LayerView) -> Vec<u32> {
        Vec::new()
    }

    /// Pages that a layer will probably read, from bounds of an estimated query, without scores. Ascending. Empty if no
    /// prediction is possible.
    fn predict(&self, _view: &LayerView) -> Vec<u32> {
        Vec::new()
    }

    /// Sizes of the selection of a layer of `n_pages` if the GPU can select in place of [`Policy::select`], from bounds and scores
    /// alone ([`crate::gpu::kernels::selection`]). None if only the CPU can.
    fn device_sizes(&self, _layer: usize, _n_pages: usize) -> Option<SelectionSizes> {
        None
    }

    /// Selection of a layer and step. Call it once per layer and step, because the baselines accumulate attention.
    fn select(&mut self, view: &LayerView) -> Selection;
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kv::policy::testing::Recorded;

    const KINDS: [PolicyKind; N_KINDS] = PolicyKind::ALL;
    const N_KINDS: usize = PolicyKind::ALL.len();

    fn policy(kind: PolicyKind, rate: f32) -> Box<dyn Policy> {
        PolicySpec { kind, amount: SelectionBudget::Rate(rate), ..PolicySpec::default() }.policy().unwrap()
    }

    #[test]
    fn policies_read_everything_at_rate_one_and_only_sinks_and_recent_pages_at_zero() {
        let recorded = Recorded::random(7, 2, 12);
        for kind in KINDS {
            let all = policy(kind, 1.0).select(&recorded.view(5));
            let pages: Vec<u32> = (0..12).collect();
            assert_eq!(all.blocks, vec![SelectedBlock::of_pages(&pages); 2], "{kind}");
            assert_eq!(all.pages, pages, "{kind}");
            let least = policy(kind, 0.0).select(&recorded.view(5));
            assert_eq!(least.pages, [0, 11], "{kind}");
            assert_eq!(least.n_tokens(), 2 * 128, "{kind}");
        }
    }

    #[test]
    fn policies_accept_contexts_of_few_or_no_pages() {
        for kind in KINDS {
            for n_pages in 0..4 {
                let recorded = Recorded::random(1, 2, n_pages);
                let selection = policy(kind, 0.1).select(&recorded.view(5));
                assert_eq!(selection.blocks.len(), 2);
                assert_eq!(selection.pages.first().copied(), (n_pages > 0).then_some(0), "{kind}");
            }
        }
    }

    #[test]
    fn policies_read_half_of_the_first_two_layers() {
        let recorded = Recorded::random(3, 1, 42);
        for kind in KINDS {
            let n_tokens = |layer| policy(kind, 0.1).select(&recorded.view(layer)).n_tokens();
            assert!(n_tokens(0) >= 128 + 1280 && n_tokens(1) >= 128 + 1280, "{kind}");
            assert!((128 + 256..128 + 512).contains(&n_tokens(2)), "{kind}: {}", n_tokens(2));
        }
    }

    #[test]
    fn policies_read_tokens_with_nan_scores() {
        for kind in KINDS.into_iter().filter(|kind| kind.lookahead() != Lookahead::Position) {
            let mut recorded = Recorded::random(5, 2, 30);
            recorded.set_nan(1, 64 * 13 + 20);
            let selection = policy(kind, 0.1).select(&recorded.view(9));
            let block = selection.blocks[1].iter().find(|selected| selected.block == 4 * 13 + 1);
            assert!(block.is_some_and(|selected| selected.tokens >> 4 & 1 == 1), "{kind}");
        }
    }

    proptest! {
        #[test]
        fn selections_are_sorted_and_include_the_always_read_pages_and_the_budget(
            seed in 0u64..1000, n_kv_head in 1usize..4, n_pages in 0usize..24, rate in 0.0f32..1.0, layer in 0usize..4,
            kind_idx in 0..N_KINDS, n_exact in 0usize..24,
        ) {
            let mut recorded = Recorded::random(seed, n_kv_head, n_pages);
            recorded.move_to_disk_from(n_exact);
            let mut policy = policy(KINDS[kind_idx], rate);
            let spec = PolicySpec { kind: KINDS[kind_idx], amount: SelectionBudget::Rate(rate), ..PolicySpec::default() };
            let view = recorded.view(layer);
            let selection = policy.select(&view);
            let n_minimum = n_pages.min(2) * 64 + spec.n_wanted(layer, n_pages.saturating_sub(2) * 64);
            for blocks in &selection.blocks {
                prop_assert!(blocks.windows(2).all(|pair| pair[0].block < pair[1].block));
                prop_assert!(blocks.iter().all(|b| (b.block as usize) < n_pages * 4 && b.tokens != 0));
                let n_tokens: u32 = blocks.iter().map(|b| b.tokens.count_ones()).sum();
                prop_assert!(n_tokens as usize >= n_minimum, "{n_tokens} tokens for {n_minimum}");
                let is_in = |block: usize| blocks.contains(&SelectedBlock::whole(block as u32));
                prop_assert!((0..n_pages.min(1) * 4).all(is_in));
                prop_assert!((n_pages.saturating_sub(1) * 4..n_pages * 4).all(is_in));
            }
            prop_assert_eq!(&selection.pages, &unique(selection.blocks.iter().flatten().map(SelectedBlock::page).collect()));
            let candidates = policy.candidates(&view);
            prop_assert!(candidates.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
