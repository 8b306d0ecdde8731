//! Reposition: saved pages of a document at another position of a prompt.
//!
//! ```text
//! saved    │ other tokens │ document ..............│   0 1 2 3 4 ...       two saved pages ─► numbers ─┐ rows of the group,
//! prompt   │ document 1 ........│ document ..............│ question                                      ▼ keys rotated
//! groups   │ prefilled             │ first 64 │ reused │ prefilled                                     page of the group
//! ```
//! 1. A group is reused only if all of its tokens are in one run of equal tokens under one shift.
//! 2. The beginning of the document is never reused, because its attention depends most on the tokens before it.
//! 3. Keys are rotated from their saved position to the new one. Values are unchanged.
//!
//! Pure. Shapes: numbers of a page f32 `[4, G, 2, 16, D]`; rotations f32 `[64, R, 2]`.
//!
//! Limits: the result is approximate, because the saved keys and values were computed after other tokens.

use std::ops::Range;

use half::f16;
use half::vec::HalfFloatVecExt;

use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::gpu::kernels::KvFormat;
use crate::kv::page_rows::{decode_rows, scales};
use crate::kv::policy::leoam::abstracts::key_scales;
use crate::kv::spec::{BLOCKS_PER_PAGE, KvSpec};

/// Minimum tokens at the beginning of a document that are prefilled.
const BOUNDARY_TOKENS: usize = 64;
/// Tokens that are searched for in the saved document.
const PROBE_TOKENS: usize = 32;
/// Maximum places of a probe that are tried.
const MAX_PLACES: usize = 8;
/// Channels of a quantized value that share a scale.
const SCALE_CHANNELS: usize = 32;

/// Groups of a prompt whose tokens are saved at another position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReusableGroups {
    /// groups of the prompt
    pub groups: Range<u32>,
    /// position in the saved tokens of the first token of the first group
    pub first_saved: usize,
}

/// The groups of `document` (a range of `prompt`) that can be reused from `saved` tokens, whose complete groups are saved.
/// None if there are none.
pub fn reusable_groups(prompt: &[u32], document: Range<usize>, saved: &[u32]) -> Option<ReusableGroups> {
    let complete = saved.get(..saved.len() / KV_PAGE_TOKENS * KV_PAGE_TOKENS)?;
    let runs = shifts(prompt, &document, saved).into_iter().map(|shift| (longest_run(prompt, &document, complete, shift), shift));
    let (run, shift) = runs.max_by_key(|(run, _)| run.len())?;
    let first = (run.start.max(document.start) + BOUNDARY_TOKENS).div_ceil(KV_PAGE_TOKENS);
    let end = run.end / KV_PAGE_TOKENS;
    let first_saved = usize::try_from((first * KV_PAGE_TOKENS) as i64 - shift).ok()?;
    (first < end).then_some(ReusableGroups { groups: first as u32..end as u32, first_saved })
}

/// Shifts to try, position in the prompt minus position in `saved`: by equal ends, and by passages of the document.
fn shifts(prompt: &[u32], document: &Range<usize>, saved: &[u32]) -> Vec<i64> {
    let mut shifts = vec![document.end as i64 - saved.len() as i64];
    for quarter in 1..=3 {
        let at = document.start + document.len() * quarter / 4;
        let Some(probe) = prompt.get(at..at + PROBE_TOKENS) else { continue };
        let places = saved.windows(PROBE_TOKENS).enumerate().filter(|(_, window)| *window == probe);
        shifts.extend(places.take(MAX_PLACES).map(|(place, _)| at as i64 - place as i64));
    }
    shifts.sort_unstable();
    shifts.dedup();
    shifts
}

/// The longest run of positions in `document` whose tokens are equal under `shift`.
fn longest_run(prompt: &[u32], document: &Range<usize>, saved: &[u32], shift: i64) -> Range<usize> {
    let is_equal = |at: usize| {
        let place = usize::try_from(at as i64 - shift).ok();
        place.and_then(|place| saved.get(place)).is_some_and(|token| prompt.get(at) == Some(token))
    };
    let (mut longest, mut start) = (0..0, document.start);
    for at in document.clone() {
        if !is_equal(at) {
            start = at + 1;
        } else if at + 1 - start > longest.len() {
            longest = start..at + 1;
        }
    }
    longest
}

/// Cosine and sine of the rotation from one angle to another.
pub fn rotation(from: f64, to: f64) -> [f32; 2] {
    let (sin, cos) = (to - from).sin_cos();
    [cos as f32, sin as f32]
}

/// Rotates a key `[D]`, which is rotated to its old position, by `rotations` `[R]`. `half_style` pairs (i, i + R) instead of
/// (2i, 2i + 1). Channels after the first 2R stay.
fn rotate_key(key: &mut [f32], rotations: &[[f32; 2]], half_style: bool) {
    let n_pairs = rotations.len();
    for (i, [cos, sin]) in rotations.iter().enumerate() {
        let (a, b) = if half_style { (i, i + n_pairs) } else { (2 * i, 2 * i + 1) };
        let (x, y) = (key[a], key[b]);
        (key[a], key[b]) = (x * cos - y * sin, x * sin + y * cos);
    }
}

/// Numbers of a complete page in its stored format; `KvFormat` has the diagram. None if the page has another size.
pub fn page_numbers(spec: &KvSpec, page: &[u8]) -> Option<Vec<f32>> {
    if page.len() as u64 != spec.page_bytes() {
        return None;
    }
    let (d, sealed) = (spec.head_dim, spec.sealed);
    let rows_bytes = 2 * KV_BLOCK_TOKENS * sealed.row_bytes(d);
    let block_bytes = sealed.block_bytes(d) as usize;
    let n_numbers = 2 * KV_BLOCK_TOKENS * d;
    let mut numbers = vec![0.0; BLOCKS_PER_PAGE * spec.n_kv_head * n_numbers];
    let key_scales: Vec<Vec<[f32; 2]>> = (0..spec.n_kv_head).map(|head| key_scales(spec, page, head).collect()).collect();
    for (slot, (block, numbers)) in page.chunks_exact(block_bytes).zip(numbers.chunks_exact_mut(n_numbers)).enumerate() {
        let (rows, value_scales) = block.split_at(rows_bytes);
        if !decode_rows(sealed, rows, numbers) {
            return None;
        }
        if sealed.is_quantized() {
            let (keys, values) = numbers.split_at_mut(KV_BLOCK_TOKENS * d);
            let of_head = &key_scales[slot % spec.n_kv_head];
            keys.chunks_exact_mut(d).for_each(|key| key.iter_mut().zip(of_head).for_each(scale));
            let value_scales: Vec<[f32; 2]> = scales(value_scales).collect();
            for (value, of_token) in values.chunks_exact_mut(d).zip(value_scales.chunks_exact(d.div_ceil(SCALE_CHANNELS))) {
                let of_channels = of_token.iter().flat_map(|of_channel| std::iter::repeat_n(of_channel, SCALE_CHANNELS));
                value.iter_mut().zip(of_channels).for_each(scale);
            }
        }
    }
    Some(numbers)
}

/// Turns a code into its number.
fn scale((code, [step, low]): (&mut f32, &[f32; 2])) {
    *code = low + step * *code;
}

/// Saved place of the tokens of a group, and the rotation of their keys.
pub struct Reposition<'a> {
    /// row of the first token in the first of two saved pages
    pub first_row: usize,
    /// of each token
    pub rotations: &'a [Vec<[f32; 2]>],
    /// pairing of channels, as of [`rotate_key`]
    pub half_style: bool,
}

/// The page of a group in the format of the tail, from the numbers of two saved pages. The second one is not read if the
/// first has all tokens.
pub fn repositioned_page(spec: &KvSpec, saved: [&[f32]; 2], to: &Reposition<'_>) -> Vec<u8> {
    let (d, row) = (spec.head_dim, |token: usize, head: usize| {
        ((token / KV_BLOCK_TOKENS * spec.n_kv_head + head) * 2 * KV_BLOCK_TOKENS + token % KV_BLOCK_TOKENS) * spec.head_dim
    });
    let value = KV_BLOCK_TOKENS * d;
    let mut numbers = vec![0.0; BLOCKS_PER_PAGE * spec.n_kv_head * 2 * value];
    for (token, rotations) in to.rotations.iter().enumerate().take(KV_PAGE_TOKENS) {
        let from = to.first_row + token;
        let page = saved[usize::from(from >= KV_PAGE_TOKENS)];
        for head in 0..spec.n_kv_head {
            let (at, source) = (row(token, head), row(from % KV_PAGE_TOKENS, head));
            numbers[at..at + d].copy_from_slice(&page[source..source + d]);
            rotate_key(&mut numbers[at..at + d], rotations, to.half_style);
            numbers[at + value..at + value + d].copy_from_slice(&page[source + value..source + value + d]);
        }
    }
    match spec.work {
        KvFormat::F32 => bytemuck::cast_slice(&numbers).to_vec(),
        _ => bytemuck::cast_slice(&Vec::<f16>::from_f32_slice(&numbers)).to_vec(),
    }
}

#[cfg(test)]
#[path = "reposition_tests.rs"]
mod tests;
