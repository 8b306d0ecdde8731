//! Shader variants of decode attention: which one fits a GPU, and how each divides heads and keys.

use super::super::KvFormat;
use super::super::linear::{ActivationForm, Precision};
use crate::gpu::{Gpu, KernelKey};

/// Keys per workgroup, except of [`DecodeKernel::Subgroup`].
const SPLIT_KEYS: usize = 256;
/// Maximum query heads of a group per workgroup (bounds registers, and workgroup memory to 13 KiB).
const MAX_HEADS_PER_WORKGROUP: usize = 4;
/// Lanes of a workgroup of [`DecodeKernel::Subgroup`], and the least subgroup that it runs on.
const SUBGROUP_LANES: usize = 128;
const LEAST_SUBGROUP: usize = 8;
/// Maximum lanes that share a token: 16 bytes each of 128 f16.
const MAX_TOKEN_LANES: usize = 16;
const MAX_SUBGROUP_SPLIT_KEYS: usize = 1024;
/// Lanes of a workgroup that merges splits on a real GPU.
const MERGE_LANES: usize = 256;
/// Workgroup memory for the sums of the slots, bytes: more heads are added one batch after another.
const SLOT_SUM_BYTES: usize = 8 << 10;

/// Kernel for a class of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeKernel {
    /// software device with subgroups of exactly 8 lanes
    Subgroup8,
    /// without subgroup operations
    Fallback,
    /// real GPU with subgroup operations: lanes share a token, and splits grow with the number of keys
    Subgroup,
}

/// Kernel variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeVariant {
    /// class of GPUs
    pub kernel: DecodeKernel,
    /// tables are lists of selected tokens
    pub selective: bool,
}

/// Heads and elements of a variant.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecodeShape {
    pub n_kv_head: usize,
    /// query heads per KV head
    pub group: usize,
    pub head_dim: usize,
    pub element: KvFormat,
    /// lanes of the smallest subgroup, a power of two
    pub min_subgroup: usize,
    /// splits that keys are divided into by [`DecodeKernel::Subgroup`], as long as those are neither too short nor too long
    pub splits: usize,
}

impl DecodeKernel {
    /// Every kernel.
    pub const ALL: [DecodeKernel; 3] = [DecodeKernel::Subgroup8, DecodeKernel::Fallback, DecodeKernel::Subgroup];

    /// The best one for `gpu`.
    pub fn for_gpu(gpu: &Gpu, precision: Precision) -> DecodeKernel {
        match gpu.uses_software_kernels() {
            true if gpu.has_subgroup8() => DecodeKernel::Subgroup8,
            false if precision == Precision::Fast && DecodeKernel::Subgroup.runs_on(gpu) => DecodeKernel::Subgroup,
            _ => DecodeKernel::Fallback,
        }
    }

    /// True if the GPU has the features of this kernel.
    pub fn runs_on(self, gpu: &Gpu) -> bool {
        match self {
            DecodeKernel::Subgroup8 => gpu.has_subgroup8(),
            DecodeKernel::Fallback => true,
            DecodeKernel::Subgroup => gpu.has_subgroups() && min_subgroup(gpu) >= LEAST_SUBGROUP,
        }
    }
}

impl DecodeVariant {
    /// The best one for `gpu`.
    pub fn for_gpu(gpu: &Gpu, precision: Precision, selective: bool) -> DecodeVariant {
        DecodeVariant { kernel: DecodeKernel::for_gpu(gpu, precision), selective }
    }

    /// The kernel of one split.
    pub(super) fn split_key(self, shape: DecodeShape) -> KernelKey {
        let DecodeShape { n_kv_head, head_dim, element, .. } = shape;
        let mut defines = element.defines(n_kv_head, head_dim);
        if self.selective {
            defines.push(("TOKEN_TABLE", String::new()));
        }
        defines.push(("GR", self.kernel.heads_per_workgroup(shape).to_string()));
        match self.kernel {
            DecodeKernel::Fallback => KernelKey::new("attention/decode_split", &defines),
            DecodeKernel::Subgroup8 => {
                element.widen(&mut defines);
                defines.push(("NC", head_dim.div_ceil(64).to_string()));
                KernelKey::new("attention/decode_split_subgroup8", &defines)
            }
            DecodeKernel::Subgroup => {
                defines.extend(shape.subgroup_defines(self.selective));
                KernelKey::new("attention/decode_split_subgroup", &defines)
            }
        }
    }
}

impl DecodeKernel {
    /// Query heads of a workgroup.
    pub(super) fn heads_per_workgroup(self, shape: DecodeShape) -> usize {
        match self {
            DecodeKernel::Subgroup8 | DecodeKernel::Fallback => shape.group.min(MAX_HEADS_PER_WORKGROUP),
            // More words per lane leave registers for fewer heads.
            DecodeKernel::Subgroup => {
                let most = (8 / shape.words()).clamp(1, MAX_HEADS_PER_WORKGROUP);
                shape.group.next_power_of_two().min(floor_to_power_of_two(most))
            }
        }
    }

    /// Keys of each split if all segments together have `n_keys`.
    pub(super) fn split_keys(self, shape: DecodeShape, n_keys: usize) -> usize {
        match self {
            DecodeKernel::Subgroup8 | DecodeKernel::Fallback => SPLIT_KEYS,
            DecodeKernel::Subgroup => {
                let keys = n_keys.div_ceil(shape.splits).next_power_of_two();
                keys.clamp(shape.least_split_keys(), MAX_SUBGROUP_SPLIT_KEYS)
            }
        }
    }

    /// Maximum number of splits of one segment with all of up to `n_keys` keys.
    pub(super) fn max_splits(self, shape: DecodeShape, n_keys: usize) -> usize {
        match self {
            DecodeKernel::Subgroup8 | DecodeKernel::Fallback => n_keys.div_ceil(SPLIT_KEYS),
            DecodeKernel::Subgroup => {
                let of_least = n_keys.div_ceil(shape.least_split_keys()).min(shape.splits);
                of_least.max(n_keys.div_ceil(MAX_SUBGROUP_SPLIT_KEYS))
            }
        }
    }

    /// The kernel that merges the splits, with the result in `form`. None if there is no such kernel.
    pub(super) fn merge_key(self, form: ActivationForm) -> Option<KernelKey> {
        match (self, form) {
            (DecodeKernel::Subgroup8 | DecodeKernel::Fallback, ActivationForm::F32) => {
                Some(KernelKey::new("attention/decode_merge", &[]))
            }
            (DecodeKernel::Subgroup, ActivationForm::F32) => Some(KernelKey::new("attention/decode_merge_subgroup", &[])),
            (DecodeKernel::Subgroup, ActivationForm::Bytes { even_odd }) => {
                let mut defines = vec![("BYTES", String::new()), ("LANES", MERGE_LANES.to_string())];
                defines.extend(even_odd.then(|| ("EVEN_ODD", String::new())));
                Some(KernelKey::new("attention/decode_merge_subgroup", &defines))
            }
            _ => None,
        }
    }

    /// Workgroups of a merge per query head.
    pub(super) fn merge_columns(self, head_dim: usize) -> usize {
        match self {
            DecodeKernel::Subgroup8 | DecodeKernel::Fallback => 1,
            DecodeKernel::Subgroup => head_dim.div_ceil(32),
        }
    }
}

/// [`DecodeKernel::Subgroup`]: lanes, words and tokens.
impl DecodeShape {
    /// Lanes that share a token, 4 to 16: at least as many as query heads of a workgroup.
    fn token_lanes(self) -> usize {
        (self.head_dim / 8).next_power_of_two().clamp(MAX_HEADS_PER_WORKGROUP, MAX_TOKEN_LANES.min(self.min_subgroup))
    }

    /// Words of 8 elements per lane and token.
    fn words(self) -> usize {
        (self.head_dim / 8).div_ceil(self.token_lanes())
    }

    /// Tokens of a lane in flight. Their keys and values are in registers; of selected tokens, the scales of the keys too.
    fn tokens_in_flight(self, selective: bool) -> usize {
        let is_wide = self.words() > 1 || self.element == KvFormat::F32 || selective && self.element.is_quantized();
        if is_wide { 4 } else { 8 }
    }

    /// Keys that keep every lane busy, in any format.
    fn least_split_keys(self) -> usize {
        SUBGROUP_LANES / self.token_lanes() * 8
    }

    fn subgroup_defines(self, selective: bool) -> Vec<(&'static str, String)> {
        let (lanes, tokens) = (self.token_lanes(), self.tokens_in_flight(selective));
        let heads = DecodeKernel::Subgroup.heads_per_workgroup(self);
        let n_scores = heads * tokens;
        // Lanes of a slot with different scores; the others have copies.
        let different = n_scores.min(lanes);
        let slot_sums = SUBGROUP_LANES / self.min_subgroup * self.head_dim * 4;
        let batch = floor_to_power_of_two((SLOT_SUM_BYTES / slot_sums).clamp(1, heads));
        let numbers = [
            ("W", lanes),
            ("C", self.words()),
            ("U", tokens),
            ("N", n_scores),
            ("SCORES", n_scores / different),
            ("COPIES", lanes / different),
            ("SPAN_BITS", (lanes / heads).ilog2() as usize),
            ("MIN_SUBGROUP", self.min_subgroup),
            ("MERGED_BITS", (self.min_subgroup / lanes).ilog2() as usize),
            ("BATCH", batch),
        ];
        let flags = [("W8", lanes >= 8), ("W16", lanes >= 16), ("COPIES_3", n_scores < 8), ("COPIES_4", n_scores < 16)];
        let flags = flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| (name, String::new()));
        numbers.map(|(name, number)| (name, number.to_string())).into_iter().chain(flags).collect()
    }
}

/// Lanes of the smallest subgroup, rounded down to a power of two, at most 64.
pub(super) fn min_subgroup(gpu: &Gpu) -> usize {
    floor_to_power_of_two((gpu.subgroup_sizes().0 as usize).clamp(1, 64))
}

fn floor_to_power_of_two(n: usize) -> usize {
    1 << n.ilog2()
}

pub(in crate::gpu::kernels) fn variants(n_kv_head: usize, head_dim: usize, element: KvFormat) -> Vec<KernelKey> {
    let merges = [DecodeKernel::Fallback, DecodeKernel::Subgroup];
    let mut keys: Vec<KernelKey> = merges
        .into_iter()
        .flat_map(|kernel| ActivationForm::ALL.into_iter().filter_map(move |form| kernel.merge_key(form)))
        .collect();
    for kernel in DecodeKernel::ALL {
        let min_subgroups = if kernel == DecodeKernel::Subgroup { &[8, 32][..] } else { &[8] };
        for (&min_subgroup, selective) in min_subgroups.iter().flat_map(|n| [(n, false), (n, true)]) {
            let shape = |group| DecodeShape { n_kv_head, group, head_dim, element, min_subgroup, splits: 64 };
            let variant = DecodeVariant { kernel, selective };
            keys.extend((1..=MAX_HEADS_PER_WORKGROUP).map(|group| variant.split_key(shape(group))));
        }
    }
    keys.sort();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(head_dim: usize, min_subgroup: usize) -> DecodeShape {
        DecodeShape { n_kv_head: 8, group: 4, head_dim, element: KvFormat::F16, min_subgroup, splits: 64 }
    }

    #[test]
    fn splits_of_real_gpus_grow_with_the_keys_and_those_of_software_devices_do_not() {
        let keys = [100, 4096, 8192, 32_768, 131_072, 1 << 20];
        let split_keys = |kernel: DecodeKernel, head_dim| keys.map(|n| kernel.split_keys(shape(head_dim, 32), n));
        assert_eq!(split_keys(DecodeKernel::Subgroup, 128), [64, 64, 128, 512, 1024, 1024]);
        assert_eq!(split_keys(DecodeKernel::Subgroup, 64), [128, 128, 128, 512, 1024, 1024]);
        assert_eq!(split_keys(DecodeKernel::Fallback, 128), [256; 6]);
        assert_eq!(split_keys(DecodeKernel::Subgroup8, 64), [256; 6]);
    }

    #[test]
    fn max_splits_bounds_the_splits_of_every_smaller_number_of_keys() {
        for kernel in DecodeKernel::ALL {
            for (head_dim, splits) in [(8, 64), (64, 64), (128, 64), (128, 32), (128, 128)] {
                let mut most = 0;
                for n_keys in (1..200_000usize).step_by(63) {
                    let shape = DecodeShape { splits, ..shape(head_dim, 32) };
                    most = most.max(n_keys.div_ceil(kernel.split_keys(shape, n_keys)));
                    assert!(kernel.max_splits(shape, n_keys) >= most, "{kernel:?}, {head_dim}: {n_keys} keys");
                }
            }
        }
    }

    #[test]
    fn lanes_of_a_token_fit_every_head_and_subgroup() {
        for head_dim in (8..=256).step_by(8) {
            for min_subgroup in [8, 16, 32, 64] {
                let shape = shape(head_dim, min_subgroup);
                let lanes = shape.token_lanes();
                assert!(lanes <= min_subgroup && lanes * shape.words() * 8 >= head_dim, "{head_dim}, {min_subgroup}");
                assert!(shape.least_split_keys().is_multiple_of(64) && shape.least_split_keys() <= 256);
            }
        }
        let of_128 = shape(128, 32);
        assert_eq!((of_128.token_lanes(), of_128.words(), of_128.tokens_in_flight(false)), (16, 1, 8));
    }
}
