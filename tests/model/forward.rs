//! Plans verified by running them: plain loops against ids and logits of other engines.

use std::path::Path;

use strata::model::ModelFile;

use super::reference_forward::PlainModel;
use super::support::data;

/// The two best candidates' ids and their difference.
fn best(logits: &[f32]) -> (u32, u32, f32) {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    (order[0] as u32, order[1] as u32, logits[order[0]] - logits[order[1]])
}

/// Compares greedy ids with golden data. llama.cpp rounds activations for quantized weights, so near-ties may differ.
fn follow_golden(model: &Path, case: &serde_json::Value, tie: f32) -> (usize, usize) {
    let ids = |key: &str| -> Vec<u32> { case[key].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect() };
    let (prompt, want) = (ids("prompt_ids"), ids("greedy_ids"));
    let mut plain = PlainModel::load(&ModelFile::open(model).unwrap());
    let mut logits = plain.last_logits(&prompt);
    let mut ties = 0;
    for (i, want) in want.iter().enumerate() {
        let (first, second, margin) = best(&logits);
        if first != *want {
            assert!(second == *want && margin < tie, "{}: token {i} is {first}, not {want}; margin {margin}", model.display());
            ties += 1;
        }
        logits = plain.last_logits(&[*want]);
    }
    (want.len(), ties)
}

#[test]
fn greedy_ids_follow_llama_cpp_on_every_real_gguf() {
    let name = "greedy_ids_follow_llama_cpp_on_every_real_gguf";
    let Some(models) = data(name, "models") else { return };
    let golden = std::fs::read(models.join("golden-greedy-llamacpp.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_slice(&golden).unwrap();
    let cases = golden["cases"].as_object().unwrap();
    assert_eq!(cases.len(), 16);
    for (file, case) in cases {
        let exact = file.contains("F32") || file.contains("F16");
        let (n, ties) = follow_golden(&models.join(file), case, if exact { 0.02 } else { 0.35 });
        eprintln!("{file}: {n} tokens, {ties} near-ties");
        assert!(!exact || ties == 0, "{file}");
    }
}

#[test]
fn folder_and_gguf_of_one_model_give_the_same_logits() {
    let name = "folder_and_gguf_of_one_model_give_the_same_logits";
    let Some(models) = data(name, "models") else { return };
    let pairs = [
        ("stories260k/hf", "stories260k/stories260K-F32.gguf"),
        ("tinystories-656k", "tinystories-656k/TinyStories-656K-F32.gguf"),
    ];
    for (folder, gguf) in pairs {
        let run = |path: &str| {
            let mut plain = PlainModel::load(&ModelFile::open(&models.join(path)).unwrap());
            plain.logits(&[1, 403, 407, 261, 378, 432, 383, 286]).concat()
        };
        let (a, b) = (run(folder), run(gguf));
        assert!(nmse(&a, &b) < 1e-10, "{folder}: {}", nmse(&a, &b));
    }
}

/// Mean square of the difference over the mean square of `want`.
pub fn nmse(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |it: &mut dyn Iterator<Item = f64>| it.map(|v| v * v).sum::<f64>();
    let error = square(&mut got.iter().zip(want).map(|(g, w)| f64::from(*g) - f64::from(*w)));
    error / square(&mut want.iter().map(|w| f64::from(*w)))
}
