//! GGUF files converted from the Hugging Face fixtures: equal logits prove the GGUF side of every architecture.

use strata::model::arch::plan::TensorRef;
use strata::model::{ModelError, ModelFile};

use super::forward::nmse;
use super::gguf_writer::{Val, Writer};
use super::hf::fixture;
use super::reference_forward::PlainModel;

/// A fixture's tensor as floats, transposed if GPT-2 stores it so.
fn tensor(file: &ModelFile, name: &str, transposed: bool) -> (Vec<u64>, Vec<f32>) {
    let info = file.tensor(name).unwrap();
    let (rows, cols) = if transposed { (info.cols, info.rows) } else { (info.rows, info.cols) };
    let part = TensorRef { name: name.to_owned(), first_row: 0, n_rows: rows, transposed };
    let bytes = file.tensor_bytes(&part).unwrap();
    let values = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    (if cols == 1 { vec![rows as u64] } else { vec![rows as u64, cols as u64] }, values)
}

/// Reorders rows of each head from halves to adjacent pairs, as llama.cpp's converter does for `llama`.
fn to_adjacent(values: &[f32], cols: usize, head_dim: usize) -> Vec<f32> {
    let half = head_dim / 2;
    let row = |r: usize| {
        let (head, i) = (r / head_dim, r % head_dim);
        head * head_dim + i / 2 + i % 2 * half
    };
    (0..values.len() / cols).flat_map(|r| values[row(r) * cols..][..cols].to_vec()).collect()
}

/// Writes the dims under their GGUF keys.
fn settings(w: &mut Writer, arch: &str, file: &ModelFile, eps: (&str, f32)) {
    let dims = &file.plan().dims;
    for (key, value) in [
        ("block_count", dims.n_layer),
        ("context_length", dims.context_len),
        ("embedding_length", dims.hidden_dim),
        ("feed_forward_length", dims.ffn_dim),
        ("attention.head_count", dims.n_head),
        ("attention.head_count_kv", dims.n_kv_head),
        ("attention.key_length", dims.head_dim),
        ("attention.value_length", dims.head_dim),
        ("vocab_size", dims.vocab_size),
    ] {
        w.set(&format!("{arch}.{key}"), Val::U32(value as u32));
    }
    w.set(&format!("{arch}.attention.{}", eps.0), Val::F32(eps.1));
}

const LAYER: [(&str, &str); 16] = [
    ("attn_norm.weight", "input_layernorm.weight"),
    ("attn_q.weight", "self_attn.q_proj.weight"),
    ("attn_k.weight", "self_attn.k_proj.weight"),
    ("attn_v.weight", "self_attn.v_proj.weight"),
    ("attn_q.bias", "self_attn.q_proj.bias"),
    ("attn_k.bias", "self_attn.k_proj.bias"),
    ("attn_v.bias", "self_attn.v_proj.bias"),
    ("attn_q_norm.weight", "self_attn.q_norm.weight"),
    ("attn_k_norm.weight", "self_attn.k_norm.weight"),
    ("attn_qkv.weight", "self_attn.qkv_proj.weight"),
    ("attn_output.weight", "self_attn.o_proj.weight"),
    ("ffn_norm.weight", "post_attention_layernorm.weight"),
    ("ffn_gate.weight", "mlp.gate_proj.weight"),
    ("ffn_up.weight", "mlp.up_proj.weight"),
    ("ffn_up.weight", "mlp.gate_up_proj.weight"),
    ("ffn_down.weight", "mlp.down_proj.weight"),
];

/// A llama-like fixture as GGUF, without rope settings.
fn llama_like(arch: &str, file: &ModelFile) -> Writer {
    let mut w = Writer::new(arch);
    settings(&mut w, arch, file, ("layer_norm_rms_epsilon", if arch == "phi3" { 1e-5 } else { 1e-6 }));
    let mut names = vec![
        ("token_embd.weight".to_owned(), "model.embed_tokens.weight".to_owned()),
        ("output_norm.weight".to_owned(), "model.norm.weight".to_owned()),
        ("output.weight".to_owned(), "lm_head.weight".to_owned()),
    ];
    for i in 0..file.plan().dims.n_layer {
        names.extend(LAYER.map(|(gguf, hf)| (format!("blk.{i}.{gguf}"), format!("model.layers.{i}.{hf}"))));
    }
    for (gguf, hf) in names {
        if file.tensor(&hf).is_none() {
            continue;
        }
        let (shape, mut values) = tensor(file, &hf, false);
        if arch == "llama" && (gguf.ends_with("attn_q.weight") || gguf.ends_with("attn_k.weight")) {
            values = to_adjacent(&values, shape[1] as usize, file.plan().dims.head_dim);
        }
        w.f32(&gguf, &shape, &values);
    }
    w
}

fn open(w: &Writer) -> Result<ModelFile, ModelError> {
    ModelFile::from_static(Box::leak(w.bytes().into_boxed_slice()))
}

fn assert_same_logits(name: &str, original: &ModelFile, converted: &ModelFile) {
    let ids: Vec<u32> = (0..40).map(|i| 3 + i * 7).collect();
    let want = PlainModel::load(original).logits(&ids).concat();
    let got = PlainModel::load(converted).logits(&ids).concat();
    let error = nmse(&got, &want);
    assert!(error < 1e-11, "{name}: NMSE {error}");
}

fn fixture_file(name: &str) -> ModelFile {
    ModelFile::open(&fixture(name)).unwrap()
}

#[test]
fn qwen2_and_qwen3_as_gguf_give_the_same_logits() {
    for arch in ["qwen2", "qwen3"] {
        let original = fixture_file(arch);
        let mut w = llama_like(arch, &original);
        w.set(&format!("{arch}.rope.freq_base"), Val::F32(10000.0));
        assert_same_logits(arch, &original, &open(&w).unwrap());
        w.tensors.retain(|t| !t.name.contains("attn_k.bias") && !t.name.contains("attn_k_norm"));
        assert!(open(&w).err().unwrap().to_string().contains("attn_k"), "{arch}");
    }
}

#[test]
fn llama3_as_gguf_with_rope_factors_gives_the_same_logits() {
    let original = fixture_file("llama3-rope");
    let mut w = llama_like("llama", &original);
    w.set("llama.rope.freq_base", Val::F32(500.0));
    // The settings of make_hf.py in the converter's form: one divisor for each pair of a head of 32.
    let factor = |i: usize| {
        let wavelength = 2.0 * std::f64::consts::PI * 500f64.powf(2.0 * i as f64 / 32.0);
        let smooth = (32.0 / wavelength - 1.0) / 3.0;
        match wavelength {
            w if w < 8.0 => 1.0,
            w if w > 32.0 => 8.0,
            _ => 1.0 / ((1.0 - smooth) / 8.0 + smooth),
        }
    };
    let factors: Vec<f32> = (0..16).map(|i| factor(i) as f32).collect();
    w.f32("rope_freqs.weight", &[16], &factors);
    assert_same_logits("llama3", &original, &open(&w).unwrap());
    w.tensor("rope_freqs.weight").data[0..4].copy_from_slice(&0f32.to_le_bytes());
    assert!(open(&w).err().unwrap().to_string().contains("positive"));
}

#[test]
fn yarn_and_linear_scaling_as_gguf_give_the_same_logits() {
    let original = fixture_file("llama-yarn");
    let mut w = llama_like("llama", &original);
    w.set("llama.rope.freq_base", Val::F32(10000.0));
    w.set("llama.rope.scaling.type", Val::Str("yarn"));
    w.set("llama.rope.scaling.factor", Val::F32(8.0));
    w.set("llama.rope.scaling.original_context_length", Val::U32(32));
    assert_same_logits("yarn", &original, &open(&w).unwrap());
    w.set("llama.rope.scaling.type", Val::Str("linear"));
    let linear = open(&w).unwrap();
    w.set("llama.rope.scaling.type", Val::Str("none"));
    assert_ne!(linear.plan().position, open(&w).unwrap().plan().position);
}

#[test]
fn phi3_as_gguf_with_long_factors_gives_the_same_logits() {
    let original = fixture_file("phi3-longrope-long");
    let mut w = llama_like("phi3", &original);
    w.set("phi3.rope.freq_base", Val::F32(10000.0));
    w.set("phi3.rope.dimension_count", Val::U32(12));
    w.set("phi3.rope.scaling.original_context_length", Val::U32(32));
    let magnitude = (1.0 + 8f64.ln() / 32f64.ln()).sqrt();
    w.set("phi3.rope.scaling.attn_factor", Val::F32(magnitude as f32));
    let factors = |step: f32| (0..6).map(|i| 1.0 + step * i as f32).collect::<Vec<_>>();
    w.f32("rope_factors_long.weight", &[6], &factors(0.9));
    w.f32("rope_factors_short.weight", &[6], &factors(0.05));
    let mut converted = open(&w).unwrap();
    assert_same_logits("phi3", &original, &converted);
    let long = converted.plan().position.clone();
    converted.adapt(Some(32), None).unwrap();
    assert_ne!(converted.plan().position, long);
}

#[test]
fn gpt2_as_gguf_gives_the_same_logits() {
    let original = fixture_file("gpt2");
    let mut w = Writer::new("gpt2");
    settings(&mut w, "gpt2", &original, ("layer_norm_epsilon", 1e-5));
    let mut copy = |gguf: String, hf: String, transposed: bool| {
        let (shape, values) = tensor(&original, &format!("transformer.{hf}"), transposed);
        w.f32(&gguf, &shape, &values);
    };
    copy("token_embd.weight".into(), "wte.weight".into(), false);
    copy("position_embd.weight".into(), "wpe.weight".into(), false);
    let stems = [
        ("attn_norm", "ln_1", false),
        ("attn_qkv", "attn.c_attn", true),
        ("attn_output", "attn.c_proj", true),
        ("ffn_norm", "ln_2", false),
        ("ffn_up", "mlp.c_fc", true),
        ("ffn_down", "mlp.c_proj", true),
    ];
    for i in 0..2 {
        for (gguf, hf, transposed) in stems {
            copy(format!("blk.{i}.{gguf}.weight"), format!("h.{i}.{hf}.weight"), transposed);
            copy(format!("blk.{i}.{gguf}.bias"), format!("h.{i}.{hf}.bias"), false);
        }
    }
    for kind in ["weight", "bias"] {
        copy(format!("output_norm.{kind}"), format!("ln_f.{kind}"), false);
    }
    assert_same_logits("gpt2", &original, &open(&w).unwrap());
}
