//! Kernels that round activations, and run-time checks of shaders: what they change in the logits of a model.

use strata::engine::{BenchTests, EngineCommand, EngineEvent, KvDtype, LoadOptions, ModelSource};
use strata::gpu::GpuOptions;

use crate::common::data_dir;
use crate::logits::agreement;
use crate::teacher_forcing::{rows, tokens_of};
use crate::{HARDWARE, document, engine_on, finish};

/// Mean Kullback-Leibler divergence that fast kernels may have to exact ones, where a matmul is exact and where its operands are
/// f16 (cooperative matrices); and fraction of equal best tokens.
const MAX_KLD: [f64; 2] = [1e-6, 5e-5];
const MIN_TOP1: f64 = 0.999;
/// Layers of the built-in model.
const N_LAYER: usize = 6;

/// Logits of `n` decode steps over `tokens`, `[n, V]`, and V.
fn scored(test: &str, source: &ModelSource, tokens: &[u32], n: usize, options: LoadOptions) -> Option<(Vec<f32>, usize)> {
    let options = LoadOptions { kv_dtype: KvDtype::F32, context: Some(512), ..options };
    let (handle, _) = engine_on(test, source.clone(), options, None, HARDWARE.clone())?;
    let (all, _, _) = rows(&handle, EngineCommand::Score { request: 1, tokens: tokens.to_vec(), n_prefix: tokens.len() - n });
    let vocab_size = all.len() / n;
    Some((all, vocab_size))
}

fn check(test: &str, source: &ModelSource, tokens: &[u32], n: usize) {
    let exact = LoadOptions { exact: true, ..LoadOptions::default() };
    let Some((want, vocab_size)) = scored(test, source, tokens, n, exact) else { return };
    let (got, _) = scored(test, source, tokens, n, LoadOptions::default()).unwrap();
    assert!(got != want, "{source:?}: the fast kernels were not used");
    let agreement = agreement(&want, &got, vocab_size);
    let options = GpuOptions { adapter: None, overrides: HARDWARE.overrides() };
    let device = HARDWARE.take_or_open(&options).unwrap();
    let has_matrices = device.cooperative_matrix_size().is_some();
    HARDWARE.put_back(options, device);
    let with = if has_matrices { " with cooperative matrices" } else { "" };
    eprintln!("{source:?}{with}: KL divergence {:.1e}, best token equal {:.3}", agreement.mean_kld, agreement.top1);
    assert!(agreement.mean_kld <= MAX_KLD[usize::from(has_matrices)] && agreement.top1 >= MIN_TOP1, "{source:?}: {agreement:?}");
}

#[test]
fn fast_kernels_change_the_logits_of_the_built_in_model_by_less_than_the_limit() {
    let tokens = tokens_of(&document()[..600]);
    check("fast_kernels_change_the_logits", &ModelSource::BuiltIn, &tokens[..160], 96);
}

#[test]
fn fast_kernels_change_the_logits_of_real_models_by_less_than_the_limit() {
    let test = "fast_kernels_change_the_logits_of_real_models_by_less_than_the_limit";
    let Some(dir) = data_dir() else { return eprintln!("skipped: {test}: no test data") };
    for name in ["stories3M-Q4_0.gguf", "stories3M-Q4_K_M.gguf", "stories3M-Q8_0.gguf"] {
        let path = dir.join("models/stories3m").join(name);
        if !path.exists() {
            eprintln!("skipped: {test}: no {name}");
            continue;
        }
        let tokens: Vec<u32> = (0..128).map(|i| 3 + (i * 37) % 900).collect();
        check(test, &ModelSource::Path(path), &tokens, 96);
    }
}

/// Takes minutes and gigabytes on a software device, so it needs `STRATA_LARGE_MODELS=1`.
#[test]
fn fast_kernels_change_the_logits_of_8b_shapes_by_less_than_the_limit() {
    if std::env::var_os("STRATA_LARGE_MODELS").is_none_or(|v| v != "1") {
        return eprintln!("skipped: fast_kernels_change_the_logits_of_8b_shapes: no STRATA_LARGE_MODELS=1");
    }
    for weight_type in ["Q4_0", "Q4_K"] {
        let source = ModelSource::Synthetic { name: "llama-3.1-8b/2".into(), weight_type: weight_type.into() };
        let tokens: Vec<u32> = (0..40).map(|i| 3 + (i * 3701) % 120_000).collect();
        check("fast_kernels_change_the_logits_of_8b_shapes", &source, &tokens, 24);
    }
}

#[test]
fn run_time_checks_of_shaders_change_no_bit_of_the_logits() {
    let test = "run_time_checks_of_shaders_change_no_bit_of_the_logits";
    let tokens = tokens_of(&document()[..600]);
    let run = |checked_shaders| {
        let options = LoadOptions { checked_shaders, ..LoadOptions::default() };
        scored(test, &ModelSource::BuiltIn, &tokens[..100], 20, options)
    };
    let Some(off) = run(false) else { return };
    assert!(run(true).unwrap() == off);
}

/// Each dispatch of a decode step waits for the one before: 2 to 3.5 us on a real GPU.
#[test]
fn decoded_token_takes_eight_dispatches_a_layer() {
    let test = "decoded_token_takes_eight_dispatches_a_layer";
    let source = ModelSource::BuiltIn;
    let Some((handle, info)) = engine_on(test, source, LoadOptions::default(), None, HARDWARE.clone()) else { return };
    let tests =
        BenchTests { n_prompt: Vec::new(), n_gen: vec![2], depths: vec![200], fill: true, repetitions: 1, by_family: false };
    handle.send(EngineCommand::Bench { request: 3, tests });
    let (events, end) = finish(&handle);
    assert!(end.is_ok(), "{end:?}");
    let rows =
        events.into_iter().filter_map(|event| if let EngineEvent::BenchResult { row, .. } = event { Some(*row) } else { None });
    let dispatches: Vec<usize> = rows.map(|row| row.dispatches).collect();
    // Embedding, norm of the first layer, output projection, sampling in two stages.
    assert_eq!(dispatches, [8 * N_LAYER + 5], "{:?}", info.notes);
}
