//! Engine tests through its channels, on real models if the test data is available.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;

mod batch;
mod bench;
mod generation;
mod in_place;
mod logits;
mod lookahead;
mod memory_fit;
mod multi_head;
mod offload;
mod page_attention;
mod page_map;
mod precision;
mod prefix_sharing;
#[path = "../common/reference_forward.rs"]
mod reference_forward;
mod reuse_anywhere;
mod saved_documents;
mod selection;
mod shared_prefixes;
mod teacher_forcing;
mod trace;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use strata::engine::{
    DocumentRef, EngineCommand, EngineEvent, EngineHandle, FolderHook, KvDtype, LoadOptions, ModelInfo, ModelSource,
    RequestSummary,
};

/// Devices that transfer pages of the RAM tier. They are reused by engines of later tests.
static DEVICES: LazyLock<Arc<strata::gpu::DevicePool>> = LazyLock::new(|| transferring(false));

/// Software devices that run the kernels for real GPUs.
static HARDWARE: LazyLock<Arc<strata::gpu::DevicePool>> = LazyLock::new(|| transferring(true));

fn transferring(hardware_kernels: bool) -> Arc<strata::gpu::DevicePool> {
    let overrides = strata::gpu::FeatureOverrides { hardware_kernels, host_import: Some(false), ..Default::default() };
    Arc::new(strata::gpu::DevicePool::with_overrides(overrides))
}

/// An engine with this model loaded. None, with a message, if there is no device.
fn engine(test: &str, source: ModelSource, kv_dtype: KvDtype) -> Option<(EngineHandle, Box<ModelInfo>)> {
    engine_with(test, source, LoadOptions { kv_dtype, ..LoadOptions::default() })
}

/// Same with all options.
fn engine_with(test: &str, source: ModelSource, options: LoadOptions) -> Option<(EngineHandle, Box<ModelInfo>)> {
    engine_hooked(test, source, options, None)
}

/// Same with a hook between stores and their folders. Without `kv_dir`, all engines of this process share a library.
fn engine_hooked(
    test: &str,
    source: ModelSource,
    options: LoadOptions,
    hook: Option<FolderHook>,
) -> Option<(EngineHandle, Box<ModelInfo>)> {
    engine_on(test, source, options, hook, DEVICES.clone())
}

/// Same on the devices of another pool.
fn engine_on(
    test: &str,
    source: ModelSource,
    mut options: LoadOptions,
    hook: Option<FolderHook>,
    devices: Arc<strata::gpu::DevicePool>,
) -> Option<(EngineHandle, Box<ModelInfo>)> {
    drop(common::gpu(test, strata::gpu::FeatureOverrides::default())?);
    options.kv_dir.get_or_insert_with(|| std::env::temp_dir().join(format!("strata-engine-{}", std::process::id())));
    let handle = strata::engine::spawn_with(|| {}, hook, devices);
    assert!(handle.send(EngineCommand::LoadModel { source, options }));
    loop {
        match handle.wait(Duration::from_secs(120)).unwrap() {
            EngineEvent::ModelLoaded(info) => return Some((handle, info)),
            EngineEvent::ModelFailed { sentence, .. } => panic!("{sentence}"),
            _ => {}
        }
    }
}

/// The document of `tests/fixtures/quote`: 20,000 bytes, 6,900 tokens.
fn document() -> String {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quote");
    std::fs::read_to_string(dir.join("document.txt")).unwrap()
}

/// Its first half: 3,400 tokens, 10 MiB of KV in f16. Its prefill takes a quarter of the time.
fn half_document() -> String {
    document()[..10_000].to_owned()
}

/// `text` as a document to save.
fn saved_as(name: &str, text: &str, pages: usize) -> DocumentRef {
    DocumentRef {
        content_hash: *blake3::hash(text.as_bytes()).as_bytes(),
        name: name.into(),
        bytes: text.len() as u64,
        pages,
        end_byte: text.len(),
        save: true,
    }
}

/// Collects the events of a request up to its end.
fn finish(handle: &EngineHandle) -> (Vec<EngineEvent>, Result<Box<RequestSummary>, String>) {
    let mut events = Vec::new();
    loop {
        match handle.wait(Duration::from_secs(300)).unwrap() {
            EngineEvent::Finished { summary, .. } => return (events, Ok(summary)),
            EngineEvent::Failed { sentence, .. } => return (events, Err(sentence)),
            event => events.push(event),
        }
    }
}
