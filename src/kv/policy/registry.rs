//! Registry of policies. A new policy is a file with a [`Policy`], a [`PolicyKind`], and a row here.
//!
//! ```text
//! POLICIES: name, help, needs ─► command line, errors, engine
//!           new               ─► PolicySpec ─ check ─► Box<dyn Policy>
//! ```
//! Invariant: the rows are in the order of [`PolicyKind`], which is that of the command line.

use std::fmt;

use crate::kv::policy::h2o::H2o;
use crate::kv::policy::leoam::LeoAm;
use crate::kv::policy::window::Window;
use crate::kv::policy::{Policy, PolicyKind, PolicySpec, SelectionBudget};

/// One policy.
struct RegisteredPolicy {
    kind: PolicyKind,
    /// name on the command line and in JSON
    name: &'static str,
    /// help on the command line
    help: &'static str,
    /// paper and section
    source: &'static str,
    /// needs page abstracts
    reads_abstracts: bool,
    /// accepts [`SelectionBudget::Mass`]
    estimates_mass: bool,
    lookahead: Lookahead,
    /// makes the policy without history
    new: fn(PolicySpec) -> Box<dyn Policy>,
}

/// Lookahead: the way to find pages of the next layer before that layer has its query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookahead {
    /// not at all
    None,
    /// by position alone
    Position,
    /// with an estimated query
    EstimatedQuery,
    /// without a selection: the keys of all pages are transferred
    AllKeys,
}

/// All policies.
const POLICIES: &[RegisteredPolicy; 5] = &[
    RegisteredPolicy {
        kind: PolicyKind::Window,
        name: "window",
        help: "the first and the latest keys",
        source: "StreamingLLM §3.1",
        reads_abstracts: false,
        estimates_mass: false,
        lookahead: Lookahead::Position,
        new: |spec| Box::new(Window::new(spec)),
    },
    RegisteredPolicy {
        kind: PolicyKind::H2o,
        name: "h2o",
        help: "keys with the most attention so far, token by token",
        source: "H2O §4",
        reads_abstracts: false,
        estimates_mass: false,
        lookahead: Lookahead::None,
        new: |spec| Box::new(H2o::by_token(spec)),
    },
    RegisteredPolicy {
        kind: PolicyKind::H2oChunked,
        name: "h2o-chunked",
        help: "keys with the most attention so far, in chunks of 64",
        source: "LeoAM §6.1",
        reads_abstracts: false,
        estimates_mass: false,
        lookahead: Lookahead::None,
        new: |spec| Box::new(H2o::by_chunk(spec)),
    },
    RegisteredPolicy {
        kind: PolicyKind::Prefetch,
        name: "prefetch",
        help: "like h2o, fetched one layer ahead",
        source: "LeoAM §6.1",
        reads_abstracts: false,
        estimates_mass: false,
        lookahead: Lookahead::AllKeys,
        new: |spec| Box::new(H2o::by_token(spec)),
    },
    RegisteredPolicy {
        kind: PolicyKind::LeoAm,
        name: "leoam",
        help: "keys with the most attention for each token, found with abstracts and a tree of chunks (LeoAM)",
        source: "LeoAM §4",
        reads_abstracts: true,
        estimates_mass: true,
        lookahead: Lookahead::EstimatedQuery,
        new: |spec| Box::new(LeoAm::new(spec)),
    },
];

/// Invalid policy configuration.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// a fraction outside 0..=1
    #[error("the {name} is {got}, but it must be between 0 and 1")]
    Share {
        /// name of the number
        name: &'static str,
        /// value
        got: f32,
    },
    /// a mass budget for a policy without mass estimates
    #[error("{0} does not estimate attention mass; use {names} with a mass budget", names = mass_policies())]
    NoMass(PolicyKind),
}

/// Names of the policies that estimate attention mass.
fn mass_policies() -> String {
    let names: Vec<&str> = POLICIES.iter().filter(|policy| policy.estimates_mass).map(|policy| policy.name).collect();
    names.join(" or ")
}

impl PolicyKind {
    /// All kinds, in the order of the command line.
    pub const ALL: [PolicyKind; POLICIES.len()] = {
        let mut all = [PolicyKind::LeoAm; POLICIES.len()];
        let mut i = 0;
        while i < all.len() {
            all[i] = POLICIES[i].kind;
            assert!(all[i] as usize == i, "the rows are in the order of the kinds");
            i += 1;
        }
        all
    };

    fn row(self) -> &'static RegisteredPolicy {
        &POLICIES[self as usize]
    }

    /// Name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Help on the command line.
    pub fn help(self) -> &'static str {
        self.row().help
    }

    /// Paper and section of the policy.
    pub fn source(self) -> &'static str {
        self.row().source
    }

    /// True if it needs page abstracts.
    pub fn reads_abstracts(self) -> bool {
        self.row().reads_abstracts
    }

    /// True if it accepts [`SelectionBudget::Mass`].
    pub fn estimates_mass(self) -> bool {
        self.row().estimates_mass
    }

    /// Lookahead of the policy.
    pub fn lookahead(self) -> Lookahead {
        self.row().lookahead
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PolicySpec {
    /// The policy, without history.
    ///
    /// # Errors
    /// See [`PolicySpec::check`].
    pub fn policy(self) -> Result<Box<dyn Policy>, SpecError> {
        self.check()?;
        Ok((self.kind.row().new)(self))
    }

    /// # Errors
    /// The first number outside its range, or a mass budget for a policy without mass estimates.
    pub fn check(&self) -> Result<(), SpecError> {
        let share = |name, got: f32| if (0.0..=1.0).contains(&got) { Ok(()) } else { Err(SpecError::Share { name, got }) };
        share("rate of the first layers", self.first_rate)?;
        match self.amount {
            SelectionBudget::Rate(rate) => share("importance rate", rate),
            SelectionBudget::Tokens(_) => Ok(()),
            SelectionBudget::Mass { .. } if !self.kind.estimates_mass() => Err(SpecError::NoMass(self.kind)),
            SelectionBudget::Mass { mass, floor } => {
                share("attention mass", mass).and(share("minimum of --importance for --mass", floor))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_row_and_the_same_name_in_json() {
        for kind in PolicyKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.to_string());
        }
        // The error of serde lists every variant.
        let error = serde_json::from_str::<PolicyKind>("\"full\"").unwrap_err().to_string();
        for name in error.split('`').skip(3).step_by(2) {
            assert!(PolicyKind::ALL.iter().any(|kind| kind.name() == name), "{name} has no row");
        }
        assert_eq!(error.split('`').skip(3).step_by(2).count(), PolicyKind::ALL.len(), "{error}");
    }

    #[test]
    fn source_of_every_policy_is_in_the_index_of_papers() {
        for kind in PolicyKind::ALL {
            let paper = kind.source().split(" §").next().unwrap();
            assert!(include_str!("../../lib.rs").contains(&format!("| {paper} | §")), "{kind}: {}", kind.source());
        }
    }

    #[test]
    fn spec_rejects_invalid_fractions_and_a_mass_budget_for_baselines() {
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
        let error = PolicySpec { kind: PolicyKind::H2o, ..mass }.check().unwrap_err();
        assert_eq!(error, SpecError::NoMass(PolicyKind::H2o));
        assert_eq!(error.to_string(), "h2o does not estimate attention mass; use leoam with a mass budget");
    }
}
