//! Norms and matrix products of every layer of a model, bound.

use super::bindings::{Builder, LinearOp, NormOp};
use super::fused_ops::FusedOps;
use super::layer_ops::LayerOps;
use crate::gpu::GpuError;
use crate::gpu::kernels::linear::LinearActivation;

/// Ops whose kernels depend on the precision.
pub(in crate::engine) struct ModelOps {
    pub(in crate::engine) layers: Vec<LayerOps>,
    pub(in crate::engine) output_norm: NormOp,
    pub(in crate::engine) output: LinearOp,
    /// for decode steps of one token; None if the products cannot be fused
    pub(in crate::engine) fused: Option<FusedOps>,
}

impl Builder<'_> {
    /// Every layer and the output projection.
    pub fn ops(&self, activation: LinearActivation) -> Result<ModelOps, GpuError> {
        let (layout, act) = (&self.weights.layout, self.act);
        let mut layers = Vec::with_capacity(layout.layers.len());
        for l in &layout.layers {
            let qkv = self.linear(&l.qkv, &act.h, &act.qkv, LinearActivation::None, false)?;
            let ffn_up = self.linear(&l.ffn_up, &act.h, &act.ff, activation, false)?;
            layers.push(LayerOps {
                attn_norm: self.norm(&l.attn_norm, &qkv)?,
                qkv,
                attn_output: self.linear(&l.attn_output, &act.attn, &act.x, LinearActivation::None, true)?,
                ffn_norm: self.norm(&l.ffn_norm, &ffn_up)?,
                ffn_up,
                ffn_down: self.linear(&l.ffn_down, &act.ff, &act.x, LinearActivation::None, true)?,
            });
        }
        let output = self.linear(layout.output(), &act.h, &act.logits, LinearActivation::None, false)?;
        let fused = self.fused_ops(&layers, &output)?;
        Ok(ModelOps { layers, output_norm: self.norm(&layout.output_norm, &output)?, output, fused })
    }
}
