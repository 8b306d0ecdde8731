//! Model metadata: name, license, chat template, special tokens, recommended sampling.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ModelError;
use super::arch::plan::ModelPlan;
use super::gguf::{self, Gguf};
use super::safetensors::HfFolder;
use super::tensors::TensorTable;
use crate::base::limits;
use crate::token::{GgufVocab, is_end_name, template_of_config};

/// Metadata for the model bar, the tokenizer and the sampler.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelMeta {
    /// `general.name`, or the name of the file or folder
    pub name: String,
    /// `llama`, `qwen2`, ...
    pub architecture: String,
    /// most common weight type by size, or llama.cpp's name of the mix, for example `Q4_K_M`
    pub quantization: String,
    /// number of weights; a tied output counts once
    pub n_params: u64,
    /// size of the weight file(s)
    pub file_bytes: u64,
    /// license as named in the file
    pub license: Option<String>,
    /// the model's own Jinja template
    pub chat_template: Option<String>,
    /// begin of sequence
    pub bos: Option<u32>,
    /// end of sequence
    pub eos: Option<u32>,
    /// end of turn
    pub eot: Option<u32>,
    /// every token that ends an answer: eos, eot, and further ones that the file marks
    pub stop_ids: Vec<u32>,
    /// true to put `bos` first
    pub add_bos: Option<bool>,
    /// sampling that the model's authors recommend
    pub sampling: RecommendedSampling,
}

/// Recommended sampling parameters; None if the file has none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RecommendedSampling {
    /// temperature; 0 is greedy
    pub temperature: Option<f32>,
    /// number of candidates
    pub top_k: Option<u32>,
    /// cumulative probability of the candidates
    pub top_p: Option<f32>,
    /// smallest probability, as a share of the best candidate's
    pub min_p: Option<f32>,
    /// penalty; 1 changes nothing
    pub repetition_penalty: Option<f32>,
}

/// A value that a model runs without. One of another type is ignored, with a line in the log.
fn optional<T>(value: Result<Option<T>, ModelError>) -> Option<T> {
    value.unwrap_or_else(|error| {
        log::warn!("metadata that is ignored: {error}");
        None
    })
}

/// Recommended number; llama.cpp reads it from text, too.
fn recommended_number(gguf: &Gguf, key: &str) -> Option<f64> {
    let key = format!("general.sampling.{key}");
    match gguf.get(&key) {
        Some(gguf::Value::String(text)) if text.trim().parse::<f64>().is_ok_and(f64::is_finite) => text.trim().parse().ok(),
        _ => optional(gguf.float(&key)),
    }
}

/// Id of a special token below `vocab_size`. Another value is ignored, with a line in the log.
/// Source: llama.cpp, which uses the default id in its place.
fn special_id(gguf: &Gguf, name: &str, vocab_size: usize) -> Option<u32> {
    let id = optional(gguf.token_id(&format!("tokenizer.ggml.{name}_token_id")))?;
    let is_token = usize::try_from(id).is_ok_and(|id| id < vocab_size);
    if !is_token {
        log::warn!("metadata that is ignored: the {name} id is {id}, but there are only {vocab_size} tokens");
    }
    is_token.then_some(id)
}

/// Vocabulary of a GGUF file; None if it has none.
pub(crate) fn gguf_vocab(gguf: &Gguf, bytes: &[u8]) -> Result<Option<GgufVocab>, ModelError> {
    let Some(model) = gguf.string("tokenizer.ggml.model")? else { return Ok(None) };
    let Some(tokens) = gguf.strings(bytes, "tokenizer.ggml.tokens")? else { return Ok(None) };
    let id = |name: &str| special_id(gguf, name, tokens.len());
    let flag = |name: &str| optional(gguf.bool(&format!("tokenizer.ggml.{name}")));
    // Only SentencePiece has scores; what other files have under this name is not looked at.
    let scores = if model == "llama" { gguf.numbers(bytes, "tokenizer.ggml.scores")? } else { None }.unwrap_or_default();
    let types = gguf.numbers(bytes, "tokenizer.ggml.token_type")?.unwrap_or_default();
    Ok(Some(GgufVocab {
        model: model.to_owned(),
        pre: optional(gguf.string("tokenizer.ggml.pre")).map(str::to_owned),
        scores: scores.into_iter().map(|v| v as f32).collect(),
        // A float-to-int cast saturates: an invalid type becomes 0, which no type has.
        token_types: types.into_iter().map(|v| v as u32).collect(),
        merges: gguf.strings(bytes, "tokenizer.ggml.merges")?.unwrap_or_default(),
        bos: id("bos"),
        eos: id("eos"),
        eot: id("eot"),
        unk: id("unknown"),
        pad: id("padding"),
        add_bos: flag("add_bos_token"),
        add_eos: flag("add_eos_token"),
        add_space_prefix: flag("add_space_prefix"),
        tokens,
    }))
}

/// Metadata of a GGUF file.
pub(crate) fn of_gguf(
    gguf: &Gguf,
    bytes: &[u8],
    file_bytes: u64,
    plan: &ModelPlan,
    architecture: &str,
    fallback_name: &str,
) -> Result<ModelMeta, ModelError> {
    let vocab = gguf_vocab(gguf, bytes)?;
    let vocab_size = vocab.as_ref().map_or(limits::MAX_VOCAB, |vocab| vocab.tokens.len());
    let id = |name: &str| special_id(gguf, name, vocab_size);
    let text = |key: &str| optional(gguf.string(key));
    let number = |key: &str| recommended_number(gguf, key);
    let (bos, eos, eot) = (id("bos"), id("eos"), id("eot"));
    let mut stop_ids: Vec<u32> = [eos, eot, id("eom")].into_iter().flatten().collect();
    if let Some(vocab) = vocab {
        const CONTROL: u32 = 3;
        for (id, text) in (0u32..).zip(&vocab.tokens) {
            let control = vocab.token_types.get(id as usize) == Some(&CONTROL);
            if control && is_end_name(text) && !stop_ids.contains(&id) {
                stop_ids.push(id);
            }
        }
    }
    let types = dominant_type(plan, gguf.tensors());
    Ok(ModelMeta {
        name: text("general.name").filter(|n| !n.trim().is_empty()).unwrap_or(fallback_name).to_owned(),
        architecture: architecture.to_owned(),
        quantization: mix_name(optional(gguf.uint("general.file_type")), types),
        n_params: n_params(plan, gguf.tensors()),
        file_bytes,
        license: text("general.license").map(str::to_owned),
        chat_template: text("tokenizer.chat_template").map(str::to_owned),
        bos,
        eos,
        eot,
        stop_ids,
        add_bos: optional(gguf.bool("tokenizer.ggml.add_bos_token")),
        sampling: RecommendedSampling {
            temperature: number("temp").map(|v| v as f32),
            top_k: number("top_k").filter(|k| *k >= 0.0).map(|k| k as u32),
            top_p: number("top_p").map(|v| v as f32),
            min_p: number("min_p").map(|v| v as f32),
            repetition_penalty: number("penalty_repeat").map(|v| v as f32),
        },
    })
}

/// Metadata of a Hugging Face folder.
pub(crate) fn of_folder(folder: &HfFolder, plan: &ModelPlan, architecture: &str, name: &str) -> ModelMeta {
    let generation = folder.generation_config.as_ref();
    let ids = |key: &str| -> Vec<u32> {
        let value = generation.and_then(|g| g.get(key)).filter(|v| !v.is_null()).or_else(|| folder.config.get(key));
        let one = |v: &Value| v.as_u64().and_then(|v| u32::try_from(v).ok());
        match value {
            Some(Value::Array(list)) => list.iter().filter_map(one).collect(),
            Some(value) => one(value).into_iter().collect(),
            None => Vec::new(),
        }
    };
    let samples = generation.and_then(|g| g.get("do_sample")).and_then(Value::as_bool) == Some(true);
    let number = |key: &str| generation.filter(|_| samples).and_then(|g| g.get(key)).and_then(Value::as_f64);
    let eos = ids("eos_token_id");
    let in_config = || template_of_config(folder.tokenizer_config.as_ref()?).map(str::to_owned);
    ModelMeta {
        name: name.to_owned(),
        architecture: architecture.to_owned(),
        quantization: dominant_type(plan, &folder.tensors).to_owned(),
        n_params: n_params(plan, &folder.tensors),
        file_bytes: folder.file_bytes,
        license: None,
        chat_template: folder.chat_template.clone().or_else(in_config),
        bos: ids("bos_token_id").first().copied(),
        eos: eos.first().copied(),
        eot: None,
        stop_ids: eos,
        add_bos: folder.tokenizer_config.as_ref().and_then(|t| t.get("add_bos_token")).and_then(Value::as_bool),
        sampling: RecommendedSampling {
            temperature: number("temperature").map(|v| v as f32),
            top_k: number("top_k").map(|v| v as u32),
            top_p: number("top_p").map(|v| v as f32),
            min_p: number("min_p").map(|v| v as f32),
            repetition_penalty: number("repetition_penalty").map(|v| v as f32),
        },
    }
}

/// Name of the type of most matrix weights.
pub(crate) fn dominant_type(plan: &ModelPlan, tensors: &TensorTable) -> &'static str {
    let mut weights: BTreeMap<&'static str, usize> = BTreeMap::new();
    for matrix in plan.matrices() {
        for part in &matrix.parts {
            if let Some(Ok(info)) = tensors.get(&part.name).map(|entry| entry.info(&part.name)) {
                *weights.entry(info.ty.name()).or_default() += part.n_rows * matrix.cols;
            }
        }
    }
    weights.into_iter().max_by_key(|(_, n)| *n).map_or("unknown", |(name, _)| name)
}

/// llama.cpp's name of a mix of types, if it matches the dominant type.
fn mix_name(file_type: Option<u64>, dominant: &str) -> String {
    let mix = match file_type {
        Some(11) => "Q3_K_S",
        Some(12) => "Q3_K_M",
        Some(13) => "Q3_K_L",
        Some(14) => "Q4_K_S",
        Some(15) => "Q4_K_M",
        Some(16) => "Q5_K_S",
        Some(17) => "Q5_K_M",
        _ => "",
    };
    if mix.starts_with(dominant) { mix.to_owned() } else { dominant.to_owned() }
}

/// Number of weights in matrices, biases and norms.
pub(crate) fn n_params(plan: &ModelPlan, tensors: &TensorTable) -> u64 {
    let matrices = plan.matrices().map(|m| {
        let bias: usize = m.bias.iter().map(|b| b.n_rows).sum();
        (m.rows * m.cols + bias) as u64
    });
    let vectors = plan.vectors().map(|name| tensors.get(name).map_or(0, |entry| entry.n_elements() as u64));
    matrices.sum::<u64>() + vectors.sum::<u64>()
}
