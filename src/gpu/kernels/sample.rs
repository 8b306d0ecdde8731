//! Sampling on the GPU: the best token, or the top-k candidates with the maximum and sum of the softmax.
//!
//! A software device searches the vocabulary with one workgroup. On a real GPU, many workgroups search a slice each, and one
//! merges their results. There, a token is also drawn from the candidates, so that the next step can begin before the CPU has
//! sampled. The CPU decides: if it samples another token, that step is discarded.

use std::sync::Arc;

use crate::base::limits::TOP_K_CANDIDATES;
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// Capacity of the candidate list (ties with the k-th may exceed k).
pub const CANDIDATE_CAPACITY: usize = TOP_K_CANDIDATES * 2;
/// Bytes of the result of [`Sample::record_argmax`].
pub const ARGMAX_BYTES: u64 = 16;
/// Bytes of the result of [`Sample::record_top_k`].
pub const TOP_K_BYTES: u64 = (4 + 2 * CANDIDATE_CAPACITY as u64) * 4;

/// Slices of the vocabulary on a real GPU.
const SLICES: usize = 32;
/// Word of the result of [`Sample::record_argmax`] with the token.
const BEST_WORD: usize = 0;
/// Word of the result of [`Sample::record_draw`] with the token.
const DRAWN_WORD: usize = 3;

/// The compiled kernels.
pub struct Sample {
    argmax: Search,
    top_k: Search,
    /// None on a software device
    draw: Option<Arc<Kernel>>,
    slices: Option<Slice>,
}

/// One op: a kernel for the whole vocabulary, or one for slices and one that merges their results.
struct Search {
    first: Arc<Kernel>,
    merge: Option<Arc<Kernel>>,
}

/// Bind groups of both ops.
pub struct SampleBindings {
    argmax: SearchBinding,
    top_k: SearchBinding,
    draw: Option<Binding>,
    out: Slice,
}

struct SearchBinding {
    first: Binding,
    merge: Option<Binding>,
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

/// Parameters of one draw from the candidates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// candidates that remain; 0: all
    pub top_k: u32,
    /// fraction of the mass that remains; 1: all
    pub top_p: f32,
    /// least fraction of the mass of the best token; 0: none
    pub min_p: f32,
    /// positive
    pub temperature: f32,
    /// uniform in [0, 1)
    pub random: f32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct DrawParams {
    keeps: u32,
    top_k: u32,
    top_p: f32,
    min_p: f32,
    temperature: f32,
    random: f32,
}

/// Part of a search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Slice,
    Merge,
}

fn key(shader: &'static str, part: Part) -> KernelKey {
    let mut defines = vec![];
    if shader != "sample/argmax" {
        defines.push(("CAPACITY", CANDIDATE_CAPACITY.to_string()));
    }
    if part != Part::Whole {
        defines.push(("SLICES", SLICES.to_string()));
        defines.push((if part == Part::Slice { "SLICE" } else { "MERGE" }, String::new()));
    }
    KernelKey::new(shader, &defines)
}

pub(super) fn variants() -> Vec<KernelKey> {
    let parts = [Part::Whole, Part::Slice, Part::Merge];
    let searches = ["sample/argmax", "sample/top_k"].into_iter().flat_map(|shader| parts.map(|part| key(shader, part)));
    searches.chain([key("sample/draw", Part::Whole)]).collect()
}

impl Search {
    fn new(gpu: &Gpu, shader: &'static str, in_slices: bool) -> Result<Search, GpuError> {
        let first = gpu.kernel(&key(shader, if in_slices { Part::Slice } else { Part::Whole }))?;
        let merge = in_slices.then(|| gpu.kernel(&key(shader, Part::Merge))).transpose()?;
        Ok(Search { first, merge })
    }

    fn bind(&self, gpu: &Gpu, logits: &Slice, slices: Option<&Slice>, out: &Slice) -> Result<SearchBinding, GpuError> {
        match (&self.merge, slices) {
            (Some(merge), Some(slices)) => Ok(SearchBinding {
                first: gpu.bind(&self.first, &[logits, slices])?,
                merge: Some(gpu.bind(merge, &[slices, out])?),
            }),
            _ => Ok(SearchBinding { first: gpu.bind(&self.first, &[logits, out])?, merge: None }),
        }
    }

    fn record<P: bytemuck::Pod>(&self, recorder: &mut Recorder, binding: &SearchBinding, params: &P) {
        let n_groups = if self.merge.is_some() { SLICES as u32 } else { 1 };
        recorder.dispatch(&self.first, &binding.first, params, [n_groups, 1, 1]);
        if let (Some(merge), Some(binding)) = (&self.merge, &binding.merge) {
            recorder.dispatch(merge, binding, params, [1, 1, 1]);
        }
    }
}

impl Sample {
    /// Compiles the ops.
    ///
    /// # Errors
    /// A kernel that does not compile, out of VRAM, or a lost device.
    pub fn new(gpu: &Gpu) -> Result<Sample, GpuError> {
        let in_slices = !gpu.uses_software_kernels();
        let slices = in_slices.then(|| gpu.buffer("sampling slices", SLICES as u64 * TOP_K_BYTES)).transpose()?;
        Ok(Sample {
            argmax: Search::new(gpu, "sample/argmax", in_slices)?,
            top_k: Search::new(gpu, "sample/top_k", in_slices)?,
            draw: in_slices.then(|| gpu.kernel(&key("sample/draw", Part::Whole))).transpose()?,
            slices: slices.map(|buffer| buffer.all()),
        })
    }

    /// Binds logits f32 `[V]` and a result buffer of at least [`TOP_K_BYTES`], for every op.
    ///
    /// # Errors
    /// Buffers that the GPU refuses to bind.
    pub fn bind(&self, gpu: &Gpu, logits: &Slice, out: &Slice) -> Result<SampleBindings, GpuError> {
        let bind = |op: &Search| op.bind(gpu, logits, self.slices.as_ref(), out);
        let draw = self.draw.as_ref().map(|kernel| gpu.bind(kernel, &[out])).transpose()?;
        Ok(SampleBindings { argmax: bind(&self.argmax)?, top_k: bind(&self.top_k)?, draw, out: out.clone() })
    }

    /// Records the search for the best token.
    pub fn record_argmax(&self, recorder: &mut Recorder, bindings: &SampleBindings, vocab_size: usize) {
        self.argmax.record(recorder, &bindings.argmax, &ArgmaxParams { vocab_size: vocab_size as u32 });
    }

    /// Records the search for the best `k` tokens (at most [`TOP_K_CANDIDATES`]).
    pub fn record_top_k(&self, recorder: &mut Recorder, bindings: &SampleBindings, vocab_size: usize, k: usize) {
        let params = TopKParams { vocab_size: vocab_size as u32, k: k.min(TOP_K_CANDIDATES) as u32 };
        self.top_k.record(recorder, &bindings.top_k, &params);
    }

    /// True if the GPU can draw from the candidates.
    pub fn can_draw(&self) -> bool {
        self.draw.is_some()
    }

    /// Records a draw from the candidates of `record_top_k`, which must precede it. Nothing on a software device.
    pub fn record_draw(&self, recorder: &mut Recorder, bindings: &SampleBindings, draw: Draw) {
        let (Some(kernel), Some(binding)) = (&self.draw, &bindings.draw) else { return };
        let Draw { top_k, top_p, min_p, temperature, random } = draw;
        let params = DrawParams { keeps: TOP_K_CANDIDATES as u32, top_k, top_p, min_p, temperature, random };
        recorder.dispatch(kernel, binding, &params, [1, 1, 1]);
    }

    /// Records the copy of the best token to `id`, a u32, after `record_argmax`.
    pub fn record_best_id(&self, recorder: &mut Recorder, bindings: &SampleBindings, id: &Slice) {
        recorder.copy(&word_slice(&bindings.out, BEST_WORD), id);
    }

    /// Records the copy of the drawn token to `id`, a u32, after `record_draw`.
    pub fn record_drawn_id(&self, recorder: &mut Recorder, bindings: &SampleBindings, id: &Slice) {
        recorder.copy(&word_slice(&bindings.out, DRAWN_WORD), id);
    }
}

fn word_slice(out: &Slice, i: usize) -> Slice {
    out.buffer.slice(out.offset + 4 * i as u64, 4)
}

/// Token in the result of `record_draw`.
pub fn parse_drawn(bytes: &[u8]) -> u32 {
    word(bytes, DRAWN_WORD)
}

/// Token and logit in the result of `record_argmax`.
pub fn parse_argmax(bytes: &[u8]) -> (u32, f32) {
    (word(bytes, BEST_WORD), f32::from_bits(word(bytes, 1)))
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
