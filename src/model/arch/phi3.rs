//! `phi3` (Phi-3, Phi-3.5, Phi-4-mini): llama with fused QKV, fused gate and up, partial rotation and LongRoPE.

use super::llama::{Body, LayerNames, assemble, dims, reject_quantized_config};
use super::plan_builder::{Bias, PlanBuilder, window};
use crate::model::ModelError;
use crate::model::arch::plan::{LayerPlan, ModelPlan, RopeStyle};

pub(super) fn plan(builder: &PlanBuilder<'_>) -> Result<ModelPlan, ModelError> {
    let hparams = builder.hparams;
    reject_quantized_config(builder)?;
    hparams.check_hf_text("hidden_act", &["silu"])?;
    let dims = dims(builder)?;
    let eps = hparams.require_float("attention.layer_norm_rms_epsilon", "rms_norm_eps")? as f32;
    let prefix = builder.prefix(&["model.", ""], &["layers.0.input_layernorm.weight"]);
    let layer = |i: usize| -> Result<LayerPlan, ModelError> {
        let names = LayerNames::new(builder, prefix, i);
        let one = |gguf: &str, hf: &str, rows: usize, cols: usize| {
            builder.matrix(&[(names.stem(gguf, hf), rows)], cols, Bias::IfPresent)
        };
        Ok(LayerPlan {
            attn_norm: builder.norm(&names.stem("attn_norm", "input_layernorm"), dims.hidden_dim, false)?,
            qkv: one("attn_qkv", "self_attn.qkv_proj", dims.q_dim() + 2 * dims.kv_dim(), dims.hidden_dim)?,
            q_norm: None,
            k_norm: None,
            attn_output: one("attn_output", "self_attn.o_proj", dims.hidden_dim, dims.q_dim())?,
            ffn_norm: builder.norm(&names.stem("ffn_norm", "post_attention_layernorm"), dims.hidden_dim, false)?,
            ffn_up: builder.fused_gate_and_up(names.stem("ffn_up", "mlp.gate_up_proj"), dims.ffn_dim, dims.hidden_dim)?,
            ffn_down: one("ffn_down", "mlp.down_proj", dims.hidden_dim, dims.ffn_dim)?,
        })
    };
    let layers = (0..dims.n_layer).map(layer).collect::<Result<Vec<_>, _>>()?;
    let sliding_window = window(hparams.uint("attention.sliding_window", "sliding_window")?, dims.context_len);
    assemble(builder, Body { prefix, dims, layers, eps, sliding_window, gguf_rope: RopeStyle::Half })
}
