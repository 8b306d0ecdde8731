//! `gpt2`: LayerNorm, learned positions, GELU, biases everywhere, fused QKV.
//!
//! Hugging Face stores matrices as `[inputs, outputs]` (Conv1D); GGUF stores `[outputs, inputs]`.

use super::llama::{reject_quantized_config, vocab_size};
use super::plan_builder::{Bias, PlanBuilder};
use crate::base::ModelDims;
use crate::model::ModelError;
use crate::model::arch::plan::{Activation, LayerPlan, Matrix, ModelPlan, NormKind, PositionPlan};

pub(super) fn plan(builder: &PlanBuilder<'_>) -> Result<ModelPlan, ModelError> {
    let hparams = builder.hparams;
    reject_quantized_config(builder)?;
    let dims = dims(builder)?;
    let gguf = hparams.is_gguf();
    let eps = match hparams.float("attention.layer_norm_epsilon", "layer_norm_epsilon")? {
        Some(eps) => eps as f32,
        None => 1e-5,
    };
    for (key, wanted) in [("scale_attn_weights", true), ("scale_attn_by_inverse_layer_idx", false)] {
        if hparams.hf_bool(key, wanted)? != wanted {
            return Err(hparams.bad("", key, !wanted, if wanted { "true" } else { "false" }));
        }
    }
    let prefix = builder.prefix(&["transformer.", ""], &["wte.weight"]);
    let root = |in_gguf: &str, in_hf: &str| if gguf { in_gguf.to_owned() } else { format!("{prefix}{in_hf}") };
    let layer = |i: usize| -> Result<LayerPlan, ModelError> {
        let stem = |in_gguf: &str, in_hf: &str| {
            if gguf { format!("blk.{i}.{in_gguf}") } else { format!("{prefix}h.{i}.{in_hf}") }
        };
        let matrix = |in_gguf: &str, in_hf: &str, rows: usize, cols: usize| -> Result<Matrix, ModelError> {
            match gguf {
                true => builder.matrix(&[(stem(in_gguf, in_hf), rows)], cols, Bias::Required),
                false => builder.transposed(stem(in_gguf, in_hf), rows, cols),
            }
        };
        let hidden_dim = dims.hidden_dim;
        Ok(LayerPlan {
            attn_norm: builder.norm(&stem("attn_norm", "ln_1"), hidden_dim, true)?,
            qkv: matrix("attn_qkv", "attn.c_attn", 3 * hidden_dim, hidden_dim)?,
            q_norm: None,
            k_norm: None,
            attn_output: matrix("attn_output", "attn.c_proj", hidden_dim, hidden_dim)?,
            ffn_norm: builder.norm(&stem("ffn_norm", "ln_2"), hidden_dim, true)?,
            ffn_up: matrix("ffn_up", "mlp.c_fc", dims.ffn_dim, hidden_dim)?,
            ffn_down: matrix("ffn_down", "mlp.c_proj", hidden_dim, dims.ffn_dim)?,
        })
    };
    let layers = (0..dims.n_layer).map(layer).collect::<Result<Vec<_>, _>>()?;
    let tied_by_config = hparams.hf_bool("tie_word_embeddings", true)? && !gguf;
    let (token_embedding, output, tied) = builder.embedding_and_output(
        &root("token_embd.weight", "wte.weight"),
        if gguf { "output.weight" } else { "lm_head.weight" },
        &dims,
        tied_by_config,
    )?;
    let table = builder.table(&root("position_embd.weight", "wpe.weight"), dims.context_len, dims.hidden_dim)?;
    Ok(ModelPlan {
        token_embedding,
        position: PositionPlan::Learned { table, offset: 0 },
        norm: NormKind::Layer { eps },
        activation: activation(builder)?,
        attn_scale: (1.0 / (dims.head_dim as f64).sqrt()) as f32,
        layers,
        output_norm: builder.norm(&root("output_norm", "ln_f"), dims.hidden_dim, true)?,
        output,
        tied,
        sliding_window: None,
        dims,
    })
}

fn dims(builder: &PlanBuilder<'_>) -> Result<ModelDims, ModelError> {
    let hparams = builder.hparams;
    let hidden_dim = hparams.require_uint("embedding_length", "n_embd")?;
    let n_head = hparams.require_uint("attention.head_count", "n_head")?;
    if n_head == 0 || !hidden_dim.is_multiple_of(n_head) {
        return Err(hparams.bad("attention.head_count", "n_head", n_head, &format!("a divisor of the width {hidden_dim}")));
    }
    let ffn_dim = match hparams.uint("feed_forward_length", "n_inner")? {
        Some(ffn_dim) => ffn_dim,
        None => hidden_dim.saturating_mul(4),
    };
    let dims = ModelDims {
        n_layer: hparams.require_uint("block_count", "n_layer")?,
        hidden_dim,
        n_head,
        n_kv_head: n_head,
        head_dim: hidden_dim / n_head,
        ffn_dim,
        vocab_size: vocab_size(builder, "vocab_size")?,
        context_len: hparams.require_uint("context_length", "n_positions")?,
    };
    dims.check()?;
    Ok(dims)
}

fn activation(builder: &PlanBuilder<'_>) -> Result<Activation, ModelError> {
    match builder.hparams.string("", "activation_function")?.unwrap_or("gelu_new") {
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Ok(Activation::GeluTanh),
        "gelu" => Ok(Activation::Gelu),
        "relu" => Ok(Activation::Relu),
        other => {
            let must = "gelu_new, gelu or relu";
            Err(builder.hparams.bad("", "activation_function", format!("'{other}'"), must))
        }
    }
}
