//! One answer: prefill what is not in the cache, then decode token by token.
//!
//! * Stop is obeyed between chunks and between tokens, and what was read stays read.
//! * A lost device is rebuilt by the worker and the turn goes on from its tokens.
//! * Nothing is truncated: too long is an error with numbers.

use std::time::{Duration, Instant};

use crate::base::Tiers;
use crate::gpu::Gpu;
use crate::telemetry::{self, Phase, StepKind};
use crate::token::Detokenizer;

use super::command::{EngineEvent, Sampling, TurnId};
use super::error::EngineError;
use super::handle::{EnginePort, StopWatch};
use super::loaded::{Loaded, Picked, Spent};
use super::sampler::Sampler;
use super::saved::DocumentRef;
use super::selective::MassSteps;
use super::summary::{ChosenSummary, IoSummary, Phases, StopReason, TurnSummary};

/// What the decode steps of one turn read of the context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TurnPolicy {
    /// what the policy that the model was loaded with chooses; everything where there is none
    #[default]
    AsLoaded,
    /// the same; a few steps, which read everything, measure the attention that it kept
    Sampled,
    /// everything
    Exact,
}

/// How far a turn has come; survives a lost device.
pub(super) struct Turn {
    pub(super) id: TurnId,
    pub(super) prompt: Vec<u32>,
    pub(super) generated: Vec<u32>,
    pub(super) sampler: Sampler,
    pub(super) max_tokens: usize,
    pub(super) watch: StopWatch,
    started: Instant,
    pub(super) cached_tokens: Option<usize>,
    pub(super) prefill: Duration,
    first_token: Option<Duration>,
    pub(super) decode: Duration,
    pub(super) encode: Duration,
    pub(super) dispatches: usize,
    phases: Phases,
    text_done: usize,
    has_text: bool,
    /// document that the prompt begins with, and its tokens
    document: Option<(DocumentRef, Vec<u32>)>,
    policy: TurnPolicy,
    pub(super) before: Option<Spent>,
    began_ns: u64,
    /// none while it goes on
    pub(super) ended_ns: Option<u64>,
}

impl Turn {
    pub(super) fn new(id: TurnId, prompt: Vec<u32>, sampling: Sampling, max_tokens: usize, watch: StopWatch) -> Turn {
        Turn {
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
            encode: Duration::ZERO,
            dispatches: 0,
            phases: Phases::default(),
            text_done: 0,
            has_text: false,
            document: None,
            policy: TurnPolicy::default(),
            before: None,
            began_ns: telemetry::now(),
            ended_ns: None,
        }
    }

    /// The prompt begins with `tokens` of a document, whose KV may be there already or is to be kept.
    pub(super) fn on_document(mut self, document: DocumentRef, tokens: Vec<u32>) -> Turn {
        self.document = Some((document, tokens));
        self
    }

    /// Its prompt took so long to be made of text.
    pub(super) fn tokenized(mut self, took: Duration) -> Turn {
        self.phases.tokenize_ms = millis(took);
        self
    }

    /// Its decode steps read what `policy` says.
    pub(super) fn reading(mut self, policy: TurnPolicy) -> Turn {
        self.policy = policy;
        self
    }

    /// Runs the turn, or what is left of it after a lost device.
    pub(super) fn run(&mut self, gpu: &Gpu, loaded: &mut Loaded, port: &EnginePort) -> Result<TurnSummary, EngineError> {
        self.check(loaded)?;
        let target = self.target();
        if let Some((document, tokens)) = &self.document {
            let began = Instant::now();
            loaded.open_document(gpu, document, tokens)?;
            self.phases.restore_ms += millis(began.elapsed());
            loaded.steps.end_phase(Phase::Restore, began);
        }
        loaded.leave_document(gpu, &target)?;
        if self.before.is_none() {
            loaded.observer.begin();
            self.before = Some(loaded.spent());
        }
        let cached = loaded.cached_prefix(&target, self.max_tokens > 0);
        self.tell_started(port, cached);
        let last_chunk = match self.read(gpu, loaded, port, &target, cached)? {
            Some(n) => n,
            None => return self.finish(gpu, loaded, port, StopReason::Cancelled),
        };
        if self.max_tokens == 0 {
            loaded.pace.finish(gpu)?;
            return self.finish(gpu, loaded, port, StopReason::Length);
        }
        self.answer(gpu, loaded, port, last_chunk)
    }

    /// The prompt can be answered at all.
    pub(super) fn check(&self, loaded: &Loaded) -> Result<(), EngineError> {
        let limit = loaded.model.kv.limit();
        if self.prompt.is_empty() {
            return Err(EngineError::Empty);
        }
        // One token of room, or there is nothing to answer with.
        if self.prompt.len() + usize::from(self.max_tokens > 0) > limit {
            let advice = match loaded.info.context_len > limit {
                true => format!(", raise --context (this model reads up to {})", loaded.info.context_len),
                false => String::new(),
            };
            return Err(EngineError::TooLong { tokens: self.prompt.len(), limit, advice });
        }
        Ok(())
    }

    /// What has to be read before the next token of the answer.
    pub(super) fn target(&self) -> Vec<u32> {
        self.prompt.iter().chain(&self.generated).copied().collect()
    }

    /// Says once that the turn began, with `cached` tokens that need no prefill.
    pub(super) fn tell_started(&mut self, port: &EnginePort, cached: usize) {
        if self.cached_tokens.is_none() {
            self.cached_tokens = Some(cached);
            port.emit(EngineEvent::TurnStarted { turn: self.id, prompt_tokens: self.prompt.len(), cached_tokens: cached });
        }
    }

    /// Prefills `target` from `cached` on. The length of the last chunk, or None when stopped.
    pub(super) fn read(
        &mut self,
        gpu: &Gpu,
        loaded: &mut Loaded,
        port: &EnginePort,
        target: &[u32],
        cached: usize,
    ) -> Result<Option<usize>, EngineError> {
        let began = Instant::now();
        loaded.truncate(cached);
        loaded.reserve(gpu, target.len())?;
        loaded.model.selective.iter_mut().for_each(|selective| selective.begin_prompt(target.len()));
        loaded.watch_device(gpu, port)?;
        loaded.pace.set_whole(false);
        loaded.begin_steps();
        let mut last_chunk = 0;
        while loaded.tokens.len() < target.len() {
            if self.watch.stopped() {
                loaded.pace.finish(gpu)?;
                self.prefill += began.elapsed();
                return Ok(None);
            }
            let pos = loaded.tokens.len();
            last_chunk = loaded.next_chunk(pos, target.len() - pos);
            loaded.run_chunk(gpu, &target[pos..pos + last_chunk])?;
            let done = loaded.tokens.len();
            let tokens_per_s = (done - cached) as f64 / began.elapsed().as_secs_f64().max(1e-9);
            port.emit(EngineEvent::Prefill { turn: self.id, done, total: target.len(), tokens_per_s });
            loaded.end_step(StepKind::Prefill, pos, last_chunk);
            loaded.look(gpu, port)?;
            loaded.tell(port);
            loaded.show_pages(port);
        }
        self.prefill += began.elapsed();
        loaded.steps.end_phase(Phase::Prefill, began);
        Ok(Some(last_chunk))
    }

    fn answer(
        &mut self,
        gpu: &Gpu,
        loaded: &mut Loaded,
        port: &EnginePort,
        last_chunk: usize,
    ) -> Result<TurnSummary, EngineError> {
        let mut stream = self.stream(loaded)?;
        let mut row = last_chunk - 1;
        loaded.model.weigher.begin(loaded.page_view.n_head());
        if let Some(selective) = &mut loaded.model.selective {
            selective.begin_answer(self.max_tokens);
            if self.policy == TurnPolicy::Sampled {
                selective.measure_mass(MassSteps::Few);
            }
        }
        let (mut phase, mut phase_began) = (Phase::FirstToken, Instant::now());
        loop {
            let began = Instant::now();
            let token = self.next_token(gpu, loaded, row)?;
            self.note_picked(began);
            loaded.end_step(StepKind::Decode, (self.prompt.len() + self.generated.len()).saturating_sub(1), 1);
            if phase == Phase::FirstToken {
                loaded.steps.end_phase(phase, phase_began);
                (phase, phase_began) = (Phase::Decode, Instant::now());
            }
            if let Some(stop) = self.take(loaded, port, &mut stream, token)? {
                loaded.steps.end_phase(phase, phase_began);
                return self.finish(gpu, loaded, port, stop);
            }
            let began = Instant::now();
            let (encode, dispatches) = (loaded.pace.encode, loaded.pace.n_dispatches);
            loaded.reserve(gpu, loaded.tokens.len() + 1)?;
            loaded.pace.set_whole(true);
            if self.policy == TurnPolicy::Sampled {
                loaded.weigh_step(gpu, self.generated.len() - 1);
            }
            loaded.decode(gpu, token, self.policy)?;
            loaded.look(gpu, port)?;
            loaded.show_pages(port);
            row = 0;
            self.decode += began.elapsed();
            self.encode += loaded.pace.encode - encode;
            self.dispatches = loaded.pace.n_dispatches - dispatches;
        }
    }

    /// Text of the answer so far, to go on from.
    pub(super) fn stream(&self, loaded: &Loaded) -> Result<Detokenizer, EngineError> {
        let mut stream = Detokenizer::new(loaded.text()?.tokenizer.clone());
        for &token in &self.generated {
            stream.push(token)?;
        }
        Ok(stream)
    }

    /// A token was picked, which took since `began`.
    pub(super) fn note_picked(&mut self, began: Instant) {
        if self.first_token.is_none() {
            self.prefill += began.elapsed();
            self.phases.first_token_ms = millis(began.elapsed());
            self.first_token = Some(self.started.elapsed());
        } else {
            self.decode += began.elapsed();
        }
    }

    /// The next token of the answer is `token`: says so, and why the answer ends with it if it does.
    pub(super) fn take(
        &mut self,
        loaded: &Loaded,
        port: &EnginePort,
        stream: &mut Detokenizer,
        token: u32,
    ) -> Result<Option<StopReason>, EngineError> {
        if loaded.text()?.tokenizer.is_end(token) {
            self.flush_text(port, stream.finish());
            return Ok(Some(StopReason::Eos));
        }
        self.generated.push(token);
        let text = stream.push(token)?;
        self.flush_text(port, text);
        let full = self.context_used() + 1 > loaded.model.kv.limit();
        if self.generated.len() >= self.max_tokens || full || self.watch.stopped() {
            self.flush_text(port, stream.finish());
            return Ok(Some(if self.watch.stopped() { StopReason::Cancelled } else { StopReason::Length }));
        }
        Ok(None)
    }

    /// Tokens that have been read: all but the last of the answer, of which nothing was needed yet.
    pub(super) fn context_used(&self) -> usize {
        self.prompt.len() + self.generated.len().saturating_sub(1)
    }

    fn next_token(&mut self, gpu: &Gpu, loaded: &mut Loaded, row: usize) -> Result<u32, EngineError> {
        let (encode, dispatches) = (loaded.pace.encode, loaded.pace.n_dispatches);
        let picked = loaded.pick(gpu, row, &self.sampler)?;
        if self.first_token.is_some() {
            self.encode += loaded.pace.encode - encode;
            self.dispatches += loaded.pace.n_dispatches - dispatches;
        }
        self.choose(picked, loaded.model.dims.vocab_size, || loaded.all_logits(gpu))
    }

    /// The token that the sampler takes of what was picked, or of all logits where that is too little to know.
    pub(super) fn choose(
        &mut self,
        picked: Picked,
        vocab_size: usize,
        all_logits: impl FnOnce() -> Result<Vec<f32>, EngineError>,
    ) -> Result<u32, EngineError> {
        let from_all = |turn: &mut Turn, logits: &[f32]| {
            let seen = turn.target();
            turn.sampler.choose_from_all(logits, &seen)
        };
        Ok(match picked {
            Picked::Greedy(token) => token,
            Picked::All(logits) => from_all(self, &logits),
            Picked::Few(candidates) => match self.sampler.choose(&candidates, vocab_size) {
                Some(token) => token,
                None => from_all(self, &all_logits()?),
            },
        })
    }

    fn flush_text(&mut self, port: &EnginePort, mut text: String) {
        let n = self.generated.len();
        // Models begin an answer with the space that parts it from the prompt; it is not part of what they say.
        if !self.has_text {
            text = text.trim_start().to_owned();
            self.has_text = !text.is_empty();
        }
        if text.is_empty() && n == self.text_done {
            return;
        }
        self.text_done = n;
        let tokens_per_s = self.tokens_per_s();
        port.emit(EngineEvent::Token { turn: self.id, text, n, tokens_per_s, context_used: self.context_used() });
    }

    /// Decode speed: the first token comes from prefill and does not count.
    fn tokens_per_s(&self) -> f64 {
        let n = self.generated.len().saturating_sub(1);
        if n == 0 { 0.0 } else { n as f64 / self.decode.as_secs_f64().max(1e-9) }
    }

    fn finish(
        &mut self,
        gpu: &Gpu,
        loaded: &mut Loaded,
        port: &EnginePort,
        stop: StopReason,
    ) -> Result<TurnSummary, EngineError> {
        self.ended_ns = Some(telemetry::now());
        loaded.pace.finish(gpu)?;
        loaded.look(gpu, port)?;
        loaded.settle(gpu, port, self.prefill)?;
        loaded.tell_weighed(port, self.id);
        let chosen = loaded.model.selective.as_ref().and_then(|s| s.summary());
        Ok(self.summary(gpu, loaded, chosen, loaded.tokens.len(), stop))
    }

    /// What the answer cost so far.
    pub(super) fn summary(
        &self,
        gpu: &Gpu,
        loaded: &Loaded,
        chosen: Option<ChosenSummary>,
        context_used: usize,
        stop: StopReason,
    ) -> TurnSummary {
        let overlap = loaded.observer.overlap(self.began_ns, self.ended_ns.unwrap_or_else(telemetry::now));
        let spent = loaded.spent().since(&self.before.unwrap_or_default());
        let (report, kv) = (loaded.model.kv.report(), &loaded.model.kv);
        let staging = kv.staging_bytes();
        let phases = Phases {
            prefill_ms: millis(self.prefill) - self.phases.first_token_ms,
            decode_ms: millis(self.decode),
            began_ns: self.began_ns,
            ended_ns: self.ended_ns.unwrap_or_else(telemetry::now),
            ..self.phases
        };
        let decoded = self.generated.len().saturating_sub(1).max(1) as f64;
        TurnSummary {
            prompt_tokens: self.prompt.len(),
            cached_tokens: self.cached_tokens.unwrap_or(0),
            prefill_ms: millis(self.prefill),
            first_token_ms: self.first_token.map_or(0.0, millis),
            generated_tokens: self.generated.len(),
            decode_ms: millis(self.decode),
            tokens_per_s: self.tokens_per_s(),
            attention: loaded.attention_of(&spent, self.policy),
            kv_bytes: loaded.tiers_used(),
            kv_peak_bytes: Tiers {
                vram: kv.peak_bytes(),
                ram: report.usage.ram.peak.0 + staging,
                disk: report.usage.disk.peak.0,
            },
            moved_bytes: spent.moved,
            pages: spent.pages,
            chosen,
            overlap,
            io: IoSummary {
                backend: (spent.moved.disk_to_ram + spent.moved.ram_to_disk > 0).then(|| loaded.below.io_backend()),
                direct: report.is_direct,
                read_bytes: spent.moved.disk_to_ram,
                read_ms: millis(spent.reading),
            },
            vram_bytes: gpu.allocated_bytes(),
            context_used,
            dispatches_per_token: self.dispatches,
            encode_ms_per_token: millis(self.encode) / decoded,
            phases,
            stop,
        }
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
