//! `opt` from a Hugging Face folder: LayerNorm before each half (refused where it comes after), learned positions that
//! start at row 2, ReLU, biases everywhere.

use super::llama::refuse_quantized_config;
use super::plan_builder::{Bias, PlanBuilder};
use crate::base::ModelDims;
use crate::model::ModelError;
use crate::model::arch::plan::{Activation, LayerPlan, ModelPlan, NormKind, PositionPlan};

/// OPT's position table has two rows that no position uses.
const POSITION_OFFSET: usize = 2;
/// torch's default, which OPT keeps.
const EPS: f32 = 1e-5;

pub(super) fn plan(builder: &PlanBuilder<'_>) -> Result<ModelPlan, ModelError> {
    let keys = builder.keys;
    refuse_quantized_config(builder)?;
    refuse_variants(builder)?;
    let hidden_dim = keys.need_uint("", "hidden_size")?;
    let n_head = keys.need_uint("", "num_attention_heads")?;
    if n_head == 0 || !hidden_dim.is_multiple_of(n_head) {
        return Err(keys.bad("", "num_attention_heads", n_head, &format!("a divisor of the width {hidden_dim}")));
    }
    let dims = ModelDims {
        n_layer: keys.need_uint("", "num_hidden_layers")?,
        hidden_dim,
        n_head,
        n_kv_head: n_head,
        head_dim: hidden_dim / n_head,
        ffn_dim: keys.need_uint("", "ffn_dim")?,
        vocab_size: keys.need_uint("", "vocab_size")?,
        context_len: keys.need_uint("", "max_position_embeddings")?,
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
    let tied_by_config = keys.hf_bool("tie_word_embeddings", true)?;
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

/// Variants with another layout of the computation.
fn refuse_variants(builder: &PlanBuilder<'_>) -> Result<(), ModelError> {
    let keys = builder.keys;
    keys.check_hf_text("activation_function", &["relu"])?;
    if !keys.hf_bool("do_layer_norm_before", true)? {
        return Err(ModelError::Unsupported(
            "this OPT model norms after each block (as opt-350m does), which is not supported; choose another size of OPT"
                .to_owned(),
        ));
    }
    let hidden_dim = keys.need_uint("", "hidden_size")?;
    let embed_dim = keys.uint("", "word_embed_proj_dim")?.unwrap_or(hidden_dim);
    if embed_dim != hidden_dim {
        return Err(ModelError::Unsupported(format!(
            "this OPT model projects embeddings of {embed_dim} to {hidden_dim}, which is not supported; \
             choose another size of OPT"
        )));
    }
    let wanted = [("enable_bias", true), ("layer_norm_elementwise_affine", true), ("_remove_final_layer_norm", false)];
    for (key, wanted) in wanted {
        if keys.hf_bool(key, wanted)? != wanted {
            return Err(keys.bad("", key, !wanted, if wanted { "true" } else { "false" }));
        }
    }
    Ok(())
}
