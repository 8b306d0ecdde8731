//! Reference of `kv/quantize_pages`: one page of 64 tokens to codes and scales, and back.
//!
//! ```text
//! f32 [4 blocks, G, 32 rows, D] ─► blocks [4, G] of (codes [32, D] │ value scales [16, ceil(D/32)]) │ key scales [G, D]
//! ```
//! Rows 0 to 15 of a block are keys, 16 to 31 values. A scale is two f16, (step, low): a number is low + step * code.

use half::f16;

const PAGE_BLOCKS: usize = 4;
const BLOCK_TOKENS: usize = 16;
const GROUP_CHANNELS: usize = 32;
const SCALE_BYTES: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Scale {
    step: f16,
    low: f16,
}

/// Shape of a page.
#[derive(Debug, Clone, Copy)]
pub struct PageShape {
    /// G
    pub n_kv_head: usize,
    /// D
    pub head_dim: usize,
    /// 8 or 4
    pub code_bits: usize,
}

impl PageShape {
    fn n_slots(&self) -> usize {
        PAGE_BLOCKS * self.n_kv_head
    }

    fn code_bytes(&self) -> usize {
        2 * BLOCK_TOKENS * self.head_dim * self.code_bits / 8
    }

    fn n_groups(&self) -> usize {
        self.head_dim.div_ceil(GROUP_CHANNELS)
    }

    fn block_bytes(&self) -> usize {
        self.code_bytes() + BLOCK_TOKENS * self.n_groups() * SCALE_BYTES
    }

    fn levels(&self) -> u32 {
        (1 << self.code_bits) - 1
    }

    /// Slot and index within the slot of the numbers of a scale. Keys: one channel of the page. Values: 32 channels of
    /// one token.
    fn numbers_of(&self, which: Which) -> Vec<(usize, usize)> {
        let d = self.head_dim;
        match which {
            Which::Key { head, channel } => (0..PAGE_BLOCKS)
                .flat_map(|b| (0..BLOCK_TOKENS).map(move |t| (b * self.n_kv_head + head, t * d + channel)))
                .collect(),
            Which::Value { slot, token, group } => (group * GROUP_CHANNELS..d.min((group + 1) * GROUP_CHANNELS))
                .map(|channel| (slot, (BLOCK_TOKENS + token) * d + channel))
                .collect(),
        }
    }

    /// Every scale of a page with its byte offset.
    fn scales(&self) -> Vec<(Which, usize)> {
        let values = (0..self.n_slots()).flat_map(|slot| {
            (0..BLOCK_TOKENS * self.n_groups()).map(move |i| {
                let which = Which::Value { slot, token: i / self.n_groups(), group: i % self.n_groups() };
                (which, slot * self.block_bytes() + self.code_bytes() + i * SCALE_BYTES)
            })
        });
        let keys = (0..self.n_kv_head * self.head_dim).map(|i| {
            let which = Which::Key { head: i / self.head_dim, channel: i % self.head_dim };
            (which, self.n_slots() * self.block_bytes() + i * SCALE_BYTES)
        });
        values.chain(keys).collect()
    }
}

#[derive(Debug, Clone, Copy)]
enum Which {
    Key { head: usize, channel: usize },
    Value { slot: usize, token: usize, group: usize },
}

/// Clamps to the finite range of f16.
pub(super) fn clamp_finite(x: f32) -> f32 {
    x.max(-f16::MAX.to_f32()).min(f16::MAX.to_f32())
}

fn next_up(x: f16) -> f16 {
    f16::from_bits(x.to_bits() + 1)
}

/// The largest low <= all `numbers`, and the smallest step that reaches the highest of them in `levels` steps.
fn fit_scale(numbers: &[f32], levels: u32) -> Scale {
    let lowest = numbers.iter().copied().fold(f32::INFINITY, f32::min);
    let highest = numbers.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut low = f16::from_f32(lowest);
    if low.to_f32() > lowest {
        low = if lowest >= 0.0 { f16::from_bits(low.to_bits() - 1) } else { next_up(f16::from_bits(low.to_bits() | 0x8000)) };
    }
    if low == f16::NEG_ZERO {
        low = f16::ZERO;
    }
    let range = highest - low.to_f32();
    let mut step = f16::from_f64(f64::from(range) / f64::from(levels));
    if f64::from(step) * f64::from(levels) < f64::from(range) {
        step = next_up(step);
    }
    while step > f16::ZERO && f64::from(f16::from_bits(step.to_bits() - 1)) * f64::from(levels) >= f64::from(range) {
        step = f16::from_bits(step.to_bits() - 1);
    }
    Scale { step, low }
}

/// The nearest code, rounding half up.
fn encode(x: f32, scale: Scale) -> u8 {
    if scale.step == f16::ZERO {
        return 0;
    }
    (f64::from(x - scale.low.to_f32()) / f64::from(scale.step) + 0.5).floor() as u8
}

/// Quantizes a page of f32 in slot order. Numbers beyond the range of f16 are clamped.
pub fn quantize_page(page: &[f32], shape: PageShape) -> Vec<u8> {
    let slot_numbers = 2 * BLOCK_TOKENS * shape.head_dim;
    let mut bytes = vec![0u8; shape.n_slots() * shape.block_bytes() + shape.n_kv_head * shape.head_dim * SCALE_BYTES];
    for (which, at) in shape.scales() {
        let numbers_of = shape.numbers_of(which);
        let numbers: Vec<f32> = numbers_of.iter().map(|&(slot, i)| clamp_finite(page[slot * slot_numbers + i])).collect();
        let scale = fit_scale(&numbers, shape.levels());
        bytes[at..at + 2].copy_from_slice(&scale.step.to_le_bytes());
        bytes[at + 2..at + 4].copy_from_slice(&scale.low.to_le_bytes());
        for (&(slot, i), &x) in numbers_of.iter().zip(&numbers) {
            let bit = i * shape.code_bits;
            bytes[slot * shape.block_bytes() + bit / 8] |= encode(x, scale) << (bit % 8);
        }
    }
    bytes
}

/// Numbers of a quantized page, f32 in slot order.
pub fn dequantize_page(bytes: &[u8], shape: PageShape) -> Vec<f32> {
    let slot_numbers = 2 * BLOCK_TOKENS * shape.head_dim;
    let mut page = vec![0.0; shape.n_slots() * slot_numbers];
    let half = |at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
    for (which, at) in shape.scales() {
        let (step, low) = (half(at), half(at + 2));
        for (slot, i) in shape.numbers_of(which) {
            let bit = i * shape.code_bits;
            let code = u32::from(bytes[slot * shape.block_bytes() + bit / 8] >> (bit % 8)) & shape.levels();
            page[slot * slot_numbers + i] = low + step * code as f32;
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tolerance: half a step of the scale of the number, plus the rounding of f32.
    fn assert_within_half_a_step(page: &[f32], shape: PageShape) {
        let bytes = quantize_page(page, shape);
        let opened = dequantize_page(&bytes, shape);
        assert!(opened.iter().all(|x| x.is_finite()));
        let slot_numbers = 2 * BLOCK_TOKENS * shape.head_dim;
        for (which, at) in shape.scales() {
            let half = |at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
            let (step, low) = (half(at), half(at + 2));
            for (slot, i) in shape.numbers_of(which) {
                let (x, y) = (clamp_finite(page[slot * slot_numbers + i]), opened[slot * slot_numbers + i]);
                let limit = 0.5 * step + 3.0 * f32::EPSILON * (x.abs() + y.abs() + low.abs());
                assert!((x - y).abs() <= limit, "{which:?}: {x} became {y}, step {step}");
            }
        }
    }

    fn shape() -> impl Strategy<Value = PageShape> {
        (1..4usize, 1..6usize, prop_oneof![Just(8), Just(4)]).prop_map(|(n_kv_head, eighths, code_bits)| PageShape {
            n_kv_head,
            head_dim: 8 * eighths,
            code_bits,
        })
    }

    fn numbers(shape: PageShape) -> usize {
        shape.n_slots() * 2 * BLOCK_TOKENS * shape.head_dim
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn page_of_any_magnitude_round_trips_within_half_a_step(
            (shape, page) in shape().prop_flat_map(|s| {
                let number = (-1.0f32..1.0, -10..20i32).prop_map(|(x, e)| x * 2f32.powi(e));
                (Just(s), proptest::collection::vec(number, numbers(s)))
            })
        ) {
            assert_within_half_a_step(&page, shape);
        }

        #[test]
        fn page_around_an_offset_round_trips_within_half_a_step(
            shape in shape(), offset in -7e4f32..7e4, width in prop_oneof![Just(0.0f32), Just(1e-6), Just(1e-2), Just(1e5)], seed: u32
        ) {
            let mut rng = crate::base::Rng::new(u64::from(seed));
            let page: Vec<f32> = (0..numbers(shape)).map(|_| offset + width * rng.next_signed()).collect();
            assert_within_half_a_step(&page, shape);
        }

        #[test]
        fn page_of_equal_values_round_trips_exactly(shape in shape(), bits: u16) {
            let x = f16::from_bits(bits);
            prop_assume!(x.is_finite());
            let page = vec![x.to_f32(); numbers(shape)];
            prop_assert_eq!(dequantize_page(&quantize_page(&page, shape), shape), page);
        }

        #[test]
        fn page_of_any_bits_dequantizes_to_finite_numbers(shape in shape(), seed: u32) {
            let mut rng = crate::base::Rng::new(u64::from(seed));
            let wild = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 1e-45, -1e-45, 0.0, -0.0, 65_519.0, 1.0];
            let page: Vec<f32> = (0..numbers(shape)).map(|_| wild[rng.uniform(wild.len() as u32) as usize]).collect();
            prop_assert!(dequantize_page(&quantize_page(&page, shape), shape).iter().all(|x| x.is_finite()));
        }
    }

    #[test]
    fn key_channels_of_different_magnitude_are_independent() {
        let shape = PageShape { n_kv_head: 1, head_dim: 8, code_bits: 4 };
        // Channel 3 is an outlier, as in the keys of real models.
        let page: Vec<f32> = (0..numbers(shape)).map(|i| if i % 8 == 3 { 1000.0 } else { 0.01 } * (i / 8 % 16) as f32).collect();
        let opened = dequantize_page(&quantize_page(&page, shape), shape);
        for (i, (x, y)) in page.iter().zip(&opened).enumerate().filter(|(i, _)| i / 8 % 32 < 16 && i % 8 != 3) {
            assert!((x - y).abs() < 1e-4, "number {i}: {x} became {y}");
        }
    }
}
