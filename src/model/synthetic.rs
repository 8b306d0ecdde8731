//! Synthetic models: real shapes with random weights, generated tensor by tensor on demand, for speed tests.
//!
//! Invariants: 1. The same name, type and seed give the same bytes, for whole tensors and for any of their rows.
//! 2. Matrices have mean 0 and a standard deviation near 1/sqrt(cols), norms are the identity, biases are 0, so logits stay
//! finite. 3. Only the list of tensors is in memory. Types follow llama-quantize: with Q4_0 and Q4_K the output matrix (or
//! the tied embedding) is Q6_K, and a type that does not divide the columns falls back.

use half::f16;
use serde_json::{Value, json};

use super::ModelError;
use super::quant::{TensorType, dequantize};
use super::tensors::{TensorEntry, TensorTable};
use crate::base::Rng;

/// Names of the shapes.
pub const SHAPES: [&str; 6] = ["tiny", "qwen2.5-0.5b", "llama-3.2-1b", "llama-2-7b", "llama-3.1-8b", "opt-6.7b"];

/// Generator of a synthetic model's tensors.
pub(crate) struct Synthetic {
    pub config: Value,
    pub tensors: TensorTable,
    pub seed: u64,
}

/// Published `config.json` of a shape, reduced to the keys that matter here.
fn config(name: &str) -> Option<Value> {
    let llama3 = |factor: f64| {
        json!({ "rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192 })
    };
    // layers, hidden, heads, kv heads, ffn, vocab, context, rope base, tied
    let llama = |d: [usize; 7], theta: f64, tied: bool| {
        json!({ "model_type": "llama", "num_hidden_layers": d[0], "hidden_size": d[1], "num_attention_heads": d[2],
                "num_key_value_heads": d[3], "intermediate_size": d[4], "vocab_size": d[5],
                "max_position_embeddings": d[6], "rope_theta": theta, "rms_norm_eps": 1e-5, "tie_word_embeddings": tied })
    };
    Some(match name {
        "tiny" => llama([4, 256, 4, 2, 768, 512, 4096], 5e5, false),
        "qwen2.5-0.5b" => {
            let mut config = llama([24, 896, 14, 2, 4864, 151_936, 32_768], 1e6, true);
            config["model_type"] = json!("qwen2");
            config["rms_norm_eps"] = json!(1e-6);
            config
        }
        "llama-3.2-1b" => {
            let mut config = llama([16, 2048, 32, 8, 8192, 128_256, 131_072], 5e5, true);
            config["rope_scaling"] = llama3(32.0);
            config
        }
        "llama-3.1-8b" => {
            let mut config = llama([32, 4096, 32, 8, 14_336, 128_256, 131_072], 5e5, false);
            config["rope_scaling"] = llama3(8.0);
            config
        }
        "llama-2-7b" => llama([32, 4096, 32, 32, 11_008, 32_000, 4096], 1e4, false),
        "opt-6.7b" => json!({ "model_type": "opt", "num_hidden_layers": 32, "hidden_size": 4096,
            "num_attention_heads": 32, "ffn_dim": 16_384, "vocab_size": 50_272, "max_position_embeddings": 2048,
            "word_embed_proj_dim": 4096, "do_layer_norm_before": true, "activation_function": "relu" }),
        _ => return None,
    })
}

impl Synthetic {
    /// A shape by name, with a weight type. `name/n`: its first `n` layers.
    ///
    /// # Errors
    /// Unknown name or weight type.
    pub fn new(name: &str, weight_type: &str, seed: u64) -> Result<Synthetic, ModelError> {
        let (shape, n_layers) = match name.split_once('/') {
            Some((shape, n)) => (shape, n.parse::<usize>().ok().filter(|n| *n > 0)),
            None => (name, Some(usize::MAX)),
        };
        let Some((mut config, n_layers)) = config(shape).zip(n_layers) else {
            let known = SHAPES.join(", ");
            return Err(ModelError::Unsupported(format!("there is no model shape '{name}'. Choose one of: {known}")));
        };
        let Some(base) = TensorType::from_name(weight_type) else {
            let known = TensorType::supported();
            return Err(ModelError::Unsupported(format!("there is no weight type '{weight_type}'. Choose one of: {known}")));
        };
        let all = config["num_hidden_layers"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        config["num_hidden_layers"] = json!(all.min(n_layers));
        let mut synthetic = Synthetic { config, tensors: TensorTable::default(), seed };
        synthetic.list_tensors(base);
        Ok(synthetic)
    }

    fn number(&self, key: &str) -> usize {
        self.config[key].as_u64().and_then(|v| usize::try_from(v).ok()).unwrap_or(0)
    }

    fn add(&mut self, name: String, shape: &[usize], ty: TensorType) {
        let ty = match shape {
            [_, cols] => type_for_width(ty, *cols),
            _ => TensorType::F32,
        };
        self.tensors.insert(name, TensorEntry { ty: Ok(ty), shape: shape.to_vec(), shard: 0, start: 0, end: 0 });
    }

    fn list_tensors(&mut self, base: TensorType) {
        let mixed = matches!(base, TensorType::Q4_0 | TensorType::Q4_K);
        let last = if mixed { TensorType::Q6_K } else { base };
        match self.config["model_type"].as_str() {
            Some("opt") => self.list_opt(base, last),
            _ => self.list_llama(base, last),
        }
    }

    fn list_llama(&mut self, base: TensorType, last: TensorType) {
        let (layers, hidden) = (self.number("num_hidden_layers"), self.number("hidden_size"));
        let (ffn, vocab) = (self.number("intermediate_size"), self.number("vocab_size"));
        let kv = hidden / self.number("num_attention_heads").max(1) * self.number("num_key_value_heads");
        let tied = self.config["tie_word_embeddings"] == json!(true);
        let biased = self.config["model_type"] == json!("qwen2");
        self.add("model.embed_tokens.weight".into(), &[vocab, hidden], if tied { last } else { base });
        for i in 0..layers {
            let more_bits = i < layers / 8 || i >= 7 * layers / 8 || (i - layers / 8) % 3 == 2;
            let better = if base == TensorType::Q4_K && more_bits { TensorType::Q6_K } else { base };
            let at = |name: &str| format!("model.layers.{i}.{name}");
            for (name, rows) in [("q_proj", hidden), ("k_proj", kv), ("v_proj", kv)] {
                let ty = if name == "v_proj" { better } else { base };
                self.add(at(&format!("self_attn.{name}.weight")), &[rows, hidden], ty);
                if biased {
                    self.add(at(&format!("self_attn.{name}.bias")), &[rows], base);
                }
            }
            self.add(at("self_attn.o_proj.weight"), &[hidden, hidden], base);
            self.add(at("mlp.gate_proj.weight"), &[ffn, hidden], base);
            self.add(at("mlp.up_proj.weight"), &[ffn, hidden], base);
            self.add(at("mlp.down_proj.weight"), &[hidden, ffn], better);
            self.add(at("input_layernorm.weight"), &[hidden], base);
            self.add(at("post_attention_layernorm.weight"), &[hidden], base);
        }
        self.add("model.norm.weight".into(), &[hidden], base);
        if !tied {
            self.add("lm_head.weight".into(), &[vocab, hidden], last);
        }
    }

    fn list_opt(&mut self, base: TensorType, last: TensorType) {
        let (layers, hidden) = (self.number("num_hidden_layers"), self.number("hidden_size"));
        let (ffn, vocab) = (self.number("ffn_dim"), self.number("vocab_size"));
        let at = |name: &str| format!("model.decoder.{name}");
        self.add(at("embed_tokens.weight"), &[vocab, hidden], last);
        self.add(at("embed_positions.weight"), &[self.number("max_position_embeddings") + 2, hidden], TensorType::F16);
        for i in 0..layers {
            let square = ["q_proj", "k_proj", "v_proj", "out_proj"].map(|name| (format!("self_attn.{name}"), hidden, hidden));
            for (name, rows, cols) in square.into_iter().chain([("fc1".into(), ffn, hidden), ("fc2".into(), hidden, ffn)]) {
                self.add(at(&format!("layers.{i}.{name}.weight")), &[rows, cols], base);
                self.add(at(&format!("layers.{i}.{name}.bias")), &[rows], base);
            }
            self.add_norm(at(&format!("layers.{i}.self_attn_layer_norm")), hidden);
            self.add_norm(at(&format!("layers.{i}.final_layer_norm")), hidden);
        }
        self.add_norm(at("final_layer_norm"), hidden);
    }

    fn add_norm(&mut self, stem: String, dim: usize) {
        self.add(format!("{stem}.weight"), &[dim], TensorType::F32);
        self.add(format!("{stem}.bias"), &[dim], TensorType::F32);
    }

    /// Generates rows of a matrix in blocks, or elements of a vector.
    pub fn rows(&self, name: &str, ty: TensorType, cols: usize, first_row: usize, n_rows: usize) -> Result<Vec<u8>, ModelError> {
        if self.tensors.get(name).is_some_and(|entry| entry.shape.len() == 1) {
            let value: f32 = if name.ends_with(".bias") { 0.0 } else { 1.0 };
            return Ok(value.to_le_bytes().repeat(n_rows));
        }
        let overflow = || ModelError::Sizes { op: "synthetic", got: format!("{n_rows} x {cols}"), expected: "less".into() };
        let row_bytes = ty.row_bytes(cols).ok_or_else(overflow)?;
        let mut out = vec![0u8; row_bytes.checked_mul(n_rows).ok_or_else(overflow)?];
        let scale = if ty.is_float() { f16::ZERO } else { block_scale(ty, (cols as f32).sqrt().recip())? };
        for (row, out) in out.chunks_exact_mut(row_bytes).enumerate() {
            let mut rng = Rng::new(row_seed(self.seed, name, first_row + row));
            match ty.is_float() {
                true => fill_floats(ty, out, cols, &mut rng),
                false => fill_blocks(ty, out, scale, &mut rng),
            }
        }
        Ok(out)
    }
}

/// The type itself, or llama-quantize's fallback if blocks do not divide the columns.
fn type_for_width(mut ty: TensorType, cols: usize) -> TensorType {
    use TensorType::*;
    while !cols.is_multiple_of(ty.block_elems()) {
        ty = match ty {
            Q6_K => Q8_0,
            Q5_K => Q5_1,
            Q4_K => Q5_0,
            Q2_K | Q3_K | IQ4_XS => IQ4_NL,
            _ => F16,
        };
    }
    ty
}

/// FNV-1a over the name, mixed with seed and row.
fn row_seed(seed: u64, name: &str, row: usize) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(PRIME));
    (hash ^ seed.rotate_left(32)).wrapping_add((row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Random sign and mantissa, one of four exponents: standard deviation within a factor of 1.5 of 1/sqrt(cols).
fn fill_floats(ty: TensorType, out: &mut [u8], cols: usize, rng: &mut Rng) {
    let top = (1.136 / (cols as f32).sqrt()).log2().round().clamp(-11.0, 0.0) as i32;
    let exponent = |r: u32, bias: i32| (bias + top - ((r >> 10) & 3) as i32).unsigned_abs();
    let width = ty.block_bytes();
    for value in out.chunks_exact_mut(width) {
        let r = rng.next_u32() >> 16;
        let (sign, mantissa) = (r >> 15, r & 0x3ff);
        let f32_bits = sign << 31 | exponent(r, 127) << 23 | mantissa << 13;
        match ty {
            TensorType::F16 => value.copy_from_slice(&((sign << 15 | exponent(r, 15) << 10 | mantissa) as u16).to_le_bytes()),
            TensorType::BF16 => value.copy_from_slice(&((f32_bits >> 16) as u16).to_le_bytes()),
            _ => value.copy_from_slice(&f32_bits.to_le_bytes()),
        }
    }
}

/// Random quants with fixed scales.
fn fill_blocks(ty: TensorType, out: &mut [u8], scale: f16, rng: &mut Rng) {
    use TensorType::*;
    for word in out.chunks_mut(4) {
        word.copy_from_slice(&rng.next_u32().to_le_bytes()[..word.len()]);
    }
    let minimum = |times: f32| f16::from_f32(scale.to_f32() * times).to_le_bytes();
    let d = scale.to_le_bytes();
    for block in out.chunks_exact_mut(ty.block_bytes()) {
        // (offset of d, offset and factor of the minimum that makes the mean 0)
        let (at, min) = match ty {
            Q4_1 => (0, Some((2, -7.5))),
            Q5_1 => (0, Some((2, -15.5))),
            Q2_K => (80, Some((82, 1.5))),
            Q4_K => (0, Some((2, 7.5))),
            Q5_K => (0, Some((2, 15.5))),
            Q3_K => (108, None),
            Q6_K => (208, None),
            _ => (0, None),
        };
        // Types without a minimum get a random sign for a mean of 0, because their quants reach lower than higher.
        let sign = if min.is_none() { block[at + 1] & 0x80 } else { 0 };
        block[at] = d[0];
        block[at + 1] = d[1] | sign;
        if let Some((at, times)) = min {
            block[at..at + 2].copy_from_slice(&minimum(times));
        }
    }
}

/// Block scale that gives values of standard deviation `sd`, measured on a sample.
fn block_scale(ty: TensorType, sd: f32) -> Result<f16, ModelError> {
    let n_blocks = 2048 / ty.block_elems() * 8;
    let mut sample = vec![0u8; n_blocks * ty.block_bytes()];
    fill_blocks(ty, &mut sample, f16::from_f32(1.0 / 64.0), &mut Rng::new(0));
    let mut values = vec![0f32; n_blocks * ty.block_elems()];
    dequantize(ty, &sample, &mut values)?;
    let mean_square = values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / values.len() as f64;
    Ok(f16::from_f32(sd / 64.0 / mean_square.sqrt() as f32))
}
