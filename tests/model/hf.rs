//! Hugging Face folders: tiny random checkpoints against the logits of transformers (`tests/fixtures/make_hf.py`).

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use strata::model::arch::plan::{Activation, PositionPlan, RopeStyle};
use strata::model::{ModelFile, TokenizerSource};

use super::forward::nmse;
use super::reference_forward::PlainModel;

/// Folder of a fixture.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hf").join(name)
}

/// Reference logits `[T, V]`: the data of a version 1 .npy file of little-endian f32.
fn reference_logits(dir: &Path) -> Vec<f32> {
    let bytes = std::fs::read(dir.join("logits.npy")).unwrap();
    let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert!(String::from_utf8_lossy(&bytes[10..10 + header]).contains("'descr': '<f4', 'fortran_order': False"));
    bytes[10 + header..].chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn tokens(dir: &Path) -> Vec<u32> {
    serde_json::from_slice(&std::fs::read(dir.join("tokens.json")).unwrap()).unwrap()
}

/// Copies a fixture with another config.
pub fn with_config(name: &str, change: impl Fn(&mut Value)) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(fixture(name).join(file), dir.path().join(file)).unwrap();
    }
    let path = dir.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(path, config.to_string()).unwrap();
    dir
}

const FIXTURES: [&str; 11] = [
    "llama3-rope",
    "llama-linear-bias",
    "llama-yarn",
    "mistral-window",
    "qwen2",
    "qwen3",
    "gpt2",
    "opt",
    "phi3",
    "phi3-longrope-long",
    "phi3-longrope-short",
];

#[test]
fn logits_of_every_architecture_match_transformers() {
    for name in FIXTURES {
        let dir = fixture(name);
        let mut file = ModelFile::open(&dir).unwrap();
        let tokens = tokens(&dir);
        if name.ends_with("short") {
            file.adapt(Some(tokens.len()), None).unwrap();
        }
        let got = PlainModel::load(&file).logits(&tokens).concat();
        let error = nmse(&got, &reference_logits(&dir));
        eprintln!("{name}: NMSE {error:.1e}");
        assert!(error < 1e-10, "{name}: NMSE {error}");
    }
}

#[test]
fn plan_of_each_architecture_has_its_own_features() {
    let plan = |name: &str| ModelFile::open(&fixture(name)).unwrap().plan().clone();
    assert_eq!(plan("mistral-window").sliding_window, Some(16));
    assert!(plan("qwen3").layers[0].q_norm.is_some() && plan("qwen2").layers[0].q_norm.is_none());
    assert_eq!(plan("qwen2").layers[0].qkv.bias.len(), 3);
    assert_eq!(plan("opt").activation, Activation::Relu);
    assert!(matches!(plan("opt").position, PositionPlan::Learned { offset: 2, .. }));
    assert!(plan("gpt2").layers[0].qkv.parts[0].transposed);
    let phi3 = plan("phi3-longrope-long");
    let PositionPlan::Rope(rope) = &phi3.position else { panic!("phi3 rotates") };
    assert_eq!((rope.style, rope.inv_freq.len(), phi3.dims.head_dim), (RopeStyle::Half, 6, 16));
    assert!(rope.magnitude > 1.1);
    let up = &phi3.layers[0].ffn_up;
    assert!(up.interleave_halves && up.parts.len() == 2 && up.parts[1].first_row == 96);
    assert!(plan("llama3-rope").tied && !plan("phi3").tied);
}

#[test]
fn longrope_window_up_to_the_original_uses_the_short_factors() {
    let mut file = ModelFile::open(&fixture("phi3-longrope-long")).unwrap();
    let long = file.plan().position.clone();
    file.adapt(Some(33), None).unwrap();
    assert_eq!(file.plan().position, long);
    file.adapt(Some(32), None).unwrap();
    assert_ne!(file.plan().position, long);
}

#[test]
fn rope_settings_of_older_transformers_give_the_same_plan() {
    for name in ["llama3-rope", "llama-linear-bias", "llama-yarn", "phi3-longrope-long", "mistral-window"] {
        let dir = with_config(name, |config| {
            let mut old = config["rope_parameters"].take();
            config["rope_theta"] = old["rope_theta"].take();
            let kind = if old["rope_type"] == json!("longrope") { json!("su") } else { old["rope_type"].take() };
            if !old["partial_rotary_factor"].is_null() {
                config["partial_rotary_factor"] = old["partial_rotary_factor"].take();
            }
            old.as_object_mut().unwrap().remove("rope_type");
            old["type"] = kind;
            config["rope_scaling"] = old;
        });
        let (old, new) = (ModelFile::open(dir.path()).unwrap(), ModelFile::open(&fixture(name)).unwrap());
        assert_eq!(old.plan(), new.plan(), "{name}");
    }
}

#[test]
fn folder_metadata_has_end_tokens_and_tokenizer_files() {
    let file = ModelFile::open(&fixture("qwen2")).unwrap();
    let info = file.info();
    assert_eq!((info.name.as_str(), info.architecture.as_str(), info.quantization.as_str()), ("qwen2", "qwen2", "F32"));
    assert_eq!((info.bos, info.eos, info.stop_ids.as_slice()), (Some(0), Some(1), &[1][..]));
    assert_eq!(info.file_bytes, std::fs::metadata(fixture("qwen2").join("model.safetensors")).unwrap().len());
    // Float tensors and one small header: the weights are nearly the whole file.
    assert!(info.n_params * 4 < info.file_bytes && info.n_params * 4 + 10_000 > info.file_bytes);
    let TokenizerSource::HuggingFace(files) = file.tokenizer().unwrap() else { panic!("a folder has files") };
    assert_eq!(files.tokenizer, fixture("qwen2").join("tokenizer.json"));
    assert!(files.tokenizer_config.is_some() && files.special_tokens_map.is_none());
}
