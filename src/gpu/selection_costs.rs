//! Selection costs: how long a device takes to read KV by attention, and to select tokens. Measured once per device.

use serde::{Deserialize, Serialize};

const MIB: f64 = (1 << 20) as f64;

/// A cost that grows with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinearCost {
    /// of none, nanoseconds
    pub fixed_ns: u64,
    /// of 1 MiB more, nanoseconds
    pub ns_per_mib: u64,
}

/// Costs of one layer of a decode step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelectionCosts {
    /// attention, by bytes of K and V
    pub read: LinearCost,
    /// selection without attention, by bytes of the scored keys
    pub select: LinearCost,
}

impl LinearCost {
    /// The cost that took these seconds for these bytes, `[less, more]`. None unless more took longer.
    pub fn of_two([(less, secs_less), (more, secs_more)]: [(u64, f64); 2]) -> Option<LinearCost> {
        let per_byte = (secs_more - secs_less) / more.checked_sub(less).filter(|n| *n > 0)? as f64;
        let fixed = (secs_less - per_byte * less as f64).max(0.0);
        let is_valid = per_byte > 0.0 && per_byte.is_finite() && fixed.is_finite();
        is_valid.then_some(LinearCost { fixed_ns: (fixed * 1e9) as u64, ns_per_mib: (per_byte * MIB * 1e9).ceil() as u64 })
    }

    /// Seconds for this many bytes.
    pub fn secs(&self, bytes: f64) -> f64 {
        (self.fixed_ns as f64 + self.ns_per_mib as f64 * bytes / MIB) * 1e-9
    }
}

impl SelectionCosts {
    /// For people.
    pub fn explanation(&self) -> String {
        let cost =
            |cost: &LinearCost| format!("{:.1} us and {:.1} us/MiB", cost.fixed_ns as f64 / 1e3, cost.ns_per_mib as f64 / 1e3);
        format!("a layer: reading K and V {}; selecting {} of scored keys", cost(&self.read), cost(&self.select))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_follows_two_measurements() {
        let cost = LinearCost::of_two([(1 << 20, 10e-6), (3 << 20, 20e-6)]).unwrap();
        assert_eq!(cost, LinearCost { fixed_ns: 5000, ns_per_mib: 5000 });
        assert!((cost.secs(3.0 * MIB) - 20e-6).abs() < 1e-9);
        for invalid in [[(1, 2.0), (2, 1.0)], [(1, 1.0), (1, 2.0)], [(1, 1.0), (2, f64::NAN)], [(2, 1.0), (1, 2.0)]] {
            assert_eq!(LinearCost::of_two(invalid), None);
        }
        assert_eq!(LinearCost::of_two([(1 << 20, 1e-6), (2 << 20, 4e-6)]).unwrap().fixed_ns, 0, "never negative");
    }
}
