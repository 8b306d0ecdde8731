//! Fingerprints: equal for the same model, different after any change that matters.

use std::fs;

use strata::model::{ModelError, ModelFile};

use super::gguf_writer::{Val, Writer, tiny_llama};
use super::hf::with_config;

fn open(w: &Writer) -> ModelFile {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    fs::write(&path, w.bytes()).unwrap();
    ModelFile::open(&path).unwrap()
}

fn fingerprint(w: &Writer) -> [u8; 32] {
    open(w).fingerprint().unwrap()
}

/// A model whose matrices have more bytes than are sampled.
fn large() -> Writer {
    let mut w = tiny_llama();
    w.set("llama.feed_forward_length", Val::U32(512));
    w.tensors.retain(|t| !t.name.contains(".ffn_") || t.name.contains("norm"));
    for (name, shape) in [("ffn_gate", [512, 32]), ("ffn_up", [512, 32]), ("ffn_down", [32, 512])] {
        w.f32(&format!("blk.0.{name}.weight"), &shape, &[0.25; 512 * 32]);
    }
    w
}

#[test]
fn fingerprint_of_the_same_file_opened_twice_is_equal() {
    assert_eq!(fingerprint(&large()), fingerprint(&large()));
    let dir = with_config("opt", |_| {});
    let folder = || ModelFile::open(dir.path()).unwrap();
    assert_eq!(folder().fingerprint().unwrap(), folder().fingerprint().unwrap());
    assert_eq!(folder().tokenizer_fingerprint().unwrap(), folder().tokenizer_fingerprint().unwrap());
}

#[test]
fn fingerprint_changes_with_a_byte_in_each_sample() {
    let original = fingerprint(&large());
    for place in [0, 4095, 32_768, 65_535 - 4095, 65_535] {
        let mut w = large();
        w.tensor("blk.0.ffn_down.weight").data[place] ^= 1;
        assert_ne!(fingerprint(&w), original, "byte {place}");
    }
    for name in ["token_embd.weight", "blk.0.attn_k.weight", "output_norm.weight"] {
        let mut w = large();
        w.tensor(name).data[7] ^= 1;
        assert_ne!(fingerprint(&w), original, "{name}");
    }
}

#[test]
fn fingerprint_changes_with_rope_and_tokenizer() {
    let original = fingerprint(&large());
    let mut other_rope = large();
    other_rope.set("llama.rope.freq_base", Val::F32(9999.0));
    assert_ne!(fingerprint(&other_rope), original);
    let settings = |w: &Writer| open(w).plan().settings_fingerprint();
    assert_ne!(settings(&other_rope), settings(&large()));
    let mut other_scores = large();
    other_scores.set("tokenizer.ggml.scores", Val::F32s(vec![0.0, 0.0, 0.0, -1.0, -2.5]));
    assert_ne!(open(&other_scores).tokenizer_fingerprint().unwrap(), open(&large()).tokenizer_fingerprint().unwrap());
    assert_eq!(settings(&other_scores), settings(&large()));
}

#[test]
fn fingerprint_of_a_folder_changes_with_its_config_weights_and_tokenizer() {
    let dir = with_config("llama3-rope", |_| {});
    let open = || ModelFile::open(dir.path()).unwrap();
    let (model, tokenizer) = (open().fingerprint().unwrap(), open().tokenizer_fingerprint().unwrap());
    let changed = with_config("llama3-rope", |config| config["rope_theta"] = 777.0.into());
    assert_ne!(ModelFile::open(changed.path()).unwrap().fingerprint().unwrap(), model);
    let weights = dir.path().join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, &bytes).unwrap();
    assert_ne!(open().fingerprint().unwrap(), model);
    let path = dir.path().join("tokenizer.json");
    fs::write(&path, fs::read_to_string(&path).unwrap() + "\n").unwrap();
    assert_ne!(open().tokenizer_fingerprint().unwrap(), tokenizer);
}

#[test]
fn fingerprint_of_a_synthetic_model_depends_on_shape_type_and_seed() {
    let of = |name, ty, seed| ModelFile::synthetic(name, ty, seed).unwrap().fingerprint().unwrap();
    let original = of("tiny", "Q4_0", 1);
    assert_eq!(of("tiny", "Q4_0", 1), original);
    for other in [of("tiny", "Q4_0", 2), of("tiny", "Q8_0", 1), of("llama-3.2-1b", "Q4_0", 1)] {
        assert_ne!(other, original);
    }
}

#[test]
fn fingerprint_ignores_the_context_size_and_settings_follow_it() -> Result<(), ModelError> {
    let dir = with_config("phi3-longrope-long", |_| {});
    let mut file = ModelFile::open(dir.path())?;
    let (model, settings) = (file.fingerprint()?, file.plan().settings_fingerprint());
    file.adapt(Some(32), None)?;
    assert_eq!(file.fingerprint()?, model);
    assert_ne!(file.plan().settings_fingerprint(), settings);
    Ok(())
}

#[test]
fn rope_base_changes_the_settings_and_not_the_model() -> Result<(), ModelError> {
    let mut file = open(&large());
    let (model, settings) = (file.fingerprint()?, file.plan().settings_fingerprint());
    file.adapt(None, Some(500_000.0))?;
    assert_eq!(file.fingerprint()?, model);
    assert_ne!(file.plan().settings_fingerprint(), settings);
    let mut same = large();
    same.set("llama.rope.freq_base", Val::F32(500_000.0));
    assert_eq!(file.plan().settings_fingerprint(), open(&same).plan().settings_fingerprint());
    file.adapt(None, None)?;
    assert_eq!(file.plan().settings_fingerprint(), settings);
    Ok(())
}

#[test]
fn rope_base_of_a_model_without_rope_is_rejected() {
    let dir = with_config("opt", |_| {});
    let sentence = ModelFile::open(dir.path()).unwrap().adapt(None, Some(500_000.0)).unwrap_err().to_string();
    assert!(sentence.contains("--rope-base"), "{sentence}");
}
