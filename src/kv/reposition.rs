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
use half::slice::HalfFloatSliceExt;
use half::vec::HalfFloatVecExt;

use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::gpu::kernels::KvFormat;
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

/// Numbers of a complete page in its stored format. None if the page has another size.
pub fn page_numbers(spec: &KvSpec, page: &[u8]) -> Option<Vec<f32>> {
    if page.len() as u64 != spec.page_bytes() {
        return None;
    }
    match spec.sealed {
        KvFormat::F32 => Some(bytemuck::pod_collect_to_vec(page)),
        KvFormat::F16 => Some(bytemuck::pod_collect_to_vec::<u8, f16>(page).to_f32_vec()),
        KvFormat::Q8 | KvFormat::Q4 => Some(dequantize(spec, page)),
    }
}

/// Numbers of a quantized page; `KvFormat` has the diagram.
fn dequantize(spec: &KvSpec, page: &[u8]) -> Vec<f32> {
    let (d, n_slots) = (spec.head_dim, BLOCKS_PER_PAGE * spec.n_kv_head);
    let (row_bytes, block_bytes) = (spec.sealed.row_bytes(d), spec.sealed.block_bytes(d) as usize);
    let (blocks, key_scales) = page.split_at(n_slots * block_bytes);
    let key_scales = scales(key_scales);
    let mut numbers = Vec::with_capacity(n_slots * 2 * KV_BLOCK_TOKENS * d);
    for (slot, block) in blocks.chunks_exact(block_bytes).enumerate() {
        let (codes, value_scales) = block.split_at(2 * KV_BLOCK_TOKENS * row_bytes);
        let (keys, values) = codes.split_at(KV_BLOCK_TOKENS * row_bytes);
        let head = slot % spec.n_kv_head;
        let of_head = &key_scales[head * d..(head + 1) * d];
        for key in keys.chunks_exact(row_bytes) {
            let codes = codes_of(spec.sealed, key);
            numbers.extend(codes.zip(of_head).map(|(code, [step, low])| low + step * code));
        }
        let value_scales = scales(value_scales);
        for (value, of_token) in values.chunks_exact(row_bytes).zip(value_scales.chunks_exact(d.div_ceil(SCALE_CHANNELS))) {
            let scale = |channel: usize| of_token[channel / SCALE_CHANNELS];
            let codes = codes_of(spec.sealed, value).enumerate();
            numbers.extend(codes.map(|(channel, code)| scale(channel)[1] + scale(channel)[0] * code));
        }
    }
    numbers
}

/// Step and low of each scale.
fn scales(bytes: &[u8]) -> Vec<[f32; 2]> {
    let half = |a, b| f16::from_le_bytes([a, b]).to_f32();
    bytes.as_chunks().0.iter().map(|&[a, b, c, d]| [half(a, b), half(c, d)]).collect()
}

/// Codes of a quantized row.
fn codes_of(format: KvFormat, row: &[u8]) -> impl Iterator<Item = f32> {
    let n_codes = if format == KvFormat::Q8 { 1 } else { 2 };
    row.iter().flat_map(move |byte| {
        match n_codes {
            1 => [*byte, 0],
            _ => [byte & 15, byte >> 4],
        }
        .into_iter()
        .take(n_codes)
        .map(f32::from)
    })
}

/// Where the tokens of a group are saved, and how their keys are rotated.
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
