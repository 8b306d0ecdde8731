//! Architectures: a registry with one row and one file each, whose plan functions turn metadata into a [`ModelPlan`].
//!
//! ```text
//! GGUF keys or config.json ─► HParams ─► Architecture::plan: dims, names, biases, norms, rope ─► ModelPlan
//! TensorTable ──────────────────────────► PlanBuilder: checks every shape against the dims
//! ```
//! Invariants: 1. Every tensor of a plan exists, has a decoder, and has exactly the shape that the dims require.
//! 2. Every weight in the file is used, or known to be harmless. A layer or a bias that the plan misses is an error, never a
//! wrong answer. Pure: no I/O but the given reader of small vectors.

mod gpt2;
mod hparams;
mod llama;
mod opt;
mod phi3;
pub mod plan;
mod plan_builder;
mod qwen2;
mod qwen3;
mod registry;
mod rope;

pub(crate) use hparams::HParams;
pub(crate) use plan_builder::PlanOverrides;
pub(crate) use registry::hparams_of_config;
pub use registry::{gguf_architectures, hf_architectures};

use super::ModelError;
use super::tensors::TensorTable;
use plan::ModelPlan;
use plan_builder::{PlanBuilder, ReadVector};

/// The plan of a model.
///
/// # Errors
/// An unsupported architecture, or metadata and tensors that do not fit it.
pub(crate) fn plan(
    hparams: &HParams<'_>,
    tensors: &TensorTable,
    read: ReadVector<'_>,
    overrides: PlanOverrides,
) -> Result<ModelPlan, ModelError> {
    let architecture = registry::find(hparams)?;
    if tensors.is_empty() {
        return Err(ModelError::Unsupported(
            "the model file has a vocabulary but no weights. Open the file that has the weights".to_owned(),
        ));
    }
    let experts = hparams.uint("expert_count", "num_local_experts")?.unwrap_or(0);
    if experts > 0 {
        return Err(ModelError::Unsupported(format!(
            "this model is a mixture of {experts} experts, which is not supported. Choose a dense model"
        )));
    }
    let builder = PlanBuilder::new(hparams, tensors, read, overrides);
    let plan = (architecture.plan)(&builder)?;
    builder.check_all_used()?;
    Ok(plan)
}
