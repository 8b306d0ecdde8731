//! Selection: the tokens that attention reads, by block, and their pages.
//!
//! ```text
//! token ranges per KV head + always-read tokens ─► tokens of blocks of 16 per KV head ─► union: pages of 64
//! ```
//! 1. Blocks and pages are ascending and unique. 2. A block is included if any of its tokens is; a bitmask has the
//!    tokens.
//!
//! Units: blocks of 16 tokens and pages of 64, counted from the beginning of the context.

use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::kv::policy::leoam::tree::TokenRange;
use crate::kv::policy::{LayerView, PolicySpec, unique};

/// Tokens of one block that a KV head reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectedBlock {
    /// index from the beginning of the context
    pub block: u32,
    /// bitmask of its tokens, not zero
    pub tokens: u16,
}

/// Blocks and pages that attention reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// blocks by KV head
    pub blocks: Vec<Vec<SelectedBlock>>,
    /// pages of all KV heads
    pub pages: Vec<u32>,
    /// ranges evaluated to find them, over all KV heads
    pub n_evaluations: usize,
}

impl SelectedBlock {
    /// A block with all its tokens.
    #[cfg(test)]
    pub fn whole(block: u32) -> SelectedBlock {
        SelectedBlock { block, tokens: u16::MAX }
    }

    /// Page of the block.
    pub fn page(&self) -> u32 {
        self.block / (KV_PAGE_TOKENS / KV_BLOCK_TOKENS) as u32
    }

    /// All blocks of these pages.
    #[cfg(test)]
    pub fn of_pages(pages: &[u32]) -> Vec<SelectedBlock> {
        let n_blocks = (KV_PAGE_TOKENS / KV_BLOCK_TOKENS) as u32;
        pages.iter().flat_map(|page| page * n_blocks..(page + 1) * n_blocks).map(SelectedBlock::whole).collect()
    }
}

impl Selection {
    /// Combines the ranges of every KV head, in any order, with the always-read tokens.
    pub fn new(spec: &PolicySpec, view: &LayerView, ranges: &[Vec<TokenRange>], n_evaluations: usize) -> Selection {
        let free = spec.free_tokens(view.n_pages());
        let always = [TokenRange::new(0, free.start), TokenRange::new(free.end, view.n_tokens())];
        let blocks: Vec<Vec<SelectedBlock>> = ranges.iter().map(|ranges| blocks_of(ranges.iter().chain(&always))).collect();
        let pages = unique(blocks.iter().flatten().map(SelectedBlock::page).collect());
        Selection { blocks, pages, n_evaluations }
    }

    /// Tokens that attention reads, over all KV heads.
    pub fn n_tokens(&self) -> usize {
        self.blocks.iter().flatten().map(|block| block.tokens.count_ones() as usize).sum()
    }
}

fn blocks_of<'a>(ranges: impl Iterator<Item = &'a TokenRange>) -> Vec<SelectedBlock> {
    let mut blocks: Vec<SelectedBlock> = ranges.flat_map(blocks_of_range).collect();
    blocks.sort_unstable_by_key(|selected| selected.block);
    blocks.dedup_by(|next, selected| {
        let is_same_block = next.block == selected.block;
        if is_same_block {
            selected.tokens |= next.tokens;
        }
        is_same_block
    });
    blocks
}

fn blocks_of_range(range: &TokenRange) -> impl Iterator<Item = SelectedBlock> + use<> {
    let TokenRange { start, end } = *range;
    (start / KV_BLOCK_TOKENS..end.div_ceil(KV_BLOCK_TOKENS)).map(move |block| {
        let first = block * KV_BLOCK_TOKENS;
        let mask_below = |token: usize| (1u32 << (token.max(first) - first).min(KV_BLOCK_TOKENS)) - 1;
        SelectedBlock { block: block as u32, tokens: (mask_below(end) & !mask_below(start)) as u16 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::policy::testing::Recorded;

    #[test]
    fn selection_has_the_given_tokens_and_the_always_read_pages() {
        let recorded = Recorded::random(0, 2, 5);
        let ranges = [vec![TokenRange::new(150, 152), TokenRange::new(100, 130), TokenRange::new(159, 160)], vec![]];
        let selection = Selection::new(&PolicySpec::default(), &recorded.view(0), &ranges, 7);
        let block_of = |block, tokens| SelectedBlock { block, tokens };
        let selected = [block_of(6, 0xfff0), block_of(7, 0xffff), block_of(8, 0b11), block_of(9, 0x80c0)];
        assert_eq!(
            selection.blocks[0],
            [SelectedBlock::of_pages(&[0]), selected.to_vec(), SelectedBlock::of_pages(&[4])].concat()
        );
        assert_eq!(selection.blocks[1], SelectedBlock::of_pages(&[0, 4]));
        assert_eq!((selection.pages.as_slice(), selection.n_evaluations), ([0, 1, 2, 4].as_slice(), 7));
        assert_eq!(selection.n_tokens(), 2 * 128 + 33);
    }
}
