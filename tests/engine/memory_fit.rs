//! Memory fit: the estimate before loading equals the memory that loading takes.

use std::time::Duration;

use strata::base::{Bytes, Tiers};
use strata::engine::{DeviceFacts, EngineCommand, EngineEvent, KvDtype, LoadOptions, MemoryNeeds, ModelInfo, ModelSource};
use strata::model::ModelFile;

/// Loads the built-in model. Returns the device facts before loading, and the model info after it.
fn load(options: &LoadOptions) -> (DeviceFacts, ModelInfo) {
    let engine = strata::engine::spawn(|| {});
    assert!(engine.send(EngineCommand::LoadModel { source: ModelSource::BuiltIn, options: options.clone() }));
    let mut device = None;
    loop {
        match engine.wait(Duration::from_secs(120)).unwrap() {
            EngineEvent::Device(facts) => device = Some(*facts),
            EngineEvent::ModelLoaded(info) => return (device.unwrap(), *info),
            EngineEvent::ModelFailed { sentence, .. } => panic!("{sentence}"),
            _ => {}
        }
    }
}

#[test]
fn memory_fit_matches_the_memory_that_loading_takes() {
    if super::common::gpu("memory_fit_matches_the_memory_that_loading_takes", strata::gpu::FeatureOverrides::default()).is_none()
    {
        return;
    }
    let kv_dir = tempfile::tempdir().unwrap();
    let budgets = Tiers { vram: Some(Bytes(64 << 20)), ram: Some(Bytes(1 << 30)), disk: Some(Bytes(1 << 30)) };
    let plain = LoadOptions { budgets, kv_dir: Some(kv_dir.path().to_owned()), ..LoadOptions::default() };
    let smaller = LoadOptions { context: Some(4096), kv_dtype: KvDtype::Q8, ..plain.clone() };
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/demo-model/strata-quote-Q8_0.gguf");
    let file = ModelFile::open(path.as_ref()).unwrap();
    for options in [plain, smaller] {
        let (device, info) = load(&options);
        let fit = MemoryNeeds::of(&file, &device).unwrap().fit(&options, &device);
        assert_eq!(fit.context, info.context_limit);
        assert_eq!(fit.least, info.estimated_vram_bytes, "weights, activations and the tail of the KV cache");
        assert_eq!(fit.kv_bytes, info.kv_bytes_per_token * info.context_limit as u64);
        assert_eq!(fit.budgets, info.kv.budgets);
        assert_eq!(fit.too_large_by(), None, "it was loaded, so it fits");
        assert!(device.machine.free_memory.is_none_or(|free| free.0 > fit.least));
    }
}

#[test]
fn model_over_the_free_memory_is_too_large_by_the_difference() {
    if super::common::gpu("model_over_the_free_memory", strata::gpu::FeatureOverrides::default()).is_none() {
        return;
    }
    let (mut device, _) = load(&LoadOptions { context: Some(512), ..LoadOptions::default() });
    let file = ModelFile::synthetic("llama-3.1-8b", "Q4_0", 1).unwrap();
    device.machine.has_own_memory = false;
    device.machine.free_memory = Some(Bytes(1 << 30));
    let needs = MemoryNeeds::of(&file, &device).unwrap();
    assert!((4 << 30..6 << 30).contains(&needs.weights), "{}", needs.weights);
    let fit = needs.fit(&LoadOptions::default(), &device);
    assert_eq!(fit.context, 131_072);
    assert_eq!(fit.too_large_by(), Some(fit.least - (1 << 30)));
    device.machine.free_memory = None;
    assert_eq!(needs.fit(&LoadOptions::default(), &device).too_large_by(), None, "unknown free memory never refuses a model");
}
