//! Histogram of fixed size: one bucket per power of two, so that recording a value is one addition.
//!
//! Bucket 0 holds 0; bucket `b` holds `2^(b-1) .. 2^b`. Quantiles are interpolated within a bucket, so the error is below a
//! factor of two.

use std::sync::atomic::{AtomicU64, Ordering};

const N_BUCKETS: usize = 65;

/// Counts per bucket at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; N_BUCKETS],
}

/// The live histogram.
#[derive(Debug)]
pub(super) struct AtomicHistogram([AtomicU64; N_BUCKETS]);

impl AtomicHistogram {
    pub fn add(&self, value: u64) {
        self.0[bucket(value)].fetch_add(1, Ordering::Relaxed);
    }

    pub fn load(&self) -> Histogram {
        Histogram { counts: std::array::from_fn(|b| self.0[b].load(Ordering::Relaxed)) }
    }
}

impl Default for AtomicHistogram {
    fn default() -> Self {
        AtomicHistogram(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: [0; N_BUCKETS] }
    }
}

impl Histogram {
    /// Number of values.
    pub fn n(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Difference from `earlier`.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        Histogram { counts: std::array::from_fn(|b| self.counts[b].saturating_sub(earlier.counts[b])) }
    }

    /// The `q`-quantile (0 to 1); None if the histogram is empty.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let n = self.n();
        let rank = ((q.clamp(0.0, 1.0) * n as f64).ceil() as u64).clamp(1, n.max(1));
        let mut before = 0;
        for (b, count) in self.counts.iter().enumerate() {
            if before + count >= rank {
                let (low, high) = bounds(b);
                let part = (rank - before) as f64 / *count as f64;
                // The widest buckets exceed the precision of f64.
                return Some(low.saturating_add(((high - low) as f64 * part) as u64).min(high));
            }
            before += count;
        }
        None
    }
}

fn bucket(value: u64) -> usize {
    (u64::BITS - value.leading_zeros()) as usize
}

/// Least and greatest value of a bucket.
fn bounds(bucket: usize) -> (u64, u64) {
    match bucket {
        0 => (0, 0),
        b => (1 << (b - 1), u64::MAX >> (u64::BITS as usize - b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let histogram = AtomicHistogram::default();
        values.iter().for_each(|v| histogram.add(*v));
        histogram.load()
    }

    #[test]
    fn bounds_enclose_the_values_of_their_bucket() {
        for value in [0, 1, 2, 3, 4, 1023, 1024, 1 << 40, u64::MAX] {
            let (low, high) = bounds(bucket(value));
            assert!(low <= value && value <= high, "{value}");
        }
    }

    #[test]
    fn quantile_of_known_values_is_within_their_bucket() {
        let mut values: Vec<u64> = (1..=99).map(|_| 1000).collect();
        values.push(1_000_000);
        let histogram = of(&values);
        assert_eq!(histogram.n(), 100);
        assert!((512..1024).contains(&histogram.quantile(0.5).unwrap()));
        assert!((512..1024).contains(&histogram.quantile(0.99).unwrap()));
        assert!((1 << 19..1 << 20).contains(&histogram.quantile(1.0).unwrap()));
        assert_eq!(of(&[]).quantile(0.5), None);
        assert_eq!(of(&[0, 0]).quantile(0.99), Some(0));
        assert_eq!(of(&[u64::MAX]).quantile(0.5), Some(u64::MAX));
    }

    #[test]
    fn difference_counts_only_what_came_later() {
        let earlier = of(&[5, 5]);
        assert_eq!(of(&[5, 5, 9]).since(&earlier), of(&[9]));
    }
}
