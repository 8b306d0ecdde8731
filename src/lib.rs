//! Strata: chat with book-length documents on the GPU you already have, fully local.
//!
//! ```text
//! file -> document -> token ids -> engine: prefill -> K,V pages in VRAM | RAM | disk -> attention -> token -> chat
//! ```
//! Data flows left to right; control flows back only as [`engine::EngineCommand`].
//!
//! # Code map
//! A module imports only modules of a lower layer. `tests/tidy` reads the `use crate::` lines and enforces it.
//!
//! | layer | module | owns |
//! |---|---|---|
//! | 0 | [`base`] | units, model dimensions, every limit and default, the seeded generator |
//! | 1 | [`telemetry`] | typed events in bounded rings, counters, overlap, the ledger, Chrome traces |
//! | 1 | [`mod@reference`] | one plain-loop f32 reference per kernel, which the kernels are tested against |
//! | 2 | [`document`] | files to text with pages; the sandbox for parsers; citations; the catalog of saved documents |
//! | 2 | [`token`] | tokenizers (byte-level BPE, SentencePiece), the streaming detokenizer, chat templates |
//! | 2 | [`gpu`] | devices, pipelines, buffers; `gpu/kernels` has one host file per op, `shaders/` the WGSL |
//! | 3 | [`chats`] | the database of chats, its writer thread, search, export |
//! | 3 | [`model`] | GGUF and safetensors as untrusted bytes, quantized formats, `arch/`, `discovery/`, `weights/` |
//! | 3 | [`kv`] | the KV cache: pages of 64 tokens in three tiers; the head of `kv/mod.rs` follows a page to disk and back |
//! | 4 | [`engine`] | a worker thread that owns device, model and cache; [`engine::api`] is its interface |
//! | 5 | [`cli`], [`app`] | the command line and the window |
//!
//! Inside [`kv`]:
//!
//! | folder | owns |
//! |---|---|
//! | `vram/` | tail, page frames, sealing, staged batches |
//! | `transfer/` | the thread between VRAM and the offload tiers |
//! | [`kv::offload`] | RAM slabs, read-ahead, write-back |
//! | [`kv::store`] | pages of one document on disk; io_uring or a thread pool |
//! | [`kv::policy`] | which tokens a decode step reads: pure functions, no I/O, no GPU type |
//! | `spec.rs`, `layout.rs` | shape of pages, what VRAM is spent on |
//! | `residency.rs`, `budget.rs` | which page has a frame, the caps |
//! | `reposition.rs` | reuse of saved pages at another position: keys are rotated again (`engine/context/reuse.rs` imports them) |
//!
//! Inside [`engine`]:
//!
//! | folder | owns |
//! |---|---|
//! | [`engine::api`] | commands, events, requests, summaries: plain data |
//! | `worker.rs`, `scheduler/`, `sequence.rs` | the command loop, batches of sequences, one sequence |
//! | `runner/` | the model on the device: layers, sampling, submit pacing |
//! | `selection/` | selective attention of a decode step, around a [`kv::policy`] |
//! | `context/` | KV storage of the loaded context, saved documents and their reuse, the page map |
//! | [`engine::measure`], `observe/` | benchmarks and teacher forcing; traces and step times |
//!
//! Inside [`app`]: `window/` (frame loop), `state/` (plain data), `answer/`, `panels/`, `dashboard/`, `ui/` (toolkit),
//! `persist/` (paths, settings file, log).
//!
//! # Papers
//! Source comments cite a paper as `LeoAM §4.2 eq. 2`.
//!
//! | paper | section | file |
//! |---|---|---|
//! | LeoAM | §4.2 eq. 2, §4.2 eq. 3: number and size of the initial chunks | `src/kv/policy/leoam/initial_chunks.rs` |
//! | LeoAM | §4.2 Fig. 10: the tree of chunks | `src/kv/policy/leoam/tree.rs` |
//! | LeoAM | §4.2: token scores of pages in VRAM, in RAM | `src/gpu/kernels/qk_scores.rs`, `src/kv/cpu_scores.rs` |
//! | LeoAM | §4.2: candidates, token scores and the best tokens on the device | `src/gpu/kernels/selection/mod.rs`, `src/engine/selection/device_step.rs` |
//! | LeoAM | §4.2, §4.3: bounds of pages | `src/gpu/kernels/page_bounds.rs`, `shaders/kv/page_bounds.wgsl` |
//! | LeoAM | §4.3: KV abstracts, on the device and on disk | `src/gpu/kernels/page_abstracts.rs`, `src/kv/policy/leoam/abstracts.rs` |
//! | LeoAM | §4.3: access frequency decides the tier | `src/kv/policy/access_frequency.rs`, `src/engine/selection/promotion.rs` |
//! | LeoAM | §4.4: share of pages transferred as INT4 (theta) | `src/kv/policy/leoam/pipeline.rs`, `src/engine/selection/overlap.rs` |
//! | LeoAM | §4.4: INT4 on the link | `src/kv/vram/int4_transfer.rs`, `shaders/kv/dequantize_pages.wgsl` |
//! | LeoAM | §4.4 Fig. 13: lookahead of one layer | `src/engine/selection/lookahead.rs` |
//! | LeoAM | §6.1: rates, first layers | `src/kv/policy/spec.rs` |
//! | LeoAM | §6.1: baselines | `src/kv/policy/h2o.rs` |
//! | InfiniGen | §4.3: inputs of neighboring layers are alike | `src/engine/selection/lookahead.rs` |
//! | H2O | §4: heavy hitters by accumulated attention | `src/kv/policy/h2o.rs` |
//! | StreamingLLM | §3.1: sinks and recent tokens | `src/kv/policy/window.rs`, `src/engine/selection/page_attention_meter.rs` |
//! | Quest | §3.2: bound of a page by its least and greatest keys | `shaders/kv/page_bounds.wgsl`, `src/kv/policy/leoam/mod.rs` |
//! | KIVI | §3: keys by channel, values by token | `src/kv/quantize_page.rs`, `src/gpu/kernels/kv_format.rs`, `shaders/kv/quantize_pages.wgsl` |
//! | KVPR | §3.2 eq. 6 to 11: recompute part of K and V while the rest is transferred | planned |
//! | HybridServe | §4.2, §4.3: activation pages in place of KV pages | planned |
//! | KV-Compress | §4.2, §4.3: eviction by layer and head | planned |
//! | InfiniGen | §4.3, §4.4: speculation with partial weights, the pool of KV | planned |
//!
//! # How to add
//! **An architecture.** 1. `src/model/arch/NAME.rs`: `plan(&PlanBuilder)` returns a `ModelPlan` (dims, names, biases, norms,
//! rope), which is all that the engine reads. Llama variants that differ only in data fill a `Variant`, as `qwen3.rs` does.
//! `mod NAME;` in `mod.rs` there. 2. `src/model/arch/registry.rs`: a row with its names and its `plan`. 3. A new kind of
//! tokenizer: `src/token/pre_tokenizer.rs`. 4. A tiny checkpoint in `tests/fixtures/make_hf.py`, its test in
//! `tests/model/hf.rs`; a shape to bench in `src/model/synthetic.rs`. 5. The list of models in `README.md`.
//!
//! **A KV policy.** 1. `src/kv/policy/NAME.rs`: `Policy` for its state, which selects from a `LayerView`; `mod NAME;` in
//! `mod.rs` there. 2. `PolicyKind` in `src/kv/policy/spec.rs` gets a variant, and `POLICIES` in `src/kv/policy/registry.rs` a
//! row at the same place: name, help, paper, needs, lookahead, constructor. The command line, errors, the engine and tests read
//! the registry. 3. Its paper in the index above, its name in `assets/guide.md`. 4. Its answers and its name in the
//! compatibility fixtures (`STRATA_RECORD_COMPAT`, see `tests/compat/main.rs`): the difference may only add lines.
//!
//! **A kernel.** 1. `shaders/FAMILY/OP.wgsl`, with `Bindings:`, `Grid:` and `Workgroup memory:` in its head; a line in the
//! `embed!` list of `src/gpu/shader_source.rs`. 2. `src/gpu/kernels/OP.rs`: `new`, `bind`, `record`, and `variants`, which
//! `src/gpu/kernels/mod.rs` collects. 3. `src/reference/OP.rs`: the same op as plain loops. 4. `tests/kernels/OP.rs` compares
//! the two. Variants: `_subgroup8` is for software devices, the plain shader for all others. Matrix products are the folder
//! `linear/`, with tests in `tests/linear/`; `linear/variant.rs` lists their variants.
//!
//! **A weight format.** 1. `src/gpu/kernels/linear/format.rs`: its name, blocks and sizes; `repack.rs` there: a row from the
//! file's blocks to the layout. 2. `shaders/common/dequant_NAME.wgsl`, plain and `SUBGROUP8`, with an arm in
//! `shaders/common/weights.wgsl`, and for integers in `dot4.wgsl`; the `embed!` list. 3. `native_format` in
//! `src/model/weights/layout.rs`: without its arm the type is converted to `I8G16`. A type that no file had before:
//! `src/model/quant.rs`. 4. Random blocks in `tests/linear/blocks.rs`, golden ones in `tests/linear/embed.rs`.
//!
//! **A document format.** 1. `src/document/file_format.rs`: a `FileFormat`, how it is recognized, its name.
//! 2. `src/document/extract/NAME.rs`: `extract(bytes) -> Result<Extracted, ExtractError>`, and its arm in `extract/mod.rs`.
//! 3. `src/document/sandbox/child.rs`: the format in the list of `serve`; `src/document/text.rs`: refuse it as plain text.
//! 4. Files in `tests/document/make_files.rs`, tests in `formats.rs` and `malformed.rs` there.
//!
//! **A panel.** 1. `src/app/panels/GROUP/NAME.rs`: `NAME_ui(ui, &state) -> Option<Action>` or `Vec<Action>`, from plain data.
//! 2. A new act: a variant of `Action` in `src/app/panels/mod.rs`, handled in `src/app/window/mod.rs`; its data in
//! `src/app/state/`. 3. A full page: a `MainView` in `src/app/state/mod.rs`, drawn and given a key in `src/app/window/mod.rs`
//! and `src/app/ui/shortcuts.rs`. A dashboard tab: a `Tab` in `src/app/dashboard/state/mod.rs`, drawn in `dock.rs`.
//! 4. An interaction in `tests/ui/interaction.rs` by accessible label; a picture in `tests/ui/snapshots.rs`.
//!
//! # Invariants
//! 1. A policy does no I/O and sees no GPU type: plain data in, a selection out.
//! 2. Page locations are changed only by `kv::residency` and `kv::offload`; a page stays readable until its new copy is complete.
//! 3. Each page is written to disk at most once, so its eviction from VRAM or RAM costs no write.
//! 4. Exact dense attention (`full`) always exists: it is the oracle for every selective policy.
//! 5. Budgets are caps. Running out of one degrades speed or is refused with numbers, never silently.
//! 6. The engine never blocks the UI thread; all queues are bounded; long work shows progress and can be
//!    cancelled within one prefill chunk or one token.
//! 7. A wrong, torn, stale or foreign file is detected; never a wrong token from a bad file.
//! 8. Nothing opens a socket unless the user asked for it.
//! 9. No silent truncation: a context that does not fit the model's window is refused with both numbers.
//! 10. Linux first, never Linux only: what is Linux alone (io_uring, O_DIRECT) has a portable fallback, tested as well.

#[cfg(feature = "window")]
pub mod app;
pub mod base;
pub mod chats;
pub mod cli;
pub mod document;
pub mod engine;
pub mod gpu;
pub mod kv;
pub mod model;
pub mod reference;
pub mod telemetry;
pub mod token;
