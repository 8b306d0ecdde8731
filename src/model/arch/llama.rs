//! `llama` (Llama 2 and 3, SmolLM, TinyLlama) and `mistral`: RMS norm, rope, SwiGLU.
//!
//! Other architectures share this plan through [`Variant`].

use super::plan_builder::{Bias, PlanBuilder, window};
use super::rope;
use crate::base::ModelDims;
use crate::model::ModelError;
use crate::model::arch::plan::{Activation, LayerPlan, ModelPlan, NormKind, PositionPlan, RopeStyle};

/// Differences between the architectures that share llama's plan.
pub(super) struct Variant {
    /// bias on q, k and v
    pub qkv_bias: Bias,
    /// true for an RMS norm on each head of q and k
    pub has_head_norms: bool,
    /// true if `config.json` must enable the sliding window with `use_sliding_window`
    pub has_window_switch: bool,
    /// pairing of dimensions in GGUF files
    pub gguf_rope: RopeStyle,
}

impl Default for Variant {
    fn default() -> Self {
        Variant { qkv_bias: Bias::IfPresent, has_head_norms: false, has_window_switch: false, gguf_rope: RopeStyle::Half }
    }
}

/// Tensor names of one layer, in GGUF or Hugging Face form.
pub(super) struct LayerNames {
    prefix: String,
    gguf: bool,
}

impl LayerNames {
    pub fn new(builder: &PlanBuilder<'_>, hf_prefix: &str, layer: usize) -> LayerNames {
        let gguf = builder.hparams.is_gguf();
        let prefix = if gguf { format!("blk.{layer}") } else { format!("{hf_prefix}layers.{layer}") };
        LayerNames { prefix, gguf }
    }

    pub fn stem(&self, gguf: &str, hf: &str) -> String {
        format!("{}.{}", self.prefix, if self.gguf { gguf } else { hf })
    }
}

/// Dimensions under llama's key names, which other architectures share.
pub(super) fn dims(builder: &PlanBuilder<'_>) -> Result<ModelDims, ModelError> {
    let hparams = builder.hparams;
    let hidden_dim = hparams.require_uint("embedding_length", "hidden_size")?;
    let n_head = hparams.require_uint("attention.head_count", "num_attention_heads")?;
    let head_dim = match hparams.uint("attention.key_length", "head_dim")? {
        Some(head_dim) => head_dim,
        None if n_head > 0 && hidden_dim.is_multiple_of(n_head) => hidden_dim / n_head,
        None => {
            let must = format!("a multiple of the {n_head} heads");
            return Err(hparams.bad("embedding_length", "hidden_size", hidden_dim, &must));
        }
    };
    if let Some(value_dim) = hparams.uint("attention.value_length", "")?
        && value_dim != head_dim
    {
        return Err(hparams.bad("attention.value_length", "", value_dim, &format!("equal to the key length {head_dim}")));
    }
    let dims = ModelDims {
        n_layer: hparams.require_uint("block_count", "num_hidden_layers")?,
        hidden_dim,
        n_head,
        n_kv_head: hparams.uint("attention.head_count_kv", "num_key_value_heads")?.unwrap_or(n_head),
        head_dim,
        ffn_dim: hparams.require_uint("feed_forward_length", "intermediate_size")?,
        vocab_size: vocab_size(builder, "vocab_size")?,
        context_len: hparams.require_uint("context_length", "max_position_embeddings")?,
    };
    dims.check()?;
    Ok(dims)
}

/// V: size of the GGUF vocabulary, or the value in the hyperparameters.
pub(super) fn vocab_size(builder: &PlanBuilder<'_>, hf_key: &str) -> Result<usize, ModelError> {
    match builder.hparams.gguf_token_count()? {
        Some(n) => Ok(n),
        None => builder.hparams.require_uint("vocab_size", hf_key),
    }
}

/// Rejects a Hugging Face folder of quantized weights, whose tensors have another meaning.
pub(super) fn reject_quantized_config(builder: &PlanBuilder<'_>) -> Result<(), ModelError> {
    let Some(config) = builder.hparams.json("quantization_config") else { return Ok(()) };
    let method = config.get("quant_method").and_then(|m| m.as_str()).unwrap_or("an unnamed method").to_owned();
    Err(ModelError::Unsupported(format!(
        "the weights in this folder are quantized with {method}, which is not supported. Use a GGUF file of this model"
    )))
}

pub(super) fn plan(builder: &PlanBuilder<'_>) -> Result<ModelPlan, ModelError> {
    // The GGUF converter permutes q and k.
    plan_variant(builder, &Variant { gguf_rope: RopeStyle::Adjacent, ..Variant::default() })
}

/// The plan of llama or one of its variants.
pub(super) fn plan_variant(builder: &PlanBuilder<'_>, variant: &Variant) -> Result<ModelPlan, ModelError> {
    let hparams = builder.hparams;
    reject_quantized_config(builder)?;
    hparams.check_hf_text("hidden_act", &["silu"])?;
    let dims = dims(builder)?;
    let eps = hparams.require_float("attention.layer_norm_rms_epsilon", "rms_norm_eps")? as f32;
    let prefix = builder.prefix(&["model.", ""], &["layers.0.input_layernorm.weight"]);
    let layer = |i: usize| -> Result<LayerPlan, ModelError> {
        let names = LayerNames::new(builder, prefix, i);
        let head_norm = |gguf: &str, hf: &str| -> Result<_, ModelError> {
            variant.has_head_norms.then(|| builder.norm(&names.stem(gguf, hf), dims.head_dim, false)).transpose()
        };
        Ok(LayerPlan {
            attn_norm: builder.norm(&names.stem("attn_norm", "input_layernorm"), dims.hidden_dim, false)?,
            qkv: builder.matrix(
                &[
                    (names.stem("attn_q", "self_attn.q_proj"), dims.q_dim()),
                    (names.stem("attn_k", "self_attn.k_proj"), dims.kv_dim()),
                    (names.stem("attn_v", "self_attn.v_proj"), dims.kv_dim()),
                ],
                dims.hidden_dim,
                variant.qkv_bias,
            )?,
            q_norm: head_norm("attn_q_norm", "self_attn.q_norm")?,
            k_norm: head_norm("attn_k_norm", "self_attn.k_norm")?,
            attn_output: builder.matrix(
                &[(names.stem("attn_output", "self_attn.o_proj"), dims.hidden_dim)],
                dims.q_dim(),
                Bias::IfPresent,
            )?,
            ffn_norm: builder.norm(&names.stem("ffn_norm", "post_attention_layernorm"), dims.hidden_dim, false)?,
            ffn_up: builder.gate_and_up(
                names.stem("ffn_gate", "mlp.gate_proj"),
                names.stem("ffn_up", "mlp.up_proj"),
                dims.ffn_dim,
                dims.hidden_dim,
            )?,
            ffn_down: builder.matrix(
                &[(names.stem("ffn_down", "mlp.down_proj"), dims.hidden_dim)],
                dims.ffn_dim,
                Bias::IfPresent,
            )?,
        })
    };
    let layers = (0..dims.n_layer).map(layer).collect::<Result<Vec<_>, _>>()?;
    let is_on = !variant.has_window_switch || hparams.is_gguf() || hparams.hf_bool("use_sliding_window", false)?;
    let size = hparams.uint("attention.sliding_window", "sliding_window")?;
    let sliding_window = window(size.filter(|_| is_on), dims.context_len);
    assemble(builder, Body { prefix, dims, layers, eps, sliding_window, gguf_rope: variant.gguf_rope })
}

/// Input of [`assemble`].
pub(super) struct Body<'a> {
    /// prefix of tensor names in Hugging Face folders
    pub prefix: &'a str,
    pub dims: ModelDims,
    pub layers: Vec<LayerPlan>,
    /// epsilon of the RMS norms
    pub eps: f32,
    pub sliding_window: Option<usize>,
    /// pairing of dimensions in GGUF files
    pub gguf_rope: RopeStyle,
}

/// Adds embedding, output, norm and rope around the layers, shared with `phi3`.
pub(super) fn assemble(builder: &PlanBuilder<'_>, body: Body<'_>) -> Result<ModelPlan, ModelError> {
    let Body { prefix, dims, layers, eps, sliding_window, gguf_rope } = body;
    let hparams = builder.hparams;
    let (embedding, output, norm) = if hparams.is_gguf() {
        ("token_embd.weight".to_owned(), "output.weight", "output_norm".to_owned())
    } else {
        (format!("{prefix}embed_tokens.weight"), "lm_head.weight", format!("{prefix}norm"))
    };
    let tied_by_config = hparams.hf_bool("tie_word_embeddings", false)?;
    let (token_embedding, output, tied) = builder.embedding_and_output(&embedding, output, &dims, tied_by_config)?;
    let output_norm = builder.norm(&norm, dims.hidden_dim, false)?;
    let style = if hparams.is_gguf() { gguf_rope } else { RopeStyle::Half };
    let rope = rope::rope(builder, style, dims.head_dim, dims.context_len)?;
    Ok(ModelPlan {
        token_embedding,
        position: PositionPlan::Rope(rope),
        norm: NormKind::Rms { eps },
        activation: Activation::SwiGlu,
        attn_scale: (1.0 / (dims.head_dim as f64).sqrt()) as f32,
        layers,
        output_norm,
        output,
        tied,
        sliding_window,
        dims,
    })
}
