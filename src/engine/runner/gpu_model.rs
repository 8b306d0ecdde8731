//! GPU model: weights, activations, and the bind groups of every op, created once.
//!
//! ```text
//! ids ─► embed ─► x ┬► norm ─► h ─► qkv ─► rope, append ─► q, KV blocks ─► attention ─► attn ─► output ─► x += ┐
//!                   └───────────────────────────────── per layer ◄── x += down ◄── up, activation ◄── h ◄── norm ┘
//! x ─► norm ─► h ─► output projection ─► logits ─► argmax or top-k ─► result
//! ```
//! Owner: the engine thread. Shapes: x, h f32 `[T, C]`; qkv f32 `[T, (H + 2G) D]`; q, attn f32 `[T, H, D]`;
//! ff f32 `[T, F]`; logits f32 `[n, V]`. T is at most `max_chunk`.

use crate::base::ModelDims;
use crate::base::limits::KV_PAGE_TOKENS;
use crate::gpu::kernels::KvFormat;
use crate::gpu::kernels::attention_decode::{AttentionDecode, SPLIT_KEYS};
use crate::gpu::kernels::attention_prefill::{AttentionPrefill, PrefillBindings};
use crate::gpu::kernels::linear::{Embed, Linear, LinearActivation, LinearBinding};
use crate::gpu::kernels::norm::Norm;
use crate::gpu::kernels::quantize_pages::QuantizePages;
use crate::gpu::kernels::rope_append::{RopeAppend, RopeAppendSpec};
use crate::gpu::kernels::sample::Sample;
use crate::gpu::{Binding, Gpu, GpuError, Slice};
use crate::kv::{KvSpec, PagedBuffer, VramCache, VramPlan};
use crate::model::ModelFile;
use crate::model::arch::plan::{Activation, ModelPlan, NormKind, PositionPlan, RopePlan, RopeStyle};
use crate::model::weights::layout::{MatrixLayout, WeightLayout};
use crate::model::weights::upload::Weights;

use crate::engine::api::KvDtype;
use crate::engine::error::EngineError;
use crate::engine::runner::activations::{Activations, activation_bytes, max_chunk, tile_keys};
use crate::engine::runner::bindings::Builder;
use crate::engine::selection::Selector;
use crate::engine::selection::page_attention::PageAttentionMeter;

/// One matrix product, bound.
pub(in crate::engine) struct LinearOp {
    pub(in crate::engine) slabs: Vec<LinearSlab>,
    pub(in crate::engine) rows: usize,
    pub(in crate::engine) cols: usize,
    /// matrix rows per output: 1, or 2 for SwiGLU
    pub(in crate::engine) rows_per_output: usize,
}

pub(in crate::engine) struct LinearSlab {
    pub(in crate::engine) op: Linear,
    pub(in crate::engine) binding: LinearBinding,
    pub(in crate::engine) first_row: usize,
    pub(in crate::engine) n_rows: usize,
}

pub(in crate::engine) struct EmbedOp {
    pub(in crate::engine) op: Embed,
    /// binding, first row and number of rows of each slab
    pub(in crate::engine) slabs: Vec<(Binding, [usize; 2])>,
}

pub(in crate::engine) struct LayerOps {
    pub(in crate::engine) attn_norm: Binding,
    pub(in crate::engine) qkv: LinearOp,
    pub(in crate::engine) attn_output: LinearOp,
    pub(in crate::engine) ffn_norm: Binding,
    pub(in crate::engine) ffn_up: LinearOp,
    pub(in crate::engine) ffn_down: LinearOp,
}

/// Attention over pages of one element type.
pub(in crate::engine) struct AttentionOps {
    pub(in crate::engine) prefill: AttentionPrefill,
    pub(in crate::engine) decode: AttentionDecode,
}

/// Bind groups for attention over one run of pages: a segment or tail of a layer, or a staging buffer.
#[derive(Clone)]
pub(in crate::engine) struct RunOps {
    pub(in crate::engine) prefill: PrefillBindings,
    pub(in crate::engine) decode: Binding,
}

/// Bind groups of one layer's tail.
pub(in crate::engine) struct TailOps {
    pub(in crate::engine) rope_append: Binding,
    pub(in crate::engine) run: RunOps,
    /// quantizes complete pages
    pub(in crate::engine) seal: Option<Binding>,
}

/// Buffers of the splits of decode attention until they are merged.
pub(in crate::engine) struct SplitBuffers {
    capacity: usize,
    acc: Slice,
    state: Slice,
    pub(in crate::engine) merge: Binding,
}

/// Memory estimate of a model, before any allocation.
#[derive(Debug, Clone)]
pub struct MemoryEstimate {
    /// weights, bytes
    pub weights: u64,
    /// activations and scratch, bytes
    pub activations: u64,
    /// KV cache before the first page is complete, bytes
    pub kv_first: u64,
    /// maximum KV cache in VRAM, bytes
    pub kv_full: u64,
}

/// A model on the GPU.
pub struct GpuModel {
    pub(in crate::engine) dims: ModelDims,
    pub(in crate::engine) weights: Weights,
    pub(in crate::engine) norm: Norm,
    pub(in crate::engine) embed: EmbedOp,
    pub(in crate::engine) position_embed: Option<EmbedOp>,
    pub(in crate::engine) position_offset: usize,
    pub(in crate::engine) rope: Option<RopePlan>,
    pub(in crate::engine) layers: Vec<LayerOps>,
    pub(in crate::engine) rope_append: RopeAppend,
    /// over new tokens
    pub(in crate::engine) tail_attention: AttentionOps,
    /// over complete pages
    pub(in crate::engine) page_attention: AttentionOps,
    pub(in crate::engine) seal: Option<QuantizePages>,
    pub(in crate::engine) sample: Sample,
    pub(in crate::engine) output_norm: Binding,
    pub(in crate::engine) output: LinearOp,
    pub(in crate::engine) sample_bindings: [Binding; 2],
    pub(in crate::engine) act: Activations,
    /// `[segment][layer]`
    pub(in crate::engine) segments: Vec<Vec<RunOps>>,
    /// `[layer]`
    pub(in crate::engine) tails: Vec<TailOps>,
    /// by staging buffer
    pub(in crate::engine) slots: Vec<RunOps>,
    pub(in crate::engine) splits: Option<SplitBuffers>,
    /// selective attention; None if attention always reads everything
    pub(in crate::engine) selector: Option<Selector>,
    /// attention mass per page, measured in a few steps
    pub(in crate::engine) attention_meter: PageAttentionMeter,
    /// transfers and compute wait for each other
    pub(in crate::engine) synchronous: bool,
    pub(in crate::engine) max_chunk: usize,
    /// tokens per prefill tile of keys for a full chunk
    pub(in crate::engine) tile_keys: usize,
    /// the KV cache
    pub kv: VramCache,
}

/// Shape of the KV cache of this model.
pub fn kv_spec(dims: &ModelDims, dtype: KvDtype) -> KvSpec {
    let (work, sealed) = match dtype {
        KvDtype::F32 => (KvFormat::F32, KvFormat::F32),
        KvDtype::F16 => (KvFormat::F16, KvFormat::F16),
        KvDtype::Q8 => (KvFormat::F16, KvFormat::Q8),
        KvDtype::Q4 => (KvFormat::F16, KvFormat::Q4),
    };
    KvSpec { n_layer: dims.n_layer, n_kv_head: dims.n_kv_head, head_dim: dims.head_dim, work, sealed }
}

/// Memory estimate of this model at this context, before any allocation.
pub fn estimate(gpu: &Gpu, plan: &ModelPlan, placed: &WeightLayout, spec: &KvSpec, kv: &VramPlan) -> MemoryEstimate {
    let chunk = max_chunk(gpu.is_software());
    let sizes = activation_bytes(plan, chunk, tile_keys(&plan.dims, chunk));
    MemoryEstimate {
        weights: placed.total_bytes(),
        activations: sizes.iter().map(|(_, b)| b.next_multiple_of(16).max(16)).sum(),
        kv_first: kv.tail_bytes(spec),
        kv_full: kv.bytes(spec),
    }
}

/// Checks that the kernels support the shape.
pub(in crate::engine) fn check_shape(plan: &ModelPlan) -> Result<(), EngineError> {
    let d = &plan.dims;
    let refuse = |what: String| Err(EngineError::Shape(what));
    if !d.head_dim.is_multiple_of(8) || d.head_dim > crate::base::limits::MAX_HEAD_DIM {
        return refuse(format!("its head dimension is {}; the kernels take multiples of 8 up to 256", d.head_dim));
    }
    if !d.hidden_dim.is_multiple_of(4) || !d.ffn_dim.is_multiple_of(4) {
        return refuse(format!("its widths {} and {} are not multiples of 4", d.hidden_dim, d.ffn_dim));
    }
    if let PositionPlan::Rope(r) = &plan.position
        && (!r.inv_freq.len().is_multiple_of(2) || 2 * r.inv_freq.len() > d.head_dim)
    {
        return refuse(format!("{} of {} dimensions rotate; the kernels take multiples of 4", 2 * r.inv_freq.len(), d.head_dim));
    }
    Ok(())
}

impl GpuModel {
    /// Uploads `file` and creates every pipeline and bind group. `progress` gets the fraction done and returns false to stop.
    ///
    /// # Errors
    /// A shape that no kernel supports, out of VRAM, a corrupt file, a lost device.
    pub fn load(
        gpu: &Gpu,
        file: &ModelFile,
        placed: WeightLayout,
        kv: VramCache,
        progress: &mut dyn FnMut(f32) -> bool,
    ) -> Result<GpuModel, EngineError> {
        let plan = file.plan();
        check_shape(plan)?;
        let weights = Weights::upload(gpu, file, placed, progress)?;
        let chunk = max_chunk(gpu.is_software());
        let tile = tile_keys(&plan.dims, chunk);
        let act = Activations::allocate(gpu, plan, chunk, tile)?;
        let d = &plan.dims;
        let (layer_norm, eps) = match plan.norm {
            NormKind::Rms { eps } => (false, eps),
            NormKind::Layer { eps } => (true, eps),
        };
        let norm = Norm::new(gpu, layer_norm, eps)?;
        let b = Builder { gpu, weights: &weights, act: &act, norm: &norm };
        let (rope, position_offset) = match &plan.position {
            PositionPlan::Rope(r) => (Some(r.clone()), 0),
            PositionPlan::Learned { offset, .. } => (None, *offset),
        };
        let layout = &weights.layout;
        let embed = b.embed(&layout.token_embedding, &act.ids, false)?;
        let position_embed = layout.positions.as_ref().map(|p| b.embed(p, &act.positions, true)).transpose()?;
        let activation = match plan.activation {
            Activation::SwiGlu => LinearActivation::SwiGlu,
            Activation::GeluTanh => LinearActivation::GeluTanh,
            Activation::Gelu => LinearActivation::Gelu,
            Activation::Relu => LinearActivation::Relu,
        };
        let mut layers = Vec::with_capacity(d.n_layer);
        for l in &layout.layers {
            layers.push(LayerOps {
                attn_norm: b.norm(&l.attn_norm)?,
                qkv: b.linear(&l.qkv, &act.h, &act.qkv, LinearActivation::None, false)?,
                attn_output: b.linear(&l.attn_output, &act.attn, &act.x, LinearActivation::None, true)?,
                ffn_norm: b.norm(&l.ffn_norm)?,
                ffn_up: b.linear(&l.ffn_up, &act.h, &act.ff, activation, false)?,
                ffn_down: b.linear(&l.ffn_down, &act.ff, &act.x, LinearActivation::None, true)?,
            });
        }
        let output_norm = b.norm(&layout.output_norm)?;
        let output = b.linear(layout.output(), &act.h, &act.logits, LinearActivation::None, false)?;
        let sample = Sample::new(gpu)?;
        let sample_bindings = sample.bind(gpu, &act.logits, &act.result)?;
        let spec = RopeAppendSpec {
            n_head: d.n_head,
            n_kv_head: d.n_kv_head,
            head_dim: d.head_dim,
            n_pairs: rope.as_ref().map_or(0, |r| r.inv_freq.len()),
            half_style: rope.as_ref().is_some_and(|r| r.style == RopeStyle::Half),
            qk_norm: plan.layers.first().is_some_and(|l| l.q_norm.is_some()),
            eps,
            scale: plan.attn_scale,
            element: kv.spec().work,
        };
        let attention = |element| -> Result<AttentionOps, GpuError> {
            Ok(AttentionOps {
                prefill: AttentionPrefill::new(gpu, d.n_head, d.n_kv_head, d.head_dim, element)?,
                decode: AttentionDecode::new(gpu, d.n_head, d.n_kv_head, d.head_dim, element)?,
            })
        };
        let (work, sealed) = (kv.spec().work, kv.spec().sealed);
        Ok(GpuModel {
            rope_append: RopeAppend::new(gpu, spec)?,
            tail_attention: attention(work)?,
            page_attention: attention(sealed)?,
            seal: match sealed.is_quantized() {
                true => Some(QuantizePages::new(gpu, d.n_kv_head, d.head_dim, work, sealed)?),
                false => None,
            },
            kv,
            dims: d.clone(),
            norm,
            embed,
            position_embed,
            position_offset,
            rope,
            layers,
            sample,
            output_norm,
            output,
            sample_bindings,
            segments: Vec::new(),
            tails: Vec::new(),
            slots: Vec::new(),
            splits: None,
            selector: None,
            attention_meter: PageAttentionMeter::default(),
            synchronous: false,
            max_chunk: chunk,
            tile_keys: tile,
            weights,
            act,
        })
    }

    /// Reserves VRAM for `n_tokens` in total, within the budget, with bind groups and split buffers.
    ///
    /// # Errors
    /// More tokens than the context, out of VRAM, a lost device.
    pub fn reserve(&mut self, gpu: &Gpu, n_tokens: usize) -> Result<(), EngineError> {
        self.kv.reserve(gpu, n_tokens)?;
        self.reserve_splits(gpu, self.n_splits(n_tokens))?;
        self.bind_missing(gpu)
    }

    /// Releases the frames of a dropped context.
    pub(in crate::engine) fn drop_pool(&mut self) {
        self.kv.drop_pool();
        self.segments.clear();
        self.selector.iter_mut().for_each(Selector::unbind);
    }

    /// Reserves buffers for `wanted` splits. Larger buffers drop all bind groups.
    fn reserve_splits(&mut self, gpu: &Gpu, wanted: usize) -> Result<(), EngineError> {
        if self.splits.as_ref().is_none_or(|b| b.capacity < wanted) {
            let capacity = wanted.max(self.splits.as_ref().map_or(0, |b| 2 * b.capacity));
            let decode = &self.page_attention.decode;
            let acc = gpu.buffer("attention splits", decode.acc_bytes(capacity))?.all();
            let state = gpu.buffer("attention split state", decode.state_bytes(capacity))?.all();
            let merge = decode.bind_merge(gpu, [&acc, &state, &self.act.attn])?;
            self.splits = Some(SplitBuffers { capacity, acc, state, merge });
            self.segments.clear();
            self.tails.clear();
            self.slots.clear();
            self.selector.iter_mut().for_each(Selector::unbind);
        }
        Ok(())
    }

    /// Creates the missing bind groups.
    fn bind_missing(&mut self, gpu: &Gpu) -> Result<(), EngineError> {
        for i in self.segments.len()..self.kv.shapes().len() {
            let bind = |layer| {
                let PagedBuffer { pages, table, .. } = self.kv.segment(i, layer);
                self.bind_run(gpu, &self.page_attention, pages, table)
            };
            let ops = (0..self.dims.n_layer).map(bind).collect::<Result<Vec<_>, _>>()?;
            self.segments.push(ops);
        }
        for layer_idx in self.tails.len()..self.dims.n_layer {
            let (kv, table) = self.kv.tail(layer_idx);
            let ops = self.bind_tail(gpu, layer_idx, [kv, table], self.kv.scratch())?;
            self.tails.push(ops);
        }
        while let Some((pages, table)) = self.kv.slot(self.slots.len()) {
            let ops = self.bind_run(gpu, &self.page_attention, pages, table)?;
            self.slots.push(ops);
        }
        if let Some(mut selector) = self.selector.take() {
            let bound = selector.bind(gpu, self);
            self.selector = Some(selector);
            bound?;
        }
        Ok(())
    }

    /// Reserves buffers for `n_rows` tokens of one pass, over `n_shared` tokens in complete pages and tails of up to `n_own`.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub(in crate::engine) fn reserve_rows(
        &mut self,
        gpu: &Gpu,
        n_rows: usize,
        n_shared: usize,
        n_own: usize,
    ) -> Result<(), EngineError> {
        self.reserve_splits(gpu, n_rows * (self.n_splits(n_shared) + n_own.div_ceil(SPLIT_KEYS)))?;
        if let Some(mut selector) = self.selector.take() {
            let reserved = selector.reserve_rows(gpu, self, n_rows, n_own);
            self.selector = Some(selector);
            reserved?;
        }
        self.bind_missing(gpu)
    }

    /// Frees the buffers of a batch.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub(in crate::engine) fn release_rows(&mut self, gpu: &Gpu) -> Result<(), EngineError> {
        if let Some(mut selector) = self.selector.take() {
            let released = selector.reserve_rows(gpu, self, 1, KV_PAGE_TOKENS);
            self.selector = Some(selector);
            released?;
        }
        self.bind_missing(gpu)
    }

    /// Accumulators and softmax states of the splits of decode attention.
    pub(in crate::engine) fn split_slices(&self) -> Result<(&Slice, &Slice), EngineError> {
        match &self.splits {
            Some(splits) => Ok((&splits.acc, &splits.state)),
            None => Err(EngineError::Shape("the split buffers are missing".into())),
        }
    }

    /// Maximum number of splits of decode attention over `n_tokens`. Every run begins a new split.
    fn n_splits(&self, n_tokens: usize) -> usize {
        let n_pages = n_tokens.div_ceil(KV_PAGE_TOKENS);
        let plan = self.kv.plan();
        let n_runs = self.kv.shapes().len() + n_pages.div_ceil(plan.slot_pages) + 1;
        (n_pages + plan.tail_pages).div_ceil(SPLIT_KEYS / KV_PAGE_TOKENS) + n_runs
    }

    fn bind_run(&self, gpu: &Gpu, ops: &AttentionOps, kv: &Slice, table: &Slice) -> Result<RunOps, EngineError> {
        let a = &self.act;
        let (acc, state) = self.split_slices()?;
        Ok(RunOps {
            prefill: ops.prefill.bind(gpu, [&a.q, kv, table, &a.scores, &a.prefill_state, &a.attn])?,
            decode: ops.decode.bind_split(gpu, [&a.q, kv, table, acc, state])?,
        })
    }

    /// Bind groups of a tail: its pages, its block table, and the output of its quantized pages.
    pub(in crate::engine) fn bind_tail(
        &self,
        gpu: &Gpu,
        layer_idx: usize,
        [kv, table]: [&Slice; 2],
        scratch: Option<&Slice>,
    ) -> Result<TailOps, EngineError> {
        let a = &self.act;
        let seal = match (&self.seal, scratch) {
            (Some(seal), Some(scratch)) => Some(seal.bind(gpu, [kv, scratch])?),
            _ => None,
        };
        Ok(TailOps {
            rope_append: self.bind_rope(gpu, layer_idx, table, kv, &a.q)?,
            run: self.bind_run(gpu, &self.tail_attention, kv, table)?,
            seal,
        })
    }

    /// Binds the rotation of a layer's heads: queries to `q`, keys and values to `kv`.
    pub(in crate::engine) fn bind_rope(
        &self,
        gpu: &Gpu,
        layer_idx: usize,
        table: &Slice,
        kv: &Slice,
        q: &Slice,
    ) -> Result<Binding, GpuError> {
        let layer = &self.weights.layout.layers[layer_idx];
        let norms = match (&layer.q_norm, &layer.k_norm) {
            (Some(q), Some(k)) => Some([self.weights.slice(q.weight), self.weights.slice(k.weight)]),
            _ => None,
        };
        let norms = norms.as_ref().map(|[q, k]| [q, k]);
        self.rope_append.bind(gpu, [&self.act.qkv, &self.act.rope, table, kv, q], norms)
    }

    /// Bytes of weights read per decoded token (the embedding table only if it is also the output).
    pub fn weight_bytes_per_token(&self) -> u64 {
        let p = &self.weights.layout;
        let layers = p.layers.iter().flat_map(|l| [&l.qkv, &l.attn_output, &l.ffn_up, &l.ffn_down]);
        layers.chain([p.output()]).map(MatrixLayout::weight_bytes).sum()
    }

    /// Floating-point operations of one token's matrix products, without the output projection.
    pub fn layer_flops_per_token(&self) -> u64 {
        let p = &self.weights.layout;
        let layers = p.layers.iter().flat_map(|l| [&l.qkv, &l.attn_output, &l.ffn_up, &l.ffn_down]);
        layers.map(|m| 2 * (m.rows * m.cols) as u64).sum()
    }

    /// A second output projection, which writes logits f32 `[n_rows, V]` to its own buffer.
    pub(in crate::engine) fn wide_output(&self, gpu: &Gpu, n_rows: usize) -> Result<(LinearOp, Slice), EngineError> {
        let logits = gpu.buffer("logits", (n_rows * self.dims.vocab_size * 4) as u64)?.all();
        let b = Builder { gpu, weights: &self.weights, act: &self.act, norm: &self.norm };
        Ok((b.linear(self.weights.layout.output(), &self.act.h, &logits, LinearActivation::None, false)?, logits))
    }
}
