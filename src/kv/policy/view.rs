//! What a policy sees of one layer in one decode step.
//!
//! ```text
//! score_pages ─► bounds [G, P] ─┐
//! residency, lower ─► tiers [P] ┼─► LayerView
//! token_scores ─► scores [64] ──┘
//! ```
//! 1. What is missing or not a number reads as "may be anything".
//!
//! Shapes: G KV heads, P complete pages. Units: scores and bounds are logarithms of attention weights, the highest of a group's
//! query heads: `max over query heads (q.k - T)`, with T the logarithm of all attention of a query head in a step that is known.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::kv::policy::leoam::tree::{Bounds, TokenRange};

/// Tokens of a page.
pub(super) fn page_tokens(page: usize) -> TokenRange {
    TokenRange::new(page * KV_PAGE_TOKENS, (page + 1) * KV_PAGE_TOKENS)
}

/// Where the nearest copy of a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tier {
    /// in the device's memory
    Vram,
    /// in the machine's memory
    Ram,
    /// on the disk
    Disk,
}

/// Scores of single tokens, as far as they are known.
pub trait TokenScores: Sync {
    /// Of the 64 tokens of a page for a KV head.
    fn page(&self, kv_head: usize, page: usize) -> Option<&[f32]>;
}

/// One layer in one decode step.
#[derive(Clone, Copy)]
pub struct LayerView<'a> {
    /// from 0
    pub layer: usize,
    /// decode step of the answer, from 0
    pub step: usize,
    /// steps that the answer is expected to take
    pub n_steps: usize,
    /// G
    pub n_kv_head: usize,
    /// `[P]`
    pub tiers: &'a [Tier],
    /// `[G, P]`: upper and lower bound of every page
    pub bounds: &'a [[f32; 2]],
    /// exact scores; none before any are computed
    pub scores: Option<&'a dyn TokenScores>,
}

impl<'a> LayerView<'a> {
    /// P
    pub fn n_pages(&self) -> usize {
        self.tiers.len()
    }

    /// Tokens of all complete pages.
    pub fn n_tokens(&self) -> usize {
        self.n_pages() * KV_PAGE_TOKENS
    }

    /// Bounds of a page by its abstract.
    pub fn page_bounds(&self, kv_head: usize, page: usize) -> Bounds {
        let [upper, lower] = self.bounds.get(kv_head * self.n_pages() + page).copied().unwrap_or([f32::NAN; 2]);
        Bounds::outer(upper, lower)
    }

    /// Scores of the tokens of a page, where all of them are known.
    pub fn page_scores(&self, kv_head: usize, page: usize) -> Option<&'a [f32]> {
        self.scores?.page(kv_head, page).filter(|scores| scores.len() == KV_PAGE_TOKENS)
    }
}
