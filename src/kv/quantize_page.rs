//! CPU quantization of complete pages to INT4, to transfer fewer bytes to the GPU.
//!
//! ```text
//! f16 page [4 blocks, G, 32 rows, D] ─► step and low of each channel (K) or 32 channels of a token (V), codes ─► q4 page
//! ```
//! 1. Bit-identical to the shader `kv/quantize_pages`.
//! 2. Processes eight numbers at a time in plain arrays, which compilers vectorize. Allocates nothing.
//!
//! Source: KIVI §3; LeoAM §4.4 (pages transferred as INT4).

use half::f16;

const PAGE_BLOCKS: usize = 4;
const BLOCK_TOKENS: usize = 16;
const PAGE_TOKENS: usize = PAGE_BLOCKS * BLOCK_TOKENS;
/// Vectors of eight channels that share a scale in a value.
const GROUP_VECTORS: usize = 4;
const LEVELS: f32 = 15.0;
const HALF_MAX: f32 = 65504.0;
/// Adding this to a small number puts the nearest integer into the lowest bits.
const ROUND: f32 = (1 << 23) as f32;

/// Eight consecutive channels: as numbers, as f16, and as codes.
type F32x8 = [f32; 8];
type F16x8 = [u8; 16];
type Word = [u8; 4];

/// Scales of eight channels. If all numbers are equal, the step is arbitrary.
#[derive(Clone, Copy)]
struct Scales {
    step: F32x8,
    inverse: F32x8,
    low: F32x8,
}

/// Sizes of a row and of a block of a q4 page, in words. `shaders/common/kv_page.wgsl` has the diagram.
struct Layout {
    n_kv_head: usize,
    row: usize,
    groups: usize,
    block: usize,
}

/// Quantizes `page`, f16 with G = `n_kv_head` heads of D = `head_dim` (a multiple of 8), into `sealed`. Both have the
/// size of [`crate::gpu::kernels::KvFormat::page_bytes`]. Numbers that are not finite are clamped to the range.
///
/// # Panics
/// Other sizes, which are a bug of the caller.
pub fn quantize_page(page: &[u8], n_kv_head: usize, head_dim: usize, out: &mut [u8]) {
    let (row, groups) = (head_dim / 8, (head_dim / 8).div_ceil(GROUP_VECTORS));
    let layout = Layout { n_kv_head, row, groups, block: BLOCK_TOKENS * (2 * row + groups) };
    let (page, out) = (page.as_chunks().0, out.as_chunks_mut().0);
    assert_eq!(page.len(), PAGE_BLOCKS * n_kv_head * 2 * BLOCK_TOKENS * row, "not an f16 page");
    assert_eq!(out.len(), PAGE_BLOCKS * n_kv_head * layout.block + n_kv_head * head_dim, "not a q4 page");
    for head in 0..n_kv_head {
        for column in 0..row {
            quantize_keys(page, &layout, head, column, out);
        }
    }
    for slot in 0..PAGE_BLOCKS * n_kv_head {
        for token in 0..BLOCK_TOKENS {
            quantize_value(page, &layout, slot, token, out);
        }
    }
}

/// Quantizes eight channels of the 64 keys of a head.
fn quantize_keys(page: &[F16x8], layout: &Layout, head: usize, column: usize, out: &mut [Word]) {
    let slot_and_row = |token: usize| (token / BLOCK_TOKENS * layout.n_kv_head + head, token % BLOCK_TOKENS);
    let mut keys = [[0.0; 8]; PAGE_TOKENS];
    let mut bounds = Bounds::EMPTY;
    for (token, key) in keys.iter_mut().enumerate() {
        let (slot, row) = slot_and_row(token);
        *key = f16s_to_finite(&page[(slot * 2 * BLOCK_TOKENS + row) * layout.row + column]);
        bounds.include(key);
    }
    let mut scales = Scales { step: [0.0; 8], inverse: [0.0; 8], low: [0.0; 8] };
    let scales_at = PAGE_BLOCKS * layout.n_kv_head * layout.block + (head * layout.row + column) * 8;
    for (i, word) in out[scales_at..scales_at + 8].iter_mut().enumerate() {
        (scales.step[i], scales.low[i], *word) = fit_scale(bounds.low[i], bounds.high[i]);
        scales.inverse[i] = 1.0 / scales.step[i];
    }
    for (token, key) in keys.iter().enumerate() {
        let (slot, row) = slot_and_row(token);
        out[slot * layout.block + row * layout.row + column] = encode(key, &scales);
    }
}

/// Quantizes the value of one token of a block.
fn quantize_value(page: &[F16x8], layout: &Layout, slot: usize, token: usize, out: &mut [Word]) {
    let from = (slot * 2 * BLOCK_TOKENS + BLOCK_TOKENS + token) * layout.row;
    let block = &mut out[slot * layout.block..(slot + 1) * layout.block];
    let (codes, scales) = block.split_at_mut(2 * BLOCK_TOKENS * layout.row);
    let codes = codes[(BLOCK_TOKENS + token) * layout.row..].chunks_mut(GROUP_VECTORS);
    let scales = &mut scales[token * layout.groups..(token + 1) * layout.groups];
    let groups = page[from..from + layout.row].chunks(GROUP_VECTORS);
    for ((group, codes), word) in groups.zip(codes).zip(scales) {
        let mut value = [[0.0; 8]; GROUP_VECTORS];
        let mut bounds = Bounds::EMPTY;
        for (vector, halves) in value.iter_mut().zip(group) {
            *vector = f16s_to_finite(halves);
            bounds.include(vector);
        }
        let (step, low, bytes) = fit_scale(bounds.lowest(), bounds.highest());
        *word = bytes;
        let scales = Scales { step: [step; 8], inverse: [1.0 / step; 8], low: [low; 8] };
        for (code, vector) in codes.iter_mut().zip(&value[..group.len()]) {
            *code = encode(vector, &scales);
        }
    }
}

/// Minimum and maximum by channel.
struct Bounds {
    low: F32x8,
    high: F32x8,
}

impl Bounds {
    const EMPTY: Bounds = Bounds { low: [HALF_MAX; 8], high: [-HALF_MAX; 8] };

    fn include(&mut self, x: &F32x8) {
        for ((low, high), &x) in self.low.iter_mut().zip(&mut self.high).zip(x) {
            *low = if x < *low { x } else { *low };
            *high = if x > *high { x } else { *high };
        }
    }

    fn lowest(&self) -> f32 {
        self.low.iter().copied().fold(HALF_MAX, f32::min)
    }

    fn highest(&self) -> f32 {
        self.high.iter().copied().fold(-HALF_MAX, f32::max)
    }
}

/// Converts f16 to f32, clamped to finite. Without the CPU instruction, which not every CPU has; this is as fast.
fn f16_to_finite(half: u16) -> f32 {
    let size = u32::from(half & 0x7fff);
    let normal = f32::from_bits((size << 13) + 0x3800_0000);
    // Below 2^-14 there is no leading one, so 2^-14 is subtracted again.
    let tiny = f32::from_bits((size << 13) + 0x3880_0000) - f32::from_bits(0x3880_0000);
    let x = if size < 0x400 { tiny } else { normal };
    let finite = if x > HALF_MAX { HALF_MAX } else { x };
    let signed = f32::from_bits(finite.to_bits() | u32::from(half & 0x8000) << 16);
    if size > 0x7c00 { -HALF_MAX } else { signed }
}

fn f16s_to_finite(halves: &F16x8) -> F32x8 {
    let mut x = [0.0; 8];
    for (x, half) in x.iter_mut().zip(halves.as_chunks::<2>().0) {
        *x = f16_to_finite(u16::from_le_bytes(*half));
    }
    x
}

/// Step, low and the bytes of both for numbers between `low` and `high`, which are f16: the smallest step that spans
/// them.
fn fit_scale(low: f32, high: f32) -> (f32, f32, Word) {
    // Avoids negative zero.
    let low = low + 0.0;
    let range = high - low;
    let near = f16::from_f32(range / LEVELS).to_bits();
    let spans = |bits: u16| f16::from_bits(bits).to_f32() * LEVELS >= range;
    let bits = match near.saturating_sub(1) {
        below if spans(below) => below,
        _ if spans(near) => near,
        _ => near + 1,
    };
    let step = if bits == 0 { 1.0 } else { f16::from_bits(bits).to_f32() };
    let ([a, b], [c, d]) = (bits.to_le_bytes(), f16::from_f32(low).to_le_bytes());
    (step, low, [a, b, c, d])
}

/// The nearest codes, rounding half up. The midpoint of two codes is exact; the product with the inverse may not be.
fn encode(x: &F32x8, scales: &Scales) -> Word {
    let mut codes = [0u8; 8];
    for (i, code) in codes.iter_mut().enumerate() {
        let v = x[i] - scales.low[i];
        let near = v * scales.inverse[i] + ROUND;
        let guess = near - ROUND;
        let increment = u32::from(v >= (guess + 0.5) * scales.step[i]);
        let decrement = u32::from(v < (guess - 0.5) * scales.step[i]);
        *code = (near.to_bits() + increment - decrement) as u8;
    }
    // Merges pairs, then groups of four, then all eight.
    let wide = u64::from_le_bytes(codes);
    let pairs = (wide | wide >> 4) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    ((fours | fours >> 16) as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::Rng;
    use crate::gpu::kernels::KvFormat;
    use crate::reference::{self, PageShape};

    fn assert_equals_reference(halves: &[u16], n_kv_head: usize, head_dim: usize) {
        let page: Vec<u8> = halves.iter().flat_map(|h| h.to_le_bytes()).collect();
        // Every byte is written, whatever the buffer had before.
        let mut out = vec![0xa5; KvFormat::Q4.page_bytes(n_kv_head, head_dim) as usize];
        quantize_page(&page, n_kv_head, head_dim, &mut out);
        let f16s_to_finite: Vec<f32> = halves.iter().map(|&h| f16::from_bits(h).to_f32()).collect();
        let want = reference::quantize_page(&f16s_to_finite, PageShape { n_kv_head, head_dim, code_bits: 4 });
        assert_eq!(out.len(), want.len());
        let differs = (0..want.len()).find(|&i| out[i] != want[i]);
        assert_eq!(differs.map(|i| (i, out[i], want[i])), None, "{n_kv_head} heads of {head_dim}");
    }

    fn n_numbers(n_kv_head: usize, head_dim: usize) -> usize {
        KvFormat::F16.page_bytes(n_kv_head, head_dim) as usize / 2
    }

    #[test]
    fn every_f16_converts_to_its_clamped_value() {
        for half in 0..=u16::MAX {
            let half_value = f16::from_bits(half).to_f32();
            let want = if half_value.is_nan() { -HALF_MAX } else { half_value.clamp(-HALF_MAX, HALF_MAX) };
            assert_eq!(f16_to_finite(half).to_bits(), want.to_bits(), "{half:#06x}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn page_of_any_bits_equals_the_reference(n_kv_head in 1..4usize, eighths in 1..12usize, seed: u32) {
            let mut rng = Rng::new(u64::from(seed));
            let halves: Vec<u16> = (0..n_numbers(n_kv_head, 8 * eighths)).map(|_| rng.next_u32() as u16).collect();
            assert_equals_reference(&halves, n_kv_head, 8 * eighths);
        }

        #[test]
        fn page_around_an_offset_equals_the_reference(
            n_kv_head in 1..3usize, eighths in 1..12usize, seed: u32, size in -26..17i32, offset in -1.0f32..1.0,
            n_values in prop_oneof![Just(1), Just(2), Just(31), Just(1 << 20)],
        ) {
            let mut rng = Rng::new(u64::from(seed));
            // A few evenly spaced values hit the midpoint between two codes.
            let mut f16_to_finite = || 2f32.powi(size) * (offset + rng.uniform(n_values) as f32 / n_values as f32);
            let n = n_numbers(n_kv_head, 8 * eighths);
            let halves: Vec<u16> = (0..n).map(|_| f16::from_f32(f16_to_finite()).to_bits()).collect();
            assert_equals_reference(&halves, n_kv_head, 8 * eighths);
        }
    }
}
