//! What a policy gives: the blocks that attention reads, and the pages they are in.
//!
//! ```text
//! token ranges per KV head + what is always read ─► whole blocks of 16 per KV head ─► union: pages of 64
//! ```
//! 1. Blocks and pages are ascending and unique. 2. A block is in as soon as one of its tokens is.
//!
//! Units: blocks of 16 tokens and pages of 64, counted from the beginning of the context.

use super::{LayerView, SelectiveSpec};
use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::kv::tree::TokenRange;

/// What attention reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// blocks of every KV head
    pub blocks: Vec<Vec<u32>>,
    /// pages of all KV heads
    pub pages: Vec<u32>,
    /// ranges of tokens that were scored to know, of all KV heads
    pub n_evaluations: usize,
}

impl Selection {
    /// The ranges of every KV head, in any order, and what is always read.
    pub fn new(spec: &SelectiveSpec, view: &LayerView, ranges: &[Vec<TokenRange>], n_evaluations: usize) -> Selection {
        let free = spec.free_tokens(view.n_pages());
        let always = [TokenRange::new(0, free.start), TokenRange::new(free.end, view.n_tokens())];
        let blocks: Vec<Vec<u32>> = ranges.iter().map(|ranges| blocks_of(ranges.iter().chain(&always))).collect();
        let pages = unique(blocks.iter().flatten().map(|block| block / (KV_PAGE_TOKENS / KV_BLOCK_TOKENS) as u32).collect());
        Selection { blocks, pages, n_evaluations }
    }

    /// Tokens that attention reads, of all KV heads.
    pub fn n_tokens(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum::<usize>() * KV_BLOCK_TOKENS
    }
}

fn blocks_of<'a>(ranges: impl Iterator<Item = &'a TokenRange>) -> Vec<u32> {
    unique(ranges.flat_map(|r| (r.start / KV_BLOCK_TOKENS) as u32..r.end.div_ceil(KV_BLOCK_TOKENS) as u32).collect())
}

fn unique(mut items: Vec<u32>) -> Vec<u32> {
    items.sort_unstable();
    items.dedup();
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::policy::testing::Recorded;

    #[test]
    fn selection_holds_whole_blocks_and_what_is_always_read() {
        let recorded = Recorded::random(0, 2, 5);
        let ranges = [vec![TokenRange::new(150, 152), TokenRange::new(100, 130)], vec![]];
        let selection = Selection::new(&SelectiveSpec::default(), &recorded.view(0), &ranges, 7);
        assert_eq!(selection.blocks[0], [0, 1, 2, 3, 6, 7, 8, 9, 16, 17, 18, 19]);
        assert_eq!(selection.blocks[1], [0, 1, 2, 3, 16, 17, 18, 19]);
        assert_eq!((selection.pages.as_slice(), selection.n_evaluations), ([0, 1, 2, 4].as_slice(), 7));
        assert_eq!(selection.n_tokens(), 20 * 16);
    }
}
