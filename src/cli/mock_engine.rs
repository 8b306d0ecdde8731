//! Mock engine with scripted responses, for tests of the commands without a GPU.

use std::thread::JoinHandle;

use super::interrupt::Interrupt;
use super::session::Session;
use crate::base::{MovedBytes, PageCounts, Tiers};
use crate::engine::{
    AttentionKind, EngineCommand, EngineEvent, EngineHandle, EnginePort, IoSummary, KvSetup, ModelInfo, Phases, RequestId,
    RequestSummary, Sampling, StopReason,
};
use crate::gpu::microbenchmark::DeviceBandwidth;

/// A session whose engine loads [`info`], then calls `respond` for every request until the session is dropped. The thread
/// returns the commands that it got.
pub fn session(
    interrupt: Interrupt,
    respond: impl Fn(&EngineCommand, &EnginePort) + Send + 'static,
) -> (Session, JoinHandle<Vec<EngineCommand>>) {
    let (handle, port) = EngineHandle::pair(|| {});
    let worker = std::thread::spawn(move || {
        let mut seen = Vec::new();
        while let Ok(command) = port.commands.recv() {
            match &command {
                EngineCommand::Shutdown => break,
                EngineCommand::LoadModel { .. } => {
                    port.emit(EngineEvent::ModelLoading { share: 0.5, what: "weights".into() });
                    port.emit(EngineEvent::ModelLoaded(Box::new(info())));
                }
                request => respond(request, &port),
            }
            seen.push(command);
        }
        seen
    });
    (Session::new(handle, interrupt), worker)
}

/// A small model.
pub fn info() -> ModelInfo {
    ModelInfo {
        name: "tiny, \"quoted\"".into(),
        architecture: "llama".into(),
        quantization: "Q8_0".into(),
        n_params: 5_800_000,
        context_len: 1024,
        context_limit: 1024,
        file_bytes: 6 << 20,
        vram_bytes: 8 << 20,
        estimated_vram_bytes: 8 << 20,
        kv_full_bytes: 131_072 * 3072,
        kv_bytes_per_token: 3072,
        kv: KvSetup::default(),
        adapter: "test adapter".into(),
        software: true,
        notes: vec!["weights of type X were converted".into()],
        sampling: Sampling::default(),
        built_in: true,
    }
}

/// Bandwidths in round numbers.
pub fn measured() -> DeviceBandwidth {
    DeviceBandwidth {
        stream_read_bytes_per_s: 2000.0,
        copy_bytes_per_s: 3000.0,
        upload_bytes_per_s: 4000.0,
        readback_bytes_per_s: 5000.0,
        gemm_flops: 6000.0,
        f16_flops: Ok(7000.0),
        matrix_flops: Err("a software device has no matrix units".into()),
    }
}

/// The end of a request.
pub fn finished(request: RequestId, generated_tokens: usize, stop: StopReason) -> EngineEvent {
    let summary = RequestSummary {
        prompt_tokens: 10,
        cached_tokens: 4,
        approximate_tokens: 0,
        prefill_ms: 1.5,
        first_token_ms: 2.5,
        generated_tokens,
        decode_ms: 3.5,
        tokens_per_s: 100.0,
        attention: AttentionKind::Dense,
        kv_bytes: Tiers { vram: 4096, ram: 0, disk: 0 },
        kv_peak_bytes: Tiers { vram: 8192, ram: 0, disk: 0 },
        moved_bytes: MovedBytes::default(),
        pages: PageCounts::default(),
        selection: None,
        overlap: None,
        io: IoSummary::default(),
        vram_bytes: 1 << 20,
        context_used: 10 + generated_tokens,
        dispatches_per_token: 40,
        encode_ms_per_token: 0.1,
        lookahead_steps: 0,
        phases: Phases::default(),
        stop,
    };
    EngineEvent::Finished { request, summary: Box::new(summary) }
}

/// A piece of an answer.
pub fn token(request: RequestId, n: usize, text: &str) -> EngineEvent {
    EngineEvent::Token { request, text: text.into(), n, tokens_per_s: 100.0, context_used: 10 + n }
}
