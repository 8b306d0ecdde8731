//! Layer view: input of a policy for one layer in one decode step.
//!
//! ```text
//! page_bounds ─► bounds [G, P]     ─┐
//! residency, offload ─► tiers [P]   ┼─► LayerView
//! qk_scores ─► scores [64]         ─┘
//! ```
//! Invariant: a missing or NaN bound counts as unbounded.
//!
//! Shapes: G KV heads, P complete pages. Units: scores and bounds are log attention weights, the maximum over the query
//! heads of a group: `max (q·k - T)`, with T the log-sum-exp of all known scores of a query head in the step.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::kv::policy::leoam::tree::{Bounds, TokenRange};

/// Tokens of a page.
pub(super) fn page_tokens(page: usize) -> TokenRange {
    TokenRange::new(page * KV_PAGE_TOKENS, (page + 1) * KV_PAGE_TOKENS)
}

/// Tier of the nearest copy of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tier {
    /// GPU memory
    Vram,
    /// RAM
    Ram,
    /// disk
    Disk,
}

/// Known scores of single tokens.
pub trait TokenScores: Sync {
    /// Scores of the 64 tokens of a page for a KV head.
    fn page(&self, kv_head: usize, page: usize) -> Option<&[f32]>;
}

/// One layer in one decode step.
#[derive(Clone, Copy)]
pub struct LayerView<'a> {
    /// layer, from 0
    pub layer: usize,
    /// decode step of the answer, from 0
    pub step: usize,
    /// expected number of steps of the answer
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

    /// Number of tokens of all complete pages.
    pub fn n_tokens(&self) -> usize {
        self.n_pages() * KV_PAGE_TOKENS
    }

    /// Bounds of a page from its abstract.
    pub fn page_bounds(&self, kv_head: usize, page: usize) -> Bounds {
        let [upper, lower] = self.bounds.get(kv_head * self.n_pages() + page).copied().unwrap_or([f32::NAN; 2]);
        Bounds::outer(upper, lower)
    }

    /// Scores of the tokens of a page, if all are known.
    pub fn page_scores(&self, kv_head: usize, page: usize) -> Option<&'a [f32]> {
        self.scores?.page(kv_head, page).filter(|scores| scores.len() == KV_PAGE_TOKENS)
    }
}
