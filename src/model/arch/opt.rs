//! `opt` from a Hugging Face folder: pre-LayerNorm (post-LayerNorm is rejected), learned positions from row 2, ReLU,
//! biases everywhere.

use super::llama::reject_quantized_config;
use super::plan_builder::{Bias, PlanBuilder};
use crate::base::ModelDims;
use crate::model::ModelError;
use crate::model::arch::plan::{Activation, LayerPlan, ModelPlan, NormKind, PositionPlan};

/// Number of unused rows at the start of OPT's position table.
const POSITION_OFFSET: usize = 2;
/// Default epsilon of torch, which OPT uses.
const EPS: f32 = 1e-5;

pub(super) fn plan(builder: &PlanBuilder<'_>) -> Result<ModelPlan, ModelError> {
    let hparams = builder.hparams;
    reject_quantized_config(builder)?;
    reject_variants(builder)?;
    let hidden_dim = hparams.require_uint("", "hidden_size")?;
    let n_head = hparams.require_uint("", "num_attention_heads")?;
    if n_head == 0 || !hidden_dim.is_multiple_of(n_head) {
        return Err(hparams.bad("", "num_attention_heads", n_head, &format!("a divisor of the width {hidden_dim}")));
    }
    let dims = ModelDims {
        n_layer: hparams.require_uint("", "num_hidden_layers")?,
        hidden_dim,
        n_head,
        n_kv_head: n_head,
        head_dim: hidden_dim / n_head,
        ffn_dim: hparams.require_uint("", "ffn_dim")?,
        vocab_size: hparams.require_uint("", "vocab_size")?,
        context_len: hparams.require_uint("", "max_position_embeddings")?,
    };
    dims.check()?;
    let prefix = builder.prefix(&["model.decoder.", "decoder.", ""], &["embed_tokens.weight"]);
    let layer = |i: usize| -> Result<LayerPlan, ModelError> {
        let stem = |name: &str| format!("{prefix}layers.{i}.{name}");
        let one = |name: &str, rows: usize, cols: usize| builder.matrix(&[(stem(name), rows)], cols, Bias::Required);
        Ok(LayerPlan {
            attn_norm: builder.norm(&stem("self_attn_layer_norm"), hidden_dim, true)?,
            qkv: builder.matrix(
                &["q_proj", "k_proj", "v_proj"].map(|name| (stem(&format!("self_attn.{name}")), hidden_dim)),
                hidden_dim,
                Bias::Required,
            )?,
            q_norm: None,
            k_norm: None,
            attn_output: one("self_attn.out_proj", hidden_dim, hidden_dim)?,
            ffn_norm: builder.norm(&stem("final_layer_norm"), hidden_dim, true)?,
            ffn_up: one("fc1", dims.ffn_dim, hidden_dim)?,
            ffn_down: one("fc2", hidden_dim, dims.ffn_dim)?,
        })
    };
    let layers = (0..dims.n_layer).map(layer).collect::<Result<Vec<_>, _>>()?;
    let tied_by_config = hparams.hf_bool("tie_word_embeddings", true)?;
    let (token_embedding, output, tied) =
        builder.embedding_and_output(&format!("{prefix}embed_tokens.weight"), "lm_head.weight", &dims, tied_by_config)?;
    let rows = dims.context_len + POSITION_OFFSET;
    let table = builder.table(&format!("{prefix}embed_positions.weight"), rows, hidden_dim)?;
    Ok(ModelPlan {
        token_embedding,
        position: PositionPlan::Learned { table, offset: POSITION_OFFSET },
        norm: NormKind::Layer { eps: EPS },
        activation: Activation::Relu,
        attn_scale: (1.0 / (dims.head_dim as f64).sqrt()) as f32,
        layers,
        output_norm: builder.norm(&format!("{prefix}final_layer_norm"), hidden_dim, true)?,
        output,
        tied,
        sliding_window: None,
        dims,
    })
}

/// Rejects variants with another order of computation.
fn reject_variants(builder: &PlanBuilder<'_>) -> Result<(), ModelError> {
    let hparams = builder.hparams;
    hparams.check_hf_text("activation_function", &["relu"])?;
    if !hparams.hf_bool("do_layer_norm_before", true)? {
        return Err(ModelError::Unsupported(
            "this OPT model norms after each block (as opt-350m does), which is not supported. Choose another size of OPT"
                .to_owned(),
        ));
    }
    let hidden_dim = hparams.require_uint("", "hidden_size")?;
    let embed_dim = hparams.uint("", "word_embed_proj_dim")?.unwrap_or(hidden_dim);
    if embed_dim != hidden_dim {
        return Err(ModelError::Unsupported(format!(
            "this OPT model projects embeddings of {embed_dim} to {hidden_dim}, which is not supported. \
             Choose another size of OPT"
        )));
    }
    let wanted = [("enable_bias", true), ("layer_norm_elementwise_affine", true), ("_remove_final_layer_norm", false)];
    for (key, wanted) in wanted {
        if hparams.hf_bool(key, wanted)? != wanted {
            return Err(hparams.bad("", key, !wanted, if wanted { "true" } else { "false" }));
        }
    }
    Ok(())
}
