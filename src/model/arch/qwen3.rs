//! `qwen3` (Qwen 3, dense): llama with an RMS norm on each head of q and k.

use super::llama::{self, Variant};
use super::plan::ModelPlan;
use super::plan_builder::PlanBuilder;
use crate::model::ModelError;

pub(super) fn plan(builder: &PlanBuilder<'_>) -> Result<ModelPlan, ModelError> {
    llama::plan_variant(builder, &Variant { has_head_norms: true, has_window_switch: true, ..Variant::default() })
}
