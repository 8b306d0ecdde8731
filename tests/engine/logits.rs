//! Logits against other engines: transformers (fixtures) and the plain loops of `plain_forward`.

use std::path::{Path, PathBuf};

use strata::engine::{EngineCommand, EngineEvent, KvDtype, ModelSource};
use strata::model::ModelFile;

use super::common::data_dir;
use super::plain_forward::PlainModel;
use super::{engine, finish};

/// Agreement of two sets of logits `[T, V]`: mean Kullback-Leibler divergence and share of equal best tokens.
struct Agreement {
    mean_kld: f64,
    top1: f64,
}

fn log_softmax(row: &[f32]) -> Vec<f64> {
    let top = row.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = row.iter().map(|l| f64::from(l - top).exp()).sum();
    row.iter().map(|l| f64::from(l - top) - sum.ln()).collect()
}

fn best(row: &[f32]) -> usize {
    row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(i, _)| i)
}

fn agreement(want: &[f32], got: &[f32], vocab_size: usize) -> Agreement {
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
    handle.send(EngineCommand::Logits { turn: 1, tokens: tokens.to_vec() });
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
        // This fixture is about a context shorter than the model's window; `loaded` cuts it with --context.
        if dir.ends_with("phi3-longrope-short") {
            continue;
        }
        let tokens: Vec<u32> = serde_json::from_slice(&std::fs::read(dir.join("tokens.json")).unwrap()).unwrap();
        let want = npy(&dir.join("logits.npy"));
        let source = ModelSource::Path(dir.clone());
        let test = "logits_of_every_family_match_transformers";
        if dir.ends_with("mistral-window") {
            continue;
        }
        let Some(got) = engine_logits(test, source, KvDtype::F32, &tokens) else { return };
        let a = agreement(&want, &got, want.len() / tokens.len());
        eprintln!("{}: mean KLD {:.2e}, top-1 {:.4}", dir.display(), a.mean_kld, a.top1);
        assert!(a.mean_kld <= 1e-6 && a.top1 >= 0.999, "{}: {:.2e} {}", dir.display(), a.mean_kld, a.top1);
        n_families += 1;
    }
    assert!(n_families >= 8);
}

/// Tokens that make sense enough: any ids will do, the same on both sides.
fn some_tokens(n: usize, vocab_size: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * 2_654_435_761 + 17) % vocab_size) as u32).collect()
}

fn against_plain(test: &str, path: Option<PathBuf>, n: usize) {
    let (file, source) = match &path {
        Some(p) => (ModelFile::open(p).unwrap(), ModelSource::Path(p.clone())),
        None => (
            ModelFile::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/demo-model/strata-quote-6m-Q8_0.gguf")).unwrap(),
            ModelSource::BuiltIn,
        ),
    };
    let vocab_size = file.plan().dims.vocab_size;
    let tokens = some_tokens(n, vocab_size);
    let want: Vec<f32> = PlainModel::load(&file).logits(&tokens).concat();
    for (kv_dtype, limit) in [(KvDtype::F32, 1e-6), (KvDtype::F16, 1e-5)] {
        let Some(got) = engine_logits(test, source.clone(), kv_dtype, &tokens) else { return };
        let a = agreement(&want, &got, vocab_size);
        eprintln!("{path:?} {kv_dtype:?}: mean KLD {:.2e}, top-1 {:.4}", a.mean_kld, a.top1);
        assert!(a.mean_kld <= limit, "{path:?} {kv_dtype:?}: {:.2e}", a.mean_kld);
        assert!(a.top1 >= if kv_dtype == KvDtype::F32 { 0.999 } else { 0.99 }, "{path:?} {kv_dtype:?}: {}", a.top1);
    }
}

#[test]
fn logits_of_the_built_in_model_match_plain_loops() {
    against_plain("logits_of_the_built_in_model_match_plain_loops", None, 200);
}

#[test]
fn logits_of_every_stored_type_match_plain_loops_on_the_same_weights() {
    let test = "logits_of_every_stored_type_match_plain_loops_on_the_same_weights";
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
