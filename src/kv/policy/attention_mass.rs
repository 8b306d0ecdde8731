//! Attention mass budget: number of tokens that hold a fraction of the attention mass.
//!
//! ```text
//! chunks: bound, log mass, tokens ─► best first ─► until they and the always-read tokens hold the fraction ─► tokens
//! ```
//! Invariant: an unbounded chunk is always included, but adds no mass.
//!
//! Units: natural logarithms of unnormalized attention mass, on the scale of the scores.
//!
//! Limits: if the mass of a chunk is only known by a bound, the result is an estimate, not a guarantee.
//!
//! Source: top-p, over chunks instead of tokens; LeoAM has only a fixed rate.

use crate::kv::policy::leoam::tree::Bounds;

/// Number of partial sums, which compilers vectorize.
const N_LANES: usize = 16;

/// Mass of a chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// bound that orders the chunks
    pub upper: f32,
    /// logarithm of its mass
    pub log_mass: f32,
    /// number of tokens
    pub n_tokens: usize,
}

impl Share {
    /// A chunk with known scores.
    pub fn of_scores(scores: &[f32]) -> Share {
        Share { upper: Bounds::of_scores(scores).upper(), log_mass: log_mass(scores), n_tokens: scores.len() }
    }

    /// A chunk with a bound only.
    pub fn of_bound(upper: f32, n_tokens: usize) -> Share {
        Share { upper, log_mass: upper, n_tokens }
    }
}

/// Logarithm of the mass of tokens with these scores. Infinite if one score is NaN or infinite.
pub fn log_mass(scores: &[f32]) -> f32 {
    if scores.iter().any(|score| score.is_nan() || *score == f32::INFINITY) { f32::INFINITY } else { log_sum_exp(scores) }
}

/// Log-sum-exp of `scores` to 1e-4, ignoring infinite and NaN scores.
pub fn log_sum_exp(scores: &[f32]) -> f32 {
    let finite = |best: f32, score: f32| if score < f32::INFINITY && score > best { score } else { best };
    let best = in_lanes(scores, f32::NEG_INFINITY, finite).into_iter().fold(f32::NEG_INFINITY, f32::max);
    if best == f32::NEG_INFINITY {
        return best;
    }
    let add = |sum: f32, score: f32| sum + if score < f32::INFINITY { fast_exp(score - best) } else { 0.0 };
    best + in_lanes(scores, 0.0, add).into_iter().sum::<f32>().ln()
}

/// Folds every [`N_LANES`]th score into one of as many independent results.
fn in_lanes(scores: &[f32], first: f32, fold: impl Fn(f32, f32) -> f32) -> [f32; N_LANES] {
    let mut lanes = [first; N_LANES];
    let (whole, rest) = scores.as_chunks::<N_LANES>();
    for some in whole.iter().map(<[f32; N_LANES]>::as_slice).chain([rest]) {
        lanes.iter_mut().zip(some).for_each(|(lane, score)| *lane = fold(*lane, *score));
    }
    lanes
}

/// `exp(x)` for x up to 0, with a relative error of 1e-4. Branchless, so that loops vectorize: otherwise selection
/// would spend most of its time in `exp`.
fn fast_exp(x: f32) -> f32 {
    // Adding this to a small number puts the nearest integer into the lowest bits.
    const TO_INTEGER: f32 = 12_582_912.0;
    let exponent = (x * std::f32::consts::LOG2_E).max(-126.0);
    let rounded = exponent + TO_INTEGER;
    let f = exponent - (rounded - TO_INTEGER);
    let power = f32::from_bits(rounded.to_bits().wrapping_sub(TO_INTEGER.to_bits()).wrapping_add(127) << 23);
    power * (1.0 + f * (std::f32::consts::LN_2 + f * (0.240_226_5 + f * (0.055_504_1 + f * 0.009_618_1))))
}

/// Tokens of the best chunks that, together with the always-read tokens, hold the fraction `mass` of the total.
/// `always` has the known log masses of the always-read pages.
pub fn tokens_of_mass(mut shares: Vec<Share>, always: &[f32], mass: f32) -> usize {
    let logs = || shares.iter().map(|share| share.log_mass).chain(always.iter().copied());
    let max_log = logs().filter(|log| log.is_finite()).fold(f32::NEG_INFINITY, f32::max);
    let relative_mass = |log: f32| if log.is_finite() { f64::from(log - max_log).exp() } else { 0.0 };
    let total: f64 = logs().map(relative_mass).sum();
    let mut selected_mass: f64 = always.iter().copied().map(relative_mass).sum();
    let target_mass = f64::from(mass) * total;
    shares.sort_unstable_by(|a, b| b.upper.total_cmp(&a.upper));
    let mut n_tokens = 0;
    for share in shares {
        if selected_mass >= target_mass && share.upper < f32::INFINITY {
            break;
        }
        selected_mass += relative_mass(share.log_mass);
        n_tokens += share.n_tokens;
    }
    n_tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(mass: f32) -> Share {
        Share::of_bound(mass.ln(), 64)
    }

    #[test]
    fn tokens_of_mass_are_those_of_the_best_chunks() {
        let shares: Vec<Share> = [0.1, 0.4, 0.2, 0.3].map(share).to_vec();
        for (mass, n_chunks) in [(0.0, 0), (0.35, 1), (0.45, 2), (0.69, 2), (0.85, 3), (0.95, 4), (1.0, 4)] {
            assert_eq!(tokens_of_mass(shares.clone(), &[], mass), 64 * n_chunks, "{mass}");
        }
    }

    #[test]
    fn tokens_of_mass_count_what_is_always_read() {
        let shares: Vec<Share> = [0.1, 0.4].map(share).to_vec();
        assert_eq!(tokens_of_mass(shares.clone(), &[9.5f32.ln()], 0.9), 0);
        assert_eq!(tokens_of_mass(shares, &[0.5f32.ln()], 0.9), 64);
        assert_eq!(tokens_of_mass(Vec::new(), &[], 0.9), 0);
    }

    #[test]
    fn tokens_of_mass_include_unbounded_chunks() {
        let unbounded = Share::of_bound(f32::INFINITY, 64);
        let shares = vec![share(0.6), unbounded, share(0.4)];
        assert_eq!(tokens_of_mass(shares, &[], 0.5), 128);
        assert_eq!(tokens_of_mass(vec![unbounded; 3], &[], 0.0), 192);
    }

    #[test]
    fn log_mass_is_the_logarithm_of_the_sum_of_exponentials() {
        assert!((log_mass(&[0.0; 64]) - 64f32.ln()).abs() < 1e-5);
        assert!((log_mass(&[1000.0, 1000.0]) - (1000.0 + 2f32.ln())).abs() < 1e-3);
        assert_eq!(log_mass(&[0.0, f32::NAN]), f32::INFINITY);
        assert_eq!((log_mass(&[]), log_mass(&[f32::NEG_INFINITY])), (f32::NEG_INFINITY, f32::NEG_INFINITY));
        assert_eq!(log_sum_exp(&[f32::NAN, 2.0, f32::INFINITY]), 2.0);
    }

    #[test]
    fn log_sum_exp_covers_every_score_at_any_length() {
        for n in [1, 15, 16, 17, 47, 64, 1000] {
            let mut scores: Vec<f32> = (0..n).map(|i| ((i * 37) % 101) as f32 / 10.0 - 5.0).collect();
            let want = scores.iter().map(|s| f64::from(*s).exp()).sum::<f64>().ln();
            assert!((f64::from(log_sum_exp(&scores)) - want).abs() < 1e-3, "{n} scores");
            scores.extend([f32::INFINITY, f32::NAN, f32::NEG_INFINITY]);
            assert!((f64::from(log_sum_exp(&scores)) - want).abs() < 1e-3, "{n} scores and others");
        }
    }

    #[test]
    fn fast_exp_equals_exp() {
        for x in (0..100_000).map(|i| -i as f32 * 1e-3) {
            let (got, want) = (fast_exp(x), x.exp());
            assert!((got - want).abs() <= 1e-4 * want + 1e-37, "exp({x}) = {got}, {want}");
        }
        assert!(fast_exp(f32::NEG_INFINITY) < 1e-30);
    }
}
