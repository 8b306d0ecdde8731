//! Exact offload: logits equal those of attention with all pages in VRAM, at any budget.

use std::sync::Arc;

use strata::base::{Bytes, Tiers};
use strata::engine::{EngineCommand, EngineEvent, KvDtype, LoadOptions, ModelSource};
use strata::gpu::{DevicePool, FeatureOverrides};

use crate::{DEVICES, engine_on, finish};

fn logits(test: &str, options: LoadOptions, tokens: &[u32]) -> Option<(Vec<f32>, Box<strata::engine::RequestSummary>)> {
    logits_on(test, options, tokens, DEVICES.clone())
}

fn logits_on(
    test: &str,
    options: LoadOptions,
    tokens: &[u32],
    devices: Arc<DevicePool>,
) -> Option<(Vec<f32>, Box<strata::engine::RequestSummary>)> {
    let (handle, _) = engine_on(test, ModelSource::BuiltIn, options, None, devices)?;
    handle.send(EngineCommand::Logits { request: 1, tokens: tokens.to_vec() });
    let (events, end) = finish(&handle);
    let mut out = Vec::new();
    for event in &events {
        if let EngineEvent::LogitsRows { rows, .. } = event {
            out.extend_from_slice(rows);
        }
    }
    Some((out, end.unwrap()))
}

fn tokens(n: usize) -> Vec<u32> {
    let mut rng = strata::base::Rng::new(5);
    (0..n).map(|_| rng.uniform(2000)).collect()
}

/// Maximum KL divergence over positions, natural logarithm.
fn worst_kld(a: &[f32], b: &[f32], vocab_size: usize) -> f64 {
    assert_eq!(a.len(), b.len());
    let softmax = |row: &[f32]| -> Vec<f64> {
        let top = row.iter().fold(f32::MIN, |m, x| m.max(*x));
        let e: Vec<f64> = row.iter().map(|x| f64::from(x - top).exp()).collect();
        let sum: f64 = e.iter().sum();
        e.iter().map(|x| x / sum).collect()
    };
    let rows = a.chunks(vocab_size).zip(b.chunks(vocab_size));
    rows.map(|(a, b)| softmax(a).iter().zip(softmax(b)).map(|(p, q)| p * ((p + 1e-30) / (q + 1e-30)).ln()).sum())
        .fold(0.0, f64::max)
}

#[test]
fn exact_offload_logits_match_those_in_vram() {
    let test = "exact_offload_logits_match_those_in_vram";
    let tokens = tokens(900);
    for kv_dtype in [KvDtype::F16, KvDtype::Q8, KvDtype::Q4, KvDtype::F32] {
        let base = LoadOptions { kv_dtype, context: Some(1024), ..Default::default() };
        let Some((dense, _)) = logits(test, base.clone(), &tokens) else { return };
        let vocab_size = dense.len() / tokens.len();
        for (vram, synchronous) in [(2200 << 10, false), (1300 << 10, false), (1300 << 10, true)] {
            let budgets = Tiers { vram: Some(Bytes(vram)), ..Default::default() };
            let options = LoadOptions { budgets, synchronous, ..base.clone() };
            let Some((offloaded, summary)) = logits(test, options, &tokens) else { return };
            let kld = worst_kld(&dense, &offloaded, vocab_size);
            eprintln!("{kv_dtype:?} in {vram}: {kld:.1e}");
            // Sums in another order: the maximum over 900 random ids, with score terms of up to 300.
            assert!(kld <= 3e-5, "{kv_dtype:?} in {vram}: {kld}");
            assert!(summary.kv_peak_bytes.vram <= vram, "{} of {vram}", summary.kv_peak_bytes.vram);
        }
    }
}

#[test]
fn exact_offload_logits_do_not_depend_on_the_kind_of_upload_buffer() {
    let test = "exact_offload_logits_do_not_depend_on_the_kind_of_upload_buffer";
    let tokens = tokens(600);
    let portable = FeatureOverrides { no_host_memory: true, ..FeatureOverrides::default() };
    for kv_dtype in [KvDtype::F16, KvDtype::Q8] {
        let budgets = Tiers { vram: Some(Bytes(1300 << 10)), ..Default::default() };
        let options = LoadOptions { kv_dtype, budgets, context: Some(1024), ..Default::default() };
        let Some((host, summary)) = logits(test, options.clone(), &tokens) else { return };
        let mapped = logits_on(test, options, &tokens, Arc::new(DevicePool::with_overrides(portable))).unwrap();
        assert!(summary.moved_bytes.ram_to_vram > 0 && mapped.1.moved_bytes.ram_to_vram > 0, "pages were uploaded");
        // Equal if both prefill in the same chunks, whose sizes depend on the measured speed. So does what is uploaded.
        let kld = worst_kld(&host, &mapped.0, host.len() / tokens.len());
        assert!(kld <= 3e-5, "{kv_dtype:?}: {kld}");
    }
}
