//! Registry of architectures. A new architecture is a file with a plan function, and a row here.

use serde_json::Value;

use super::hparams::HParams;
use super::plan::ModelPlan;
use super::plan_builder::PlanBuilder;
use super::{gpt2, llama, opt, phi3, qwen2, qwen3};
use crate::model::ModelError;

/// One supported architecture.
pub(super) struct Architecture {
    /// `general.architecture` of its GGUF files; None if only Hugging Face folders are supported
    gguf: Option<&'static str>,
    /// names in the `config.json` of its Hugging Face folders
    hf: &'static [HfName],
    /// makes the plan of a model
    pub plan: fn(&PlanBuilder<'_>) -> Result<ModelPlan, ModelError>,
}

/// Names of an architecture in `config.json`.
struct HfName {
    /// value of `model_type`
    model_type: &'static str,
    /// entry of `architectures`, for folders without a `model_type`
    class: &'static str,
}

/// All supported architectures, in the order of error messages.
const ARCHITECTURES: [Architecture; 6] = [
    // Llama 2 and 3, SmolLM, TinyLlama. Mistral has its own name in config.json only.
    Architecture {
        gguf: Some("llama"),
        hf: &[
            HfName { model_type: "llama", class: "LlamaForCausalLM" },
            HfName { model_type: "mistral", class: "MistralForCausalLM" },
        ],
        plan: llama::plan,
    },
    // Qwen 2 and 2.5: llama with biases on q, k and v.
    Architecture { gguf: Some("qwen2"), hf: &[HfName { model_type: "qwen2", class: "Qwen2ForCausalLM" }], plan: qwen2::plan },
    // Qwen 3, dense: llama with a norm on each head of q and k.
    Architecture { gguf: Some("qwen3"), hf: &[HfName { model_type: "qwen3", class: "Qwen3ForCausalLM" }], plan: qwen3::plan },
    // GPT-2: LayerNorm, learned positions, fused QKV.
    Architecture { gguf: Some("gpt2"), hf: &[HfName { model_type: "gpt2", class: "GPT2ForCausalLM" }], plan: gpt2::plan },
    // OPT, pre-LayerNorm sizes.
    Architecture { gguf: None, hf: &[HfName { model_type: "opt", class: "OPTForCausalLM" }], plan: opt::plan },
    // Phi-3, Phi-3.5, Phi-4-mini: llama with fused matrices, partial rotation and LongRoPE.
    Architecture { gguf: Some("phi3"), hf: &[HfName { model_type: "phi3", class: "Phi3ForCausalLM" }], plan: phi3::plan },
];

/// Architectures supported in GGUF files, as named in `general.architecture`.
pub fn gguf_architectures() -> Vec<&'static str> {
    ARCHITECTURES.iter().filter_map(|architecture| architecture.gguf).collect()
}

/// Architectures supported in Hugging Face folders, as named in `model_type`.
pub fn hf_architectures() -> Vec<&'static str> {
    hf_names().map(|name| name.model_type).collect()
}

/// The architecture of a model.
///
/// # Errors
/// It is not supported in files of this kind.
pub(super) fn find(hparams: &HParams<'_>) -> Result<&'static Architecture, ModelError> {
    let name = hparams.architecture();
    let is_named = |architecture: &&Architecture| match hparams {
        HParams::Gguf { .. } => architecture.gguf == Some(name),
        HParams::Hf { .. } => architecture.hf.iter().any(|hf| hf.model_type == name),
    };
    ARCHITECTURES.iter().find(is_named).ok_or_else(|| {
        let supported = if hparams.is_gguf() { gguf_architectures() } else { hf_architectures() };
        ModelError::Architecture { name: name.to_owned(), supported: supported.join(", ") }
    })
}

/// Hyperparameters of a `config.json`, with the architecture that it names.
///
/// # Errors
/// It names none.
pub(crate) fn hparams_of_config(config: &Value) -> Result<HParams<'_>, ModelError> {
    // Old OPT and GPT-2 folders may lack model_type, but have the name of the class.
    let by_class = || model_type_of_class(config.get("architectures")?.get(0)?.as_str()?);
    match config.get("model_type").and_then(Value::as_str).or_else(by_class) {
        Some(arch) => Ok(HParams::Hf { config, arch }),
        None => Err(ModelError::MissingKey { place: "config.json", key: "model_type".to_owned() }),
    }
}

/// The `model_type` of a class in `architectures`.
fn model_type_of_class(class: &str) -> Option<&'static str> {
    hf_names().find(|name| name.class == class).map(|name| name.model_type)
}

fn hf_names() -> impl Iterator<Item = &'static HfName> {
    ARCHITECTURES.iter().flat_map(|architecture| architecture.hf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_classes_lead_to_their_model_type() {
        for names in [gguf_architectures(), hf_architectures()] {
            let mut unique = names.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), names.len(), "{names:?}");
        }
        for name in hf_names() {
            assert_eq!(model_type_of_class(name.class), Some(name.model_type));
        }
        assert_eq!(model_type_of_class("LlamaForSequenceClassification"), None);
    }
}
