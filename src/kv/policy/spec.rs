//! How much a policy reads: its kind and its numbers.
//!
//! ```text
//! "leoam", rate 0.1 ─► PolicySpec ─ check ─► tokens wanted of a layer, on top of what is always read
//! ```
//! 1. The share is one of the tokens that are not always read; a share of 0 leaves sinks and recent pages, of 1 leaves nothing
//!    out.
//!
//! Units: shares in 0..=1, tokens, pages of 64.
//!
//! Source: LeoAM, section 6.1: 10 % of the KV, 50 % of the first two layers.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::base::limits::KV_PAGE_TOKENS;
use crate::kv::policy::leoam::tree::TokenRange;

/// Importance rate.
const RATE: f32 = 0.1;
/// The same of the first layers.
const FIRST_RATE: f32 = 0.5;

/// Policies by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// bounds of abstracts and the tree
    #[serde(rename = "leoam")]
    LeoAm,
    /// accumulated attention of every token; all keys are loaded to know it
    H2o,
    /// the same by chunk of 64
    H2oChunked,
    /// as `h2o`, with the keys of the next layer loaded while this one computes
    Prefetch,
    /// sinks and the newest tokens
    Window,
}

/// A name that no policy has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no policy; there are leoam, h2o, h2o-chunked, prefetch and window")]
pub struct ParsePolicyError(pub String);

/// How much is read of what is not always read.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SelectionBudget {
    /// this share of the tokens
    Rate(f32),
    /// so many tokens, however long the context is; the first layers read as much more as they do of the paper's rates
    Tokens(usize),
    /// what is estimated to hold this share of the attention mass, KV head by KV head
    Mass {
        /// share of the attention mass
        mass: f32,
        /// and at least this share of the tokens
        floor: f32,
    },
}

impl Default for SelectionBudget {
    /// The paper's rate.
    fn default() -> SelectionBudget {
        SelectionBudget::Rate(RATE)
    }
}

/// A policy and its numbers.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct PolicySpec {
    /// which one
    pub kind: PolicyKind,
    /// in all layers
    pub amount: SelectionBudget,
    /// of which layers more is read
    pub n_first_layers: usize,
    /// share of the tokens of those layers, at least
    pub first_rate: f32,
    /// chunks are split where it pays; otherwise every token whose score can be had is evaluated (LeoAM's ablation)
    pub tree: bool,
    /// pages always read at the beginning
    pub n_sink_pages: usize,
    /// complete pages always read at the end
    pub n_recent_pages: usize,
}

/// What a spec cannot ask for.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// a share outside 0..=1
    #[error("the {name} is {got}, but it is a share: between 0 and 1")]
    Share {
        /// which
        name: &'static str,
        /// the number
        got: f32,
    },
    /// attention mass without estimates of it
    #[error("{0} reads a fixed share of the tokens; only leoam can be asked for attention mass")]
    NoMass(PolicyKind),
}

impl PolicyKind {
    /// Every one.
    pub const ALL: [PolicyKind; 5] =
        [PolicyKind::LeoAm, PolicyKind::H2o, PolicyKind::H2oChunked, PolicyKind::Prefetch, PolicyKind::Window];

    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            PolicyKind::LeoAm => "leoam",
            PolicyKind::H2o => "h2o",
            PolicyKind::H2oChunked => "h2o-chunked",
            PolicyKind::Prefetch => "prefetch",
            PolicyKind::Window => "window",
        }
    }

    /// It scores pages by their abstracts.
    pub const fn reads_abstracts(self) -> bool {
        matches!(self, PolicyKind::LeoAm)
    }

    /// It is worth asking one layer early, with an estimated query.
    pub const fn looks_ahead(self) -> bool {
        matches!(self, PolicyKind::LeoAm | PolicyKind::Prefetch)
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PolicyKind {
    type Err = ParsePolicyError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        PolicyKind::ALL.into_iter().find(|kind| kind.name() == s).ok_or_else(|| ParsePolicyError(s.to_owned()))
    }
}

impl Default for PolicySpec {
    /// The paper's numbers.
    fn default() -> PolicySpec {
        PolicySpec {
            kind: PolicyKind::LeoAm,
            amount: SelectionBudget::default(),
            n_first_layers: 2,
            first_rate: FIRST_RATE,
            tree: true,
            n_sink_pages: 1,
            n_recent_pages: 1,
        }
    }
}

impl PolicySpec {
    /// # Errors
    /// The first number that is no share, or attention mass asked of a policy that does not estimate it.
    pub fn check(&self) -> Result<(), SpecError> {
        let share = |name, got: f32| if (0.0..=1.0).contains(&got) { Ok(()) } else { Err(SpecError::Share { name, got }) };
        share("rate of the first layers", self.first_rate)?;
        match self.amount {
            SelectionBudget::Rate(rate) => share("importance rate", rate),
            SelectionBudget::Tokens(_) => Ok(()),
            SelectionBudget::Mass { .. } if self.kind != PolicyKind::LeoAm => Err(SpecError::NoMass(self.kind)),
            SelectionBudget::Mass { mass, floor } => {
                share("attention mass", mass).and(share("least that --importance asks for beside --mass", floor))
            }
        }
    }

    /// The layer is one of those of which more is read.
    pub fn is_first(&self, layer: usize) -> bool {
        layer < self.n_first_layers
    }

    /// Tokens that a layer reads at least, of the `n_free` that are not always read.
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
        // A rate above 0 that rounds to no token would be a rate of 0.
        n_wanted.max(usize::from(rate > 0.0)).min(n_free)
    }

    /// Pages between sinks and recent ones: the policy has a choice in these.
    pub fn free_pages(&self, n_pages: usize) -> Range<usize> {
        let start = self.n_sink_pages.min(n_pages);
        start..n_pages.saturating_sub(self.n_recent_pages).max(start)
    }

    /// Sinks and recent pages, ascending: all but [`PolicySpec::free_pages`].
    pub fn always_pages(&self, n_pages: usize) -> impl Iterator<Item = u32> + use<> {
        let free = self.free_pages(n_pages);
        (0..free.start).chain(free.end..n_pages).map(|page| page as u32)
    }

    /// Pages to score: `candidates`, and what is always read, whose scores tell what the others are weighed against. Ascending.
    pub fn to_score(&self, candidates: impl IntoIterator<Item = u32>, n_pages: usize) -> Vec<u32> {
        crate::kv::policy::unique(candidates.into_iter().chain(self.always_pages(n_pages)).collect())
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
    fn policy_kinds_are_parsed_as_they_print() {
        for kind in PolicyKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        assert!("full".parse::<PolicyKind>().unwrap_err().to_string().contains("leoam, h2o"));
    }

    #[test]
    fn spec_refuses_what_is_no_share_and_mass_of_a_baseline() {
        let spec = PolicySpec::default();
        assert_eq!(spec.check(), Ok(()));
        for amount in [
            SelectionBudget::Rate(-0.1),
            SelectionBudget::Rate(1.1),
            SelectionBudget::Rate(f32::NAN),
            SelectionBudget::Mass { mass: 2.0, floor: 0.1 },
        ] {
            assert!(matches!(PolicySpec { amount, ..spec }.check(), Err(SpecError::Share { .. })), "{amount:?}");
        }
        assert!(PolicySpec { first_rate: f32::INFINITY, ..spec }.check().is_err());
        let mass = PolicySpec { amount: SelectionBudget::Mass { mass: 0.9, floor: 0.05 }, ..spec };
        assert_eq!(mass.check(), Ok(()));
        let h2o = PolicySpec { kind: PolicyKind::H2o, ..mass };
        assert_eq!(h2o.check(), Err(SpecError::NoMass(PolicyKind::H2o)));
    }

    #[test]
    fn spec_wants_its_rate_and_more_of_the_first_layers() {
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
    fn free_pages_are_those_between_sinks_and_recent_ones() {
        let spec = PolicySpec { n_sink_pages: 2, n_recent_pages: 1, ..PolicySpec::default() };
        assert_eq!([0, 1, 2, 3, 4, 9].map(|n| spec.free_pages(n)), [0..0, 1..1, 2..2, 2..2, 2..3, 2..8]);
        assert_eq!(spec.free_tokens(4), TokenRange::new(128, 192));
        assert_eq!([1, 4].map(|n| spec.always_pages(n).collect::<Vec<_>>()), [vec![0], vec![0, 1, 3]]);
        assert_eq!(spec.to_score([2, 0], 4), [0, 1, 2, 3]);
    }
}
