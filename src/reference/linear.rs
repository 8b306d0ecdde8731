//! Reference of `linear/*`: product, epilogue and embedding lookup, over f32 weights.

/// Activation after the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// none
    None,
    /// rows 2i and 2i + 1 are gate and up: out i = silu(gate) * up
    SwiGlu,
    /// tanh approximation of GELU
    GeluTanh,
    /// GELU
    Gelu,
    /// max(0, x)
    Relu,
}

/// y `[T, N]` (`[T, N/2]` for SwiGLU) = activation(W x + bias), x `[T, K]`, W `[N, K]` row-major, bias `[N]`.
pub fn matmul(x: &[f32], w: &[f32], n_cols: usize, bias: Option<&[f32]>, activation: Activation) -> Vec<f32> {
    let mut y = Vec::new();
    for x in x.chunks_exact(n_cols) {
        let sums: Vec<f64> = w
            .chunks_exact(n_cols)
            .enumerate()
            .map(|(row, w)| {
                let sum: f64 = w.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
                sum + bias.map_or(0.0, |b| f64::from(b[row]))
            })
            .collect();
        match activation {
            Activation::SwiGlu => y.extend(sums.chunks_exact(2).map(|p| (p[0] / (1.0 + (-p[0]).exp()) * p[1]) as f32)),
            _ => y.extend(sums.iter().map(|&v| activate(v, activation) as f32)),
        }
    }
    y
}

fn activate(v: f64, activation: Activation) -> f64 {
    match activation {
        Activation::None | Activation::SwiGlu => v,
        Activation::GeluTanh => 0.5 * v * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (v + 0.044_715 * v * v * v)).tanh()),
        Activation::Gelu => 0.5 * v * (1.0 + erf(v * std::f64::consts::FRAC_1_SQRT_2)),
        Activation::Relu => v.max(0.0),
    }
}

/// The error function by its series of positive terms (Abramowitz & Stegun 7.1.6).
fn erf(v: f64) -> f64 {
    if v.abs() > 6.0 {
        return v.signum();
    }
    let (mut term, mut sum) = (v, v);
    for n in 1..200 {
        term *= 2.0 * v * v / (2 * n + 1) as f64;
        sum += term;
    }
    2.0 / std::f64::consts::PI.sqrt() * (-v * v).exp() * sum
}

/// Rows of the table `[V, C]` by id.
pub fn embed(ids: &[u32], table: &[f32], n_cols: usize) -> Vec<f32> {
    ids.iter().flat_map(|&id| table[id as usize * n_cols..(id as usize + 1) * n_cols].iter().copied()).collect()
}

/// The activations x `[K]` of one token after quantization, one scale per 32 columns: `d * round(x / d)`, `d` the largest
/// magnitude of the 32 divided by 16256 (128 * 127, two planes of signed bytes). Ties round to even.
pub fn quantize_activations(x: &[f32]) -> Vec<f32> {
    let block = |block: &[f32]| -> Vec<f32> {
        let peak = block.iter().fold(0.0f32, |peak, v| peak.max(v.abs()));
        let (d, inverse) = (peak / 16256.0, if peak > 0.0 { 16256.0 / peak } else { 0.0 });
        block.iter().map(|v| d * (v * inverse).round_ties_even()).collect()
    };
    x.chunks(32).flat_map(block).collect()
}

/// The activations x `[K]` of one token rounded to f16 after division by the power of two that brings the largest magnitude
/// into `2^14 .. 2^15`.
pub fn halve_activations(x: &[f32]) -> Vec<f32> {
    let peak = x.iter().fold(0.0f32, |peak, v| peak.max(v.abs()));
    let scale = if peak > 0.0 { (peak.log2().floor() - 14.0).exp2() } else { 1.0 };
    x.iter().map(|v| half::f16::from_f32(v / scale).to_f32() * scale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_matches_known_values() {
        for (v, want) in [(0.0, 0.0), (0.5, 0.520_499_877_813), (-1.0, -0.842_700_792_950), (3.0, 0.999_977_909_503)] {
            assert!((erf(v) - want).abs() < 1e-11, "{v}");
        }
    }
}
