//! Quantizes complete pages on the CPU, so that they travel to the device in fewer bytes.
//!
//! ```text
//! f16 page [4 blocks, G, 32 rows, D] ─► step and low of each channel (K) or 32 channels of a token (V), codes ─► q4 page
//! ```
//! 1. To the bit what `kv/quantize_pages` makes of the page on a device.
//! 2. Eight numbers at a time in plain arrays, which compilers turn into vector code. Nothing is allocated.
//!
//! Source: KIVI (Liu et al. 2024), section 3; LeoAM, section 4.4 (pages that travel as INT4).

use half::f16;

const PAGE_BLOCKS: usize = 4;
const BLOCK_TOKENS: usize = 16;
const PAGE_TOKENS: usize = PAGE_BLOCKS * BLOCK_TOKENS;
/// Eights of channels of a value that share a scale.
const GROUP_EIGHTS: usize = 4;
const LEVELS: f32 = 15.0;
const HALF_MAX: f32 = 65504.0;
/// Added to a small number, it leaves the nearest integer in the lowest bits.
const ROUND: f32 = (1 << 23) as f32;

/// Eight consecutive channels: as numbers, as f16, and as codes.
type Eight = [f32; 8];
type EightHalves = [u8; 16];
type Word = [u8; 4];

/// How eight channels are encoded. Where all numbers are equal there is no step, and any will do.
#[derive(Clone, Copy)]
struct Scales {
    step: Eight,
    inverse: Eight,
    low: Eight,
}

/// Sizes of a row and of a block of a q4 page, in words. Drawn in `shaders/common/kv_page.wgsl`.
struct Layout {
    n_kv_head: usize,
    row: usize,
    groups: usize,
    block: usize,
}

/// Quantizes `page`, f16 of G = `n_kv_head` heads of D = `head_dim` (a multiple of 8), into `sealed`; both have the bytes
/// that [`crate::gpu::kernels::KvFormat::page_bytes`] says. Numbers that are not finite are taken as ends of the range.
///
/// # Panics
/// Other sizes, which the caller mixed up.
pub fn quantize_page(page: &[u8], n_kv_head: usize, head_dim: usize, sealed: &mut [u8]) {
    let (row, groups) = (head_dim / 8, (head_dim / 8).div_ceil(GROUP_EIGHTS));
    let layout = Layout { n_kv_head, row, groups, block: BLOCK_TOKENS * (2 * row + groups) };
    let (page, sealed) = (page.as_chunks().0, sealed.as_chunks_mut().0);
    assert_eq!(page.len(), PAGE_BLOCKS * n_kv_head * 2 * BLOCK_TOKENS * row, "not an f16 page");
    assert_eq!(sealed.len(), PAGE_BLOCKS * n_kv_head * layout.block + n_kv_head * head_dim, "not a q4 page");
    for head in 0..n_kv_head {
        for column in 0..row {
            seal_keys(page, &layout, head, column, sealed);
        }
    }
    for slot in 0..PAGE_BLOCKS * n_kv_head {
        for token in 0..BLOCK_TOKENS {
            seal_value(page, &layout, slot, token, sealed);
        }
    }
}

/// Eight channels of the 64 keys of a head.
fn seal_keys(page: &[EightHalves], layout: &Layout, head: usize, column: usize, sealed: &mut [Word]) {
    let slot_and_row = |token: usize| (token / BLOCK_TOKENS * layout.n_kv_head + head, token % BLOCK_TOKENS);
    let mut keys = [[0.0; 8]; PAGE_TOKENS];
    let mut bounds = Bounds::NOTHING;
    for (token, key) in keys.iter_mut().enumerate() {
        let (slot, row) = slot_and_row(token);
        *key = numbers(&page[(slot * 2 * BLOCK_TOKENS + row) * layout.row + column]);
        bounds.include(key);
    }
    let mut scales = Scales { step: [0.0; 8], inverse: [0.0; 8], low: [0.0; 8] };
    let scales_at = PAGE_BLOCKS * layout.n_kv_head * layout.block + (head * layout.row + column) * 8;
    for (i, word) in sealed[scales_at..scales_at + 8].iter_mut().enumerate() {
        (scales.step[i], scales.low[i], *word) = fit(bounds.low[i], bounds.high[i]);
        scales.inverse[i] = 1.0 / scales.step[i];
    }
    for (token, key) in keys.iter().enumerate() {
        let (slot, row) = slot_and_row(token);
        sealed[slot * layout.block + row * layout.row + column] = encode(key, &scales);
    }
}

/// The value of one token of a block.
fn seal_value(page: &[EightHalves], layout: &Layout, slot: usize, token: usize, sealed: &mut [Word]) {
    let from = (slot * 2 * BLOCK_TOKENS + BLOCK_TOKENS + token) * layout.row;
    let block = &mut sealed[slot * layout.block..(slot + 1) * layout.block];
    let (codes, scales) = block.split_at_mut(2 * BLOCK_TOKENS * layout.row);
    let codes = codes[(BLOCK_TOKENS + token) * layout.row..].chunks_mut(GROUP_EIGHTS);
    let scales = &mut scales[token * layout.groups..(token + 1) * layout.groups];
    let groups = page[from..from + layout.row].chunks(GROUP_EIGHTS);
    for ((group, codes), word) in groups.zip(codes).zip(scales) {
        let mut value = [[0.0; 8]; GROUP_EIGHTS];
        let mut bounds = Bounds::NOTHING;
        for (eight, halves) in value.iter_mut().zip(group) {
            *eight = numbers(halves);
            bounds.include(eight);
        }
        let (step, low, bytes) = fit(bounds.lowest(), bounds.highest());
        *word = bytes;
        let scales = Scales { step: [step; 8], inverse: [1.0 / step; 8], low: [low; 8] };
        for (code, eight) in codes.iter_mut().zip(&value[..group.len()]) {
            *code = encode(eight, &scales);
        }
    }
}

/// Minimum and maximum of numbers, by channel.
struct Bounds {
    low: Eight,
    high: Eight,
}

impl Bounds {
    const NOTHING: Bounds = Bounds { low: [HALF_MAX; 8], high: [-HALF_MAX; 8] };

    fn include(&mut self, x: &Eight) {
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

/// f16 as f32, made finite. No conversion of the machine's: not every one has one, and this is as fast.
fn number(half: u16) -> f32 {
    let size = u32::from(half & 0x7fff);
    let normal = f32::from_bits((size << 13) + 0x3800_0000);
    // Below 2^-14 there is no leading one; 2^-14 itself is taken away again.
    let tiny = f32::from_bits((size << 13) + 0x3880_0000) - f32::from_bits(0x3880_0000);
    let x = if size < 0x400 { tiny } else { normal };
    let finite = if x > HALF_MAX { HALF_MAX } else { x };
    let signed = f32::from_bits(finite.to_bits() | u32::from(half & 0x8000) << 16);
    if size > 0x7c00 { -HALF_MAX } else { signed }
}

fn numbers(halves: &EightHalves) -> Eight {
    let mut x = [0.0; 8];
    for (x, half) in x.iter_mut().zip(halves.as_chunks::<2>().0) {
        *x = number(u16::from_le_bytes(*half));
    }
    x
}

/// Step, low and the bytes of both for numbers between `low` and `high`, which are halves: the smallest step that spans them.
fn fit(low: f32, high: f32) -> (f32, f32, Word) {
    // No negative zero.
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

/// The nearest codes, the higher one of two. The middle between two codes is exact, the product with the inverse need not be.
fn encode(x: &Eight, scales: &Scales) -> Word {
    let mut codes = [0u8; 8];
    for (i, code) in codes.iter_mut().enumerate() {
        let v = x[i] - scales.low[i];
        let near = v * scales.inverse[i] + ROUND;
        let guess = near - ROUND;
        let more = u32::from(v >= (guess + 0.5) * scales.step[i]);
        let less = u32::from(v < (guess - 0.5) * scales.step[i]);
        *code = (near.to_bits() + more - less) as u8;
    }
    // Pairs, then fours, then all eight move together.
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

    fn assert_equals_the_twin(halves: &[u16], n_kv_head: usize, head_dim: usize) {
        let page: Vec<u8> = halves.iter().flat_map(|h| h.to_le_bytes()).collect();
        // Every byte is written, whatever was there.
        let mut sealed = vec![0xa5; KvFormat::Q4.page_bytes(n_kv_head, head_dim) as usize];
        quantize_page(&page, n_kv_head, head_dim, &mut sealed);
        let numbers: Vec<f32> = halves.iter().map(|&h| f16::from_bits(h).to_f32()).collect();
        let want = reference::quantize_page(&numbers, PageShape { n_kv_head, head_dim, code_bits: 4 });
        assert_eq!(sealed.len(), want.len());
        let differs = (0..want.len()).find(|&i| sealed[i] != want[i]);
        assert_eq!(differs.map(|i| (i, sealed[i], want[i])), None, "{n_kv_head} heads of {head_dim}");
    }

    fn n_numbers(n_kv_head: usize, head_dim: usize) -> usize {
        KvFormat::F16.page_bytes(n_kv_head, head_dim) as usize / 2
    }

    #[test]
    fn number_of_every_half_is_the_finite_one() {
        for half in 0..=u16::MAX {
            let half_value = f16::from_bits(half).to_f32();
            let want = if half_value.is_nan() { -HALF_MAX } else { half_value.clamp(-HALF_MAX, HALF_MAX) };
            assert_eq!(number(half).to_bits(), want.to_bits(), "{half:#06x}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn page_of_any_bits_is_sealed_as_by_its_twin(n_kv_head in 1..4usize, eighths in 1..12usize, seed: u32) {
            let mut rng = Rng::new(u64::from(seed));
            let halves: Vec<u16> = (0..n_numbers(n_kv_head, 8 * eighths)).map(|_| rng.next_u32() as u16).collect();
            assert_equals_the_twin(&halves, n_kv_head, 8 * eighths);
        }

        #[test]
        fn page_around_an_offset_is_sealed_as_by_its_twin(
            n_kv_head in 1..3usize, eighths in 1..12usize, seed: u32, size in -26..17i32, offset in -1.0f32..1.0,
            n_values in prop_oneof![Just(1), Just(2), Just(31), Just(1 << 20)],
        ) {
            let mut rng = Rng::new(u64::from(seed));
            // Few different values, evenly spaced, hit the middle between two codes.
            let mut number = || 2f32.powi(size) * (offset + rng.below(n_values) as f32 / n_values as f32);
            let n = n_numbers(n_kv_head, 8 * eighths);
            let halves: Vec<u16> = (0..n).map(|_| f16::from_f32(number()).to_bits()).collect();
            assert_equals_the_twin(&halves, n_kv_head, 8 * eighths);
        }
    }
}
