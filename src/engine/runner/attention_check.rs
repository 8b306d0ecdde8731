//! Attention check: the fast attention kernels against the exact ones, on synthetic keys, before a model uses them.
//!
//! Cooperative matrices have given nonsense in attention on a driver that multiplied them correctly elsewhere.

use super::kernel_check::{MAX_NMSE, nmse};
use crate::base::limits::KV_BLOCK_TOKENS;
use crate::base::{ModelDims, Rng};
use crate::gpu::kernels::KvFormat;
use crate::gpu::kernels::attention_decode::{AttentionDecode, DecodeKernel, DecodeVariant, SegmentEntries, SegmentKeys};
use crate::gpu::kernels::attention_prefill::{AttentionPrefill, KeyTile, PrefillVariant};
use crate::gpu::kernels::linear::Precision;
use crate::gpu::{Gpu, GpuError, Recorder, Slice};

/// New tokens, and all keys: several tiles and splits, ragged.
const N_NEW: usize = 41;
const N_KEYS: usize = 233;

/// Queries, keys and values of one segment.
struct Synthetic {
    /// f32 `[N_NEW, H, D]`
    q: Slice,
    /// blocks of f16 or f32
    kv: Slice,
    table: Slice,
    element: KvFormat,
}

/// The precision of attention on this device: the wanted one, or exact if its kernels do not agree with the exact ones. `notes` gets
/// a sentence in this case.
///
/// # Errors
/// An exact kernel that does not compile, out of VRAM, a lost device.
pub(super) fn checked_precision(
    gpu: &Gpu,
    dims: &ModelDims,
    element: KvFormat,
    precision: Precision,
    notes: &mut Vec<String>,
) -> Result<Precision, GpuError> {
    if precision == Precision::Exact || gpu.uses_software_kernels() {
        return Ok(precision);
    }
    let synthetic = Synthetic::new(gpu, dims, element)?;
    let prefill = |precision| synthetic.prefill(gpu, dims, PrefillVariant::for_gpu(gpu, dims.head_dim, element, precision));
    let decode = |precision| synthetic.decode(gpu, dims, DecodeKernel::for_gpu(gpu, precision));
    let exact = [("prefill", prefill(Precision::Exact)?), ("decode", decode(Precision::Exact)?)];
    let fast = [prefill(Precision::Fast), decode(Precision::Fast)];
    for ((what, want), got) in exact.into_iter().zip(fast) {
        let reason = match got {
            Ok(got) => match nmse(&got, &want) {
                Some(error) if error <= MAX_NMSE => continue,
                Some(error) => format!("{what} gives a relative error of {:.1e}", error.sqrt()),
                None => format!("{what} gives values that are not numbers"),
            },
            Err(error @ GpuError::Shader { .. }) => error.to_string(),
            Err(error) => return Err(error),
        };
        notes.push(format!("the fast attention kernels are not used on {}: {reason}", gpu.info().name));
        return Ok(Precision::Exact);
    }
    Ok(precision)
}

impl Synthetic {
    fn new(gpu: &Gpu, dims: &ModelDims, element: KvFormat) -> Result<Synthetic, GpuError> {
        let mut rng = Rng::new(7);
        let n_slots = dims.n_kv_head * N_KEYS.div_ceil(KV_BLOCK_TOKENS);
        let n_values = n_slots * 2 * KV_BLOCK_TOKENS * dims.head_dim;
        let values: Vec<f32> = (0..n_values).map(|_| rng.next_signed()).collect();
        let bytes: Vec<u8> = match element {
            KvFormat::F32 => bytemuck::cast_slice(&values).to_vec(),
            _ => values.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect(),
        };
        let q: Vec<f32> = (0..N_NEW * dims.n_head * dims.head_dim).map(|_| 0.5 * rng.next_signed()).collect();
        // Blocks in reverse, so that a kernel must read its table.
        let table: Vec<u32> = (0..n_slots as u32).rev().collect();
        let upload = |what: &str, bytes: &[u8]| -> Result<Slice, GpuError> {
            let slice = gpu.buffer(what, bytes.len() as u64)?.all();
            gpu.upload(&slice, bytes)?;
            Ok(slice)
        };
        Ok(Synthetic {
            q: upload("checked queries", bytemuck::cast_slice(&q))?,
            kv: upload("checked keys", &bytes)?,
            table: upload("checked table", bytemuck::cast_slice(&table))?,
            element,
        })
    }

    fn n_blocks() -> usize {
        N_KEYS.div_ceil(KV_BLOCK_TOKENS)
    }

    /// Attention of all new tokens, f32 `[N_NEW, H, D]`.
    fn prefill(&self, gpu: &Gpu, dims: &ModelDims, variant: PrefillVariant) -> Result<Vec<f32>, GpuError> {
        let op = AttentionPrefill::with_variant(gpu, dims.n_head, dims.n_kv_head, dims.head_dim, self.element, variant)?;
        let scores = gpu.buffer("checked scores", op.scores_bytes(N_NEW, N_KEYS))?.all();
        let state = gpu.buffer("checked state", op.state_bytes(N_NEW))?.all();
        let out = gpu.buffer("checked output", self.q.size)?.all();
        let bindings = op.bind(gpu, [&self.q, &self.kv, &self.table, &scores, &state, &out])?;
        let tile = KeyTile {
            n_tokens: N_NEW,
            first_key: 0,
            n_keys: N_KEYS,
            n_blocks: Synthetic::n_blocks(),
            mask_from: N_KEYS - N_NEW + 1,
            is_first: true,
            is_last: true,
        };
        let mut recorder = Recorder::new();
        op.record(&mut recorder, &bindings, tile);
        gpu.submit(&mut recorder)?;
        Ok(bytemuck::pod_collect_to_vec(&gpu.download(&out)?))
    }

    /// Attention of the first token over all keys, f32 `[H, D]`.
    fn decode(&self, gpu: &Gpu, dims: &ModelDims, kernel: DecodeKernel) -> Result<Vec<f32>, GpuError> {
        let variant = DecodeVariant { kernel, selective: false };
        let op = AttentionDecode::with_variant(gpu, dims.n_head, dims.n_kv_head, dims.head_dim, self.element, variant)?;
        let split_keys = op.split_keys(N_KEYS);
        let n_splits = N_KEYS.div_ceil(split_keys);
        let acc = gpu.buffer("checked splits", op.acc_bytes(n_splits))?.all();
        let state = gpu.buffer("checked split state", op.state_bytes(n_splits))?.all();
        let out = gpu.buffer("checked output", (dims.q_dim() * 4) as u64)?.all();
        let split = op.bind_split(gpu, [&self.q, &self.kv, &self.table, &acc, &state])?;
        let merge = op.bind_merge(gpu, [&acc, &state, &out], None)?;
        let keys = SegmentKeys {
            n_keys: N_KEYS,
            n_blocks: Synthetic::n_blocks(),
            first_split: 0,
            n_splits,
            split_keys,
            entries: SegmentEntries::ALL,
        };
        let mut recorder = Recorder::new();
        op.record_split(&mut recorder, &split, keys);
        op.record_merge(&mut recorder, &merge, n_splits);
        gpu.submit(&mut recorder)?;
        Ok(bytemuck::pod_collect_to_vec(&gpu.download(&out)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::FeatureOverrides;
    use crate::gpu::testing::gpu_with;

    #[test]
    fn fast_attention_agrees_with_exact_attention_and_a_changed_key_does_not() {
        let overrides = FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() };
        let Some(gpu) = gpu_with("fast_attention_agrees_with_exact_attention", overrides) else { return };
        let dims = ModelDims {
            n_layer: 1,
            hidden_dim: 256,
            n_head: 4,
            n_kv_head: 2,
            head_dim: 64,
            ffn_dim: 512,
            vocab_size: 64,
            context_len: 512,
        };
        let mut notes = Vec::new();
        let precision = checked_precision(&gpu, &dims, KvFormat::F16, Precision::Fast, &mut notes).unwrap();
        assert_eq!((precision, notes), (Precision::Fast, vec![]));
        let synthetic = Synthetic::new(&gpu, &dims, KvFormat::F16).unwrap();
        let want = synthetic.decode(&gpu, &dims, DecodeKernel::Fallback).unwrap();
        // The values of one block of 15 become another's.
        let block = KvFormat::F16.block_bytes(64);
        let bytes = gpu.download(&synthetic.kv.buffer.slice(0, block)).unwrap();
        gpu.upload(&synthetic.kv.buffer.slice(block, block), &bytes).unwrap();
        let got = synthetic.decode(&gpu, &dims, DecodeKernel::Fallback).unwrap();
        assert!(nmse(&got, &want).is_some_and(|error| error > MAX_NMSE));
    }
}
