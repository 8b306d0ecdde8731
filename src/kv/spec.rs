//! KV spec: shape of the KV cache of a model, bytes of a page, and the slots of its blocks. Pure.
//!
//! ```text
//! page ─► slots: block b of KV head g sits at slot b * G + g, so that the 64 tokens of all heads are contiguous
//! ```

use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::gpu::kernels::KvFormat;

/// Blocks of one KV head in a page.
pub const BLOCKS_PER_PAGE: usize = KV_PAGE_TOKENS / KV_BLOCK_TOKENS;

/// Shape of the KV cache of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvSpec {
    /// L
    pub n_layer: usize,
    /// G
    pub n_kv_head: usize,
    /// D
    pub head_dim: usize,
    /// format of new tokens (tail): f16 or f32
    pub work: KvFormat,
    /// format of complete pages
    pub sealed: KvFormat,
}

impl KvSpec {
    /// Bytes of a complete page: 64 tokens of one layer, all KV heads, K and V.
    pub fn page_bytes(&self) -> u64 {
        self.sealed.page_bytes(self.n_kv_head, self.head_dim)
    }

    /// Bytes of a complete page compressed to INT4. None if the page format is quantized anyway.
    pub fn int4_page_bytes(&self) -> Option<u64> {
        let is_compressible = self.sealed == KvFormat::F16;
        is_compressible.then(|| KvFormat::Q4.page_bytes(self.n_kv_head, self.head_dim))
    }

    /// Bytes of a tail page.
    pub fn tail_page_bytes(&self) -> u64 {
        self.work.page_bytes(self.n_kv_head, self.head_dim)
    }

    /// Slot of block `block` of a head in physical page `page`.
    pub fn slot_of(&self, page: usize, block: usize, head: usize) -> u32 {
        ((page * BLOCKS_PER_PAGE + block) * self.n_kv_head + head) as u32
    }

    /// Bytes of K and V of one page group over all layers.
    pub fn group_bytes(&self) -> u64 {
        self.n_layer as u64 * self.page_bytes()
    }

    /// Bytes of K and V of one token over all layers.
    pub fn token_bytes(&self) -> u64 {
        self.group_bytes() / KV_PAGE_TOKENS as u64
    }

    /// Bytes of a block table over `n_pages`.
    pub fn table_bytes(&self, n_pages: usize) -> u64 {
        (n_pages * BLOCKS_PER_PAGE * self.n_kv_head * 4) as u64
    }

    /// Block table u32 `[G, n_blocks]` of `pages`, physical pages in logical order, with row stride `n_blocks`.
    pub fn table(&self, pages: &[usize], n_blocks: usize) -> Vec<u32> {
        let mut table = vec![0; self.n_kv_head * n_blocks];
        for (i, page) in pages.iter().enumerate() {
            for b in 0..BLOCKS_PER_PAGE {
                for g in 0..self.n_kv_head {
                    table[g * n_blocks + i * BLOCKS_PER_PAGE + b] = self.slot_of(*page, b, g);
                }
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: KvSpec = KvSpec { n_layer: 6, n_kv_head: 2, head_dim: 64, work: KvFormat::F16, sealed: KvFormat::F16 };

    #[test]
    fn kv_bytes_of_the_built_in_model_match_its_card() {
        assert_eq!(SPEC.page_bytes(), 32 << 10);
        assert_eq!(SPEC.token_bytes(), 3 << 10);
    }

    #[test]
    fn table_of_the_identity_lists_slots_in_order() {
        let table = SPEC.table(&[0, 1], 8);
        assert_eq!(table, [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15]);
        // A table with spare room keeps its stride.
        assert_eq!(SPEC.table(&[3], 8)[..4], [24, 26, 28, 30]);
    }
}
