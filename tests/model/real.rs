//! Real models in the data folder open, and every synthetic shape.

use std::path::{Path, PathBuf};

use strata::model::quant::dequantize;
use strata::model::{ModelFile, SHAPES, TokenizerSource, read_vocab};

use super::support::data;

/// The built-in model, which is part of the repository.
const BUILT_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/demo-model/strata-quote-Q8_0.gguf");

fn files(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

#[test]
fn real_ggufs_open_with_vocabulary_and_finite_weights() {
    let name = "real_ggufs_open_with_vocabulary_and_finite_weights";
    let mut paths = Vec::new();
    if let Some(dir) = data(name, "models") {
        files(&dir, "gguf", &mut paths);
    }
    paths.push(BUILT_IN.into());
    for path in paths {
        let file = ModelFile::open(&path).unwrap();
        let (info, plan) = (file.info(), file.plan());
        let TokenizerSource::Gguf(vocab) = file.tokenizer().unwrap() else { panic!("a GGUF has its own vocabulary") };
        assert_eq!(vocab.tokens.len(), plan.dims.vocab_size, "{}", path.display());
        let label = path.file_stem().unwrap().to_string_lossy().into_owned();
        // llama.cpp stores most of this Q4_K_M model in Q5_0, because its rows are too short for K blocks.
        let quantization = if label.ends_with("Q4_K_M") { "Q5_0" } else { &info.quantization };
        assert!(label.ends_with(quantization) || quantization == "Q5_0", "{label}: {quantization}");
        assert!(info.stop_ids.contains(&info.eos.unwrap()));
        for matrix in plan.matrices() {
            let weights = file.matrix_f32(matrix).unwrap();
            assert_eq!(weights.len(), matrix.rows * matrix.cols);
            assert!(weights.iter().all(|w| w.is_finite()));
        }
    }
}

#[test]
fn model_file_can_be_read_from_any_thread() {
    fn shared<T: Send + Sync>() {}
    shared::<ModelFile>();
}

#[test]
fn built_in_model_has_its_metadata() {
    let file = ModelFile::open(Path::new(BUILT_IN)).unwrap();
    let info = file.info();
    assert_eq!((info.name.as_str(), info.license.as_deref()), ("Strata Quote", Some("MIT OR Apache-2.0")));
    assert_eq!((info.architecture.as_str(), info.quantization.as_str()), ("llama", "Q8_0"));
    assert_eq!((info.bos, info.eos, info.add_bos), (Some(1), Some(2), Some(false)));
    assert_eq!(info.stop_ids, [2, 0]);
    assert!(info.chat_template.as_ref().unwrap().contains("<|im_start|>"));
    assert_eq!(info.n_params, 10_164_736);
    assert_eq!(file.plan().dims.context_len, 131_072);
}

#[test]
fn vocabulary_only_ggufs_are_read_for_their_tokens_alone() {
    let name = "vocabulary_only_ggufs_are_read_for_their_tokens_alone";
    let Some(dir) = data(name, "tokenizers/llama.cpp-vocab") else { return };
    let mut paths = Vec::new();
    files(&dir, "gguf", &mut paths);
    assert!(paths.len() >= 8);
    for path in paths {
        let vocab = read_vocab(&path).unwrap();
        assert!(vocab.tokens.len() > 10_000, "{}", path.display());
        assert!(!vocab.model.is_empty());
        assert!(vocab.model != "gpt2" || vocab.merges.len() > 10_000);
        assert!(ModelFile::open(&path).is_err());
    }
}

#[test]
fn synthetic_shapes_have_their_published_sizes() {
    let billions = [0.0, 0.49, 1.24, 6.74, 8.03, 6.66];
    for (shape, billions) in SHAPES.into_iter().zip(billions) {
        let file = ModelFile::synthetic(shape, "Q4_0", 7).unwrap();
        let n = file.info().n_params as f64 / 1e9;
        assert!((n - billions).abs() < 0.01, "{shape}: {n}");
        // 4.5 bits per weight, more for the output matrix and where a type falls back.
        let bits = file.info().file_bytes as f64 * 8.0 / file.info().n_params as f64;
        assert!((4.5..5.7).contains(&bits), "{shape}: {bits} bits");
        assert!(file.tokenizer().is_err());
    }
    for (name, ty) in [("llama-9", "Q4_0"), ("tiny", "Q9")] {
        let sentence = ModelFile::synthetic(name, ty, 0).err().unwrap().to_string();
        assert!(sentence.contains("Choose one of"), "{sentence}");
    }
}

#[test]
fn synthetic_rows_repeat_and_have_the_right_spread() {
    let types = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"];
    let types = types.into_iter().chain(["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"]);
    for ty in types {
        let file = ModelFile::synthetic("tiny", ty, 3).unwrap();
        let part = file.plan().layers[1].ffn_down.parts[0].clone();
        let whole = file.tensor_bytes(&part).unwrap();
        assert_eq!(whole, ModelFile::synthetic("tiny", ty, 3).unwrap().tensor_bytes(&part).unwrap(), "{ty}");
        assert_ne!(whole, ModelFile::synthetic("tiny", ty, 4).unwrap().tensor_bytes(&part).unwrap(), "{ty}");
        let mut some = part.clone();
        (some.first_row, some.n_rows) = (100, 7);
        let row = whole.len() / part.n_rows;
        assert_eq!(&*file.tensor_bytes(&some).unwrap(), &whole[100 * row..107 * row], "{ty}");
        let cols = file.plan().layers[1].ffn_down.cols;
        let mut weights = vec![0f32; part.n_rows * cols];
        dequantize(file.tensor_type(&part).unwrap(), &whole, &mut weights).unwrap();
        let n = weights.len() as f64;
        let mean = weights.iter().map(|w| f64::from(*w)).sum::<f64>() / n;
        let sd = (weights.iter().map(|w| f64::from(*w).powi(2)).sum::<f64>() / n).sqrt();
        let want = (cols as f64).powf(-0.5);
        assert!(mean.abs() < 0.02 * want && (sd / want - 1.0).abs() < 0.5, "{ty}: mean {mean}, sd {sd}, want {want}");
    }
}

#[test]
fn synthetic_models_give_finite_logits() {
    for ty in ["Q4_0", "F16"] {
        let file = ModelFile::synthetic("tiny", ty, 1).unwrap();
        let logits = super::reference_forward::PlainModel::load(&file).last_logits(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let spread = logits.iter().fold(0f32, |m, l| m.max(l.abs()));
        assert!(logits.iter().all(|l| l.is_finite()) && (0.5..50.0).contains(&spread), "{ty}: {spread}");
    }
}
