//! Which tokens a decode step reads: bounds and scores of pages in, blocks of every KV head out.
//!
//! ```text
//! LayerView: page bounds, tiers ─► candidates: pages whose tokens should be scored ─► the device scores them, in RAM the processor
//!            and their scores   ─► select ─► Selection: blocks per KV head, the pages they are in
//! ```
//! 1. No I/O and no GPU type: plain data in, a selection out, so that every policy can be replayed from what was recorded.
//! 2. Sinks and recent pages are in every selection; tokens that are in no complete page yet are not asked about.
//! 3. Nothing that cannot be told (a bound or a score that is not a number, or is not there) is left out for that.
//!
//! Owner thread: the engine. Shapes: G KV heads, P complete pages of 64 tokens. Units: tokens, blocks of 16, pages of 64.
//!
//! Limits: importance of a token for a KV head is that of its best query head.
//!
//! Source: LeoAM, sections 4 (ours in [`leoam`]) and 6.1 (the baselines, in [`h2o`] and [`window`]).

pub mod access_frequency;
mod attention_mass;
pub mod fidelity;
pub mod h2o;
pub mod leoam;
pub mod retention;
pub mod scores;
mod selection;
mod spec;
mod view;
pub mod window;

pub use attention_mass::log_sum_exp;
pub use selection::{SelectedBlock, Selection, unique};
pub use spec::{ParsePolicyError, PolicyKind, PolicySpec, SelectionBudget, SpecError};
pub use view::{LayerView, Tier, TokenScores};

/// A policy at work on one context.
#[derive(Debug, Clone)]
pub enum Policy {
    /// the paper's
    LeoAm(leoam::LeoAm),
    /// heavy hitters by token or by chunk, for this layer or one ahead
    H2o(h2o::H2o),
    /// sinks and the newest tokens
    Window(PolicySpec),
}

impl Policy {
    /// A policy that has seen nothing yet.
    ///
    /// # Errors
    /// Where the spec asks for what cannot be.
    pub fn new(spec: PolicySpec) -> Result<Policy, SpecError> {
        spec.check()?;
        Ok(match spec.kind {
            PolicyKind::LeoAm => Policy::LeoAm(leoam::LeoAm::new(spec)),
            PolicyKind::H2o | PolicyKind::H2oChunked | PolicyKind::Prefetch => Policy::H2o(h2o::H2o::new(spec)),
            PolicyKind::Window => Policy::Window(spec),
        })
    }

    /// Pages whose token scores it wants before it selects, ascending: LeoAM of those in VRAM, the H2O kinds of all, wherever
    /// they are.
    pub fn candidates(&self, view: &LayerView) -> Vec<u32> {
        match self {
            Policy::LeoAm(policy) => policy.candidates(view),
            Policy::H2o(_) => (0..view.n_pages() as u32).collect(),
            Policy::Window(_) => Vec::new(),
        }
    }

    /// Pages whose token scores it wants as well where only those of an estimate's [`Policy::candidates`] are known, ascending: few,
    /// since the device has to be waited for once more.
    pub fn surprises(&self, view: &LayerView) -> Vec<u32> {
        match self {
            Policy::LeoAm(policy) => policy.surprises(view),
            Policy::H2o(_) | Policy::Window(_) => Vec::new(),
        }
    }

    /// Pages outside of VRAM whose token scores would help, ascending: those that bounds put first, up to twice as many as are
    /// read, and all that may hold much. Their keys are worth scoring where they lie, not worth bringing.
    pub fn candidates_below(&self, view: &LayerView) -> Vec<u32> {
        match self {
            Policy::LeoAm(policy) => policy.candidates_below(view),
            Policy::H2o(_) | Policy::Window(_) => Vec::new(),
        }
    }

    /// Pages that a layer will probably read, by bounds of an estimated query and without any scores, ascending. Learns nothing.
    /// None where that is not known before the layer's own query is.
    pub fn expect(&self, view: &LayerView) -> Vec<u32> {
        match self {
            Policy::LeoAm(policy) => policy.expect(view),
            Policy::H2o(_) => Vec::new(),
            Policy::Window(spec) => window::select(spec, view).pages,
        }
    }

    /// What attention of this layer and step reads. To be asked once per layer and step, since the baselines sum up what they see.
    pub fn select(&mut self, view: &LayerView) -> Selection {
        match self {
            Policy::LeoAm(policy) => policy.select(view),
            Policy::H2o(policy) => policy.select(view),
            Policy::Window(spec) => window::select(spec, view),
        }
    }
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kv::policy::testing::Recorded;

    const KINDS: [PolicyKind; 5] = PolicyKind::ALL;

    fn policy(kind: PolicyKind, rate: f32) -> Policy {
        Policy::new(PolicySpec { kind, amount: SelectionBudget::Rate(rate), ..PolicySpec::default() }).unwrap()
    }

    #[test]
    fn policies_of_rate_one_read_everything_and_of_rate_zero_what_is_always_read() {
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
    fn policies_bear_contexts_of_no_page_and_of_few() {
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
    fn policies_read_tokens_that_are_no_numbers() {
        for kind in KINDS.into_iter().filter(|kind| *kind != PolicyKind::Window) {
            let mut recorded = Recorded::random(5, 2, 30);
            recorded.spoil(1, 64 * 13 + 20);
            let selection = policy(kind, 0.1).select(&recorded.view(9));
            let block = selection.blocks[1].iter().find(|chosen| chosen.block == 4 * 13 + 1);
            assert!(block.is_some_and(|chosen| chosen.tokens >> 4 & 1 == 1), "{kind}");
        }
    }

    proptest! {
        #[test]
        fn selections_are_sorted_and_hold_what_is_always_read_and_enough(
            seed in 0u64..1000, n_kv_head in 1usize..4, n_pages in 0usize..24, rate in 0.0f32..1.0, layer in 0usize..4,
            kind_idx in 0usize..5, n_exact in 0usize..24,
        ) {
            let mut recorded = Recorded::random(seed, n_kv_head, n_pages);
            recorded.forget_scores_from(n_exact);
            let mut policy = policy(KINDS[kind_idx], rate);
            let spec = PolicySpec { kind: KINDS[kind_idx], amount: SelectionBudget::Rate(rate), ..PolicySpec::default() };
            let view = recorded.view(layer);
            let selection = policy.select(&view);
            let n_least = n_pages.min(2) * 64 + spec.n_wanted(layer, n_pages.saturating_sub(2) * 64);
            for blocks in &selection.blocks {
                prop_assert!(blocks.windows(2).all(|pair| pair[0].block < pair[1].block));
                prop_assert!(blocks.iter().all(|b| (b.block as usize) < n_pages * 4 && b.tokens != 0));
                let n_tokens: u32 = blocks.iter().map(|b| b.tokens.count_ones()).sum();
                prop_assert!(n_tokens as usize >= n_least, "{n_tokens} tokens for {n_least}");
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
