//! Reference of `attention/qk_scores`: exact q · k.

/// Scores of each of the keys `[S, D]` for one query q `[D]`.
pub fn qk_scores(q: &[f32], keys: &[f32]) -> Vec<f64> {
    keys.chunks_exact(q.len()).map(|k| k.iter().zip(q).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()).collect()
}
