//! CPU scores: q · k for pages in RAM, so that only selected pages are transferred.
//!
//! ```text
//! q [H, D], pages in RAM ─► q · k of every key     f32 [H, n_keys]
//! ```
//! 1. Exact for the keys as attention reads them. 2. A key with a NaN scores NaN. 3. The scales of quantized keys are
//!    folded into the query: `q · (low + step * code) = q · low + (q * step) · code`.
//!
//! Pure. Shapes: H query heads, G KV heads, D channels.
//!
//! Source: LeoAM §4.2 (important chunks are split on the device that has their keys).

use std::ops::Deref;

use rayon::prelude::*;

use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::kv::page_rows::decode_rows;
use crate::kv::policy::leoam::abstracts::{key_rows, key_scales};
use crate::kv::spec::KvSpec;

/// Number of products above which several threads are faster; dispatching to them takes a tenth of a millisecond.
const PARALLEL_PRODUCTS: usize = 1 << 20;

/// A query scaled for the stored keys of one page: the score of a key is `base + weights · key`.
struct ScaledQuery {
    weights: Vec<f32>,
    base: f32,
}

/// Scores of all keys of `pages` for queries f32 `[H, D]`, rotated and scaled: f32 `[H, pages * 64]`. Keys beyond the
/// end of a truncated page score NaN.
pub fn score_keys<P: Deref<Target = [u8]> + Sync>(spec: &KvSpec, pages: &[P], q: &[f32]) -> Vec<f32> {
    let score = |page: &P| page_scores(spec, page, q);
    let is_parallel = pages.len() * KV_PAGE_TOKENS * q.len() > PARALLEL_PRODUCTS;
    let of_pages: Vec<_> = if is_parallel { pages.par_iter().map(score).collect() } else { pages.iter().map(score).collect() };
    let heads = (0..q.len() / spec.head_dim).map(|head| head * KV_PAGE_TOKENS..(head + 1) * KV_PAGE_TOKENS);
    heads.flat_map(|head| of_pages.iter().flat_map(move |of_page| &of_page[head.clone()])).copied().collect()
}

/// Scores of one page, f32 `[H, 64]`.
fn page_scores(spec: &KvSpec, page: &[u8], q: &[f32]) -> Vec<f32> {
    let d = spec.head_dim;
    let group = q.len() / d / spec.n_kv_head;
    let mut scores = vec![f32::NAN; q.len() / d * KV_PAGE_TOKENS];
    let row_bytes = spec.sealed.row_bytes(d);
    let mut keys = vec![0.0; KV_BLOCK_TOKENS * d];
    for kv_head in 0..spec.n_kv_head {
        let heads = kv_head * group..(kv_head + 1) * group;
        let scaled: Vec<ScaledQuery> =
            heads.clone().map(|head| scale_query(spec, page, kv_head, &q[head * d..(head + 1) * d])).collect();
        // The keys of a block are contiguous.
        for (block, at) in key_rows(spec, kv_head).step_by(KV_BLOCK_TOKENS).enumerate() {
            let rows = page.get(at..).unwrap_or_default();
            let n_rows = (rows.len() / row_bytes).min(KV_BLOCK_TOKENS);
            if !decode_rows(spec.sealed, &rows[..n_rows * row_bytes], &mut keys[..n_rows * d]) {
                continue;
            }
            for (token, key) in (block * KV_BLOCK_TOKENS..).zip(keys[..n_rows * d].chunks_exact(d)) {
                for (head, scaled) in heads.clone().zip(&scaled) {
                    scores[head * KV_PAGE_TOKENS + token] = scaled.base + dot(&scaled.weights, key);
                }
            }
        }
    }
    scores
}

fn scale_query(spec: &KvSpec, page: &[u8], kv_head: usize, q: &[f32]) -> ScaledQuery {
    if !spec.sealed.is_quantized() {
        return ScaledQuery { weights: q.to_vec(), base: 0.0 };
    }
    let scales = key_scales(spec, page, kv_head);
    if scales.clone().count() < q.len() {
        return ScaledQuery { weights: Vec::new(), base: f32::NAN };
    }
    let base = q.iter().zip(scales.clone()).map(|(q, [_, low])| q * low).sum();
    ScaledQuery { weights: q.iter().zip(scales).map(|(q, [step, _])| q * step).collect(), base }
}

/// Eight partial sums, which compilers vectorize.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0f32; 8];
    for (a, b) in a.iter().zip(b) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::base::Rng;
    use crate::gpu::kernels::KvFormat;
    use crate::reference::{PageShape, dequantize_page, qk_scores, quantize_page};

    fn spec(sealed: KvFormat) -> KvSpec {
        KvSpec { n_layer: 1, n_kv_head: 2, head_dim: 24, work: sealed, sealed }
    }

    /// A page of random keys and values, and its keys `[G][64, D]` as attention reads them.
    fn page(spec: &KvSpec, rng: &mut Rng) -> (Vec<u8>, Vec<Vec<f32>>) {
        let d = spec.head_dim;
        let n = KV_PAGE_TOKENS * 2 * spec.n_kv_head * d;
        let halves: Vec<f16> = (0..n).map(|_| f16::from_f32(4.0 * rng.next_f32() - 2.0)).collect();
        let floats: Vec<f32> = halves.iter().map(|half| half.to_f32()).collect();
        let shape = |code_bits| PageShape { n_kv_head: spec.n_kv_head, head_dim: d, code_bits };
        let quantized = |code_bits| {
            let bytes = quantize_page(&floats, shape(code_bits));
            let numbers = dequantize_page(&bytes, shape(code_bits));
            (bytes, numbers)
        };
        let (bytes, numbers) = match spec.sealed {
            KvFormat::F16 => (halves.iter().flat_map(|half| half.to_le_bytes()).collect(), floats),
            KvFormat::F32 => (floats.iter().flat_map(|x| x.to_le_bytes()).collect(), floats),
            KvFormat::Q8 => quantized(8),
            KvFormat::Q4 => quantized(4),
        };
        let mut keys = vec![Vec::new(); spec.n_kv_head];
        for (i, slot) in numbers.chunks_exact(2 * KV_BLOCK_TOKENS * d).enumerate() {
            keys[i % spec.n_kv_head].extend_from_slice(&slot[..KV_BLOCK_TOKENS * d]);
        }
        (bytes, keys)
    }

    #[test]
    fn scores_of_keys_in_ram_equal_the_reference() {
        for sealed in [KvFormat::F16, KvFormat::F32, KvFormat::Q8, KvFormat::Q4] {
            let (spec, mut rng) = (spec(sealed), Rng::new(5));
            let (pages, keys): (Vec<_>, Vec<_>) = (0..3).map(|_| page(&spec, &mut rng)).unzip();
            assert_eq!(pages[0].len() as u64, spec.page_bytes());
            let q: Vec<f32> = (0..4 * spec.head_dim).map(|_| rng.next_f32() - 0.5).collect();
            let scores = score_keys(&spec, &pages, &q);
            assert_eq!(scores.len(), 4 * 3 * KV_PAGE_TOKENS);
            for (head, of_head) in scores.chunks_exact(3 * KV_PAGE_TOKENS).enumerate() {
                let q = &q[head * spec.head_dim..(head + 1) * spec.head_dim];
                for (page, got) in of_head.chunks_exact(KV_PAGE_TOKENS).enumerate() {
                    let want = qk_scores(q, &keys[page][head / 2]);
                    assert!(got.iter().zip(&want).all(|(got, want)| (f64::from(*got) - want).abs() < 1e-4), "{sealed:?}");
                }
            }
        }
    }

    #[test]
    fn nan_and_missing_keys_score_nan() {
        let (spec, mut rng) = (spec(KvFormat::F16), Rng::new(6));
        let (mut bytes, _) = page(&spec, &mut rng);
        bytes[..2].copy_from_slice(&f16::NAN.to_le_bytes());
        let q = vec![1.0; 2 * spec.head_dim];
        let scores = score_keys(&spec, &[bytes.as_slice()], &q);
        assert!(scores[0].is_nan() && scores[1..].iter().all(|score| score.is_finite()));
        assert!(score_keys(&spec, &[&bytes[..100]], &q)[KV_PAGE_TOKENS..].iter().all(|x| x.is_nan()));
        assert!(score_keys(&KvSpec { sealed: KvFormat::Q8, ..spec }, &[&bytes[..100]], &q).iter().all(|x| x.is_nan()));
        assert!(score_keys(&spec, &[] as &[&[u8]], &q).is_empty());
    }
}
