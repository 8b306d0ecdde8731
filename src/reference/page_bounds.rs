//! Reference of `kv/page_bounds`: upper and lower bound of q · k over the keys of a page.

use half::f16;

/// Bound of an unbounded page.
const UNBOUNDED: f32 = 3.0e38;

/// Upper and lower bound of q · k for one query q `[D]` over all keys within an abstract `[2, D]` (minimum, maximum).
pub fn page_bounds(q: &[f32], minimum_maximum: &[f16]) -> [f32; 2] {
    if minimum_maximum.iter().any(|b| !b.is_finite()) {
        return [UNBOUNDED, -UNBOUNDED];
    }
    let (low, high) = minimum_maximum.split_at(q.len());
    let ends = q.iter().zip(low.iter().zip(high)).map(|(&q, (l, h))| [f64::from(q) * l.to_f64(), f64::from(q) * h.to_f64()]);
    let sums = ends.fold([0.0, 0.0], |[upper, lower], [a, b]| [upper + a.max(b), lower + a.min(b)]);
    sums.map(|v| v as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halves(values: &[f32]) -> Vec<f16> {
        values.iter().map(|&v| f16::from_f32(v)).collect()
    }

    #[test]
    fn page_bounds_use_the_matching_end_of_each_channel() {
        assert_eq!(page_bounds(&[2.0, -1.0], &halves(&[-1.0, 3.0, 4.0, 5.0])), [5.0, -7.0]);
        assert_eq!(page_bounds(&[2.0, -1.0], &halves(&[1.0, 3.0, 1.0, 3.0])), [-1.0, -1.0]);
        assert_eq!(page_bounds(&[0.0, 0.0], &halves(&[1.0, f32::NEG_INFINITY, 1.0, 3.0])), [UNBOUNDED, -UNBOUNDED]);
    }
}
