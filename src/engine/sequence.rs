//! Sequence: one prompt with its answer; prefills the tokens that are not cached, then decodes token by token.
//!
//! * A stop takes effect between chunks and between tokens. Prefilled tokens stay in the cache.
//! * The worker rebuilds a lost device, and the request continues from its tokens.
//! * Nothing is truncated: a prompt that is too long is an error with numbers.

use std::time::{Duration, Instant};

use crate::base::Tiers;
use crate::gpu::Gpu;
use crate::telemetry::{self, Phase, StepKind};
use crate::token::Detokenizer;

use crate::engine::api::{
    AttentionMode, EngineEvent, IoSummary, Phases, RequestId, RequestSummary, Sampling, SelectionSummary, StopReason,
};
use crate::engine::error::EngineError;
use crate::engine::handle::{CancelFlag, EnginePort};
use crate::engine::runner::pass::SequenceKv;
use crate::engine::runner::sampling::SampleResult;
use crate::engine::runner::{ModelRunner, UsageCounters};
use crate::engine::sampler::Sampler;
use crate::engine::scheduler::sequence_tail::SequenceTail;

/// Decode steps of an answer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DecodeSteps {
    pub(super) encode: Duration,
    /// dispatches of the last one
    pub(super) n_dispatches: usize,
    /// steps that were recorded before the last token was read back
    pub(super) n_lookahead: usize,
    /// true once the GPU could not sample a token
    pub(super) has_no_lookahead: bool,
}

/// A prompt and its answer so far; survives a lost device.
pub(super) struct Sequence {
    pub(super) id: RequestId,
    pub(super) prompt: Vec<u32>,
    pub(super) generated: Vec<u32>,
    pub(super) sampler: Sampler,
    pub(super) max_tokens: usize,
    pub(super) watch: CancelFlag,
    started: Instant,
    /// tokens with exact KV at the begin
    cached_tokens: Option<usize>,
    pub(super) prefill: Duration,
    first_token: Option<Duration>,
    pub(super) decode: Duration,
    pub(super) steps: DecodeSteps,
    pub(super) phases: Phases,
    text_done: usize,
    has_text: bool,
    pub(super) attention: AttentionMode,
    pub(super) before: Option<UsageCounters>,
    began_ns: u64,
    /// None while it runs
    pub(super) ended_ns: Option<u64>,
}

impl Sequence {
    pub(super) fn new(id: RequestId, prompt: Vec<u32>, sampling: Sampling, max_tokens: usize, watch: CancelFlag) -> Sequence {
        Sequence {
            id,
            prompt,
            generated: Vec::new(),
            sampler: Sampler::new(sampling),
            max_tokens,
            watch,
            started: Instant::now(),
            cached_tokens: None,
            prefill: Duration::ZERO,
            first_token: None,
            decode: Duration::ZERO,
            steps: DecodeSteps::default(),
            phases: Phases::default(),
            text_done: 0,
            has_text: false,
            attention: AttentionMode::default(),
            before: None,
            began_ns: telemetry::now(),
            ended_ns: None,
        }
    }

    /// Sets the duration of tokenization.
    pub(super) fn tokenized(mut self, took: Duration) -> Sequence {
        self.phases.tokenize_ms = millis(took);
        self
    }

    /// Sets the attention mode of the decode steps.
    pub(super) fn with_attention(mut self, attention: AttentionMode) -> Sequence {
        self.attention = attention;
        self
    }

    /// Checks that the prompt and at least one token of the answer fit the context.
    ///
    /// # Errors
    /// [`EngineError::Empty`], [`EngineError::TooLong`].
    pub(super) fn check(&self, runner: &ModelRunner) -> Result<(), EngineError> {
        let limit = runner.exec.kv.limit();
        if self.prompt.is_empty() {
            return Err(EngineError::Empty);
        }
        // An answer needs room for one token at least.
        if self.prompt.len() + usize::from(self.max_tokens > 0) > limit {
            let advice = match runner.info.context_len > limit {
                true => format!(", raise --context (this model reads up to {})", runner.info.context_len),
                false => String::new(),
            };
            return Err(EngineError::TooLong { tokens: self.prompt.len(), limit, advice });
        }
        Ok(())
    }

    /// Tokens to prefill before the next token of the answer.
    pub(super) fn target(&self) -> Vec<u32> {
        self.prompt.iter().chain(&self.generated).copied().collect()
    }

    /// Emits [`EngineEvent::RequestStarted`], once, with `cached` tokens that need no prefill.
    pub(super) fn emit_started(&mut self, runner: &ModelRunner, port: &EnginePort, cached: usize) {
        if self.cached_tokens.is_none() {
            self.cached_tokens = Some(cached - runner.storage.n_approximate_tokens(cached));
            port.emit(EngineEvent::RequestStarted { request: self.id, prompt_tokens: self.prompt.len(), cached_tokens: cached });
        }
    }

    /// Prefills `target` into the context from `cached` on. Returns the length of the last chunk; None if stopped.
    pub(super) fn prefill_context(
        &mut self,
        gpu: &Gpu,
        runner: &mut ModelRunner,
        port: &EnginePort,
        target: &[u32],
        cached: usize,
    ) -> Result<Option<usize>, EngineError> {
        let began = Instant::now();
        runner.truncate(cached);
        runner.reserve(gpu, target.len())?;
        runner.watch_device(gpu, port)?;
        runner.pacer.set_whole(false);
        runner.begin_steps();
        let (mut last_chunk, mut n_imported, mut importing) = (0, 0, Duration::ZERO);
        while runner.tokens.len() < target.len() {
            if self.watch.stopped() {
                runner.pacer.finish(gpu)?;
                self.prefill += began.elapsed();
                return Ok(None);
            }
            let (pos, import_began) = (runner.tokens.len(), Instant::now());
            let is_imported = runner.import_group(gpu, target)?;
            if is_imported {
                importing += import_began.elapsed();
                n_imported += runner.tokens.len() - pos;
                runner.steps.end_phase(Phase::Restore, import_began);
                runner.begin_steps();
            } else {
                last_chunk = runner.chunk_before_import(pos, target.len() - pos);
                runner.run_chunk(gpu, &target[pos..pos + last_chunk])?;
            }
            let done = runner.tokens.len();
            let tokens_per_s = (done - cached - n_imported) as f64 / (began.elapsed() - importing).as_secs_f64().max(1e-9);
            port.emit(EngineEvent::Prefill { request: self.id, done, total: target.len(), tokens_per_s });
            if !is_imported {
                runner.end_step(StepKind::Prefill, pos, last_chunk);
            }
            runner.drain_events(gpu, port)?;
            runner.emit_notices(port);
            runner.show_pages(port);
        }
        self.prefill += began.elapsed() - importing;
        self.phases.restore_ms += millis(importing);
        runner.steps.end_phase(Phase::Prefill, began);
        let documents = runner.storage.reused_documents(runner.tokens.len());
        if !documents.is_empty() {
            port.emit(EngineEvent::Approximate { request: self.id, documents });
        }
        Ok(Some(last_chunk))
    }

    /// Prefills `target` behind `n_shared` tokens into a tail of its own. Returns the length of the last chunk; None if stopped.
    pub(super) fn prefill_tail(
        &mut self,
        gpu: &Gpu,
        runner: &mut ModelRunner,
        port: &EnginePort,
        target: &[u32],
        n_shared: usize,
        tail: &mut SequenceTail,
    ) -> Result<Option<usize>, EngineError> {
        let began = Instant::now();
        runner.begin_steps();
        runner.pacer.set_whole(false);
        let rest = target.get(n_shared..).unwrap_or_default();
        let (mut done, mut last) = (0, 1);
        while done < rest.len() {
            if self.watch.stopped() {
                runner.pacer.finish(gpu)?;
                return Ok(None);
            }
            last = runner.tail_chunk(rest.len() - done);
            runner.run_tokens(gpu, &rest[done..done + last], n_shared, SequenceKv::Own(tail))?;
            done += last;
            let tokens_per_s = done as f64 / began.elapsed().as_secs_f64().max(1e-9);
            port.emit(EngineEvent::Prefill { request: self.id, done: n_shared + done, total: target.len(), tokens_per_s });
        }
        Ok(Some(last))
    }

    /// Lets the next step of the context measure page attention, if the attention mode is [`AttentionMode::Sampled`].
    pub(super) fn measure_step(&self, gpu: &Gpu, runner: &mut ModelRunner) {
        if self.attention == AttentionMode::Sampled {
            runner.measure_step(gpu, self.generated.len().saturating_sub(1));
        }
    }

    /// Detokenizer after the answer so far.
    pub(super) fn stream(&self, runner: &ModelRunner) -> Result<Detokenizer, EngineError> {
        let mut stream = Detokenizer::after(runner.text()?.tokenizer.clone(), &self.prompt)?;
        for &token in &self.generated {
            stream.push(token)?;
        }
        Ok(stream)
    }

    /// Records the time since `began`, in which a token was sampled.
    pub(super) fn record_sampled(&mut self, began: Instant) {
        if self.first_token.is_none() {
            self.prefill += began.elapsed();
            self.phases.first_token_ms = millis(began.elapsed());
            self.first_token = Some(self.started.elapsed());
        } else {
            self.decode += began.elapsed();
        }
    }

    /// Appends `token` to the answer and emits its text. Returns the stop reason if the answer ends with it.
    pub(super) fn take(
        &mut self,
        runner: &ModelRunner,
        port: &EnginePort,
        stream: &mut Detokenizer,
        token: u32,
    ) -> Result<Option<StopReason>, EngineError> {
        if runner.text()?.tokenizer.is_end(token) {
            self.flush_text(port, stream.finish());
            return Ok(Some(StopReason::Eos));
        }
        self.generated.push(token);
        let text = stream.push(token)?;
        self.flush_text(port, text);
        let full = self.context_used() + 1 > runner.exec.kv.limit();
        if self.generated.len() >= self.max_tokens || full || self.watch.stopped() {
            self.flush_text(port, stream.finish());
            return Ok(Some(if self.watch.stopped() { StopReason::Cancelled } else { StopReason::Length }));
        }
        Ok(None)
    }

    /// Number of tokens in the cache: all but the last of the answer, which was not yet an input.
    pub(super) fn context_used(&self) -> usize {
        self.prompt.len() + self.generated.len().saturating_sub(1)
    }

    /// Samples the next token from the candidates, or from all logits if the candidates do not suffice.
    pub(super) fn sample(
        &mut self,
        result: SampleResult,
        vocab_size: usize,
        all_logits: impl FnOnce() -> Result<Vec<f32>, EngineError>,
    ) -> Result<u32, EngineError> {
        let from_all = |sequence: &mut Sequence, logits: &[f32]| {
            let seen = sequence.target();
            sequence.sampler.sample_from_all(logits, &seen)
        };
        Ok(match result {
            SampleResult::Greedy(token) => token,
            SampleResult::All(logits) => from_all(self, &logits),
            SampleResult::Few(candidates) => match self.sampler.sample(&candidates, vocab_size) {
                Some(token) => token,
                None => from_all(self, &all_logits()?),
            },
        })
    }

    fn flush_text(&mut self, port: &EnginePort, mut text: String) {
        let n = self.generated.len();
        // Models begin an answer with the space that separates it from the prompt; it is not part of the answer.
        if !self.has_text {
            text = text.trim_start().to_owned();
            self.has_text = !text.is_empty();
        }
        if text.is_empty() && n == self.text_done {
            return;
        }
        self.text_done = n;
        let tokens_per_s = self.tokens_per_s();
        port.emit(EngineEvent::Token { request: self.id, text, n, tokens_per_s, context_used: self.context_used() });
    }

    /// Decode speed: the first token comes from prefill and does not count.
    fn tokens_per_s(&self) -> f64 {
        let n = self.generated.len().saturating_sub(1);
        if n == 0 { 0.0 } else { n as f64 / self.decode.as_secs_f64().max(1e-9) }
    }

    /// Summary of the answer so far.
    pub(super) fn summary(
        &self,
        gpu: &Gpu,
        runner: &ModelRunner,
        selection: Option<SelectionSummary>,
        context_used: usize,
        stop: StopReason,
    ) -> RequestSummary {
        let overlap = runner.observer.overlap(self.began_ns, self.ended_ns.unwrap_or_else(telemetry::now));
        let usage = runner.usage().since(&self.before.unwrap_or_default());
        let (report, kv) = (runner.exec.kv.report(), &runner.exec.kv);
        let staging = kv.staging_bytes();
        let approximate_tokens = runner.storage.n_approximate_tokens(runner.tokens.len());
        let phases = Phases {
            prefill_ms: millis(self.prefill) - self.phases.first_token_ms,
            decode_ms: millis(self.decode),
            began_ns: self.began_ns,
            ended_ns: self.ended_ns.unwrap_or_else(telemetry::now),
            ..self.phases
        };
        let decoded = self.generated.len().saturating_sub(1).max(1) as f64;
        RequestSummary {
            prompt_tokens: self.prompt.len(),
            cached_tokens: self.cached_tokens.unwrap_or(0) + approximate_tokens,
            approximate_tokens,
            prefill_ms: millis(self.prefill),
            first_token_ms: self.first_token.map_or(0.0, millis),
            generated_tokens: self.generated.len(),
            decode_ms: millis(self.decode),
            tokens_per_s: self.tokens_per_s(),
            attention: runner.attention_of(&usage, self.attention),
            kv_bytes: runner.tiers_used(),
            kv_peak_bytes: Tiers {
                vram: kv.peak_bytes(),
                ram: report.usage.ram.peak.0 + staging,
                disk: report.usage.disk.peak.0,
            },
            moved_bytes: usage.moved,
            pages: usage.pages,
            selection,
            overlap,
            io: IoSummary {
                backend: (usage.moved.disk_to_ram + usage.moved.ram_to_disk > 0).then(|| runner.storage.io_backend()),
                direct: report.is_direct,
                read_bytes: usage.moved.disk_to_ram,
                read_ms: millis(usage.reading),
            },
            vram_bytes: gpu.allocated_bytes(),
            context_used,
            dispatches_per_token: self.steps.n_dispatches,
            encode_ms_per_token: millis(self.steps.encode) / decoded,
            lookahead_steps: self.steps.n_lookahead,
            phases,
            stop,
        }
    }
}

pub(super) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
