//! Work shape of a loaded model: the sizes that the work of its kernels depends on, and the units that they use.

use crate::engine::api::{Limit, WorkShape};
use crate::engine::runner::ModelRunner;
use crate::gpu::kernels::attention_prefill::PrefillVariant;
use crate::gpu::kernels::linear::LinearVariant;

impl ModelRunner {
    /// Shape for the work of the kernels of this model.
    pub(in crate::engine) fn work_shape(&self) -> WorkShape {
        let model = &self.exec.model;
        let (dims, output_bytes) = (&model.dims, model.weights.layout.output().weight_bytes());
        let unit = |has_matrices| if has_matrices { Limit::Matrices } else { Limit::F32 };
        WorkShape {
            n_layer: dims.n_layer as u64,
            hidden_dim: dims.hidden_dim as u64,
            q_dim: dims.q_dim() as u64,
            kv_dim: dims.kv_dim() as u64,
            vocab_size: dims.vocab_size as u64,
            layer_bytes: model.weight_bytes_per_token() - output_bytes,
            output_bytes,
            n_layer_weights: model.layer_flops_per_token() / 2,
            kv_token_bytes: self.exec.kv.spec().token_bytes(),
            linear_prefill: unit(matches!(model.variant, LinearVariant::GpuCooperative(_))),
            attention_prefill: unit(model.page_attention.prefill.variant() == PrefillVariant::FlashMatrices),
        }
    }
}
