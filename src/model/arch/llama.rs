//! `llama` (Llama 2 and 3, Mistral, SmolLM, TinyLlama), `mistral`, `qwen2` and `qwen3`: RMS norm, rope, SwiGLU.
//!
//! They differ in data only: Qwen 2 has biases on q, k, v; Qwen 3 norms each head of q and k; Mistral has a window.

use super::plan_builder::{Bias, PlanBuilder, window};
use super::rope;
use crate::base::ModelDims;
use crate::model::ModelError;
use crate::model::arch::plan::{Activation, LayerPlan, ModelPlan, NormKind, PositionPlan};

/// The parts of a layer, under their names in both kinds of file.
pub(super) struct LayerNames {
    prefix: String,
    gguf: bool,
}

impl LayerNames {
    pub fn new(builder: &PlanBuilder<'_>, hf_prefix: &str, layer: usize) -> LayerNames {
        let gguf = builder.keys.is_gguf();
        let prefix = if gguf { format!("blk.{layer}") } else { format!("{hf_prefix}layers.{layer}") };
        LayerNames { prefix, gguf }
    }

    pub fn stem(&self, gguf: &str, hf: &str) -> String {
        format!("{}.{}", self.prefix, if self.gguf { gguf } else { hf })
    }
}

/// Reads the dims of a family with llama's names for them.
pub(super) fn dims(builder: &PlanBuilder<'_>) -> Result<ModelDims, ModelError> {
    let keys = builder.keys;
    let hidden_dim = keys.need_uint("embedding_length", "hidden_size")?;
    let n_head = keys.need_uint("attention.head_count", "num_attention_heads")?;
    let head_dim = match keys.uint("attention.key_length", "head_dim")? {
        Some(head_dim) => head_dim,
        None if n_head > 0 && hidden_dim.is_multiple_of(n_head) => hidden_dim / n_head,
        None => {
            let must = format!("a multiple of the {n_head} heads");
            return Err(keys.bad("embedding_length", "hidden_size", hidden_dim, &must));
        }
    };
    if let Some(value_dim) = keys.uint("attention.value_length", "")?
        && value_dim != head_dim
    {
        return Err(keys.bad("attention.value_length", "", value_dim, &format!("equal to the key length {head_dim}")));
    }
    let dims = ModelDims {
        n_layer: keys.need_uint("block_count", "num_hidden_layers")?,
        hidden_dim,
        n_head,
        n_kv_head: keys.uint("attention.head_count_kv", "num_key_value_heads")?.unwrap_or(n_head),
        head_dim,
        ffn_dim: keys.need_uint("feed_forward_length", "intermediate_size")?,
        vocab_size: vocab_size(builder, "vocab_size")?,
        context_len: keys.need_uint("context_length", "max_position_embeddings")?,
    };
    dims.check()?;
    Ok(dims)
}

/// V: the tokens of a GGUF vocabulary, or what the settings say.
pub(super) fn vocab_size(builder: &PlanBuilder<'_>, hf_key: &str) -> Result<usize, ModelError> {
    match builder.keys.gguf_token_count()? {
        Some(n) => Ok(n),
        None => builder.keys.need_uint("vocab_size", hf_key),
    }
}

/// A quantized or adapted folder whose tensors mean something else.
pub(super) fn refuse_quantized_config(builder: &PlanBuilder<'_>) -> Result<(), ModelError> {
    let Some(config) = builder.keys.json("quantization_config") else { return Ok(()) };
    let method = config.get("quant_method").and_then(|m| m.as_str()).unwrap_or("an unnamed method").to_owned();
    Err(ModelError::Unsupported(format!(
        "the weights in this folder are quantized with {method}, which is not supported; use a GGUF file of this model"
    )))
}

pub(super) fn plan(builder: &PlanBuilder<'_>) -> Result<ModelPlan, ModelError> {
    let keys = builder.keys;
    refuse_quantized_config(builder)?;
    keys.check_hf_text("hidden_act", &["silu"])?;
    let dims = dims(builder)?;
    let eps = keys.need_float("attention.layer_norm_rms_epsilon", "rms_norm_eps")? as f32;
    let prefix = builder.prefix(&["model.", ""], &["layers.0.input_layernorm.weight"]);
    let arch = keys.architecture();
    let qkv_bias = if arch == "qwen2" { Bias::Required } else { Bias::IfPresent };
    let head_norms = arch == "qwen3";
    let layer = |i: usize| -> Result<LayerPlan, ModelError> {
        let names = LayerNames::new(builder, prefix, i);
        let head_norm = |gguf: &str, hf: &str| -> Result<_, ModelError> {
            head_norms.then(|| builder.norm(&names.stem(gguf, hf), dims.head_dim, false)).transpose()
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
                qkv_bias,
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
    let sliding_window = sliding_window(builder, dims.context_len)?;
    body(builder, prefix, dims, layers, eps, sliding_window)
}

/// What this family and `phi3` share around their layers.
pub(super) fn body(
    builder: &PlanBuilder<'_>,
    prefix: &str,
    dims: ModelDims,
    layers: Vec<LayerPlan>,
    eps: f32,
    sliding_window: Option<usize>,
) -> Result<ModelPlan, ModelError> {
    let keys = builder.keys;
    let (embedding, output, norm) = if keys.is_gguf() {
        ("token_embd.weight".to_owned(), "output.weight", "output_norm".to_owned())
    } else {
        (format!("{prefix}embed_tokens.weight"), "lm_head.weight", format!("{prefix}norm"))
    };
    let tied_by_config = keys.hf_bool("tie_word_embeddings", false)?;
    let (token_embedding, output, tied) = builder.embedding_and_output(&embedding, output, &dims, tied_by_config)?;
    let output_norm = builder.norm(&norm, dims.hidden_dim, false)?;
    let rope = rope::rope(builder, rope::style(keys), dims.head_dim, dims.context_len)?;
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

fn sliding_window(builder: &PlanBuilder<'_>, context_len: usize) -> Result<Option<usize>, ModelError> {
    let keys = builder.keys;
    // Qwen's window is off unless it says otherwise; Mistral's is on where it is given.
    let on = !keys.architecture().starts_with("qwen") || keys.is_gguf() || keys.hf_bool("use_sliding_window", false)?;
    let size = keys.uint("attention.sliding_window", "sliding_window")?;
    Ok(window(size.filter(|_| on), context_len))
}
