//! Logits against other implementations: transformers (fixtures), llama.cpp, and `reference_forward`.

use std::path::{Path, PathBuf};

use strata::engine::{EngineCommand, EngineEvent, KvDtype, ModelSource};
use strata::model::ModelFile;

use super::common::data_dir;
use super::generation::golden;
use super::reference_forward::PlainModel;
use super::teacher_forcing::tokens_of;
use super::{engine, finish};

/// Agreement of two sets of logits `[T, V]`: mean Kullback-Leibler divergence, and fraction of equal best tokens.
#[derive(Debug)]
pub(crate) struct Agreement {
    pub mean_kld: f64,
    pub top1: f64,
}

fn log_softmax(row: &[f32]) -> Vec<f64> {
    let top = row.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = row.iter().map(|l| f64::from(l - top).exp()).sum();
    row.iter().map(|l| f64::from(l - top) - sum.ln()).collect()
}

fn best(row: &[f32]) -> usize {
    row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(i, _)| i)
}

pub(crate) fn agreement(want: &[f32], got: &[f32], vocab_size: usize) -> Agreement {
    assert_eq!(want.len(), got.len());
    let (mut kld, mut equal) = (0.0, 0);
    let n = want.len() / vocab_size;
    for (w, g) in want.chunks_exact(vocab_size).zip(got.chunks_exact(vocab_size)) {
        assert!(g.iter().all(|v| v.is_finite()));
        let (p, q) = (log_softmax(w), log_softmax(g));
        kld += p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>();
        equal += usize::from(best(w) == best(g));
    }
    Agreement { mean_kld: kld / n as f64, top1: equal as f64 / n as f64 }
}

fn engine_logits(test: &str, source: ModelSource, kv_dtype: KvDtype, tokens: &[u32]) -> Option<Vec<f32>> {
    let (handle, _) = engine(test, source, kv_dtype)?;
    handle.send(EngineCommand::Logits { request: 1, tokens: tokens.to_vec() });
    let (events, end) = finish(&handle);
    end.unwrap();
    let mut all = Vec::new();
    for event in events {
        if let EngineEvent::LogitsRows { first, rows, vocab_size, .. } = event {
            assert_eq!(first * vocab_size, all.len());
            all.extend(rows);
        }
    }
    Some(all)
}

fn npy(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[10 + header..].chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn logits_of_every_family_match_transformers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hf");
    let mut n_families = 0;
    for entry in std::fs::read_dir(root).unwrap() {
        let dir = entry.unwrap().path();
        // These test windows: one has its own test below, the other needs --context (tested with the plan).
        if dir.ends_with("phi3-longrope-short") || dir.ends_with("mistral-window") {
            continue;
        }
        let tokens: Vec<u32> = serde_json::from_slice(&std::fs::read(dir.join("tokens.json")).unwrap()).unwrap();
        let want = npy(&dir.join("logits.npy"));
        let source = ModelSource::Path(dir.clone());
        let test = "logits_of_every_family_match_transformers";
        let Some(got) = engine_logits(test, source, KvDtype::F32, &tokens) else { return };
        let a = agreement(&want, &got, want.len() / tokens.len());
        eprintln!("{}: mean KLD {:.2e}, top-1 {:.4}", dir.display(), a.mean_kld, a.top1);
        assert!(a.mean_kld <= 1e-6 && a.top1 >= 0.999, "{}: {:.2e} {}", dir.display(), a.mean_kld, a.top1);
        n_families += 1;
    }
    assert!(n_families >= 8);
}

/// Arbitrary token ids, the same on both sides.
fn some_tokens(n: usize, vocab_size: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * 2_654_435_761 + 17) % vocab_size) as u32).collect()
}

fn against_plain(test: &str, path: Option<PathBuf>, n: usize) {
    let (file, source) = match &path {
        Some(p) => (ModelFile::open(p).unwrap(), ModelSource::Path(p.clone())),
        None => (
            ModelFile::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/demo-model/strata-quote-Q8_0.gguf")).unwrap(),
            ModelSource::BuiltIn,
        ),
    };
    let vocab_size = file.plan().dims.vocab_size;
    let tokens = match path {
        Some(_) => some_tokens(n, vocab_size),
        None => tokens_of(&golden().0[..8000])[..n].to_vec(),
    };
    let want: Vec<f32> = PlainModel::load(&file).logits(&tokens).concat();
    // Attention scores of the built-in model have terms of up to 300, where f16 has a precision of about 0.1: one best token
    // in 50 may differ.
    let of_halves = if path.is_none() { (1e-4, 0.97) } else { (1e-5, 0.99) };
    for (kv_dtype, (limit, least_top1)) in [(KvDtype::F32, (1e-6, 0.999)), (KvDtype::F16, of_halves)] {
        let Some(got) = engine_logits(test, source.clone(), kv_dtype, &tokens) else { return };
        let a = agreement(&want, &got, vocab_size);
        eprintln!("{path:?} {kv_dtype:?}: mean KLD {:.2e}, top-1 {:.4}", a.mean_kld, a.top1);
        assert!(a.mean_kld <= limit, "{path:?} {kv_dtype:?}: {:.2e}", a.mean_kld);
        assert!(a.top1 >= least_top1, "{path:?} {kv_dtype:?}: {}", a.top1);
    }
}

#[test]
fn logits_of_the_built_in_model_match_the_reference() {
    against_plain("logits_of_the_built_in_model_match_the_reference", None, 200);
}

#[test]
fn logits_of_every_stored_type_match_the_reference_on_the_same_weights() {
    let test = "logits_of_every_stored_type_match_the_reference_on_the_same_weights";
    let Some(data) = data_dir() else {
        eprintln!("skipped: {test}: no STRATA_DATA");
        return;
    };
    for name in [
        "stories3m/stories3M-F32.gguf",
        "stories3m/stories3M-F16.gguf",
        "stories3m/stories3M-Q8_0.gguf",
        "stories3m/stories3M-Q4_0.gguf",
        "stories3m/stories3M-Q5_1.gguf",
        "stories3m/stories3M-Q4_K_M.gguf",
        "stories260k/stories260K-Q4_0.gguf",
        "tinystories-656k/TinyStories-656K-F16.gguf",
        "cardputer-chat-3m/cardputer-chat-3m-gpt2arch-Q8_0.gguf",
    ] {
        against_plain(test, Some(data.join("models").join(name)), 40);
    }
}

/// Greedy ids of llama.cpp, teacher-forced: the best token of every position must be the golden one, except for near-ties.
/// llama.cpp on a CPU rounds activations to 8 bits for quantized weights, so these may differ by more.
#[test]
fn greedy_ids_follow_llama_cpp_up_to_near_ties() {
    let test = "greedy_ids_follow_llama_cpp_up_to_near_ties";
    let Some(models) = data_dir().map(|d| d.join("models")) else {
        eprintln!("skipped: {test}: no STRATA_DATA");
        return;
    };
    let golden = std::fs::read(models.join("golden-greedy-llamacpp.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_slice(&golden).unwrap();
    let cases = golden["cases"].as_object().unwrap();
    assert_eq!(cases.len(), 16);
    let (mut n_tokens, mut n_ties) = (0, 0);
    for (file, case) in cases {
        let ids = |key: &str| case[key].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect::<Vec<_>>();
        let (prompt, want) = (ids("prompt_ids"), ids("greedy_ids"));
        let tokens = [prompt.clone(), want.clone()].concat();
        let Some(logits) = engine_logits(test, ModelSource::Path(models.join(file)), KvDtype::F16, &tokens) else { return };
        let vocab_size = logits.len() / tokens.len();
        for (i, want) in want.iter().enumerate() {
            let row = &logits[(prompt.len() + i - 1) * vocab_size..][..vocab_size];
            let margin = row[best(row)] - row[*want as usize];
            n_tokens += 1;
            if margin > 0.0 {
                let limit = if file.contains("F32") || file.contains("F16") { 0.1 } else { 0.35 };
                assert!(margin < limit, "{file}: token {i}, margin {margin}");
                n_ties += 1;
            }
        }
    }
    eprintln!("{n_tokens} tokens, {n_ties} near-ties");
    assert!(n_ties <= 6, "{n_ties} near-ties");
}

#[test]
fn logits_of_every_weight_type_match_the_reference_on_random_weights() {
    let test = "logits_of_every_weight_type_match_the_reference_on_random_weights";
    let tokens = some_tokens(24, 512);
    for ty in
        ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"]
    {
        let source = ModelSource::Synthetic { name: "tiny".into(), weight_type: ty.into() };
        let want = PlainModel::load(&ModelFile::synthetic("tiny", ty, 1).unwrap()).logits(&tokens).concat();
        let Some(got) = engine_logits(test, source, KvDtype::F32, &tokens) else { return };
        let a = agreement(&want, &got, 512);
        assert!(a.mean_kld <= 1e-9 && a.top1 >= 0.999, "{ty}: mean KLD {:.2e}, top-1 {}", a.mean_kld, a.top1);
    }
}

#[test]
fn logits_within_a_sliding_window_match_and_beyond_it_are_refused() {
    let test = "logits_within_a_sliding_window_match_and_beyond_it_are_refused";
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hf/mistral-window");
    let tokens: Vec<u32> = serde_json::from_slice(&std::fs::read(dir.join("tokens.json")).unwrap()).unwrap();
    let want = npy(&dir.join("logits.npy"));
    let vocab_size = want.len() / tokens.len();
    let window = ModelFile::open(&dir).unwrap().plan().sliding_window.unwrap();
    assert!(window < tokens.len());
    let Some(got) = engine_logits(test, ModelSource::Path(dir.clone()), KvDtype::F32, &tokens[..window]) else { return };
    let a = agreement(&want[..window * vocab_size], &got, vocab_size);
    assert!(a.mean_kld <= 1e-6 && a.top1 >= 0.999, "{:.2e} {}", a.mean_kld, a.top1);
    let Some((handle, info)) = engine(test, ModelSource::Path(dir), KvDtype::F32) else { return };
    assert!(info.notes.iter().any(|n| n.contains(&window.to_string())), "{:?}", info.notes);
    handle.send(EngineCommand::Logits { request: 1, tokens: tokens.clone() });
    let sentence = finish(&handle).1.unwrap_err();
    assert!(sentence.contains(&tokens.len().to_string()) && sentence.contains(&window.to_string()), "{sentence}");
}
