//! Address arithmetic of the cache: bytes of a block, a token, a segment; how segments grow. Pure.
//!
//! ```text
//! context ─► segments of one layer:  2048 │ 2048 │ 4096 │ 8192 │ ...   (each doubles the total, none passes a binding)
//! segment ─► slots: block b of KV head g sits at slot b * G + g, so that 64 tokens of all heads are contiguous
//! slot    ─► 16 rows of D keys, 16 rows of D values
//! ```

use crate::base::limits::{KV_BLOCK_TOKENS, KV_FIRST_SEGMENT_TOKENS};
use crate::gpu::kernels::KvElement;

/// What the cache of a model looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvSpec {
    /// L
    pub n_layer: usize,
    /// G
    pub n_kv_head: usize,
    /// D
    pub head_dim: usize,
    /// element type
    pub element: KvElement,
}

/// Tokens that one segment holds, the same in every layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentShape {
    /// first token of the context in it
    pub first_token: usize,
    /// tokens it has room for, a multiple of 16
    pub n_tokens: usize,
}

impl KvSpec {
    /// Bytes of one block: 16 tokens of one layer and one KV head, K and V.
    pub fn block_bytes(&self) -> u64 {
        self.element.block_bytes(self.head_dim)
    }

    /// Bytes of K and V of one token over all layers.
    pub fn token_bytes(&self) -> u64 {
        (self.n_layer * self.n_kv_head) as u64 * self.block_bytes() / KV_BLOCK_TOKENS as u64
    }

    /// Bytes of one layer's blocks of a segment.
    pub fn segment_layer_bytes(&self, shape: SegmentShape) -> u64 {
        shape.n_blocks() as u64 * self.n_kv_head as u64 * self.block_bytes()
    }

    /// Bytes of a segment over all layers: blocks and tables.
    pub fn segment_bytes(&self, shape: SegmentShape) -> u64 {
        self.n_layer as u64 * (self.segment_layer_bytes(shape) + (shape.n_blocks() * self.n_kv_head * 4) as u64)
    }

    /// Slot of logical block `block` of KV head `head`.
    pub fn slot(&self, block: usize, head: usize) -> usize {
        block * self.n_kv_head + head
    }
}

impl SegmentShape {
    /// Logical blocks.
    pub fn n_blocks(&self) -> usize {
        self.n_tokens / KV_BLOCK_TOKENS
    }

    /// One past the last token.
    pub fn end_token(&self) -> usize {
        self.first_token + self.n_tokens
    }
}

/// The segments that hold `n_tokens`, when a context may grow to `limit` and a binding to `max_binding_bytes`.
pub fn plan_segments(spec: &KvSpec, n_tokens: usize, limit: usize, max_binding_bytes: u64) -> Vec<SegmentShape> {
    let per_token = (spec.n_kv_head as u64 * spec.block_bytes() / KV_BLOCK_TOKENS as u64).max(1);
    let most = (max_binding_bytes / per_token) as usize / KV_BLOCK_TOKENS * KV_BLOCK_TOKENS;
    let mut segments = Vec::new();
    let mut total = 0;
    while total < n_tokens {
        let rest = limit.saturating_sub(total).next_multiple_of(KV_BLOCK_TOKENS).max(KV_BLOCK_TOKENS);
        let size = total.max(KV_FIRST_SEGMENT_TOKENS).min(most.max(KV_BLOCK_TOKENS)).min(rest);
        segments.push(SegmentShape { first_token: total, n_tokens: size });
        total += size;
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: KvSpec = KvSpec { n_layer: 6, n_kv_head: 2, head_dim: 64, element: KvElement::F16 };

    #[test]
    fn kv_bytes_of_the_built_in_model_match_its_card() {
        assert_eq!(SPEC.block_bytes(), 4096);
        assert_eq!(SPEC.token_bytes(), 3 << 10);
    }

    #[test]
    fn segments_cover_the_context_without_gaps_and_within_a_binding() {
        for (n_tokens, limit, binding) in
            [(1, 100, 1 << 27), (5000, 131_072, 1 << 27), (131_072, 131_072, 1 << 20), (17, 17, 1 << 12)]
        {
            let segments = plan_segments(&SPEC, n_tokens, limit, binding);
            let mut end = 0;
            for s in &segments {
                assert_eq!(s.first_token, end);
                assert!(s.n_tokens > 0 && s.n_tokens.is_multiple_of(KV_BLOCK_TOKENS));
                assert!(SPEC.segment_layer_bytes(*s) <= binding.max(8192));
                end = s.end_token();
            }
            assert!(end >= n_tokens && end < limit + KV_BLOCK_TOKENS, "{end} for {n_tokens} of {limit}");
        }
        // Doubling: a long context takes few segments, so few dispatches.
        assert!(plan_segments(&SPEC, 131_072, 131_072, 1 << 30).len() <= 7);
    }

    #[test]
    fn segments_grow_by_adding_never_by_moving() {
        let long = plan_segments(&SPEC, 50_000, 131_072, 1 << 27);
        for n in [1, 2048, 2049, 9000, 40_000] {
            let short = plan_segments(&SPEC, n, 131_072, 1 << 27);
            assert_eq!(short[..], long[..short.len()]);
        }
    }
}
