//! Reference of `norm/norm`.

/// Normalizes each row of x `[rows, C]`: LayerNorm if there is a bias, otherwise RMSNorm.
pub fn norm(x: &[f32], weight: &[f32], bias: Option<&[f32]>, eps: f32) -> Vec<f32> {
    let n_cols = weight.len();
    let mut y = Vec::with_capacity(x.len());
    for row in x.chunks_exact(n_cols) {
        let mean = match bias {
            Some(_) => row.iter().map(|&v| f64::from(v)).sum::<f64>() / n_cols as f64,
            None => 0.0,
        };
        let variance = row.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n_cols as f64;
        let scale = 1.0 / (variance + f64::from(eps)).sqrt();
        for (i, &v) in row.iter().enumerate() {
            let shift = bias.map_or(0.0, |b| f64::from(b[i]));
            y.push(((f64::from(v) - mean) * scale * f64::from(weight[i]) + shift) as f32);
        }
    }
    y
}
