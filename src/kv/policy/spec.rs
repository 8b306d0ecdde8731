//! Policy configuration: kind, selection budget, sinks and recent pages.
//!
//! ```text
//! leoam, rate 0.1 ─► PolicySpec ─► token budget of a layer, in addition to the always-read tokens
//! ```
//! Rates are fractions of the tokens that are not always read. A rate of 0 leaves sinks and recent pages; a rate of 1
//! reads everything.
//!
//! Units: fractions in 0..=1, tokens, pages of 64.
//!
//! Source: LeoAM §6.1 (10 % of the KV, 50 % of the first two layers).

use std::ops::Range;

use crate::base::limits::KV_PAGE_TOKENS;
use crate::kv::policy::leoam::tree::TokenRange;
use crate::kv::policy::unique;

/// Default importance rate.
const RATE: f32 = 0.1;
/// Default importance rate of the first layers.
const FIRST_RATE: f32 = 0.5;

/// Policy kind. Its name and needs are in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// sinks and the newest tokens
    Window,
    /// accumulated attention of every token; needs all keys
    H2o,
    /// same as `h2o`, by chunk of 64
    H2oChunked,
    /// same as `h2o`, with the keys of the next layer loaded during this one
    Prefetch,
    /// abstract bounds and chunk tree
    #[serde(rename = "leoam")]
    LeoAm,
}

/// Budget for the tokens that are not always read.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SelectionBudget {
    /// fraction of the tokens
    Rate(f32),
    /// fixed number of tokens; the first layers read more, by the ratio of the default rates
    Tokens(usize),
    /// tokens estimated to hold this fraction of the attention mass, per KV head
    Mass {
        /// fraction of the attention mass
        mass: f32,
        /// minimum fraction of the tokens
        floor: f32,
    },
}

impl Default for SelectionBudget {
    /// The rate of LeoAM §6.1.
    fn default() -> SelectionBudget {
        SelectionBudget::Rate(RATE)
    }
}

/// Configuration of a policy.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct PolicySpec {
    /// policy kind
    pub kind: PolicyKind,
    /// budget of all layers
    pub amount: SelectionBudget,
    /// number of first layers, with a larger budget
    pub n_first_layers: usize,
    /// minimum fraction of the tokens in the first layers
    pub first_rate: f32,
    /// split chunks adaptively; otherwise evaluate every token whose score is available (LeoAM ablation)
    pub tree: bool,
    /// always-read pages at the beginning
    pub n_sink_pages: usize,
    /// always-read complete pages at the end
    pub n_recent_pages: usize,
    /// select even if reading everything would be faster
    #[serde(skip)]
    pub is_forced: bool,
}

impl Default for PolicySpec {
    /// The numbers of LeoAM §6.1.
    fn default() -> PolicySpec {
        PolicySpec {
            kind: PolicyKind::LeoAm,
            amount: SelectionBudget::default(),
            n_first_layers: 2,
            first_rate: FIRST_RATE,
            tree: true,
            n_sink_pages: 1,
            n_recent_pages: 1,
            is_forced: false,
        }
    }
}

impl PolicySpec {
    /// True for the first layers, which read more.
    pub fn is_first(&self, layer: usize) -> bool {
        layer < self.n_first_layers
    }

    /// Minimum number of tokens that a layer reads, of the `n_free` that are not always read.
    pub fn n_wanted(&self, layer: usize, n_free: usize) -> usize {
        let rate = match self.amount {
            SelectionBudget::Rate(rate) | SelectionBudget::Mass { floor: rate, .. } => rate,
            SelectionBudget::Tokens(n) => {
                let times = if self.is_first(layer) { (self.first_rate / RATE).max(1.0) } else { 1.0 };
                return ((f64::from(times) * n as f64).round() as usize).min(n_free);
            }
        };
        let rate = if self.is_first(layer) { rate.max(self.first_rate) } else { rate };
        let n_wanted = (f64::from(rate) * n_free as f64).round() as usize;
        // A positive rate must select at least one token.
        n_wanted.max(usize::from(rate > 0.0)).min(n_free)
    }

    /// Pages between sinks and recent pages, among which the policy selects.
    pub fn free_pages(&self, n_pages: usize) -> Range<usize> {
        let start = self.n_sink_pages.min(n_pages);
        start..n_pages.saturating_sub(self.n_recent_pages).max(start)
    }

    /// Sinks and recent pages, ascending: all except [`PolicySpec::free_pages`].
    pub fn always_pages(&self, n_pages: usize) -> impl Iterator<Item = u32> + use<> {
        let free = self.free_pages(n_pages);
        (0..free.start).chain(free.end..n_pages).map(|page| page as u32)
    }

    /// Pages to score: `candidates`, and the always-read pages, whose scores normalize the others. Ascending.
    pub fn to_score(&self, candidates: impl IntoIterator<Item = u32>, n_pages: usize) -> Vec<u32> {
        unique(candidates.into_iter().chain(self.always_pages(n_pages)).collect())
    }

    /// Tokens of [`PolicySpec::free_pages`].
    pub fn free_tokens(&self, n_pages: usize) -> TokenRange {
        let free = self.free_pages(n_pages);
        TokenRange::new(free.start * KV_PAGE_TOKENS, free.end * KV_PAGE_TOKENS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_selects_its_rate_and_more_in_the_first_layers() {
        let spec = PolicySpec::default();
        assert_eq!([0, 1, 2, 9].map(|layer| spec.n_wanted(layer, 1000)), [500, 500, 100, 100]);
        assert_eq!([0, 1, 3, 10].map(|n_free| spec.n_wanted(2, n_free)), [0, 1, 1, 1]);
        let fixed = PolicySpec { amount: SelectionBudget::Tokens(100), ..spec };
        assert_eq!([0, 1, 2, 9].map(|layer| fixed.n_wanted(layer, 10_000)), [500, 500, 100, 100]);
        assert_eq!([(0, 300), (2, 300), (2, 64), (2, 0)].map(|(layer, n_free)| fixed.n_wanted(layer, n_free)), [300, 100, 64, 0]);
        let of = |rate| PolicySpec { amount: SelectionBudget::Rate(rate), ..spec };
        assert_eq!((of(0.0).n_wanted(2, 1000), of(1.0).n_wanted(2, 1000), of(1.0).n_wanted(0, 1000)), (0, 1000, 1000));
    }

    #[test]
    fn free_pages_are_between_sinks_and_recent_pages() {
        let spec = PolicySpec { n_sink_pages: 2, n_recent_pages: 1, ..PolicySpec::default() };
        assert_eq!([0, 1, 2, 3, 4, 9].map(|n| spec.free_pages(n)), [0..0, 1..1, 2..2, 2..2, 2..3, 2..8]);
        assert_eq!(spec.free_tokens(4), TokenRange::new(128, 192));
        assert_eq!([1, 4].map(|n| spec.always_pages(n).collect::<Vec<_>>()), [vec![0], vec![0, 1, 3]]);
        assert_eq!(spec.to_score([2, 0], 4), [0, 1, 2, 3]);
    }
}
