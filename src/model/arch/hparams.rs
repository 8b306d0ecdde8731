//! Hyperparameters from GGUF keys (`llama.block_count`) or `config.json` keys (`num_hidden_layers`), behind one interface.

use serde_json::Value;

use crate::model::ModelError;
use crate::model::gguf::{Gguf, bad_value};

/// Source of hyperparameters. Methods take the GGUF key without its `arch.` prefix, and the `config.json` key. An empty key
/// is never present.
pub(crate) enum HParams<'a> {
    Gguf { gguf: &'a Gguf, bytes: &'a [u8], arch: &'a str },
    Hf { config: &'a Value, arch: &'a str },
}

impl<'a> HParams<'a> {
    pub fn from_gguf(gguf: &'a Gguf, bytes: &'a [u8]) -> Result<HParams<'a>, ModelError> {
        match gguf.string("general.architecture")? {
            Some(arch) => Ok(HParams::Gguf { gguf, bytes, arch }),
            None => Err(ModelError::MissingKey { place: "GGUF metadata", key: "general.architecture".to_owned() }),
        }
    }

    pub fn architecture(&self) -> &'a str {
        match self {
            HParams::Gguf { arch, .. } | HParams::Hf { arch, .. } => arch,
        }
    }

    pub fn is_gguf(&self) -> bool {
        matches!(self, HParams::Gguf { .. })
    }

    /// Error for a value that is not allowed.
    pub fn bad(&self, gguf_key: &str, hf_key: &str, got: impl ToString, must: &str) -> ModelError {
        match self {
            HParams::Gguf { arch, .. } => bad_value(&format!("{arch}.{gguf_key}"), got, must),
            HParams::Hf { .. } => {
                ModelError::BadValue { place: "config.json", key: hf_key.to_owned(), got: got.to_string(), must: must.to_owned() }
            }
        }
    }

    fn missing(&self, gguf_key: &str, hf_key: &str) -> ModelError {
        match self {
            HParams::Gguf { arch, .. } => ModelError::MissingKey { place: "GGUF metadata", key: format!("{arch}.{gguf_key}") },
            HParams::Hf { .. } => ModelError::MissingKey { place: "config.json", key: hf_key.to_owned() },
        }
    }

    /// A value of `config.json`; None for GGUF and for null. The key `a.b` is key b of object a.
    pub fn json(&self, key: &str) -> Option<&'a Value> {
        match self {
            HParams::Hf { config, .. } if !key.is_empty() => {
                key.split('.').try_fold(*config, |value, part| value.get(part)).filter(|value| !value.is_null())
            }
            _ => None,
        }
    }

    fn json_as<T>(&self, key: &str, must: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>, ModelError> {
        match self.json(key) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| self.bad("", key, value, must)),
        }
    }

    pub fn uint(&self, gguf_key: &str, hf_key: &str) -> Result<Option<usize>, ModelError> {
        const MUST: &str = "a whole number";
        let value = match self {
            HParams::Gguf { .. } if gguf_key.is_empty() => None,
            HParams::Gguf { gguf, bytes, arch } => {
                let key = format!("{arch}.{gguf_key}");
                match gguf.get(&key) {
                    Some(crate::model::gguf::Value::Array(_)) => same_for_all_layers(gguf, bytes, &key)?,
                    _ => gguf.uint(&key)?,
                }
            }
            HParams::Hf { .. } => self.json_as(hf_key, MUST, Value::as_u64)?,
        };
        let narrow = |v: u64| usize::try_from(v).map_err(|_| self.bad(gguf_key, hf_key, v, MUST));
        value.map(narrow).transpose()
    }

    pub fn require_uint(&self, gguf_key: &str, hf_key: &str) -> Result<usize, ModelError> {
        self.uint(gguf_key, hf_key)?.ok_or_else(|| self.missing(gguf_key, hf_key))
    }

    pub fn float(&self, gguf_key: &str, hf_key: &str) -> Result<Option<f64>, ModelError> {
        match self {
            HParams::Gguf { .. } if gguf_key.is_empty() => Ok(None),
            HParams::Gguf { gguf, arch, .. } => gguf.float(&format!("{arch}.{gguf_key}")),
            HParams::Hf { .. } => self.json_as(hf_key, "a number", |v| v.as_f64().filter(|v| v.is_finite())),
        }
    }

    pub fn require_float(&self, gguf_key: &str, hf_key: &str) -> Result<f64, ModelError> {
        self.float(gguf_key, hf_key)?.ok_or_else(|| self.missing(gguf_key, hf_key))
    }

    pub fn string(&self, gguf_key: &str, hf_key: &str) -> Result<Option<&'a str>, ModelError> {
        match self {
            HParams::Gguf { .. } if gguf_key.is_empty() => Ok(None),
            HParams::Gguf { gguf, arch, .. } => gguf.string(&format!("{arch}.{gguf_key}")),
            HParams::Hf { .. } => self.json_as(hf_key, "text", Value::as_str),
        }
    }

    /// A boolean of `config.json`.
    pub fn hf_bool(&self, key: &str, default: bool) -> Result<bool, ModelError> {
        Ok(self.json_as(key, "true or false", Value::as_bool)?.unwrap_or(default))
    }

    /// A list of numbers of `config.json`.
    pub fn hf_floats(&self, key: &str) -> Result<Option<Vec<f64>>, ModelError> {
        self.json_as(key, "a list of numbers", |v| v.as_array()?.iter().map(Value::as_f64).collect())
    }

    /// Number of tokens in the GGUF vocabulary, which fixes the rows of the embedding.
    pub fn gguf_token_count(&self) -> Result<Option<usize>, ModelError> {
        match self {
            HParams::Gguf { gguf, .. } => gguf.array_len("tokenizer.ggml.tokens"),
            HParams::Hf { .. } => Ok(None),
        }
    }

    /// Checks that a text of `config.json` has one of the given values, or is absent.
    pub fn check_hf_text(&self, key: &str, allowed: &[&str]) -> Result<(), ModelError> {
        match self.string("", key)? {
            Some(text) if !allowed.contains(&text) => Err(self.bad("", key, format!("'{text}'"), &allowed.join(" or "))),
            _ => Ok(()),
        }
    }
}

/// Reads an array of one number per layer; all must be equal, because per-layer values are not supported.
fn same_for_all_layers(gguf: &Gguf, bytes: &[u8], key: &str) -> Result<Option<u64>, ModelError> {
    let numbers = gguf.numbers(bytes, key)?.unwrap_or_default();
    match numbers.first() {
        Some(first) if numbers.iter().all(|n| n == first) && *first >= 0.0 && first.fract() == 0.0 && *first < 1e15 => {
            Ok(Some(*first as u64))
        }
        _ => Err(bad_value(key, "a list of different numbers", "the same for every layer")),
    }
}
