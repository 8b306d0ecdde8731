//! Reference of `attention/rope_append`: the rotation of one head, without the block table.

/// Norm, rotation and scale of a head.
#[derive(Debug, Clone, Copy)]
pub struct RopeSpec<'a> {
    /// pairs are (i, i + R) instead of (2i, 2i + 1)
    pub half_style: bool,
    /// (cos, sin) of each of the R pairs at this position
    pub rope: &'a [[f32; 2]],
    /// weight `[D]` and epsilon of the per-head RMS norm
    pub norm: Option<(&'a [f32], f32)>,
    /// multiplies the result
    pub scale: f32,
}

/// Normalizes, rotates and scales the head x `[D]`.
pub fn rope(x: &[f32], spec: &RopeSpec<'_>) -> Vec<f32> {
    let mut y = match spec.norm {
        Some((weight, eps)) => super::norm(x, weight, None, eps),
        None => x.to_vec(),
    };
    let n_pairs = spec.rope.len();
    for (i, [cos, sin]) in spec.rope.iter().enumerate() {
        let (a, b) = if spec.half_style { (i, i + n_pairs) } else { (2 * i, 2 * i + 1) };
        let (va, vb) = (y[a], y[b]);
        y[a] = va * cos - vb * sin;
        y[b] = va * sin + vb * cos;
    }
    y.iter().map(|v| v * spec.scale).collect()
}
