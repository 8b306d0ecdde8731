//! Scores of keys where they lie: pages in RAM are scored by the processor, and move only if they are chosen.
//!
//! ```text
//! q [H, D], pages in RAM ─► q · k of every key     f32 [H, n_keys]
//! ```
//! 1. Exact for the keys as attention reads them. 2. A key with a NaN scores NaN.
//!
//! Pure. Shapes: H query heads, G KV heads, D channels.
//!
//! Limits: quantised pages are not scored here.
//!
//! Source: LeoAM, section 4.2 (important chunks are split where their keys are at hand, in VRAM or RAM).

use std::ops::Deref;

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::abstracts::key_rows;
use super::layout::KvSpec;
use crate::base::limits::KV_PAGE_TOKENS;
use crate::gpu::kernels::KvElement;

/// Keys of pages of this kind can be scored in RAM.
pub fn can_score(spec: &KvSpec) -> bool {
    matches!(spec.sealed, KvElement::F16 | KvElement::F32)
}

/// Scores of all keys of `pages` for queries f32 `[H, D]`, which are rotated and scaled: f32 `[H, pages * 64]`. Nothing where
/// [`can_score`] says no; a page that is too short scores NaN.
pub fn key_scores(spec: &KvSpec, pages: &[impl Deref<Target = [u8]>], q: &[f32]) -> Vec<f32> {
    let (d, n_keys) = (spec.head_dim, pages.len() * KV_PAGE_TOKENS);
    let n_head = q.len() / d;
    if !can_score(spec) || n_keys == 0 {
        return Vec::new();
    }
    let group = n_head / spec.n_kv_head;
    let mut scores = vec![f32::NAN; n_head * n_keys];
    let mut key = vec![0.0; d];
    for (i, page) in pages.iter().enumerate() {
        for kv_head in 0..spec.n_kv_head {
            let row_bytes = d * if spec.sealed == KvElement::F16 { size_of::<f16>() } else { size_of::<f32>() };
            for (token, at) in key_rows(spec, kv_head, row_bytes).enumerate() {
                let Some(row) = page.get(at..at + row_bytes) else { continue };
                if !read_key(row, &mut key) {
                    continue;
                }
                for head in kv_head * group..(kv_head + 1) * group {
                    scores[head * n_keys + i * KV_PAGE_TOKENS + token] = dot(&q[head * d..(head + 1) * d], &key);
                }
            }
        }
    }
    scores
}

/// The numbers of a row of `key.len()`, f16 or f32; false where it is no such row.
fn read_key(row: &[u8], key: &mut [f32]) -> bool {
    if let Some(halves) = bytemuck::try_cast_slice::<u8, f16>(row).ok().filter(|halves| halves.len() == key.len()) {
        halves.convert_to_f32_slice(key);
        return true;
    }
    let Some(singles) = bytemuck::try_cast_slice::<u8, f32>(row).ok().filter(|x| x.len() == key.len()) else { return false };
    key.copy_from_slice(singles);
    true
}

/// Eight sums at a time, which compilers turn into vector code.
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
    use super::*;
    use crate::base::Rng;
    use crate::base::limits::KV_BLOCK_TOKENS;
    use crate::reference::token_scores;

    fn spec(sealed: KvElement) -> KvSpec {
        KvSpec { n_layer: 1, n_kv_head: 2, head_dim: 24, work: sealed, sealed }
    }

    /// A page of random keys and values, and the keys `[G][64, D]`.
    fn page(spec: &KvSpec, rng: &mut Rng) -> (Vec<u8>, Vec<Vec<f32>>) {
        let (mut bytes, mut keys) = (Vec::new(), vec![Vec::new(); spec.n_kv_head]);
        for _ in 0..KV_PAGE_TOKENS / KV_BLOCK_TOKENS {
            for of_head in &mut keys {
                for row in 0..2 * KV_BLOCK_TOKENS {
                    for _ in 0..spec.head_dim {
                        let half = f16::from_f32(4.0 * rng.next_f32() - 2.0);
                        match spec.sealed {
                            KvElement::F16 => bytes.extend(half.to_le_bytes()),
                            _ => bytes.extend(half.to_f32().to_le_bytes()),
                        }
                        if row < KV_BLOCK_TOKENS {
                            of_head.push(half.to_f32());
                        }
                    }
                }
            }
        }
        (bytes, keys)
    }

    #[test]
    fn keys_in_ram_score_what_the_plain_loop_says() {
        for sealed in [KvElement::F16, KvElement::F32] {
            let (spec, mut rng) = (spec(sealed), Rng::new(5));
            let (pages, keys): (Vec<_>, Vec<_>) = (0..3).map(|_| page(&spec, &mut rng)).unzip();
            let q: Vec<f32> = (0..4 * spec.head_dim).map(|_| rng.next_f32() - 0.5).collect();
            let scores = key_scores(&spec, &pages, &q);
            assert_eq!(scores.len(), 4 * 3 * KV_PAGE_TOKENS);
            for (head, of_head) in scores.chunks_exact(3 * KV_PAGE_TOKENS).enumerate() {
                let q = &q[head * spec.head_dim..(head + 1) * spec.head_dim];
                for (page, got) in of_head.chunks_exact(KV_PAGE_TOKENS).enumerate() {
                    let want = token_scores(q, &keys[page][head / 2]);
                    assert!(got.iter().zip(&want).all(|(got, want)| (f64::from(*got) - want).abs() < 1e-4), "{sealed:?}");
                }
            }
        }
    }

    #[test]
    fn keys_in_ram_that_are_no_number_or_not_there_score_none() {
        let (spec, mut rng) = (spec(KvElement::F16), Rng::new(6));
        let (mut bytes, _) = page(&spec, &mut rng);
        bytes[..2].copy_from_slice(&f16::NAN.to_le_bytes());
        let q = vec![1.0; 2 * spec.head_dim];
        let scores = key_scores(&spec, &[bytes.as_slice()], &q);
        assert!(scores[0].is_nan() && scores[1..].iter().all(|score| score.is_finite()));
        assert!(key_scores(&spec, &[&bytes[..100]], &q)[KV_PAGE_TOKENS..].iter().all(|score| score.is_nan()));
        assert!(key_scores(&KvSpec { sealed: KvElement::Q8, ..spec }, &[bytes.as_slice()], &q).is_empty());
    }
}
