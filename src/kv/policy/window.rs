//! Window policy, the cheapest baseline: sinks and the newest tokens of the budget.
//!
//! ```text
//! rate ─► token budget ─► that many tokens right before the recent pages, for every KV head
//! ```
//! Invariant: it reads as many tokens as the other policies, but scores none of them.
//!
//! Source: StreamingLLM (arXiv 2309.17453), with the token budget of the other policies; LeoAM has no such baseline.

use crate::kv::policy::leoam::tree::TokenRange;
use crate::kv::policy::{LayerView, Policy, PolicySpec, Selection};

/// The newest tokens.
#[derive(Debug, Clone)]
pub struct Window {
    spec: PolicySpec,
}

impl Window {
    /// The policy, which has no history.
    pub fn new(spec: PolicySpec) -> Window {
        Window { spec }
    }

    fn newest(&self, view: &LayerView) -> Selection {
        let free = self.spec.free_tokens(view.n_pages());
        let n_wanted = self.spec.n_wanted(view.layer, free.len());
        let newest = vec![TokenRange::new(free.end - n_wanted, free.end)];
        Selection::new(&self.spec, view, &vec![newest; view.n_kv_head], 0)
    }
}

impl Policy for Window {
    /// None: it needs no scores.
    fn candidates(&self, _view: &LayerView) -> Vec<u32> {
        Vec::new()
    }

    fn predict(&self, view: &LayerView) -> Vec<u32> {
        self.newest(view).pages
    }

    fn select(&mut self, view: &LayerView) -> Selection {
        self.newest(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::policy::SelectedBlock;
    use crate::kv::policy::testing::Recorded;

    #[test]
    fn window_reads_sinks_and_the_newest_tokens_of_the_rate() {
        let recorded = Recorded::random(0, 1, 52);
        let selection = Window::new(PolicySpec::default()).select(&recorded.view(3));
        // 50 free pages of 64 tokens: 320 tokens, 20 blocks right before the recent page.
        let expected: Vec<SelectedBlock> = (0..4).chain(51 * 4 - 20..52 * 4).map(SelectedBlock::whole).collect();
        assert_eq!((selection.blocks[0].as_slice(), selection.n_evaluations), (expected.as_slice(), 0));
    }
}
