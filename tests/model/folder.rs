//! Invalid folders and paths: each is rejected with a message.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use strata::model::ModelFile;

use super::hf::{fixture, with_config};
use super::max_allocation::largest_allocation;
use super::support::data;

fn refusal(path: &Path) -> String {
    let (result, largest) = largest_allocation(|| ModelFile::open(path));
    assert!(largest < 1 << 20, "allocated {largest} bytes");
    match result {
        Ok(_) => panic!("opened {}", path.display()),
        Err(error) => error.to_string(),
    }
}

fn assert_contains(sentence: &str, parts: &[&str]) {
    for part in parts {
        assert!(sentence.contains(part), "'{sentence}' does not contain '{part}'");
    }
}

#[test]
fn paths_of_other_files_are_rejected_by_kind() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        refusal(&path)
    };
    assert_contains(&refusal(&dir.path().join("absent.gguf")), &["could not read", "absent.gguf"]);
    assert_contains(&refusal(dir.path()), &["is not a model", "empty folder"]);
    assert_contains(&file("a.gguf", b""), &["the file is empty"]);
    assert_contains(&file("a.gguf", b"GG"), &["does not begin like a GGUF"]);
    assert_contains(&file("a.gguf", b"GGUF"), &["truncated"]);
    assert_contains(&file("a.bin", b"PK\x03\x04...."), &["zip or PyTorch"]);
    assert_contains(&file("a.html", b"<!doctype html>"), &["web page"]);
    assert_contains(&file("a.gguf", b"version https://git-lfs.github.com/spec/v1"), &["Git LFS"]);
    assert_contains(&file("a.txt", b"Call me Ishmael."), &["a.txt", "Open a .gguf file, or a folder"]);
    fs::copy(fixture("opt").join("model.safetensors"), dir.path().join("w.safetensors")).unwrap();
    assert_contains(&refusal(&dir.path().join("w.safetensors")), &["one safetensors file of a folder"]);
    assert_contains(&refusal(dir.path()), &["a folder with the GGUF file a.gguf", "Open a .gguf file"]);
    fs::remove_file(dir.path().join("a.gguf")).unwrap();
    assert_contains(&refusal(dir.path()), &["without config.json"]);
    fs::write(dir.path().join("config.json"), "{}").unwrap();
    assert_contains(&refusal(dir.path()), &["does not describe a language model"]);
    fs::write(dir.path().join("config.json"), "{").unwrap();
    assert_contains(&refusal(dir.path()), &["config.json", "not valid JSON"]);
}

#[test]
fn missing_weights_are_named() {
    let dir = with_config("opt", |_| {});
    fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    assert_contains(&refusal(dir.path()), &["has no weights"]);
    fs::write(dir.path().join("pytorch_model.bin"), "x").unwrap();
    assert_contains(&refusal(dir.path()), &["PyTorch", "safetensors"]);
}

#[test]
fn missing_tokenizer_is_reported_on_request() {
    let dir = with_config("opt", |_| {});
    fs::remove_file(dir.path().join("tokenizer.json")).unwrap();
    let file = ModelFile::open(dir.path()).unwrap();
    assert_contains(&file.tokenizer().unwrap_err().to_string(), &["no tokenizer.json", "Download it"]);
}

/// Replaces the header of a safetensors file and keeps its data.
fn with_header(dir: &Path, change: impl FnOnce(&mut Value)) -> String {
    let path = dir.join("model.safetensors");
    let bytes = fs::read(fixture("opt").join("model.safetensors")).unwrap();
    let n = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&bytes[8..8 + n]).unwrap();
    change(&mut header);
    let header = header.to_string();
    let out = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &bytes[8 + n..]].concat();
    fs::write(path, out).unwrap();
    refusal(dir)
}

#[test]
fn invalid_safetensors_header_is_rejected() {
    let dir = with_config("opt", |_| {});
    let path = dir.path().join("model.safetensors");
    let whole = fs::read(&path).unwrap();
    let written = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        refusal(dir.path())
    };
    for n in [0, 7, 8, 9, 1000, whole.len() - 1] {
        assert_contains(&written(&whole[..n]), &["not a valid safetensors file", "Download it again"]);
    }
    for claim in [u64::MAX, 1 << 62, 1 << 40, whole.len() as u64] {
        assert_contains(&written(&[&claim.to_le_bytes(), &whole[8..]].concat()), &["its header has"]);
    }
    assert_contains(&written(&[&whole[..], b"more"].concat()), &["not a valid safetensors file"]);
    let name = "model.decoder.final_layer_norm.weight";
    let parts = ["not a valid safetensors file"];
    assert_contains(&with_header(dir.path(), |h| h[name]["data_offsets"][1] = json!(u64::MAX)), &parts);
    assert_contains(&with_header(dir.path(), |h| h[name]["data_offsets"] = json!([5, 1])), &parts);
    assert_contains(&with_header(dir.path(), |h| h[name]["shape"] = json!([65])), &parts);
    assert_contains(&with_header(dir.path(), |h| h[name]["shape"] = json!([u64::MAX, u64::MAX])), &parts);
    assert_contains(&with_header(dir.path(), |h| h[name]["dtype"] = json!("F7")), &parts);
    assert_contains(&with_header(dir.path(), |h| *h = json!([1, 2])), &parts);
    let huge = with_header(dir.path(), |h| {
        // Eight tensors whose sizes add up to more than 2^64 bytes, so that an unchecked sum wraps around.
        let mut tensors = serde_json::Map::new();
        let step = 1u64 << 61;
        for i in 0..7 {
            let entry = json!({ "dtype": "U8", "shape": [step], "data_offsets": [step * i, step * (i + 1)] });
            tensors.insert(format!("t{i}"), entry);
        }
        *h = Value::Object(tensors);
    });
    assert_contains(&huge, &parts);
}

#[test]
fn tensors_that_contradict_the_config_are_named() {
    let opt = |change: &dyn Fn(&mut Value)| refusal(with_config("opt", change).path());
    assert_contains(&opt(&|c| c["num_hidden_layers"] = json!(3)), &["no tensor 'model.decoder.layers.2."]);
    assert_contains(&opt(&|c| c["num_hidden_layers"] = json!(1)), &["model.decoder.layers.1.", "does not use"]);
    assert_contains(&opt(&|c| c["ffn_dim"] = json!(96)), &["fc1.weight", "[128, 64]", "[96, 64]"]);
    assert_contains(&opt(&|c| c["vocab_size"] = json!(321)), &["embed_tokens", "[320, 64]", "[321, 64]"]);
    assert_contains(&opt(&|c| c["max_position_embeddings"] = json!(64)), &["embed_positions", "[130, 64]", "[66, 64]"]);
    assert_contains(&opt(&|c| c["num_attention_heads"] = json!(3)), &["num_attention_heads"]);
    assert_contains(&opt(&|c| c["num_hidden_layers"] = json!(-1)), &["num_hidden_layers", "whole number"]);
    assert_contains(&opt(&|c| c["num_hidden_layers"] = json!(1e30)), &["num_hidden_layers"]);
    assert_contains(&opt(&|c| c["hidden_size"] = Value::Null), &["no 'hidden_size'"]);
    // A type for one weight that no kernel supports.
    let dir = with_config("opt", |_| {});
    let foreign = with_header(dir.path(), |h| h["model.decoder.final_layer_norm.weight"]["dtype"] = json!("I32"));
    assert_contains(&foreign, &["model.decoder.final_layer_norm.weight", "I32"]);
}

#[test]
fn unsupported_variants_are_rejected() {
    let changed = |name: &str, change: &dyn Fn(&mut Value)| refusal(with_config(name, change).path());
    assert_contains(&changed("opt", &|c| c["word_embed_proj_dim"] = json!(32)), &["projects embeddings of 32 to 64"]);
    assert_contains(&changed("opt", &|c| c["do_layer_norm_before"] = json!(false)), &["norms after each block"]);
    assert_contains(&changed("opt", &|c| c["activation_function"] = json!("gelu")), &["activation_function", "relu"]);
    assert_contains(&changed("gpt2", &|c| c["activation_function"] = json!("swish")), &["activation_function", "'swish'"]);
    assert_contains(&changed("gpt2", &|c| c["scale_attn_by_inverse_layer_idx"] = json!(true)), &["scale_attn_by_inverse"]);
    assert_contains(&changed("qwen2", &|c| c["hidden_act"] = json!("relu")), &["hidden_act", "silu"]);
    assert_contains(&changed("qwen2", &|c| c["model_type"] = json!("rwkv")), &["'rwkv'", "llama", "mistral", "opt", "phi3"]);
    let gptq = changed("qwen2", &|c| c["quantization_config"] = json!({ "quant_method": "gptq" }));
    assert_contains(&gptq, &["gptq", "GGUF"]);
    assert_contains(&changed("llama3-rope", &|c| c["rope_parameters"]["rope_type"] = json!("spiral")), &["'spiral'"]);
    assert_contains(&changed("llama3-rope", &|c| c["rope_parameters"]["factor"] = json!(0)), &["factor", "positive"]);
    let edge = changed("phi3-longrope-long", &|c| c["rope_parameters"]["original_max_position_embeddings"] = json!(1));
    assert_contains(&edge, &["rope_scaling", "finite"]);
    assert_contains(&changed("phi3-longrope-long", &|c| c["rope_parameters"]["long_factor"] = json!([1.0])), &["1 factors", "6"]);
}

/// Splits the opt fixture into two shards with an index.
fn sharded() -> tempfile::TempDir {
    let dir = with_config("opt", |_| {});
    let bytes = fs::read(dir.path().join("model.safetensors")).unwrap();
    fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    let all = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut map = serde_json::Map::new();
    for (i, name) in ["model-1-of-2.safetensors", "model-2-of-2.safetensors"].into_iter().enumerate() {
        let part: Vec<_> = all.tensors().into_iter().filter(|(t, _)| t.contains("layers.1.") == (i == 1)).collect();
        part.iter().for_each(|(tensor, _)| drop(map.insert(tensor.clone(), json!(name))));
        fs::write(dir.path().join(name), safetensors::serialize(part, None).unwrap()).unwrap();
    }
    let index = json!({ "metadata": {}, "weight_map": map });
    fs::write(dir.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
    dir
}

#[test]
fn sharded_folder_opens_as_a_whole_and_its_faults_are_named() {
    let dir = sharded();
    let (parts, whole) = (ModelFile::open(dir.path()).unwrap(), ModelFile::open(&fixture("opt")).unwrap());
    assert_eq!(parts.plan(), whole.plan());
    for matrix in whole.plan().matrices() {
        assert_eq!(parts.matrix_f32(matrix).unwrap(), whole.matrix_f32(matrix).unwrap());
    }
    let index_path = dir.path().join("model.safetensors.index.json");
    let index: Value = serde_json::from_slice(&fs::read(&index_path).unwrap()).unwrap();
    let with_index = |change: &dyn Fn(&mut Value)| {
        let mut changed = index.clone();
        change(&mut changed);
        fs::write(&index_path, changed.to_string()).unwrap();
        refusal(dir.path())
    };
    let tensor = "model.decoder.layers.1.fc1.weight";
    for outside in ["../w.safetensors", "/etc/passwd", "a/b.safetensors", "..", "a\\b"] {
        assert_contains(&with_index(&|i| i["weight_map"][tensor] = json!(outside)), &["not a plain file name"]);
    }
    assert_contains(&with_index(&|i| i["weight_map"][tensor] = json!(7)), &["not a plain file name"]);
    assert_contains(
        &with_index(&|i| i["weight_map"][tensor] = json!("model-1-of-2.safetensors")),
        &["the index lists tensor", tensor],
    );
    assert_contains(&with_index(&|i| i["weight_map"]["more"] = json!("gone.safetensors")), &["gone.safetensors is missing"]);
    assert_contains(&with_index(&|i| i["weight_map"] = json!([])), &["weight_map"]);
}

#[test]
fn folder_without_a_supported_architecture_is_named() {
    let name = "folder_without_a_supported_architecture_is_named";
    let Some(dir) = data(name, "models/cardputer-chat-3m/hf-gptneo") else { return };
    assert_contains(&refusal(&dir), &["'gpt_neo'", "Choose a model with"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn mutated_safetensors_header_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let dir = with_config("qwen2", |_| {});
        let path = dir.path().join("model.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        let n = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        for (at, value) in changes {
            bytes[at.index(8 + n)] = value;
        }
        fs::write(&path, bytes).unwrap();
        if let Ok(file) = ModelFile::open(dir.path()) {
            for matrix in file.plan().matrices() {
                prop_assert_eq!(file.matrix_f32(matrix).unwrap().len(), matrix.rows * matrix.cols);
            }
        }
    }
}
