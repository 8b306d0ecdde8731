//! Model runner: a loaded model with its tokenizer, chat template and the tokens whose K and V are in the cache.

pub(in crate::engine) mod activations;
mod attention_check;
pub(in crate::engine) mod bindings;
mod decode;
pub(in crate::engine) mod device_parts;
pub(in crate::engine) mod executor;
pub(in crate::engine) mod forward;
pub(in crate::engine) mod fused_ops;
pub(in crate::engine) mod gpu_model;
mod in_place;
mod in_place_ops;
mod kernel_check;
mod layer_ops;
mod model_ops;
pub(in crate::engine) mod pass;
pub(in crate::engine) mod row_logits;
pub(in crate::engine) mod sampling;
mod steps;
pub(in crate::engine) mod submit_pacer;
mod text_codec;
mod usage;
mod work_shape;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::limits::{KV_PAGE_TOKENS, SUBMIT_TARGET_MILLIS};
use crate::base::{Bytes, MovedBytes};
use crate::gpu::kernels::linear::Precision;
use crate::gpu::{Gpu, GpuError, TimestampRing};
use crate::kv::{KvError, KvSpec, VramCache, VramPlan};
use crate::model::weights::layout;
use crate::model::{ModelFile, RecommendedSampling};
use crate::telemetry::Hub;
use crate::token::{ChatMessage, Prompt, Tokenizer};

use crate::engine::api::{
    AttentionKind, AttentionMode, EngineEvent, LoadOptions, Message, ModelInfo, ModelSource, Role, Sampling,
};
use crate::engine::context::document_parts::DocumentTokens;
use crate::engine::context::kv_storage::{FolderHook, KvStorage};
use crate::engine::context::page_view::PageView;
use crate::engine::error::EngineError;
use crate::engine::handle::{Detail, EnginePort};
use crate::engine::memory_fit;
use crate::engine::observe::step_timer::StepTimer;
use crate::engine::observe::trace_recorder::TraceRecorder;
use crate::engine::runner::activations::max_chunk;
use crate::engine::runner::executor::Executor;
use crate::engine::runner::gpu_model::GpuModel;
use crate::engine::runner::submit_pacer::SubmitPacer;
use pass::{NextToken, Pass, Row, SequenceKv};
use row_logits::RowLogits;
pub(in crate::engine) use text_codec::TextCodec;
pub(in crate::engine) use usage::UsageCounters;

/// Weights of the built-in model.
static BUILT_IN: &[u8] = include_bytes!("../../../assets/demo-model/strata-quote-Q8_0.gguf");
/// Minimum length of a prefill chunk, so that weights are read once for several tokens.
const MIN_CHUNK: usize = 16;

/// A model ready to answer.
pub(in crate::engine) struct ModelRunner {
    pub(in crate::engine) exec: Executor,
    /// None for a synthetic model
    text: Option<TextCodec>,
    pub(in crate::engine) info: ModelInfo,
    pub(in crate::engine) pacer: SubmitPacer,
    /// tokens whose K and V are valid, in order
    pub(in crate::engine) tokens: Vec<u32>,
    /// offload tiers and the library
    pub(in crate::engine) storage: KvStorage,
    pub(in crate::engine) observer: TraceRecorder,
    pub(in crate::engine) page_view: PageView,
    pub(in crate::engine) steps: StepTimer,
    /// None while a single answer is decoded
    row_logits: Option<RowLogits>,
    /// readback buffer of the last sampling
    next_readback: usize,
    file: ModelFile,
}

/// Opens the header and tokenizer of `source`; nothing goes to the device yet.
pub(in crate::engine) fn open(source: &ModelSource) -> Result<ModelFile, EngineError> {
    Ok(match source {
        ModelSource::BuiltIn => ModelFile::from_static(BUILT_IN)?,
        ModelSource::Path(path) => ModelFile::open(path)?,
        ModelSource::Synthetic { name, weight_type } => ModelFile::synthetic(name, weight_type, 1)?,
    })
}

/// The tokenizer of a model, without loading its weights.
///
/// # Errors
/// A model or a tokenizer that cannot be read, or a synthetic model, which has none.
pub fn tokenizer(source: &ModelSource) -> Result<Arc<Tokenizer>, EngineError> {
    match source {
        ModelSource::Synthetic { .. } => Err(EngineError::NoText),
        _ => Ok(TextCodec::open(&open(source)?)?.tokenizer),
    }
}

impl ModelRunner {
    /// Loads `file`, which was opened from `source`, onto `gpu`. `progress` gets the share done and the current phase, first the
    /// memory estimate. It returns false to stop.
    pub(in crate::engine) fn load(
        gpu: &Gpu,
        hub: &Arc<Hub>,
        hook: Option<FolderHook>,
        mut file: ModelFile,
        source: &ModelSource,
        options: &LoadOptions,
        progress: &mut dyn FnMut(f32, &str) -> bool,
    ) -> Result<ModelRunner, EngineError> {
        let text = match source {
            ModelSource::Synthetic { .. } => None,
            _ => Some(TextCodec::open(&file)?),
        };
        let plan = file.plan();
        let context = memory_fit::context_of(plan, options);
        file.adapt(Some(context), options.rope_base)?;
        let plan = file.plan();
        let placed = layout::lay_out(&file, gpu.max_binding_bytes())?;
        let spec = gpu_model::kv_spec(&plan.dims, options.kv_dtype);
        let mut storage = KvStorage::new(gpu, hub, &file, &spec, options, placed.total_bytes(), hook)?;
        let vram = plan_vram(gpu, &spec, context, storage.setup.budgets.vram, options.policy.is_some())?;
        let estimate = gpu_model::estimate(gpu, plan, &placed, &spec, &vram, precision(options));
        let mut notes: Vec<String> = placed
            .converted
            .iter()
            .map(|(what, n)| format!("{n} matrices stored as {what}: no kernel reads the type directly"))
            .collect();
        if let Some(text) = &text {
            notes.extend(text.tokenizer.notes().iter().cloned());
            notes.extend(text.template.note().map(str::to_owned));
        }
        if let Some(window) = plan.sliding_window.filter(|w| *w < plan.dims.context_len) {
            notes.push(format!("this model attends to {window} tokens at most; longer contexts are refused"));
        }
        let needed = Bytes(estimate.weights + estimate.activations + estimate.kv_first);
        let memory = if gpu.has_own_memory() { "VRAM" } else { "RAM" };
        let what =
            format!("copying weights; {needed} of {memory} in all, and {} per 1,000 tokens", Bytes(1000 * spec.token_bytes()));
        let mut report = |share: f32| progress(share, &what);
        let kv = VramCache::new(gpu, spec, context, vram, options.limits.pcie, options.synchronous, hub)?;
        let model = GpuModel::load(gpu, &file, placed, &spec, precision(options), &mut report)?;
        notes.extend(model.notes.iter().cloned());
        let mut exec = Executor::new(model, kv, options.synchronous);
        exec.set_policy(gpu, options.policy, hub)?;
        exec.reserve(gpu, 1)?;
        let meta = file.info();
        notes.extend(storage.take_notices());
        let mut observer = TraceRecorder::new(hub, options.trace.as_deref())?;
        let info = ModelInfo {
            name: meta.name.clone(),
            architecture: meta.architecture.clone(),
            quantization: meta.quantization.clone(),
            n_params: meta.n_params,
            context_len: plan.dims.context_len,
            context_limit: context,
            file_bytes: meta.file_bytes,
            vram_bytes: gpu.allocated_bytes(),
            estimated_vram_bytes: needed.0,
            kv_full_bytes: estimate.kv_full,
            kv_bytes_per_token: exec.kv.spec().token_bytes(),
            kv: storage.setup.clone(),
            adapter: gpu.info().name.clone(),
            software: gpu.is_software(),
            notes,
            sampling: recommended(&meta.sampling, *source == ModelSource::BuiltIn),
            built_in: *source == ModelSource::BuiltIn,
        };
        observer.describe(&info, options.policy);
        let (pacer, page_view, steps) = (SubmitPacer::new(gpu, hub), PageView::default(), StepTimer::new(hub));
        Ok(ModelRunner {
            exec,
            text,
            info,
            pacer,
            tokens: Vec::new(),
            storage,
            observer,
            page_view,
            steps,
            row_logits: None,
            next_readback: 0,
            file,
        })
    }

    /// Loads the same file onto a new device, with an empty cache.
    pub(in crate::engine) fn reload(&mut self, gpu: &Gpu, hub: &Hub, options: &LoadOptions) -> Result<(), EngineError> {
        let placed = layout::lay_out(&self.file, gpu.max_binding_bytes())?;
        let context = self.info.context_limit;
        let spec = *self.exec.kv.spec();
        let vram = plan_vram(gpu, &spec, context, self.storage.setup.budgets.vram, options.policy.is_some())?;
        self.storage.forget();
        let kv = VramCache::new(gpu, spec, context, vram, options.limits.pcie, options.synchronous, hub)?;
        let model = GpuModel::load(gpu, &self.file, placed, &spec, precision(options), &mut |_| true)?;
        let mut exec = Executor::new(model, kv, options.synchronous);
        exec.set_policy(gpu, options.policy, hub)?;
        exec.reserve(gpu, 1)?;
        self.exec = exec;
        self.row_logits = None;
        self.pacer = SubmitPacer::new(gpu, hub);
        self.tokens.clear();
        Ok(())
    }

    /// Tokens of a conversation, up to the beginning of the answer.
    pub(in crate::engine) fn encode(&self, messages: &[Message], add_generation_prompt: bool) -> Result<Prompt, EngineError> {
        let messages: Vec<ChatMessage> = messages
            .iter()
            .map(|m| {
                let role = match m.role {
                    Role::System => "system",
                    Role::User => "user",
                    Role::Assistant => "assistant",
                };
                ChatMessage::new(role, m.content.clone())
            })
            .collect();
        let side = self.text()?;
        Ok(side.template.prompt(&side.tokenizer, &messages, add_generation_prompt)?)
    }

    /// Tokenizer and template.
    pub(in crate::engine) fn text(&self) -> Result<&TextCodec, EngineError> {
        self.text.as_ref().ok_or(EngineError::NoText)
    }

    /// Tokens of `target` that need no prefill: the common prefix with the cache, but not the last token if `needs_logits`.
    pub(in crate::engine) fn cached_prefix(&self, target: &[u32], needs_logits: bool) -> usize {
        let common = self.tokens.iter().zip(target).take_while(|(a, b)| a == b).count();
        self.keeps(common.min(target.len().saturating_sub(usize::from(needs_logits))))
    }

    /// Empties the context after a failure. Saved documents stay saved.
    pub(in crate::engine) fn reset_context(&mut self, gpu: &Gpu) {
        self.tokens.clear();
        self.storage.close(gpu, &mut self.exec.kv);
    }

    /// Reserves VRAM for the tails of the sequences of a batch. Empties the context if its frames occupy that VRAM.
    pub(in crate::engine) fn reserve_for_batch(&mut self, gpu: &Gpu, bytes: u64) {
        let budget = self.storage.setup.budgets.vram;
        if !self.exec.kv.reserve_for_batch(budget, bytes) {
            self.reset_context(gpu);
            self.exec.drop_pool();
            self.exec.kv.reserve_for_batch(budget, bytes);
        }
    }

    /// Empties the context, and disables the disk tier for the next ones.
    pub(in crate::engine) fn disable_disk_tier(&mut self, gpu: &Gpu) {
        self.pacer.reset();
        self.reset_context(gpu);
        self.storage.disable_disk_tier();
    }

    /// Makes room for `n_tokens` in total, in VRAM and the offload tiers.
    pub(in crate::engine) fn reserve(&mut self, gpu: &Gpu, n_tokens: usize) -> Result<(), EngineError> {
        if let Some(selector) = &self.exec.selector {
            let pages_in = selector.selects_by_kernels() && !self.exec.synchronous && gpu.reads_host_memory().is_ok();
            self.storage.check_first_layers(&self.exec.kv, &selector.spec(), n_tokens, pages_in)?;
        }
        self.storage.make_room(gpu, &mut self.exec.kv, &self.tokens, n_tokens)?;
        self.exec.reserve(gpu, n_tokens)
    }

    /// Opens the stores of documents, so that saved KV is not computed again. Empties the context unless the same documents
    /// are open already.
    pub(in crate::engine) fn open_documents(&mut self, gpu: &Gpu, begins: &DocumentTokens) -> Result<(), EngineError> {
        if let Some(n_present) = self.storage.open_documents(gpu, &mut self.exec.kv, begins)? {
            self.tokens = begins.tokens.get(..n_present).unwrap_or_default().to_vec();
        }
        Ok(())
    }

    /// Closes the open documents if `target` does not begin with them: their stores must not get other tokens.
    pub(in crate::engine) fn close_foreign_document(&mut self, gpu: &Gpu, target: &[u32]) -> Result<(), EngineError> {
        if self.storage.document_tokens().is_some_and(|document| !target.starts_with(document)) {
            self.storage.close(gpu, &mut self.exec.kv);
            self.tokens.clear();
        }
        Ok(())
    }

    /// Usage since the model was loaded.
    pub(in crate::engine) fn usage(&self) -> UsageCounters {
        let kv = &self.exec.kv;
        kv.refresh_report();
        let report = kv.report();
        let (disk_to_ram, ram_to_disk) = (report.counts.disk_to_ram, report.counts.ram_to_disk);
        UsageCounters {
            moved: MovedBytes { disk_to_ram, ram_to_disk, ..kv.moved() },
            pages: kv.counts(),
            reading: report.counts.reading,
        }
    }

    /// Starts device timestamps if there are offload tiers, observers or a trace.
    pub(in crate::engine) fn watch_device(&mut self, gpu: &Gpu, port: &EnginePort) -> Result<(), GpuError> {
        let is_tracing = self.observer.is_tracing();
        self.pacer.set_by_part(is_tracing || port.is_observed(Detail::Parts) && self.steps.is_sampled());
        let is_wanted = is_tracing || port.is_observed(Detail::Events) || self.exec.kv.has_offload();
        if self.pacer.timestamps.is_none() && is_wanted {
            self.pacer.timestamps = Some(TimestampRing::new(gpu)?);
        }
        Ok(())
    }

    /// Emits the telemetry events of this step.
    pub(in crate::engine) fn drain_events(&mut self, gpu: &Gpu, port: &EnginePort) -> Result<(), EngineError> {
        self.pacer.collect(gpu);
        self.observer.look()?;
        if port.is_observed(Detail::Events) {
            port.emit(EngineEvent::Telemetry(Box::new(self.observer.take())));
        }
        Ok(self.watch_device(gpu, port)?)
    }

    /// Emits the notices of the cache and the storage, then the use of the tiers.
    pub(in crate::engine) fn emit_notices(&mut self, port: &EnginePort) {
        let kv = &mut self.exec.kv;
        for notice in kv.take_notices().into_iter().chain(self.storage.take_notices()) {
            port.emit(EngineEvent::Notice(notice));
        }
        self.emit_usage(port);
    }

    /// Flushes the pages of open documents to disk, and updates the library. Emits the list of documents if it changed.
    pub(in crate::engine) fn flush(&mut self, gpu: &Gpu, port: &EnginePort, prefill: Duration) -> Result<(), EngineError> {
        let has_changed = self.storage.flush_documents(gpu, &mut self.exec.kv, prefill.as_secs_f64())?;
        self.emit_notices(port);
        self.show_last_pages(port);
        if has_changed && let Some(saved) = self.storage.list() {
            port.emit(EngineEvent::Library(saved));
        }
        Ok(())
    }

    /// Recomputes the pages of `group`, one of which is damaged. Tokens after the last complete group must be prefilled again.
    pub(in crate::engine) fn recompute_group(&mut self, gpu: &Gpu, group: u32) -> Result<(), EngineError> {
        let began = Instant::now();
        self.pacer.reset();
        let first = group as usize * KV_PAGE_TOKENS;
        let sealed = self.exec.kv.n_sealed() as usize * KV_PAGE_TOKENS;
        let chunk = self.tokens.get(first..first + KV_PAGE_TOKENS).unwrap_or_default().to_vec();
        self.tokens.truncate(sealed);
        if chunk.is_empty() {
            return Ok(());
        }
        self.storage.forget_imported(group);
        self.exec.kv.invalidate_group(group);
        self.run_context(gpu, &chunk, first)?;
        self.pacer.finish(gpu)?;
        self.exec.kv.count_recomputed();
        self.steps.recomputed(chunk.len() * self.exec.model.dims.n_layer, began);
        Ok(())
    }

    /// Truncates the context to `len` tokens, rounded down to a whole group if they end in a complete group: a sealed page does
    /// not return to the tail. `tokens` then has the rest.
    pub(in crate::engine) fn truncate(&mut self, len: usize) {
        let len = self.keeps(len);
        self.tokens.truncate(len);
        self.storage.truncate_imported(len);
        self.exec.kv.truncate(len);
        if let Some(selector) = &mut self.exec.selector {
            selector.truncate(len);
        }
    }

    /// Number of tokens that remain after truncation to `len`.
    fn keeps(&self, len: usize) -> usize {
        let sealed = self.exec.kv.n_sealed() as usize * KV_PAGE_TOKENS;
        if len >= sealed { len.min(self.tokens.len()) } else { len / KV_PAGE_TOKENS * KV_PAGE_TOKENS }
    }

    /// Tokens of the next prefill chunk at `pos` when `left` remain: as many as keep a layer near the submit target.
    pub(in crate::engine) fn next_chunk(&self, pos: usize, left: usize) -> usize {
        self.exec.chunk_at(pos, left, self.wanted_chunk())
    }

    /// Same for tokens of a tail that has room for them.
    pub(in crate::engine) fn tail_chunk(&self, left: usize) -> usize {
        left.min(self.wanted_chunk()).min(self.exec.model.max_chunk)
    }

    fn wanted_chunk(&self) -> usize {
        let per_token = (self.exec.model.layer_flops_per_token() as f64 / self.exec.model.dims.n_layer as f64).max(1.0);
        let wanted = (self.pacer.flops_per_s() * SUBMIT_TARGET_MILLIS / 1e3 / per_token) as usize;
        (wanted / 8 * 8).max(MIN_CHUNK)
    }

    /// Runs one chunk and counts it as stored. Submits but does not wait.
    pub(in crate::engine) fn run_chunk(&mut self, gpu: &Gpu, chunk: &[u32]) -> Result<(), EngineError> {
        let pos = self.tokens.len();
        self.exec.kv.append_tokens(pos, chunk);
        self.run_context(gpu, chunk, pos)?;
        self.tokens.extend_from_slice(chunk);
        Ok(())
    }

    /// Runs `chunk` after `n_context` tokens of the context, with full attention.
    fn run_context(&mut self, gpu: &Gpu, chunk: &[u32], n_context: usize) -> Result<(), EngineError> {
        self.run_tokens(gpu, chunk, n_context, SequenceKv::Context)
    }

    /// Runs the next `tokens` of one sequence, with full attention.
    pub(in crate::engine) fn run_tokens(
        &mut self,
        gpu: &Gpu,
        tokens: &[u32],
        n_context: usize,
        mut kv: SequenceKv,
    ) -> Result<(), EngineError> {
        match tokens {
            &[token] => {
                let rows = &mut [Row { token: NextToken::Known(token), kv, policy: None }];
                self.exec.run_pass(gpu, &mut self.pacer, n_context, Pass::Rows(rows))
            }
            _ => self.exec.run_pass(gpu, &mut self.pacer, n_context, Pass::Chunk(tokens, &mut kv)),
        }
    }

    /// Kind of attention of a request with this usage.
    pub(in crate::engine) fn attention_of(&self, usage: &UsageCounters, policy: AttentionMode) -> AttentionKind {
        match (self.selects(policy), usage.pages.fetched) {
            (true, _) if self.exec.selector.as_ref().is_some_and(|selector| selector.reads_all()) => AttentionKind::ExactByCost,
            (true, _) => AttentionKind::Selective,
            (false, 0) => AttentionKind::Dense,
            (false, _) => AttentionKind::ExactOffload,
        }
    }

    fn selects(&self, policy: AttentionMode) -> bool {
        self.exec.selector.is_some() && policy != AttentionMode::Exact
    }
}

/// Precision of the matrix products.
fn precision(options: &LoadOptions) -> Precision {
    if options.exact { Precision::Exact } else { Precision::Fast }
}

/// Plan of the VRAM budget.
fn plan_vram(gpu: &Gpu, spec: &KvSpec, context: usize, budget: u64, with_abstracts: bool) -> Result<VramPlan, KvError> {
    VramPlan::new(spec, context, max_chunk(gpu.is_software()), Some(budget), with_abstracts)
        .map_err(|least| KvError::VramTooSmall { least: Bytes(least), budget: Bytes(budget) })
}

/// Sampling that the model recommends. Otherwise greedy for the built-in model, which quotes, and llama.cpp's
/// defaults for others.
fn recommended(r: &RecommendedSampling, built_in: bool) -> Sampling {
    let base = Sampling { temperature: if built_in { 0.0 } else { 0.8 }, ..Sampling::default() };
    Sampling {
        temperature: r.temperature.unwrap_or(base.temperature),
        top_k: r.top_k.unwrap_or(base.top_k),
        top_p: r.top_p.unwrap_or(base.top_p),
        min_p: r.min_p.unwrap_or(base.min_p),
        repetition_penalty: r.repetition_penalty.unwrap_or(base.repetition_penalty),
        seed: base.seed,
    }
}
