//! Twin of `attention/score_pages` and `attention/score_groups`: what the keys of a page can make of a query at most and at
//! least.

use half::f16;

/// Bound of a page that may hold anything.
const UNKNOWN: f32 = 3.0e38;

/// Upper and lower bound of q · k for one query q `[D]` over the keys that an abstract `[2, D]` (minimum, maximum) stands for.
pub fn page_bounds(q: &[f32], minimum_maximum: &[f16]) -> [f32; 2] {
    if minimum_maximum.iter().any(|b| !b.is_finite()) {
        return [UNKNOWN, -UNKNOWN];
    }
    let (low, high) = minimum_maximum.split_at(q.len());
    let ends = q.iter().zip(low.iter().zip(high)).map(|(&q, (l, h))| [f64::from(q) * l.to_f64(), f64::from(q) * h.to_f64()]);
    let sums = ends.fold([0.0, 0.0], |[upper, lower], [a, b]| [upper + a.max(b), lower + a.min(b)]);
    sums.map(|v| v as f32)
}

/// Scores of each page for one KV head, from the bounds of each query head of its group over all pages: the most that any
/// head makes of it, against the highest upper bound of that head.
pub fn score_pages(bounds: &[Vec<[f32; 2]>]) -> Vec<[f32; 2]> {
    let n_pages = bounds.first().map_or(0, Vec::len);
    let highest = |head: &[[f32; 2]]| head.iter().map(|b| b[0]).filter(|&upper| upper < UNKNOWN).fold(-UNKNOWN, f32::max);
    let score = |page: usize| {
        let heads = bounds.iter().map(|head| match head[page] {
            [upper, lower] if upper < UNKNOWN => [upper - highest(head), lower - highest(head)],
            unknown => unknown,
        });
        heads.fold([f32::NEG_INFINITY; 2], |most, score| [most[0].max(score[0]), most[1].max(score[1])])
    };
    (0..n_pages).map(score).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halves(values: &[f32]) -> Vec<f16> {
        values.iter().map(|&v| f16::from_f32(v)).collect()
    }

    #[test]
    fn page_bounds_take_the_better_end_of_each_channel() {
        assert_eq!(page_bounds(&[2.0, -1.0], &halves(&[-1.0, 3.0, 4.0, 5.0])), [5.0, -7.0]);
        assert_eq!(page_bounds(&[2.0, -1.0], &halves(&[1.0, 3.0, 1.0, 3.0])), [-1.0, -1.0]);
        assert_eq!(page_bounds(&[0.0, 0.0], &halves(&[1.0, f32::NEG_INFINITY, 1.0, 3.0])), [UNKNOWN, -UNKNOWN]);
    }

    #[test]
    fn score_pages_counts_each_head_from_its_own_best_page() {
        let (small, large) = (vec![[1.0, 0.0], [0.5, -1.0]], vec![[100.0, 50.0], [200.0, 90.0]]);
        assert_eq!(score_pages(&[small, large]), [[0.0, -1.0], [0.0, -2.0]]);
        let unknown = vec![[UNKNOWN, -UNKNOWN], [-2.0, -3.0]];
        assert_eq!(score_pages(&[unknown]), [[UNKNOWN, -UNKNOWN], [0.0, -1.0]]);
    }
}
