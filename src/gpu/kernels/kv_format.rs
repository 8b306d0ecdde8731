//! KV element formats, and the bytes of a page in each.
//!
//! ```text
//! page of 64 tokens, one layer   f16, f32: 4G blocks
//!                                q8, q4:   4G blocks │ scales of the keys [G, D]
//! block of 16 tokens, one head   f16, f32: 16 rows of D keys │ 16 rows of D values
//!                                q8, q4:   the same as codes │ scales of the values [16, ceil(D / 32)]
//! scale (4 bytes)                two f16, step and low: a number is low + step * code
//! ```
//! 1. Block b of KV head g of a page is its (b * G + g)-th in every format, so block tables do not depend on it.
//! 2. New tokens are written as f16 or f32; q8 and q4 are for complete pages only, produced by
//!    [`super::quantize_pages`].
//!
//! Source: KIVI §3 (keys share a scale per channel of a page, values per token over 32 channels).

use crate::base::limits::KV_BLOCK_TOKENS;

/// Blocks of one KV head in a page.
const PAGE_BLOCKS: usize = 4;
/// Channels of a value that share a scale.
const GROUP_CHANNELS: usize = 32;
/// Bytes of a scale.
const SCALE_BYTES: usize = 4;

/// Element format of K and V in the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// half precision
    F16,
    /// single precision
    F32,
    /// codes of 8 bits
    Q8,
    /// codes of 4 bits
    Q4,
}

impl KvFormat {
    /// True for formats of complete pages only.
    pub fn is_quantized(self) -> bool {
        matches!(self, KvFormat::Q8 | KvFormat::Q4)
    }

    /// Bytes of one block: 16 tokens of one KV head, K and V. Excludes the key scales, which belong to the page.
    pub fn block_bytes(self, head_dim: usize) -> u64 {
        let rows = 2 * KV_BLOCK_TOKENS * self.row_bytes(head_dim);
        let value_scales = KV_BLOCK_TOKENS * head_dim.div_ceil(GROUP_CHANNELS) * SCALE_BYTES;
        (if self.is_quantized() { rows + value_scales } else { rows }) as u64
    }

    /// Bytes of one key or value (codes if quantized).
    pub fn row_bytes(self, head_dim: usize) -> usize {
        match self {
            KvFormat::F16 => head_dim * 2,
            KvFormat::F32 => head_dim * 4,
            KvFormat::Q8 => head_dim,
            KvFormat::Q4 => head_dim / 2,
        }
    }

    /// Bytes of one page: 64 tokens of one layer, all G KV heads, K and V. A multiple of 16.
    pub fn page_bytes(self, n_kv_head: usize, head_dim: usize) -> u64 {
        let blocks = (PAGE_BLOCKS * n_kv_head) as u64 * self.block_bytes(head_dim);
        match self.is_quantized() {
            true => blocks + (n_kv_head * head_dim * SCALE_BYTES) as u64,
            false => blocks,
        }
    }

    /// Defines of a kernel that reads or writes blocks of G = `n_kv_head` heads of D = `head_dim`.
    pub(super) fn defines(self, n_kv_head: usize, head_dim: usize) -> Vec<(&'static str, String)> {
        let (name, unit) = match self {
            KvFormat::F16 => ("KV_F16", "vec4<u32>"),
            KvFormat::F32 => ("KV_F32", "vec4<f32>"),
            KvFormat::Q8 => ("KV_Q8", "vec2<u32>"),
            KvFormat::Q4 => ("KV_Q4", "vec4<u32>"),
        };
        let mut defines = vec![("D", head_dim.to_string()), (name, String::new()), ("KV", unit.to_owned())];
        if self.is_quantized() {
            defines.push(("KV_QUANTIZED", String::new()));
            defines.push(("KV_HEADS", n_kv_head.to_string()));
        }
        defines
    }

    /// Changes `defines` for a kernel with f16 arithmetic, which reads f16 blocks without conversion.
    pub(super) fn halve(self, defines: &mut Vec<(&'static str, String)>) {
        if self == KvFormat::F16 {
            defines.push(("HALVES", String::new()));
            defines.iter_mut().filter(|(name, _)| *name == "KV").for_each(|(_, unit)| *unit = "vec4<f16>".to_owned());
        }
    }

    /// Changes `defines` for a kernel with 64-bit loads, which halves the loads if each lane has one element.
    pub(super) fn widen(self, defines: &mut Vec<(&'static str, String)>) {
        defines.push(("WIDE", String::new()));
        if !self.is_quantized() {
            defines.iter_mut().filter(|(name, _)| *name == "KV").for_each(|(_, unit)| *unit = "vec2<u64>".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_bytes_are_multiples_of_16_and_shrink_with_the_format() {
        for n_kv_head in [1, 2, 3, 8] {
            for head_dim in (8..=256).step_by(8) {
                let bytes = [KvFormat::F32, KvFormat::F16, KvFormat::Q8, KvFormat::Q4].map(|e| e.page_bytes(n_kv_head, head_dim));
                assert!(bytes.iter().all(|b| b.is_multiple_of(16)), "{n_kv_head} x {head_dim}: {bytes:?}");
                assert!(bytes.is_sorted_by(|a, b| a > b), "{n_kv_head} x {head_dim}: {bytes:?}");
                assert_eq!(bytes[1], (64 * 2 * n_kv_head * head_dim * 2) as u64);
            }
        }
        // Scales cost 9 % of q8 and 19 % of q4 at D = 64.
        assert_eq!(KvFormat::Q8.page_bytes(1, 64), 64 * (128 + 8 + 4));
        assert_eq!(KvFormat::Q4.page_bytes(1, 64), 64 * (64 + 8 + 4));
    }
}
