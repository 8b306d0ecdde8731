//! Page abstracts: minimum and maximum of the keys per channel, to bound page scores without reading pages. Pure.
//!
//! ```text
//! page: 64 keys of G heads, D channels ─► per head and channel: min, max     f16 [G, 2, D], 1/64 of the page at f16
//! ```
//! 1. Every key of the page, as attention reads it, is within the bounds. For f16 pages they are exact; for other
//!    formats they are rounded outward.
//! 2. A channel with a NaN has bounds from -infinity to +infinity, so its page is always read.
//!
//! Source: LeoAM §4.3 (lightweight KV abstract). In quantized pages, the scales of the key channels already have the
//! bounds.

use half::f16;

use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::gpu::kernels::KvFormat;
use crate::kv::page_rows::{SCALE_BYTES, scales};
use crate::kv::spec::KvSpec;

/// Bytes of the abstract of one page: f16 `[G, 2, D]`.
pub fn abstract_bytes(spec: &KvSpec) -> usize {
    spec.n_kv_head * 2 * spec.head_dim * 2
}

/// The abstract of a complete page, f16 `[G, 2, D]` in little-endian bytes. `page` has [`KvSpec::page_bytes`].
pub fn abstract_of(spec: &KvSpec, page: &[u8]) -> Vec<u8> {
    let halves: Vec<f16> = match spec.sealed {
        KvFormat::F16 => of_f16(spec, page),
        KvFormat::F32 => of_f32(spec, page),
        KvFormat::Q8 => of_scales(spec, page, 255.0),
        KvFormat::Q4 => of_scales(spec, page, 15.0),
    };
    halves.iter().flat_map(|h| h.to_le_bytes()).collect()
}

/// An abstract without bounds: its page is always read.
pub fn unbounded_abstract(spec: &KvSpec) -> Vec<u8> {
    let channels = |x: f16| std::iter::repeat_n(x, spec.head_dim);
    let head = || channels(f16::NEG_INFINITY).chain(channels(f16::INFINITY));
    (0..spec.n_kv_head).flat_map(|_| head()).flat_map(f16::to_le_bytes).collect()
}

/// Byte offsets of the keys of one head in a complete page.
pub(in crate::kv) fn key_rows(spec: &KvSpec, head: usize) -> impl Iterator<Item = usize> {
    let (block_bytes, row_bytes) = (spec.sealed.block_bytes(spec.head_dim) as usize, spec.sealed.row_bytes(spec.head_dim));
    let n_kv_head = spec.n_kv_head;
    (0..KV_PAGE_TOKENS).map(move |token| {
        let slot = token / KV_BLOCK_TOKENS * n_kv_head + head;
        slot * block_bytes + token % KV_BLOCK_TOKENS * row_bytes
    })
}

/// Maps the bits of an f16 to an integer of the same order. NaN is beyond both infinities.
fn ordered(bits: u16) -> i16 {
    let signed = bits as i16;
    signed ^ ((signed >> 15) & 0x7fff)
}

fn of_f16(spec: &KvSpec, page: &[u8]) -> Vec<f16> {
    let (d, row_bytes) = (spec.head_dim, spec.sealed.row_bytes(spec.head_dim));
    let (lowest_number, highest_number) = (ordered(f16::NEG_INFINITY.to_bits()), ordered(f16::INFINITY.to_bits()));
    let mut halves = Vec::with_capacity(spec.n_kv_head * 2 * d);
    for head in 0..spec.n_kv_head {
        let (mut low, mut high) = (vec![i16::MAX; d], vec![i16::MIN; d]);
        for at in key_rows(spec, head) {
            let row = page.get(at..at + row_bytes).unwrap_or_default();
            for ((x, low), high) in row.chunks_exact(2).zip(&mut low).zip(&mut high) {
                let x = ordered(u16::from_le_bytes([x[0], x[1]]));
                (*low, *high) = ((*low).min(x), (*high).max(x));
            }
        }
        let is_nan = |low: i16, high: i16| low < lowest_number || high > highest_number;
        let half = |x: i16| f16::from_bits((x ^ ((x >> 15) & 0x7fff)) as u16);
        let both = low.iter().zip(&high);
        halves.extend(both.clone().map(|(&l, &m)| if is_nan(l, m) { f16::NEG_INFINITY } else { half(l) }));
        halves.extend(both.map(|(&l, &m)| if is_nan(l, m) { f16::INFINITY } else { half(m) }));
    }
    halves
}

fn of_f32(spec: &KvSpec, page: &[u8]) -> Vec<f16> {
    let (d, row_bytes) = (spec.head_dim, spec.sealed.row_bytes(spec.head_dim));
    let mut halves = Vec::with_capacity(spec.n_kv_head * 2 * d);
    for head in 0..spec.n_kv_head {
        let (mut low, mut high) = (vec![f32::INFINITY; d], vec![f32::NEG_INFINITY; d]);
        for at in key_rows(spec, head) {
            let row = page.get(at..at + row_bytes).unwrap_or_default();
            for ((x, low), high) in row.chunks_exact(4).zip(&mut low).zip(&mut high) {
                let x = f32::from_le_bytes([x[0], x[1], x[2], x[3]]);
                (*low, *high) = (nan_or(x, *low, f32::min), nan_or(x, *high, f32::max));
            }
        }
        halves.extend(low.iter().map(|&x| round_down(x)));
        halves.extend(high.iter().map(|&x| round_up(x)));
    }
    halves
}

/// NaN if either is NaN, otherwise `extreme(x, y)`.
fn nan_or(x: f32, y: f32, extreme: fn(f32, f32) -> f32) -> f32 {
    if x.is_nan() || y.is_nan() { f32::NAN } else { extreme(x, y) }
}

/// Scales of the key channels of a head, step and low `[D]`, at the end of a quantized page, f16 `[G, D, 2]`. Empty if
/// the page is too short.
pub(in crate::kv) fn key_scales(spec: &KvSpec, page: &[u8], head: usize) -> impl Iterator<Item = [f32; 2]> + Clone {
    let size = spec.head_dim * SCALE_BYTES;
    let begin = page.len().checked_sub((spec.n_kv_head - head) * size);
    scales(begin.and_then(|begin| page.get(begin..begin + size)).unwrap_or_default())
}

fn of_scales(spec: &KvSpec, page: &[u8], levels: f32) -> Vec<f16> {
    let mut halves = Vec::with_capacity(2 * spec.n_kv_head * spec.head_dim);
    for head in 0..spec.n_kv_head {
        let scales = key_scales(spec, page, head);
        halves.extend(scales.clone().map(|[_, low]| round_down(low)));
        halves.extend(scales.map(|[step, low]| round_up(low + step * levels)));
    }
    halves
}

/// Largest f16 <= x; -infinity for NaN.
fn round_down(x: f32) -> f16 {
    let h = f16::from_f32(x);
    if x.is_nan() {
        f16::NEG_INFINITY
    } else if h.to_f32() > x {
        neighbor(h, -1)
    } else {
        h
    }
}

/// Smallest f16 >= x; +infinity for NaN.
fn round_up(x: f32) -> f16 {
    let h = f16::from_f32(x);
    if x.is_nan() {
        f16::INFINITY
    } else if h.to_f32() < x {
        neighbor(h, 1)
    } else {
        h
    }
}

fn neighbor(x: f16, by: i16) -> f16 {
    let next = ordered(x.to_bits()).saturating_add(by);
    f16::from_bits((next ^ ((next >> 15) & 0x7fff)) as u16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::Rng;
    use crate::reference::{PageShape, dequantize_page, quantize_page};

    fn spec(n_kv_head: usize, head_dim: usize, sealed: KvFormat) -> KvSpec {
        KvSpec { n_layer: 1, n_kv_head, head_dim, work: KvFormat::F16, sealed }
    }

    /// A page in the given format, and its numbers in slot order as attention reads them.
    fn page(spec: &KvSpec, seed: u64, magnitude: f32) -> (Vec<u8>, Vec<f32>) {
        let mut rng = Rng::new(seed);
        let n = KV_PAGE_TOKENS * 2 * spec.n_kv_head * spec.head_dim;
        let numbers: Vec<f32> = (0..n).map(|_| rng.next_signed() * magnitude).collect();
        match spec.sealed {
            KvFormat::F16 => {
                let halves: Vec<f16> = numbers.iter().map(|x| f16::from_f32(*x)).collect();
                (halves.iter().flat_map(|h| h.to_le_bytes()).collect(), halves.iter().map(|h| h.to_f32()).collect())
            }
            KvFormat::F32 => (numbers.iter().flat_map(|x| x.to_le_bytes()).collect(), numbers),
            KvFormat::Q8 | KvFormat::Q4 => {
                let code_bits = if spec.sealed == KvFormat::Q8 { 8 } else { 4 };
                let shape = PageShape { n_kv_head: spec.n_kv_head, head_dim: spec.head_dim, code_bits };
                let bytes = quantize_page(&numbers, shape);
                let dequantized = dequantize_page(&bytes, shape);
                (bytes, dequantized)
            }
        }
    }

    /// Keys of one head and channel.
    fn keys(spec: &KvSpec, numbers: &[f32], head: usize, channel: usize) -> Vec<f32> {
        let f32_spec = KvSpec { sealed: KvFormat::F32, ..*spec };
        key_rows(&f32_spec, head).map(|at| numbers[at / size_of::<f32>() + channel]).collect()
    }

    fn halves(bytes: &[u8]) -> Vec<f32> {
        bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn abstract_bounds_every_key(
            n_kv_head in 1usize..4, eighths in 1usize..5, seed: u64, magnitude in prop_oneof![Just(1e-6f32), Just(1.0), Just(6e4)],
            sealed in prop::sample::select(vec![KvFormat::F16, KvFormat::F32, KvFormat::Q8, KvFormat::Q4]),
        ) {
            let spec = spec(n_kv_head, 8 * eighths, sealed);
            let (bytes, numbers) = page(&spec, seed, magnitude);
            prop_assert_eq!(bytes.len() as u64, spec.page_bytes());
            let got = abstract_of(&spec, &bytes);
            prop_assert_eq!(got.len(), abstract_bytes(&spec));
            let got = halves(&got);
            for head in 0..n_kv_head {
                for channel in 0..spec.head_dim {
                    let keys = keys(&spec, &numbers, head, channel);
                    let least = keys.iter().copied().fold(f32::INFINITY, f32::min);
                    let most = keys.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    let at = head * 2 * spec.head_dim + channel;
                    let (low, high) = (got[at], got[at + spec.head_dim]);
                    prop_assert!(low <= least && most <= high, "{low} {least} {most} {high}");
                    if sealed == KvFormat::F16 {
                        prop_assert_eq!((low, high), (least, most));
                    }
                    // No looser than the rounding of the format (255 of the smallest steps); otherwise a bound would be
                    // useless.
                    let slack = (most - least) * 0.2 + most.abs().max(least.abs()) * 2e-3 + 2e-5;
                    prop_assert!(high - most <= slack && least - low <= slack, "{low} {least} {most} {high}");
                }
            }
        }
    }

    #[test]
    fn nan_in_a_key_makes_only_its_channel_unbounded() {
        for sealed in [KvFormat::F16, KvFormat::F32] {
            let spec = spec(2, 8, sealed);
            let (mut bytes, _) = page(&spec, 3, 1.0);
            let size = bytes.len() / (KV_PAGE_TOKENS * 2 * 2 * 8);
            let at = key_rows(&spec, 1).nth(40).unwrap() + 5 * size;
            match sealed {
                KvFormat::F16 => bytes[at..at + 2].copy_from_slice(&f16::NAN.to_le_bytes()),
                _ => bytes[at..at + 4].copy_from_slice(&(-f32::NAN).to_le_bytes()),
            }
            let got = halves(&abstract_of(&spec, &bytes));
            for (i, x) in got.iter().enumerate() {
                let (head, channel) = (i / 16, i % 8);
                assert_eq!(x.is_infinite(), (head, channel) == (1, 5), "{sealed:?}: {i}: {x}");
            }
            assert_eq!((got[16 + 5], got[16 + 8 + 5]), (f32::NEG_INFINITY, f32::INFINITY));
        }
        let spec = spec(2, 8, KvFormat::F16);
        let unbounded = halves(&unbounded_abstract(&spec));
        assert_eq!((unbounded.len(), unbounded[0], unbounded[8]), (32, f32::NEG_INFINITY, f32::INFINITY));
    }
}
