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
use crate::gpu::kernels::KvFormat;
use crate::gpu::kernels::attention_decode::AttentionDecode;
use crate::gpu::kernels::attention_prefill::{AttentionPrefill, PrefillVariant};
use crate::gpu::kernels::linear::{LinearActivation, LinearVariant, Precision};
use crate::gpu::kernels::quantize_pages::QuantizePages;
use crate::gpu::kernels::rope_append::{RopeAppend, RopeAppendSpec};
use crate::gpu::kernels::sample::{Sample, SampleBindings};
use crate::gpu::{Binding, Gpu, GpuError, Slice};
use crate::kv::{KvSpec, VramPlan};
use crate::model::ModelFile;
use crate::model::arch::plan::{Activation, ModelPlan, NormKind, PositionPlan, RopePlan, RopeStyle};
use crate::model::weights::layout::{MatrixLayout, WeightLayout};
use crate::model::weights::upload::Weights;

use crate::engine::api::KvDtype;
use crate::engine::error::EngineError;
use crate::engine::runner::activations::{Activations, activation_bytes, max_chunk, tile_keys};
use crate::engine::runner::attention_check;
use crate::engine::runner::bindings::{Builder, EmbedOp, LinearOp};
use crate::engine::runner::kernel_check;
use crate::engine::runner::model_ops::ModelOps;

/// Attention over pages of one element type.
pub(in crate::engine) struct AttentionOps {
    pub(in crate::engine) prefill: AttentionPrefill,
    pub(in crate::engine) decode: AttentionDecode,
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
    /// LayerNorm rather than RMSNorm, and epsilon
    norm: (bool, f32),
    pub(in crate::engine) attention_precision: Precision,
    /// variant of the matrix products
    pub(super) variant: LinearVariant,
    /// sentences about variants that this device cannot run
    pub(in crate::engine) notes: Vec<String>,
    pub(in crate::engine) embed: EmbedOp,
    pub(in crate::engine) position_embed: Option<EmbedOp>,
    pub(in crate::engine) position_offset: usize,
    pub(in crate::engine) rope: Option<RopePlan>,
    pub(in crate::engine) ops: ModelOps,
    pub(in crate::engine) rope_append: RopeAppend,
    /// over new tokens
    pub(in crate::engine) tail_attention: AttentionOps,
    /// over complete pages
    pub(in crate::engine) page_attention: AttentionOps,
    pub(in crate::engine) seal: Option<QuantizePages>,
    pub(in crate::engine) sample: Sample,
    pub(in crate::engine) sample_bindings: SampleBindings,
    pub(in crate::engine) act: Activations,
    pub(in crate::engine) max_chunk: usize,
    /// tokens per prefill tile of keys for a full chunk; 0 if no kernel uses the scores buffer
    pub(in crate::engine) tile_keys: usize,
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

/// Keys per tile of the scores buffer for a full chunk; 0 if flash attention reads all pages.
fn score_keys(gpu: &Gpu, dims: &ModelDims, kv: &KvSpec, precision: Precision, chunk: usize) -> usize {
    let is_tiled = |element| PrefillVariant::for_gpu(gpu, dims.head_dim, element, precision).is_tiled();
    if is_tiled(kv.work) || is_tiled(kv.sealed) { tile_keys(dims, chunk) } else { 0 }
}

/// Memory estimate of this model at this context, before any allocation.
pub fn estimate(
    gpu: &Gpu,
    plan: &ModelPlan,
    placed: &WeightLayout,
    spec: &KvSpec,
    kv: &VramPlan,
    precision: Precision,
) -> MemoryEstimate {
    let chunk = max_chunk(gpu.is_software());
    let sizes = activation_bytes(plan, chunk, score_keys(gpu, &plan.dims, spec, precision, chunk), gpu.uses_software_kernels());
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
        kv: &KvSpec,
        precision: Precision,
        progress: &mut dyn FnMut(f32) -> bool,
    ) -> Result<GpuModel, EngineError> {
        let plan = file.plan();
        check_shape(plan)?;
        let weights = Weights::upload(gpu, file, placed, progress)?;
        let chunk = max_chunk(gpu.is_software());
        let mut notes = Vec::new();
        let attention_precision = attention_check::checked_precision(gpu, &plan.dims, kv.work, precision, &mut notes)?;
        let tile = score_keys(gpu, &plan.dims, kv, attention_precision, chunk);
        let act = Activations::allocate(gpu, plan, chunk, tile)?;
        let d = &plan.dims;
        let (layer_norm, eps) = match plan.norm {
            NormKind::Rms { eps } => (false, eps),
            NormKind::Layer { eps } => (true, eps),
        };
        let norm = (layer_norm, eps);
        let builder = |variant| Builder { gpu, weights: &weights, act: &act, norm, variant };
        let (rope, position_offset) = match &plan.position {
            PositionPlan::Rope(r) => (Some(r.clone()), 0),
            PositionPlan::Learned { offset, .. } => (None, *offset),
        };
        let layout = &weights.layout;
        let b = builder(LinearVariant::for_gpu(gpu, Precision::Exact));
        let embed = b.embed(&layout.token_embedding, &act.ids, false)?;
        let position_embed = layout.positions.as_ref().map(|p| b.embed(p, &act.positions, true)).transpose()?;
        let activation = match plan.activation {
            Activation::SwiGlu => LinearActivation::SwiGlu,
            Activation::GeluTanh => LinearActivation::GeluTanh,
            Activation::Gelu => LinearActivation::Gelu,
            Activation::Relu => LinearActivation::Relu,
        };
        let (variant, ops) =
            kernel_check::checked_ops(gpu, d, &act, precision, &mut notes, |variant| builder(variant).ops(activation))?;
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
            element: kv.work,
        };
        let attention = |element| -> Result<AttentionOps, GpuError> {
            Ok(AttentionOps {
                prefill: AttentionPrefill::new(gpu, d.n_head, d.n_kv_head, d.head_dim, element, attention_precision)?,
                decode: AttentionDecode::new(gpu, d.n_head, d.n_kv_head, d.head_dim, element, attention_precision)?,
            })
        };
        let (work, sealed) = (kv.work, kv.sealed);
        Ok(GpuModel {
            rope_append: RopeAppend::new(gpu, spec)?,
            tail_attention: attention(work)?,
            page_attention: attention(sealed)?,
            seal: match sealed.is_quantized() {
                true => Some(QuantizePages::new(gpu, d.n_kv_head, d.head_dim, work, sealed)?),
                false => None,
            },
            dims: d.clone(),
            norm,
            attention_precision,
            variant,
            notes,
            embed,
            position_embed,
            position_offset,
            rope,
            ops,
            sample,
            sample_bindings,
            max_chunk: chunk,
            tile_keys: tile,
            weights,
            act,
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
        let b = Builder { gpu, weights: &self.weights, act: &self.act, norm: self.norm, variant: self.variant };
        Ok((b.linear(self.weights.layout.output(), &self.act.h, &logits, LinearActivation::None, false)?, logits))
    }
}
