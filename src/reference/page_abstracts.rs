//! Reference of `kv/page_abstracts`: element-wise bounds of the keys of one page.

use half::f16;

/// Largest f16 <= `x`.
fn floor(x: f32) -> f16 {
    let h = f16::from_f32(x);
    match h.to_f32() > x {
        false => h,
        true if h > f16::ZERO => f16::from_bits(h.to_bits() - 1),
        true => f16::from_bits((h.to_bits() | 0x8000) + 1),
    }
}

/// Minimum and maximum over the 64 tokens of a page f32 `[4 blocks, G, 32 rows, D]` (rows 0 to 15 are keys), rounded
/// outward: f16 `[G, 2, D]`. Infinite for NaN keys.
pub fn page_abstracts(page: &[f32], n_kv_head: usize, head_dim: usize) -> Vec<f16> {
    let keys = |g: usize, d: usize| {
        let slots = page.chunks_exact(32 * head_dim).skip(g).step_by(n_kv_head);
        slots.flat_map(move |slot| slot[..16 * head_dim].iter().skip(d).step_by(head_dim).copied())
    };
    let bound = |g: usize, d: usize, sign: f32| match keys(g, d).any(f32::is_nan) {
        true => f16::from_f32(sign * f32::NEG_INFINITY),
        false => f16::from_f32(sign * floor(keys(g, d).map(|k| sign * k).fold(f32::INFINITY, f32::min)).to_f32()),
    };
    let rows = (0..n_kv_head).flat_map(|g| [(g, 1.0), (g, -1.0)]);
    rows.flat_map(|(g, sign)| (0..head_dim).map(move |d| (g, d, sign))).map(|(g, d, sign)| bound(g, d, sign)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn floor_is_the_largest_f16_not_above(bits: u32) {
            let x = f32::from_bits(bits);
            prop_assume!(!x.is_nan());
            let h = floor(x);
            prop_assert!(h.to_f32() <= x);
            let next = f16::from_bits(if h.is_sign_negative() && h != f16::NEG_ZERO { h.to_bits() - 1 } else { (h.to_bits() & 0x7fff) + 1 });
            prop_assert!(h == f16::INFINITY || next.to_f32() > x, "{h} below {next} below {x}");
        }
    }

    #[test]
    fn abstracts_bound_only_the_keys_of_their_own_head() {
        let (g, d) = (2, 8);
        let page: Vec<f32> = (0..4 * g * 32 * d)
            .map(|i| {
                let (slot, row, channel) = (i / (32 * d), i / d % 32, i % d);
                let token = slot / g * 16 + row;
                if row < 16 { (slot % g * 1000 + channel * 100 + token) as f32 } else { f32::NAN }
            })
            .collect();
        let got: Vec<f32> = page_abstracts(&page, g, d).iter().map(|h| h.to_f32()).collect();
        assert_eq!(got[..3], [0.0, 100.0, 200.0]);
        assert_eq!(got[8..11], [63.0, 163.0, 263.0]);
        assert_eq!(got[16..18], [1000.0, 1100.0]);
        assert_eq!(got[24..26], [1063.0, 1163.0]);
    }
}
