//! From metadata to a [`ModelPlan`]: one small file for each family of architectures.
//!
//! ```text
//! GGUF keys or config.json ─► HParams ─► dims ─► family: names, biases, norms, rope ─► ModelPlan
//! TensorTable ──────────────────────────────────► PlanBuilder: every shape is checked against dims
//! ```
//! Invariants: 1. Every tensor that a plan names exists, in a known type, with exactly the shape that the dims ask for.
//! 2. Every weight in the file is used, or known to be harmless: a layer or a bias that the plan would overlook is an
//! error, never a wrong answer. Pure: no I/O but the given reader of small vectors.

mod gpt2;
mod hparams;
mod llama;
mod opt;
mod phi3;
pub mod plan;
mod plan_builder;
mod rope;

pub(crate) use hparams::HParams;
pub(crate) use plan_builder::PlanBuilder;

use super::ModelError;
use super::tensors::TensorTable;
use plan::ModelPlan;

const GGUF_ARCHITECTURES: [&str; 5] = ["llama", "qwen2", "qwen3", "gpt2", "phi3"];
const HF_ARCHITECTURES: [&str; 7] = ["llama", "mistral", "qwen2", "qwen3", "gpt2", "opt", "phi3"];

/// Reads a small tensor as floats.
pub(crate) type ReadVector<'a> = &'a dyn Fn(&str) -> Result<Vec<f32>, ModelError>;

/// What of a plan is not the model's to say.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PlanOverrides {
    /// caps the window where that changes the plan (LongRoPE has two sets of factors)
    pub context: Option<usize>,
    /// base of the rotary embedding instead of the model's own
    pub rope_base: Option<f64>,
}

/// The plan for a model.
///
/// # Errors
/// When the architecture is unknown, or metadata and tensors do not fit it.
pub(crate) fn plan(
    keys: &HParams<'_>,
    tensors: &TensorTable,
    read: ReadVector<'_>,
    wanted: PlanOverrides,
) -> Result<ModelPlan, ModelError> {
    let arch = keys.architecture();
    let known: &[&str] = if keys.is_gguf() { &GGUF_ARCHITECTURES } else { &HF_ARCHITECTURES };
    if !known.contains(&arch) {
        return Err(ModelError::Architecture { name: arch.to_owned(), supported: known.join(", ") });
    }
    if tensors.is_empty() {
        return Err(ModelError::Unsupported(
            "the model file holds a vocabulary but no weights; open the file that has the weights".to_owned(),
        ));
    }
    let experts = keys.uint("expert_count", "num_local_experts")?.unwrap_or(0);
    if experts > 0 {
        return Err(ModelError::Unsupported(format!(
            "this model is a mixture of {experts} experts, which is not supported; choose a dense model"
        )));
    }
    let builder = PlanBuilder::new(keys, tensors, read, wanted);
    let plan = match arch {
        "gpt2" => gpt2::plan(&builder)?,
        "opt" => opt::plan(&builder)?,
        "phi3" => phi3::plan(&builder)?,
        _ => llama::plan(&builder)?,
    };
    builder.check_nothing_left()?;
    Ok(plan)
}
