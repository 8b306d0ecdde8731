//! `qwen2` (Qwen 2 and 2.5): llama with biases on q, k and v.

use super::llama::{self, Variant};
use super::plan::ModelPlan;
use super::plan_builder::{Bias, PlanBuilder};
use crate::model::ModelError;

pub(super) fn plan(builder: &PlanBuilder<'_>) -> Result<ModelPlan, ModelError> {
    llama::plan_variant(builder, &Variant { qkv_bias: Bias::Required, has_window_switch: true, ..Variant::default() })
}
