//! Sampling on the GPU: the best token, or the top-k candidates with the maximum and sum of the softmax.

use std::sync::Arc;

use crate::base::limits::TOP_K_CANDIDATES;
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// Capacity of the candidate list (ties with the k-th may exceed k).
pub const CANDIDATE_CAPACITY: usize = TOP_K_CANDIDATES * 2;
/// Bytes of the result of [`Sample::record_argmax`].
pub const ARGMAX_BYTES: u64 = 16;
/// Bytes of the result of [`Sample::record_top_k`].
pub const TOP_K_BYTES: u64 = (4 + 2 * CANDIDATE_CAPACITY as u64) * 4;

/// The compiled kernels.
pub struct Sample {
    argmax: Arc<Kernel>,
    top_k: Arc<Kernel>,
}

/// Top-k candidates.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidates {
    /// (token, logit), best first; of equal logits the lower token first
    pub entries: Vec<(u32, f32)>,
    /// the largest logit
    pub max: f32,
    /// sum of exp(logit - max) over the whole vocabulary
    pub sum: f32,
    /// true if more entries tie with the last one than fit; `entries` may lack some of them
    pub overflowed: bool,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct ArgmaxParams {
    vocab_size: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct TopKParams {
    vocab_size: u32,
    k: u32,
}

fn top_k_key() -> KernelKey {
    KernelKey::new("sample/top_k", &[("CAPACITY", CANDIDATE_CAPACITY.to_string())])
}

pub(super) fn variants() -> Vec<KernelKey> {
    vec![KernelKey::new("sample/argmax", &[]), top_k_key()]
}

impl Sample {
    /// Compiles both kernels.
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu) -> Result<Sample, GpuError> {
        Ok(Sample { argmax: gpu.kernel(&KernelKey::new("sample/argmax", &[]))?, top_k: gpu.kernel(&top_k_key())? })
    }

    /// Binds logits f32 `[V]` and a result buffer of at least [`TOP_K_BYTES`], for either op.
    ///
    /// # Errors
    /// Buffers the device refuses to bind.
    pub fn bind(&self, gpu: &Gpu, logits: &Slice, out: &Slice) -> Result<[Binding; 2], GpuError> {
        Ok([gpu.bind(&self.argmax, &[logits, out])?, gpu.bind(&self.top_k, &[logits, out])?])
    }

    /// Records the search for the best token.
    pub fn record_argmax(&self, recorder: &mut Recorder, bindings: &[Binding; 2], vocab_size: usize) {
        recorder.dispatch(&self.argmax, &bindings[0], &ArgmaxParams { vocab_size: vocab_size as u32 }, [1, 1, 1]);
    }

    /// Records the search for the best `k` tokens (at most [`TOP_K_CANDIDATES`]).
    pub fn record_top_k(&self, recorder: &mut Recorder, bindings: &[Binding; 2], vocab_size: usize, k: usize) {
        let params = TopKParams { vocab_size: vocab_size as u32, k: k.min(TOP_K_CANDIDATES) as u32 };
        recorder.dispatch(&self.top_k, &bindings[1], &params, [1, 1, 1]);
    }
}

/// Token and logit in the result of `record_argmax`.
pub fn parse_argmax(bytes: &[u8]) -> (u32, f32) {
    (word(bytes, 0), f32::from_bits(word(bytes, 1)))
}

/// Candidates in the result of `record_top_k`.
pub fn parse_top_k(bytes: &[u8], k: usize) -> Candidates {
    let found = word(bytes, 0) as usize;
    let mut entries: Vec<(u32, f32)> =
        (0..found.min(CANDIDATE_CAPACITY)).map(|i| (word(bytes, 4 + 2 * i), f32::from_bits(word(bytes, 5 + 2 * i)))).collect();
    entries.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    entries.truncate(k);
    let (max, sum) = (f32::from_bits(word(bytes, 1)), f32::from_bits(word(bytes, 2)));
    Candidates { entries, max, sum, overflowed: found > CANDIDATE_CAPACITY }
}

fn word(bytes: &[u8], i: usize) -> u32 {
    bytes.get(4 * i..4 * i + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}
