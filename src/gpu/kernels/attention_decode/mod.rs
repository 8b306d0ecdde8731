//! Decode attention: one new token per sequence, split over keys, then merged (flash decoding).
//!
//! ```text
//! q [H, D] ─► splits of the keys: acc, max, sum   (one dispatch per segment) ─► merge ─► out [H, D]
//! ```
//! All segments have the same [`AttentionDecode::split_keys`], which depend on the keys of all of them.
//!
//! In selective attention the table has a list of tokens per KV head instead ([`TokenSlot`]): any tokens of the
//! segment, in any order and number. Shorter lists are padded with [`PAD`]; `n_keys` and the row stride are those of
//! the longest.
//!
//! Several tokens with the same pages can attend in one dispatch: each is a row of q, acc, state and out. They share a
//! table; in selective attention, the table has lists for the KV heads of each.

mod variant;

use std::sync::Arc;

use super::KvFormat;
use super::linear::{ActivationForm, COL_GROUP, ConvertedSlices, Precision};
use crate::base::limits::KV_BLOCK_TOKENS;
use crate::gpu::{Binding, Gpu, GpuError, Kernel, Recorder, Slice};
pub(super) use variant::variants;
pub use variant::{DecodeKernel, DecodeVariant};
use variant::{DecodeShape, min_subgroup};

/// The two compiled kernels.
pub struct AttentionDecode {
    split: Arc<Kernel>,
    /// by form of the result, f32 first
    merges: Vec<(ActivationForm, Arc<Kernel>)>,
    n_head: usize,
    shape: DecodeShape,
    variant: DecodeVariant,
}

/// Padding of a shorter list of tokens or blocks.
pub const PAD: u32 = u32::MAX;

/// Bind groups of a merge, by form of the result.
pub struct MergeBindings(Vec<(ActivationForm, Binding)>);

/// Table entry: a token that a KV head reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenSlot(u32);

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
    /// keys of each split ([`AttentionDecode::split_keys`])
    pub split_keys: usize,
    /// entries of the table that are in this segment; those of others are skipped (selective attention)
    pub entries: SegmentEntries,
}

/// Range of [`TokenSlot`]s of a segment, whose first token has been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentEntries {
    /// first entry
    pub first: u32,
    /// number of entries
    pub n: u32,
}

impl SegmentEntries {
    /// The table is of this segment alone.
    pub const ALL: SegmentEntries = SegmentEntries { first: 0, n: u32::MAX };
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
    first_entry: u32,
    n_entries: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct SubgroupSplitParams {
    split: SplitParams,
    split_keys: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct MergeParams {
    n_splits: u32,
    head_dim: u32,
    n_head: u32,
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

impl AttentionDecode {
    /// Compiles the variants for H = `n_head`, G = `n_kv_head`, D = `head_dim` (a multiple of 8, at most 512).
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(
        gpu: &Gpu,
        n_head: usize,
        n_kv_head: usize,
        head_dim: usize,
        element: KvFormat,
        precision: Precision,
    ) -> Result<Self, GpuError> {
        Self::with_variant(gpu, n_head, n_kv_head, head_dim, element, DecodeVariant::for_gpu(gpu, precision, false))
    }

    /// Same for selective attention: each KV head reads its selected tokens.
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn selective(
        gpu: &Gpu,
        n_head: usize,
        n_kv_head: usize,
        head_dim: usize,
        element: KvFormat,
        precision: Precision,
    ) -> Result<Self, GpuError> {
        Self::with_variant(gpu, n_head, n_kv_head, head_dim, element, DecodeVariant::for_gpu(gpu, precision, true))
    }

    /// Same with a given variant, which must run on the GPU ([`DecodeKernel::runs_on`]).
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
        let group = n_head / n_kv_head;
        let splits = gpu.tuning().decode_splits;
        let shape = DecodeShape { n_kv_head, group, head_dim, element, min_subgroup: min_subgroup(gpu), splits };
        Ok(AttentionDecode {
            split: gpu.kernel(&variant.split_key(shape))?,
            merges: merge_kernels(gpu, n_head, head_dim, variant.kernel)?,
            n_head,
            shape,
            variant,
        })
    }

    /// Keys of each split if all segments together have `n_keys`; the same in every format and for selected tokens.
    pub fn split_keys(&self, n_keys: usize) -> usize {
        self.variant.kernel.split_keys(self.shape, n_keys)
    }

    /// Maximum number of splits if all segments together have up to `n_keys`, and each but one ends with a full split.
    pub fn max_splits(&self, n_keys: usize) -> usize {
        self.variant.kernel.max_splits(self.shape, n_keys)
    }

    /// True if each key is read once for all query heads of its group.
    pub fn reads_once(&self) -> bool {
        self.shape.group <= self.variant.kernel.heads_per_workgroup(self.shape)
    }

    /// Bytes of the accumulators of `n_splits` splits.
    pub fn acc_bytes(&self, n_splits: usize) -> u64 {
        (self.n_head * n_splits * self.shape.head_dim * 4) as u64
    }

    /// Bytes of the maxima and sums of `n_splits` splits.
    pub fn state_bytes(&self, n_splits: usize) -> u64 {
        (self.n_head * n_splits * 8) as u64
    }

    /// Binds q f32 `[R, H, D]`, the blocks and table of the segment, acc and state.
    ///
    /// # Errors
    /// Buffers that the GPU refuses to bind.
    pub fn bind_split(&self, gpu: &Gpu, slices: [&Slice; 5]) -> Result<Binding, GpuError> {
        gpu.bind(&self.split, &slices)
    }

    /// Binds acc, state, out f32 `[R, H, D]` and, if there are any, buffers of converted activations of R tokens.
    ///
    /// # Errors
    /// Buffers that the GPU refuses to bind.
    pub fn bind_merge(
        &self,
        gpu: &Gpu,
        [acc, state, out]: [&Slice; 3],
        converted: Option<ConvertedSlices<'_>>,
    ) -> Result<MergeBindings, GpuError> {
        let mut bindings = Vec::new();
        for (form, kernel) in &self.merges {
            let outputs = match (form, converted) {
                (ActivationForm::F32, _) => vec![out],
                (_, Some(converted)) => vec![converted.values, converted.scales],
                _ => continue,
            };
            let slices: Vec<&Slice> = [acc, state].into_iter().chain(outputs).collect();
            bindings.push((*form, gpu.bind(kernel, &slices)?));
        }
        Ok(MergeBindings(bindings))
    }

    /// Records the splits of one segment.
    pub fn record_split(&self, recorder: &mut Recorder, binding: &Binding, keys: SegmentKeys) {
        let rows = SplitRows { first: 0, n: 1, n_splits: keys.n_keys.div_ceil(keys.split_keys) };
        self.record_rows(recorder, binding, keys, rows);
    }

    /// Same for several rows of q. Each has room for `keys.n_splits` splits.
    pub fn record_rows(&self, recorder: &mut Recorder, binding: &Binding, keys: SegmentKeys, rows: SplitRows) {
        let DecodeShape { n_kv_head, group, .. } = self.shape;
        let params = SplitParams {
            n_keys: keys.n_keys as u32,
            n_blocks: keys.n_blocks as u32,
            group: group as u32,
            first_split: keys.first_split as u32,
            n_splits: keys.n_splits as u32,
            first_group: (rows.first * n_kv_head) as u32,
            n_lists: (if self.variant.selective { rows.n } else { 1 } * n_kv_head) as u32,
            first_entry: keys.entries.first,
            n_entries: keys.entries.n,
        };
        let head_sets = group.div_ceil(self.variant.kernel.heads_per_workgroup(self.shape));
        let grid = [rows.n_splits as u32, (rows.n * n_kv_head) as u32, head_sets as u32];
        if self.variant.kernel == DecodeKernel::Subgroup {
            let params = SubgroupSplitParams { split: params, split_keys: keys.split_keys as u32 };
            recorder.dispatch(&self.split, binding, &params, grid);
        } else {
            recorder.dispatch(&self.split, binding, &params, grid);
        }
    }

    /// Records the merge of all splits, in f32.
    pub fn record_merge(&self, recorder: &mut Recorder, bindings: &MergeBindings, n_splits: usize) {
        self.record_merge_rows(recorder, bindings, n_splits, 1, ActivationForm::F32);
    }

    /// Records the merges of the first `n_rows` rows, each of `n_splits` splits. Returns the form of the result: the wanted one, or
    /// f32 if no kernel has it.
    pub fn record_merge_rows(
        &self,
        recorder: &mut Recorder,
        bindings: &MergeBindings,
        n_splits: usize,
        n_rows: usize,
        wanted: ActivationForm,
    ) -> ActivationForm {
        let (n_head, head_dim) = (self.n_head as u32, self.shape.head_dim as u32);
        let params = MergeParams { n_splits: n_splits as u32, head_dim, n_head };
        let columns = self.variant.kernel.merge_columns(self.shape.head_dim);
        let bound = bindings.0.iter().find(|(form, _)| *form == wanted).or(bindings.0.first());
        let Some((form, binding)) = bound else { return ActivationForm::F32 };
        if let Some((_, kernel)) = self.merges.iter().find(|(f, _)| f == form) {
            recorder.dispatch(kernel, binding, &params, [(n_rows * self.n_head) as u32, columns as u32, 1]);
        }
        *form
    }
}

/// Kernels that merge splits, by form of the result. A block of 32 quantized columns belongs to one head.
fn merge_kernels(
    gpu: &Gpu,
    n_head: usize,
    head_dim: usize,
    kernel: DecodeKernel,
) -> Result<Vec<(ActivationForm, Arc<Kernel>)>, GpuError> {
    let has_blocks = head_dim.is_multiple_of(32) && (n_head * head_dim).is_multiple_of(COL_GROUP);
    let forms = ActivationForm::ALL.into_iter().filter(|form| *form == ActivationForm::F32 || has_blocks);
    let keys = forms.filter_map(|form| Some((form, kernel.merge_key(form)?)));
    keys.map(|(form, key)| Ok((form, gpu.kernel(&key)?))).collect()
}
