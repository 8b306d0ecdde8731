//! Reference of the kernels in `selection/`: candidate pages, keys of token weights, and the selected tokens.

/// Upper bound of an unbounded page.
const UNBOUNDED: f32 = 3.0e38;
/// Range and steps of keys.
const KEY_RANGE: f64 = 64.0;
const KEY_STEPS: f64 = 65536.0;
const MAX_KEY: u32 = (1 << 22) - 1;

/// Bounds of pages as log weights of a KV head: the highest of its query heads, each `[P]`, minus the total of that head.
pub fn page_weights(upper: &[&[f32]], totals: &[f32]) -> Vec<f32> {
    let n_pages = upper.first().map_or(0, |head| head.len());
    let weight = |page: usize| upper.iter().zip(totals).map(|(head, total)| head[page] - total).fold(f32::NEG_INFINITY, f32::max);
    (0..n_pages).map(weight).collect()
}

/// Highest bound of a query head, without unbounded pages.
pub fn highest_bound(upper: &[f32]) -> f32 {
    upper.iter().copied().filter(|upper| *upper < UNBOUNDED).fold(-3.4e38, f32::max)
}

/// Candidates among pages of these weights, ascending: as many as reach `least`, within `n_min..=n_max`; those with the highest
/// weights, of equal ones the earlier.
pub fn page_candidates(weights: &[f32], [n_min, n_max]: [usize; 2], least: Option<f32>) -> Vec<usize> {
    let n_reaching = least.map_or(weights.len(), |least| weights.iter().filter(|w| **w >= least).count());
    best(weights, n_reaching.clamp(n_min, n_max), |a, b| b.total_cmp(a))
}

/// Weights of the eligible pages: the `n_best` highest, and all from `least` on. Other weights become NaN with the sign bit, which
/// is below all numbers.
pub fn eligible(weights: &[f32], n_best: usize, least: f32) -> Vec<f32> {
    let mut sorted = weights.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let limit = n_best.checked_sub(1).and_then(|i| sorted.get(i.min(sorted.len() - 1))).copied().unwrap_or(f32::INFINITY);
    weights.iter().map(|weight| if *weight >= limit.min(least) { *weight } else { -f32::NAN }).collect()
}

/// Key of a token from the scores of the query heads of its group and their totals.
pub fn token_key(scores: &[f32], totals: &[f32]) -> u32 {
    let weights = scores.iter().zip(totals).map(|(score, total)| f64::from(*score) - f64::from(*total));
    if weights.clone().any(f64::is_nan) {
        return MAX_KEY;
    }
    let weight = weights.fold(f64::NEG_INFINITY, f64::max);
    (((weight + KEY_RANGE).clamp(0.0, KEY_RANGE) * KEY_STEPS) as u32).min(MAX_KEY)
}

/// The `n` tokens with the highest keys, ascending; of equal ones the earlier.
pub fn select_tokens(keys: &[u32], n: usize) -> Vec<usize> {
    best(keys, n, |a, b| b.cmp(a))
}

fn best<T>(items: &[T], n: usize, order: impl Fn(&T, &T) -> std::cmp::Ordering) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..items.len()).collect();
    indices.sort_by(|a, b| order(&items[*a], &items[*b]));
    indices.truncate(n);
    indices.sort_unstable();
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_as_many_as_reach_the_threshold_within_limits() {
        let weights = [0.0, -5.0, -1.0, -5.0, -2.0];
        assert_eq!(page_candidates(&weights, [1, 5], Some(-1.5)), [0, 2]);
        assert_eq!(page_candidates(&weights, [4, 5], Some(-1.5)), [0, 1, 2, 4], "of equal pages the earlier");
        assert_eq!(page_candidates(&weights, [0, 1], None), [0]);
    }

    #[test]
    fn pages_are_eligible_among_the_best_or_from_the_threshold_on() {
        let weights = [0.0, -5.0, -1.0, -6.0, -2.0];
        let of = |n_best, least| page_candidates(&eligible(&weights, n_best, least), [0, 5], Some(-9.0));
        assert_eq!(of(2, f32::INFINITY), [0, 2]);
        assert_eq!(of(1, -2.0), [0, 2, 4]);
        assert_eq!(of(5, f32::INFINITY), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn keys_have_the_order_of_weights() {
        assert_eq!(token_key(&[0.0, 9.0], &[0.0, 20.0]), MAX_KEY);
        assert_eq!(token_key(&[-1.0], &[0.0]), 63 * 65536);
        assert_eq!(token_key(&[-100.0], &[0.0]), 0);
        assert_eq!(token_key(&[f32::NAN, -100.0], &[0.0, 0.0]), MAX_KEY);
        assert_eq!(select_tokens(&[3, 7, 3, 1], 2), [0, 1]);
        assert_eq!(page_weights(&[&[1.0, 2.0], &[5.0, 0.0]], &[0.0, 4.0]), [1.0, 2.0]);
        assert_eq!(highest_bound(&[UNBOUNDED, 2.0]), 2.0);
    }
}
