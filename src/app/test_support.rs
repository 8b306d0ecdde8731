//! Made-up engine facts for the window's unit tests.

use crate::base::{MovedBytes, PageCounts, Tiers};
use crate::engine::{
    AttentionKind, IoSummary, KvDtype, KvSetup, MassKept, ModelInfo, Phases, PolicySpec, RequestSummary, Sampling, SavedDocument,
    SavedState, SelectionSummary, StopReason,
};

/// A loaded built-in model.
pub fn model_info() -> ModelInfo {
    ModelInfo {
        name: "Strata Quote".into(),
        architecture: "llama".into(),
        quantization: "Q8_0".into(),
        n_params: 8_900_000,
        context_len: 131_072,
        context_limit: 131_072,
        file_bytes: 6_273_952,
        vram_bytes: 14_000_000,
        estimated_vram_bytes: 14_100_000,
        kv_full_bytes: 131_072 * 3072,
        kv_bytes_per_token: 3072,
        kv: KvSetup::default(),
        adapter: "llvmpipe".into(),
        software: true,
        notes: Vec::new(),
        sampling: Sampling::default(),
        built_in: true,
    }
}

/// A finished answer.
pub fn summary() -> RequestSummary {
    RequestSummary {
        prompt_tokens: 100,
        cached_tokens: 40,
        approximate_tokens: 0,
        prefill_ms: 120.0,
        first_token_ms: 140.0,
        generated_tokens: 20,
        decode_ms: 900.0,
        tokens_per_s: 22.0,
        attention: AttentionKind::Dense,
        kv_bytes: Tiers { vram: 368_640, ram: 0, disk: 0 },
        kv_peak_bytes: Tiers { vram: 368_640, ram: 0, disk: 0 },
        moved_bytes: MovedBytes::default(),
        pages: PageCounts::default(),
        selection: None,
        overlap: None,
        io: IoSummary::default(),
        vram_bytes: 15_000_000,
        context_used: 120,
        dispatches_per_token: 60,
        encode_ms_per_token: 0.3,
        lookahead_steps: 0,
        phases: Phases::default(),
        stop: StopReason::Eos,
    }
}

/// A document of 1,200,000 tokens in the library.
pub fn saved(state: SavedState) -> SavedDocument {
    SavedDocument {
        id: "a1b2c3".into(),
        name: "pepys-diary.txt".into(),
        content_hash: "00".repeat(32),
        after: Vec::new(),
        bytes: 4_900_000,
        pages: 1600,
        model: "Strata Quote".into(),
        kv_dtype: KvDtype::F16,
        tokens: 1_200_000,
        saved_tokens: if state == SavedState::Partial { 492_000 } else { 1_200_000 },
        kv_bytes: 3_758_096_384,
        state,
        prefill_seconds: 640.0,
        last_used: 1_795_000_000,
    }
}

/// A finished answer that read 12 % of the context.
pub fn selective_summary() -> RequestSummary {
    let layer = |kept| MassKept { kept, best: 0.99, recall: 0.8 };
    let selection = SelectionSummary {
        spec: PolicySpec::default(),
        steps: 19,
        share_read: 0.118,
        reuse: 0.9,
        foreseen: 0.5,
        compressed: 0.0,
        evaluations_per_step: 100.0,
        evaluation_ms_per_step: 0.4,
        mass: Some(vec![layer(0.98), layer(0.92)]),
        mass_steps: 3,
    };
    RequestSummary { attention: AttentionKind::Selective, selection: Some(selection), ..summary() }
}
