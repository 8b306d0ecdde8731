//! Decode attention: one new token per sequence, split over keys, then merged (flash decoding).
//!
//! ```text
//! q [H, D] ─► split of 256 keys: acc, max, sum   (one dispatch per segment) ─► merge ─► out [H, D]
//! ```
//! In selective attention the table has a list of tokens per KV head instead ([`TokenSlot`]): any tokens of the
//! segment, in any order and number. Shorter lists are padded with [`PAD`]; `n_keys` and the row stride are those of
//! the longest.
//!
//! Several tokens with the same pages can attend in one dispatch: each is a row of q, acc, state and out. They share a
//! table; in selective attention, the table has lists for the KV heads of each.

use std::sync::Arc;

use super::KvFormat;
use crate::base::limits::KV_BLOCK_TOKENS;
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// Keys per workgroup.
pub const SPLIT_KEYS: usize = 256;
/// Maximum query heads of a group per workgroup (bounds workgroup memory to 13 KiB).
const MAX_HEADS_PER_WORKGROUP: usize = 4;

/// The two compiled kernels.
pub struct AttentionDecode {
    split: Arc<Kernel>,
    merge: Arc<Kernel>,
    n_head: usize,
    n_kv_head: usize,
    head_dim: usize,
    selective: bool,
}

/// Padding of a shorter list of tokens or blocks.
pub const PAD: u32 = u32::MAX;

/// Table entry: a token that a KV head reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenSlot(u32);

/// Kernel variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeVariant {
    /// for subgroups of exactly 8 lanes
    pub subgroup8: bool,
    /// tables are lists of selected tokens
    pub selective: bool,
}

/// Keys of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentKeys {
    /// number of keys in the segment
    pub n_keys: usize,
    /// row stride of its table: logical blocks of the segment, or listed tokens in selective attention
    pub n_blocks: usize,
    /// number of splits of the segments before it
    pub first_split: usize,
    /// number of splits of all segments
    pub n_splits: usize,
}

/// Tokens that attend to one segment in the same dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitRows {
    /// first row of q
    pub first: usize,
    /// number of rows
    pub n: usize,
    /// splits of this segment per row; those past its keys have zero weight
    pub n_splits: usize,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct SplitParams {
    n_keys: u32,
    n_blocks: u32,
    group: u32,
    first_split: u32,
    n_splits: u32,
    first_group: u32,
    n_lists: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct MergeParams {
    n_splits: u32,
    head_dim: u32,
}

fn split_key(n_kv_head: usize, group: usize, head_dim: usize, element: KvFormat, variant: DecodeVariant) -> KernelKey {
    let mut defines = element.defines(n_kv_head, head_dim);
    defines.push(("GR", group.min(MAX_HEADS_PER_WORKGROUP).to_string()));
    if variant.selective {
        defines.push(("TOKEN_TABLE", String::new()));
    }
    if !variant.subgroup8 {
        return KernelKey::new("attention/decode_split", &defines);
    }
    element.widen(&mut defines);
    defines.push(("NC", head_dim.div_ceil(64).to_string()));
    KernelKey::new("attention/decode_split_subgroup8", &defines)
}

pub(super) fn variants(n_kv_head: usize, head_dim: usize, element: KvFormat) -> Vec<KernelKey> {
    let flags = [(false, false), (false, true), (true, false), (true, true)];
    let variants = flags.map(|(subgroup8, selective)| DecodeVariant { subgroup8, selective });
    let sizes = (1..=MAX_HEADS_PER_WORKGROUP).flat_map(|group| variants.map(|variant| (group, variant)));
    let mut keys: Vec<KernelKey> = sizes.map(|(group, v)| split_key(n_kv_head, group, head_dim, element, v)).collect();
    keys.push(KernelKey::new("attention/decode_merge", &[]));
    keys
}

impl TokenSlot {
    /// Token `token`, from 0 to 15, of the block in `slot`.
    pub const fn new(slot: u32, token: usize) -> TokenSlot {
        TokenSlot(slot * KV_BLOCK_TOKENS as u32 + token as u32)
    }

    /// The entry as stored in tables.
    pub const fn entry(self) -> u32 {
        self.0
    }
}

impl DecodeVariant {
    fn for_gpu(gpu: &Gpu, selective: bool) -> DecodeVariant {
        DecodeVariant { subgroup8: gpu.uses_subgroup8(), selective }
    }
}

impl AttentionDecode {
    /// Compiles the variants for H = `n_head`, G = `n_kv_head`, D = `head_dim` (a multiple of 8, at most 512).
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, n_head: usize, n_kv_head: usize, head_dim: usize, element: KvFormat) -> Result<Self, GpuError> {
        Self::with_variant(gpu, n_head, n_kv_head, head_dim, element, DecodeVariant::for_gpu(gpu, false))
    }

    /// Same for selective attention: each KV head reads its selected tokens.
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn selective(gpu: &Gpu, n_head: usize, n_kv_head: usize, head_dim: usize, element: KvFormat) -> Result<Self, GpuError> {
        Self::with_variant(gpu, n_head, n_kv_head, head_dim, element, DecodeVariant::for_gpu(gpu, true))
    }

    /// Same with a given variant: `subgroup8` needs [`Gpu::has_subgroup8`].
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn with_variant(
        gpu: &Gpu,
        n_head: usize,
        n_kv_head: usize,
        head_dim: usize,
        element: KvFormat,
        variant: DecodeVariant,
    ) -> Result<AttentionDecode, GpuError> {
        Ok(AttentionDecode {
            split: gpu.kernel(&split_key(n_kv_head, n_head / n_kv_head, head_dim, element, variant))?,
            merge: gpu.kernel(&KernelKey::new("attention/decode_merge", &[]))?,
            n_head,
            n_kv_head,
            head_dim,
            selective: variant.selective,
        })
    }

    /// Bytes of the accumulators of `n_splits` splits.
    pub fn acc_bytes(&self, n_splits: usize) -> u64 {
        (self.n_head * n_splits * self.head_dim * 4) as u64
    }

    /// Bytes of the maxima and sums of `n_splits` splits.
    pub fn state_bytes(&self, n_splits: usize) -> u64 {
        (self.n_head * n_splits * 8) as u64
    }

    /// Binds q f32 `[R, H, D]`, the blocks and table of the segment, acc and state.
    ///
    /// # Errors
    /// Buffers the device refuses to bind.
    pub fn bind_split(&self, gpu: &Gpu, slices: [&Slice; 5]) -> Result<Binding, GpuError> {
        gpu.bind(&self.split, &slices)
    }

    /// Binds acc, state and out f32 `[R, H, D]`.
    ///
    /// # Errors
    /// Buffers the device refuses to bind.
    pub fn bind_merge(&self, gpu: &Gpu, slices: [&Slice; 3]) -> Result<Binding, GpuError> {
        gpu.bind(&self.merge, &slices)
    }

    /// Records the splits of one segment.
    pub fn record_split(&self, recorder: &mut Recorder, binding: &Binding, keys: SegmentKeys) {
        let rows = SplitRows { first: 0, n: 1, n_splits: keys.n_keys.div_ceil(SPLIT_KEYS) };
        self.record_rows(recorder, binding, keys, rows);
    }

    /// Same for several rows of q. Each has room for `keys.n_splits` splits.
    pub fn record_rows(&self, recorder: &mut Recorder, binding: &Binding, keys: SegmentKeys, rows: SplitRows) {
        let group = self.n_head / self.n_kv_head;
        let params = SplitParams {
            n_keys: keys.n_keys as u32,
            n_blocks: keys.n_blocks as u32,
            group: group as u32,
            first_split: keys.first_split as u32,
            n_splits: keys.n_splits as u32,
            first_group: (rows.first * self.n_kv_head) as u32,
            n_lists: (if self.selective { rows.n } else { 1 } * self.n_kv_head) as u32,
        };
        let head_sets = group.div_ceil(group.min(MAX_HEADS_PER_WORKGROUP));
        let grid = [rows.n_splits as u32, (rows.n * self.n_kv_head) as u32, head_sets as u32];
        recorder.dispatch(&self.split, binding, &params, grid);
    }

    /// Records the merge of all splits.
    pub fn record_merge(&self, recorder: &mut Recorder, binding: &Binding, n_splits: usize) {
        self.record_merge_rows(recorder, binding, n_splits, 1);
    }

    /// Records the merges of the first `n_rows` rows, each of `n_splits` splits.
    pub fn record_merge_rows(&self, recorder: &mut Recorder, binding: &Binding, n_splits: usize, n_rows: usize) {
        let params = MergeParams { n_splits: n_splits as u32, head_dim: self.head_dim as u32 };
        recorder.dispatch(&self.merge, binding, &params, [(n_rows * self.n_head) as u32, 1, 1]);
    }
}
