//! Reference of the attention kernels: softmax(q · K) V for one query over its visible keys.

/// One head: q `[D]` (already scaled), keys and values `[S, D]`. Returns `[D]`.
pub fn attention(q: &[f32], keys: &[f32], values: &[f32]) -> Vec<f32> {
    let head_dim = q.len();
    let scores = super::qk_scores(q, keys);
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let mut out = vec![0.0f64; head_dim];
    for (w, v) in weights.iter().zip(values.chunks_exact(head_dim)) {
        for (o, &x) in out.iter_mut().zip(v) {
            *o += w / sum * f64::from(x);
        }
    }
    out.iter().map(|&v| v as f32).collect()
}
