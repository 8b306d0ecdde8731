//! The cheap baseline: sinks and as many of the newest tokens as the rate allows.
//!
//! ```text
//! rate ─► tokens wanted ─► that many right before the recent pages, for every KV head
//! ```
//! 1. It reads as many tokens as the other policies do, and looks at none of them first.
//!
//! Source: LeoAM has no such baseline; it is what StreamingLLM (arXiv 2309.17453) keeps, with the tokens a policy may read.

use crate::kv::policy::leoam::tree::TokenRange;
use crate::kv::policy::{LayerView, PolicySpec, Selection};

/// The newest tokens.
pub fn select(spec: &PolicySpec, view: &LayerView) -> Selection {
    let free = spec.free_tokens(view.n_pages());
    let n_wanted = spec.n_wanted(view.layer, free.len());
    let newest = vec![TokenRange::new(free.end - n_wanted, free.end)];
    Selection::new(spec, view, &vec![newest; view.n_kv_head], 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::policy::SelectedBlock;
    use crate::kv::policy::testing::Recorded;

    #[test]
    fn window_reads_sinks_and_the_newest_tokens_of_the_rate() {
        let recorded = Recorded::random(0, 1, 52);
        let selection = select(&PolicySpec::default(), &recorded.view(3));
        // 50 free pages of 64 tokens: 320 tokens, 20 blocks right before the recent page.
        let expected: Vec<SelectedBlock> = (0..4).chain(51 * 4 - 20..52 * 4).map(SelectedBlock::whole).collect();
        assert_eq!((selection.blocks[0].as_slice(), selection.n_evaluations), (expected.as_slice(), 0));
    }
}
