//! Initial chunks of LeoAM: their number for the fewest evaluations, by the density of important chunks. Pure.
//!
//! Source: LeoAM §4.2 eq. 2, LeoAM §4.2 eq. 3.

/// Number m of initial chunks, of 8 to 64 tokens, with the fewest evaluations by LeoAM §4.2 eq. 2: `f(m) = m * sum over
/// i < log2(n / m) of (2 density)^i`. `density` is the fraction of important chunks, which are split: 1 minus the
/// attention desert rate.
///
/// Between two powers of two the number of levels is constant (33 tokens have as many as 64), so the minimum of f is at
/// 8, 16, 32 or 64 tokens per chunk. These are compared by LeoAM §4.2 eq. 2 itself. LeoAM §4.2 eq. 3 is meant as
/// f(m) - f(m - 1), but is printed without the factor m - 1 of its second sum.
pub fn initial_chunks(n_tokens: usize, density: f64) -> usize {
    let [first, finer @ ..] = [64, 32, 16, 8].map(|size| n_tokens.div_ceil(size).max(1));
    let n_evaluations = |m| expected_evaluations(n_tokens, m, density);
    finer.into_iter().fold(first, |best, m| if n_evaluations(m) < n_evaluations(best) { m } else { best })
}

/// LeoAM §4.2 eq. 2, with whole levels.
fn expected_evaluations(n_tokens: usize, m: usize, density: f64) -> f64 {
    let n_level = n_tokens.div_ceil(m).next_power_of_two().trailing_zeros();
    (0..n_level).map(|level| m as f64 * (2.0 * density).powi(level as i32)).sum()
}
