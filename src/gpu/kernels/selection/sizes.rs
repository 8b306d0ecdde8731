//! Sizes of a selection: pages that are scored, and tokens that are selected.

use crate::base::limits::KV_PAGE_TOKENS;

/// Keys of a workgroup that counts or lists tokens.
const TILE_KEYS: usize = 2048;

/// Sizes of a selection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SelectionSizes {
    /// P
    pub n_pages: usize,
    /// always-read pages at the beginning
    pub n_sink: usize,
    /// always-read pages at the end
    pub n_recent: usize,
    /// least and most pages whose tokens are scored, besides the always-read ones
    pub n_candidates: [usize; 2],
    /// pages with the highest bounds that may be candidates whatever their bounds are; at least the fewest candidates
    pub n_best: usize,
    /// tokens that each KV head reads, besides those of the always-read pages; at most those of the fewest candidates
    pub n_wanted: usize,
    /// log weight from which a page is a candidate
    pub least: f32,
}

impl SelectionSizes {
    /// Always-read pages.
    pub fn n_always(&self) -> usize {
        (self.n_sink + self.n_recent).min(self.n_pages)
    }

    /// Most listed pages.
    pub fn n_listed(&self) -> usize {
        self.n_always() + self.n_candidates[1]
    }

    /// Tokens that each KV head reads.
    pub fn n_table(&self) -> usize {
        self.n_always() * KV_PAGE_TOKENS + self.n_wanted
    }

    /// Tiles of the listed tokens.
    pub(super) fn n_tiles(&self) -> usize {
        n_tiles(self.n_listed())
    }
}

/// Tiles of the tokens of `n_listed` pages.
pub(super) fn n_tiles(n_listed: usize) -> usize {
    (n_listed * KV_PAGE_TOKENS).div_ceil(TILE_KEYS)
}
