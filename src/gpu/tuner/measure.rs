//! Measurement of a candidate: the time of the kernels of its part, on synthetic data of the shapes of an 8B model.
//!
//! The candidate is the tuning of the device while its kernels are compiled, so they are those that a model would get. Software
//! devices that run the kernels for real GPUs (tests) use small shapes.

use crate::gpu::kernels::KvFormat;
use crate::gpu::kernels::attention_decode::{AttentionDecode, SegmentEntries, SegmentKeys};
use crate::gpu::kernels::attention_prefill::{AttentionPrefill, KeyTile};
use crate::gpu::kernels::linear::{
    ActivationForm, ConvertedSlices, FusedMatvec, FusedOutput, FusedSlices, Fusion, Linear, LinearActivation, LinearOp,
    LinearShape, LinearSlices, LinearSpec, LinearVariant, Precision, WeightFormat,
};
use crate::gpu::kernels::page_abstracts::abstract_bytes;
use crate::gpu::kernels::page_bounds::PageBoundsKernel;
use crate::gpu::kernels::selection::{
    SegmentFrames, SelectionBuffers, SelectionCapacity, SelectionPlace, SelectionSizes, TokenSelection,
};
use crate::gpu::selection_costs::{LinearCost, SelectionCosts};
use crate::gpu::tuning::{Tuning, TuningPart};
use crate::gpu::{Gpu, GpuError, Recorder, Slice};

use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};

/// Timed runs after a warm-up; the fastest counts.
const REPETITIONS: usize = 3;
/// Dispatches of a short kernel in one run.
const SHORT_KERNELS: usize = 8;
/// Keys of the second measurement of a selection, in those of the first.
const SELECTION_GROWTH: usize = 4;

/// Sizes of the data.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    cols: usize,
    /// rows of a matvec, and of a matmul
    rows: [usize; 2],
    /// tokens of a prefill chunk
    n_tokens: usize,
    /// H, G, D
    heads: [usize; 3],
    /// keys of decode and of prefill
    n_keys: [usize; 2],
}

impl Sizes {
    fn of(gpu: &Gpu) -> Sizes {
        match gpu.is_software() {
            true => Sizes { cols: 256, rows: [256, 128], n_tokens: 64, heads: [4, 2, 64], n_keys: [512, 128] },
            false => Sizes { cols: 4096, rows: [14336, 4096], n_tokens: 512, heads: [32, 8, 128], n_keys: [8192, 4096] },
        }
    }
}

/// Seconds of the kernels of `part` with `candidate`, which is the tuning of `gpu` afterwards.
///
/// # Errors
/// A kernel that does not compile, out of VRAM, a lost device.
pub fn measure(gpu: &Gpu, part: TuningPart, candidate: &Tuning) -> Result<f64, GpuError> {
    gpu.set_tuning(*candidate);
    let sizes = Sizes::of(gpu);
    match part {
        TuningPart::Matmul => linear(gpu, sizes, LinearOp::Matmul),
        TuningPart::Matvec => linear(gpu, sizes, LinearOp::Matvec),
        TuningPart::FusedMatvec => fused(gpu, sizes),
        TuningPart::PrefillAttention => prefill(gpu, sizes),
        TuningPart::DecodeAttention => decode(gpu, sizes),
    }
}

/// Seconds of the fastest of a few runs.
fn fastest(gpu: &Gpu, mut record: impl FnMut(&mut Recorder)) -> Result<f64, GpuError> {
    let mut best = f64::INFINITY;
    for repetition in 0..=REPETITIONS {
        let mut recorder = Recorder::new();
        record(&mut recorder);
        let secs = gpu.time(&mut recorder)?;
        if repetition > 0 {
            best = best.min(secs);
        }
    }
    Ok(best)
}

fn zeros(gpu: &Gpu, bytes: u64) -> Result<Slice, GpuError> {
    Ok(gpu.buffer("tuning", bytes)?.all())
}

fn linear(gpu: &Gpu, sizes: Sizes, op: LinearOp) -> Result<f64, GpuError> {
    let Sizes { cols, rows: [matvec_rows, matmul_rows], .. } = sizes;
    let (n_rows, n_tokens) = match op {
        LinearOp::Matvec => (matvec_rows, 1),
        LinearOp::Matmul => (matmul_rows, sizes.n_tokens),
    };
    let format = WeightFormat::Q4_0;
    let spec = LinearSpec { format, cols, activation: LinearActivation::None, bias: false, residual: false };
    let linear = Linear::with_variant(gpu, spec, LinearVariant::for_gpu(gpu, Precision::Fast))?;
    let (value_bytes, scale_bytes) = ActivationForm::scratch_bytes(cols, n_tokens);
    let (x, y) = (zeros(gpu, (n_tokens * cols * 4) as u64)?, zeros(gpu, (n_tokens * n_rows * 4) as u64)?);
    let quants = zeros(gpu, format.quants_bytes(n_rows, cols))?;
    let scales = zeros(gpu, format.scales_bytes(n_rows, cols))?;
    let (values, value_scales) = (zeros(gpu, value_bytes)?, zeros(gpu, scale_bytes)?);
    let converted = Some(ConvertedSlices { values: &values, scales: &value_scales });
    let slices = LinearSlices { x: &x, quants: &quants, scales: &scales, bias: None, y: &y, converted };
    let binding = linear.bind(gpu, slices)?;
    let shape = LinearShape { n_tokens, n_rows, x_stride: cols, y_stride: n_rows, y_offset: 0, bias_offset: 0 };
    let n = if op == LinearOp::Matvec { SHORT_KERNELS } else { 1 };
    fastest(gpu, |recorder| {
        linear.record_convert_for(recorder, &binding, shape, op);
        (0..n).for_each(|_| linear.record_for(recorder, &binding, shape, op));
    })
}

/// A product that is added to hidden states and converted for the product after the next norm, as the two of a layer.
fn fused(gpu: &Gpu, sizes: Sizes) -> Result<f64, GpuError> {
    let (format, n, form) = (WeightFormat::Q4_0, sizes.cols, ActivationForm::Bytes { even_odd: true });
    let spec = LinearSpec { format, cols: n, activation: LinearActivation::None, bias: false, residual: true };
    let op = FusedMatvec::new(gpu, spec, Fusion { divides_by_rms: false, output: FusedOutput::Normed(form) }, 1e-5)?;
    let (value_bytes, scale_bytes) = form.bytes(n, 1);
    let buffers = [value_bytes, scale_bytes, value_bytes, scale_bytes].map(|bytes| zeros(gpu, bytes));
    let [x_values, x_scales, out_values, out_scales] = buffers;
    let (x_values, x_scales, out_values, out_scales) = (x_values?, x_scales?, out_values?, out_scales?);
    let (quants, scales) = (zeros(gpu, format.quants_bytes(n, n))?, zeros(gpu, format.scales_bytes(n, n))?);
    let (y, weight, squares) = (zeros(gpu, 4 * n as u64)?, zeros(gpu, 4 * n as u64)?, zeros(gpu, n as u64)?);
    let slices = FusedSlices {
        weights: [&quants, &scales],
        x: ConvertedSlices { values: &x_values, scales: &x_scales },
        y: &y,
        bias: None,
        squares: &squares,
        out: ConvertedSlices { values: &out_values, scales: &out_scales },
        next_norm: Some([&weight, &squares]),
    };
    let binding = op.bind(gpu, slices)?;
    fastest(gpu, |recorder| (0..SHORT_KERNELS).for_each(|_| op.record(recorder, &binding, 0, n)))
}

/// Queries of `n_tokens`, keys and values of one segment, and their block table.
fn attention_inputs(gpu: &Gpu, heads: [usize; 3], n_tokens: usize, n_keys: usize) -> Result<[Slice; 3], GpuError> {
    let [n_head, n_kv_head, head_dim] = heads;
    let n_slots = n_kv_head * n_keys.div_ceil(KV_BLOCK_TOKENS);
    let table: Vec<u32> = (0..n_slots as u32).collect();
    let table_slice = zeros(gpu, (table.len() * 4) as u64)?;
    gpu.upload(&table_slice, bytemuck::cast_slice(&table))?;
    let kv_bytes = n_slots as u64 * KvFormat::F16.block_bytes(head_dim);
    Ok([zeros(gpu, (n_tokens * n_head * head_dim * 4) as u64)?, zeros(gpu, kv_bytes)?, table_slice])
}

fn prefill(gpu: &Gpu, sizes: Sizes) -> Result<f64, GpuError> {
    let Sizes { heads, n_tokens, n_keys: [_, n_keys], .. } = sizes;
    let [n_head, n_kv_head, head_dim] = heads;
    let op = AttentionPrefill::new(gpu, n_head, n_kv_head, head_dim, KvFormat::F16, Precision::Fast)?;
    let [q, kv, table] = attention_inputs(gpu, heads, n_tokens, n_keys)?;
    let scores = zeros(gpu, op.scores_bytes(n_tokens, n_keys))?;
    let (state, out) = (zeros(gpu, op.state_bytes(n_tokens))?, zeros(gpu, q.size)?);
    let bindings = op.bind(gpu, [&q, &kv, &table, &scores, &state, &out])?;
    let tile = KeyTile {
        n_tokens,
        first_key: 0,
        n_keys,
        n_blocks: n_keys.div_ceil(KV_BLOCK_TOKENS),
        mask_from: n_keys - n_tokens + 1,
        is_first: true,
        is_last: true,
    };
    fastest(gpu, |recorder| op.record(recorder, &bindings, tile))
}

fn decode(gpu: &Gpu, sizes: Sizes) -> Result<f64, GpuError> {
    decode_over(gpu, sizes.heads, sizes.n_keys[0])
}

/// Attention of one token over `n_keys`.
fn decode_over(gpu: &Gpu, heads: [usize; 3], n_keys: usize) -> Result<f64, GpuError> {
    let [n_head, n_kv_head, head_dim] = heads;
    let op = AttentionDecode::new(gpu, n_head, n_kv_head, head_dim, KvFormat::F16, Precision::Fast)?;
    let [q, kv, table] = attention_inputs(gpu, heads, 1, n_keys)?;
    let split_keys = op.split_keys(n_keys);
    let n_splits = n_keys.div_ceil(split_keys);
    let (acc, state) = (zeros(gpu, op.acc_bytes(n_splits))?, zeros(gpu, op.state_bytes(n_splits))?);
    let out = zeros(gpu, q.size)?;
    let split = op.bind_split(gpu, [&q, &kv, &table, &acc, &state])?;
    let merge = op.bind_merge(gpu, [&acc, &state, &out], None)?;
    let n_blocks = n_keys.div_ceil(KV_BLOCK_TOKENS);
    let keys = SegmentKeys { n_keys, n_blocks, first_split: 0, n_splits, split_keys, entries: SegmentEntries::ALL };
    fastest(gpu, |recorder| {
        for _ in 0..SHORT_KERNELS {
            op.record_split(recorder, &split, keys);
            op.record_merge(recorder, &merge, n_splits);
        }
    })
}

/// Costs of a layer of a decode step: reading all keys, and selecting a tenth of them. None if times make no sense.
///
/// # Errors
/// A kernel that does not compile, out of VRAM, a lost device.
pub fn selection_costs(gpu: &Gpu) -> Result<Option<SelectionCosts>, GpuError> {
    let Sizes { heads, n_keys: [n_keys, _], .. } = Sizes::of(gpu);
    let [n_head, n_kv_head, head_dim] = heads;
    let page_bytes = KvFormat::F16.page_bytes(n_kv_head, head_dim);
    let (mut read, mut select) = ([(0, 0.0); 2], [(0, 0.0); 2]);
    for (i, n_keys) in [n_keys, SELECTION_GROWTH * n_keys].into_iter().enumerate() {
        let n_pages = n_keys / KV_PAGE_TOKENS;
        read[i] = (n_pages as u64 * page_bytes, decode_over(gpu, heads, n_keys)? / SHORT_KERNELS as f64);
        let n_read = n_pages / 10;
        let sizes = SelectionSizes {
            n_pages,
            n_sink: 1,
            n_recent: 1,
            n_candidates: [4 * n_read; 2],
            n_best: 4 * n_read,
            n_wanted: n_read * KV_PAGE_TOKENS,
            least: 0.0,
        };
        let secs = select_tokens(gpu, (n_head, n_kv_head, head_dim), sizes)? / SHORT_KERNELS as f64;
        select[i] = (sizes.n_listed() as u64 * page_bytes / 2, secs);
    }
    let costs = LinearCost::of_two(read).zip(LinearCost::of_two(select));
    Ok(costs.map(|(read, select)| SelectionCosts { read, select }))
}

/// Seconds of [`SHORT_KERNELS`] selections, from page bounds to the list of tokens.
fn select_tokens(gpu: &Gpu, heads: (usize, usize, usize), sizes: SelectionSizes) -> Result<f64, GpuError> {
    let (n_head, n_kv_head, head_dim) = heads;
    let n_pages = sizes.n_pages;
    let bounds = PageBoundsKernel::new(gpu, n_head, n_kv_head, head_dim)?;
    let op = TokenSelection::new(gpu, n_head, n_kv_head, head_dim, KvFormat::F16)?;
    let (n_listed, n_table) = (sizes.n_listed(), sizes.n_table());
    let capacity = SelectionCapacity { n_layers: 1, n_rows: 1, n_pages, n_listed, n_table };
    let b = SelectionBuffers::new(gpu, capacity, n_head, n_kv_head)?;
    b.reset(gpu);
    let frames: Vec<u32> = (0..n_pages as u32).collect();
    gpu.upload(&b.frames_of(0), bytemuck::cast_slice(&frames))?;
    let [q, kv, _] = attention_inputs(gpu, [n_head, n_kv_head, head_dim], 1, n_pages * KV_PAGE_TOKENS)?;
    let abstracts = zeros(gpu, n_pages as u64 * abstract_bytes(n_kv_head, head_dim))?;
    let states = zeros(gpu, 8 * n_head as u64)?;
    let page_bounds = bounds.bind(gpu, [&q, &abstracts, &b.bounds])?;
    let (bindings, scores) = (op.bind(gpu, &b, &states)?, op.bind_scores(gpu, &b, [&q, &kv])?);
    let place = SelectionPlace { layer: 0, n_rows: 1, n_splits: 1, n_tail: 1, first_in_ram: None };
    fastest(gpu, |recorder| {
        for _ in 0..SHORT_KERNELS {
            bounds.record(recorder, &page_bounds, n_pages, 1);
            op.record_candidates(recorder, &bindings, &b, place, sizes);
            op.record_scores(recorder, &scores, &b, place, sizes, SegmentFrames { first: 0, n: n_pages });
            op.record_list(recorder, &bindings, &b, place, sizes);
        }
    })
}
