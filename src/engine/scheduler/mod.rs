//! Scheduler: answers the sequences of one request or of a batch, step by step.
//!
//! ```text
//! prompts ─► common prefix, whole pages of 64 ─► prefilled or restored once ─► sequence by sequence: rest of its prompt
//!                                                                                        │
//!  events under each request's own id ◄── sample ◄── one row of each running sequence ◄── decode steps ◄─ join, leave
//! ```
//! 1. A single answer is a batch of one: all of its tokens go to the context, which keeps them for the next turn of the chat.
//! 2. The sequences of a larger batch share the pages of their common prefix and append to tails of their own, so none changes a
//!    page that another reads. 3. A sequence leaves when it ends; a waiting one joins between two steps if its tail fits.
//! 4. A stop takes effect between chunks and between steps, for one sequence or for all. 5. A step is recorded while the one before
//!    it still runs ([`step`]). 6. After a lost device or a corrupt page the worker repairs the context, and the sequences continue
//!    from their tokens.
//!
//! Owner: the engine thread. Limits: the tail of a batched sequence lies in VRAM as a whole.

mod generate_batch;
mod recorded_step;
pub(in crate::engine) mod sequence_tail;
mod step;

use std::collections::VecDeque;
use std::time::Instant;

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::api::{AttentionMode, EngineEvent, StopReason};
use crate::engine::context::document_parts::DocumentTokens;
use crate::engine::error::EngineError;
use crate::engine::handle::EnginePort;
use crate::engine::runner::{ModelRunner, UsageCounters};
use crate::engine::selection::sequence_policy::{MassSteps, SequencePolicy};
use crate::engine::sequence::{Sequence, millis};
use crate::gpu::Gpu;
use crate::kv::KvSpec;
use crate::telemetry::{self, Phase, StepKind};
use crate::token::Detokenizer;
use recorded_step::RecordedStep;
use sequence_tail::{SequenceTail, tail_bytes};

/// Sequences that are answered together, and their progress; survives a lost device.
pub(in crate::engine) struct Scheduler {
    sequences: Vec<Scheduled>,
    /// sequences that join when another has left
    waiting: VecDeque<Sequence>,
    /// documents that the prompts begin with
    documents: Option<DocumentTokens>,
    before: Option<UsageCounters>,
    /// the next step, recorded before the tokens of the last one were read back
    lookahead: Option<RecordedStep>,
}

struct Scheduled {
    sequence: Sequence,
    is_done: bool,
    /// while it is on the device
    active: Option<Active>,
}

struct Active {
    /// None if its tokens go to the context
    tail: Option<SequenceTail>,
    stream: Detokenizer,
    policy: Option<SequencePolicy>,
    phase_began: Instant,
}

/// Location of the tokens of the sequences of this run.
#[derive(Clone, Copy)]
enum Placement {
    /// one sequence, in the context
    Context,
    /// each in a tail of its own after `n_shared` tokens; there is room for `n_rows` tails of `n_bytes` in all
    Tails { n_shared: usize, n_rows: usize, n_bytes: u64 },
}

impl Scheduler {
    /// A scheduler of sequences whose prompts begin with the same documents. `n_at_once` of them run together, and the others
    /// join as these leave.
    pub(in crate::engine) fn new(mut sequences: Vec<Sequence>, documents: Option<DocumentTokens>, n_at_once: usize) -> Scheduler {
        let waiting = sequences.split_off(n_at_once.clamp(1, sequences.len().max(1)).min(sequences.len())).into();
        Scheduler {
            sequences: sequences.into_iter().map(Scheduled::new).collect(),
            waiting,
            documents,
            before: None,
            lookahead: None,
        }
    }

    /// Number of the first `sequences` that fit into `room` bytes of VRAM, with the bytes of their tails.
    pub(in crate::engine) fn fitting<'a>(
        spec: &KvSpec,
        sequences: impl IntoIterator<Item = &'a Sequence, IntoIter: Clone>,
        limit: usize,
        room: u64,
    ) -> (usize, u64) {
        let sequences = sequences.into_iter();
        let n_shared = shared(sequences.clone()).len();
        let mut taken = 0;
        let sums = sequences.map(|sequence| {
            taken += tail_bytes(spec, own_tokens(sequence, n_shared, limit));
            taken
        });
        let fits: Vec<u64> = sums.take_while(|sum| *sum <= room).collect();
        (fits.len(), fits.last().copied().unwrap_or(0))
    }

    /// Sequences without a complete answer.
    pub(in crate::engine) fn unanswered(self) -> impl Iterator<Item = Sequence> {
        let running = self.sequences.into_iter().filter(|scheduled| !scheduled.is_done).map(|scheduled| scheduled.sequence);
        running.chain(self.waiting)
    }

    /// Answers all sequences, or those left after a lost device. Sequences without room in VRAM keep waiting.
    ///
    /// # Errors
    /// Out of VRAM, a page that must be computed again, a lost device: the unanswered sequences can be tried again.
    pub(in crate::engine) fn run(&mut self, gpu: &Gpu, runner: &mut ModelRunner, port: &EnginePort) -> Result<(), EngineError> {
        for scheduled in self.unfinished() {
            scheduled.sequence.check(runner)?;
        }
        match self.unfinished().count() {
            0 => Ok(()),
            1 if self.waiting.is_empty() => self.answer_alone(gpu, runner, port),
            _ => {
                let result = self.answer_batch(gpu, runner, port);
                self.sequences.iter_mut().for_each(|scheduled| scheduled.active = None);
                runner.exec.kv.count_tails(0);
                let released = runner.reserve_logits(gpu, 1).and_then(|()| runner.exec.release_rows(gpu));
                runner.emit_notices(port);
                result.and(released)
            }
        }
    }

    fn answer_alone(&mut self, gpu: &Gpu, runner: &mut ModelRunner, port: &EnginePort) -> Result<(), EngineError> {
        self.open_context(gpu, runner)?;
        let before = self.usage_before(runner);
        for scheduled in self.unfinished() {
            scheduled.sequence.before.get_or_insert(before);
            scheduled.prefill(gpu, runner, port, Placement::Context)?;
        }
        self.decode(gpu, runner, port, Placement::Context)
    }

    fn answer_batch(&mut self, gpu: &Gpu, runner: &mut ModelRunner, port: &EnginePort) -> Result<(), EngineError> {
        let (spec, limit) = (*runner.exec.kv.spec(), runner.exec.kv.limit());
        let shared = shared(self.all_unanswered());
        let n_shared = shared.len();
        let tails = self.unfinished().map(|scheduled| tail_bytes(&spec, own_tokens(&scheduled.sequence, n_shared, limit)));
        let n_bytes = tails.sum();
        runner.reserve_for_batch(gpu, n_bytes);
        runner.exec.kv.count_tails(n_bytes);
        self.prefill_shared(gpu, runner, port, &shared)?;
        let n_rows = self.unfinished().count().max(1);
        let n_own = self.all_unanswered().map(|sequence| own_tokens(sequence, n_shared, limit)).max().unwrap_or(0);
        runner.exec.reserve_rows(gpu, n_rows, n_shared, n_own)?;
        runner.reserve_logits(gpu, n_rows)?;
        if let Some(selector) = &mut runner.exec.selector {
            selector.begin_batch(&runner.exec.model.dims);
        }
        let placement = Placement::Tails { n_shared, n_rows, n_bytes };
        for scheduled in self.unfinished() {
            scheduled.prefill(gpu, runner, port, placement)?;
        }
        self.decode(gpu, runner, port, placement)
    }

    /// Decode steps, until every sequence has ended.
    fn decode(
        &mut self,
        gpu: &Gpu,
        runner: &mut ModelRunner,
        port: &EnginePort,
        placement: Placement,
    ) -> Result<(), EngineError> {
        self.lookahead = None;
        while self.admit(gpu, runner, port, placement)? {
            self.step(gpu, runner, port, placement)?;
        }
        Ok(())
    }

    /// Lets waiting sequences join whose tails fit beside the others. False if no sequence is running.
    fn admit(
        &mut self,
        gpu: &Gpu,
        runner: &mut ModelRunner,
        port: &EnginePort,
        placement: Placement,
    ) -> Result<bool, EngineError> {
        let Placement::Tails { n_shared, n_rows, n_bytes } = placement else { return Ok(self.unfinished().next().is_some()) };
        let (spec, limit) = (*runner.exec.kv.spec(), runner.exec.kv.limit());
        loop {
            let bytes_of = |sequence: &Sequence| tail_bytes(&spec, own_tokens(sequence, n_shared, limit));
            let taken: u64 = self.unfinished().map(|scheduled| bytes_of(&scheduled.sequence)).sum();
            let n_running = self.unfinished().count();
            let fits = |sequence: &Sequence| n_running < n_rows && taken + bytes_of(sequence) <= n_bytes;
            if !self.waiting.front().is_some_and(fits) {
                return Ok(n_running > 0);
            }
            let Some(sequence) = self.waiting.pop_front() else { return Ok(n_running > 0) };
            let before = runner.usage();
            let mut joining = Scheduled::new(sequence);
            joining.sequence.before = Some(before);
            joining.sequence.emit_started(runner, port, n_shared);
            let joined = joining.prefill(gpu, runner, port, placement);
            self.sequences.retain(|scheduled| !scheduled.is_done);
            self.sequences.push(joining);
            joined?;
        }
    }

    fn unfinished(&mut self) -> impl Iterator<Item = &mut Scheduled> {
        self.sequences.iter_mut().filter(|scheduled| !scheduled.is_done)
    }

    fn all_unanswered(&self) -> impl Iterator<Item = &Sequence> + Clone {
        let running = self.sequences.iter().filter(|scheduled| !scheduled.is_done).map(|scheduled| &scheduled.sequence);
        running.chain(&self.waiting)
    }

    /// Opens the saved documents that the prompts begin with, and closes others.
    fn open_context(&mut self, gpu: &Gpu, runner: &mut ModelRunner) -> Result<(), EngineError> {
        if let Some(documents) = &self.documents {
            let began = Instant::now();
            runner.open_documents(gpu, documents)?;
            let took = began.elapsed();
            runner.steps.end_phase(Phase::Restore, began);
            self.unfinished().for_each(|scheduled| scheduled.sequence.phases.restore_ms += millis(took));
        }
        match self.unfinished().next() {
            Some(first) => runner.close_foreign_document(gpu, &first.sequence.target()),
            None => Ok(()),
        }
    }

    fn usage_before(&mut self, runner: &mut ModelRunner) -> UsageCounters {
        *self.before.get_or_insert_with(|| {
            runner.observer.begin();
            runner.usage()
        })
    }

    /// Prefills the common prefix into the context. If its sequence is stopped meanwhile, another one continues.
    fn prefill_shared(
        &mut self,
        gpu: &Gpu,
        runner: &mut ModelRunner,
        port: &EnginePort,
        shared: &[u32],
    ) -> Result<(), EngineError> {
        self.open_context(gpu, runner)?;
        let before = self.usage_before(runner);
        for scheduled in self.unfinished() {
            let cached = runner.cached_prefix(shared, false);
            scheduled.sequence.before = Some(before);
            scheduled.sequence.emit_started(runner, port, cached);
            if scheduled.sequence.prefill_context(gpu, runner, port, shared, cached)?.is_none() {
                scheduled.end(gpu, runner, port, false, StopReason::Cancelled)?;
            }
        }
        runner.pacer.finish(gpu)?;
        let prefill = self.sequences.iter().map(|scheduled| scheduled.sequence.prefill).max().unwrap_or_default();
        runner.flush(gpu, port, prefill)
    }
}

impl Scheduled {
    fn new(sequence: Sequence) -> Scheduled {
        Scheduled { sequence, is_done: false, active: None }
    }

    /// Prefills the rest of the prompt and the answer so far, and samples the next token.
    fn prefill(
        &mut self,
        gpu: &Gpu,
        runner: &mut ModelRunner,
        port: &EnginePort,
        placement: Placement,
    ) -> Result<(), EngineError> {
        let (target, mut began) = (self.sequence.target(), Instant::now());
        let (mut tail, last_chunk) = match placement {
            Placement::Context => {
                let cached = runner.cached_prefix(&target, self.sequence.max_tokens > 0);
                self.sequence.emit_started(runner, port, cached);
                (None, self.sequence.prefill_context(gpu, runner, port, &target, cached)?)
            }
            Placement::Tails { n_shared, .. } => {
                let room = own_tokens(&self.sequence, n_shared, runner.exec.kv.limit());
                let mut tail = SequenceTail::new(gpu, &runner.exec, room)?;
                let last_chunk = self.sequence.prefill_tail(gpu, runner, port, &target, n_shared, &mut tail)?;
                (Some(tail), last_chunk)
            }
        };
        let is_alone = tail.is_none();
        let Some(last_chunk) = last_chunk else { return self.end(gpu, runner, port, is_alone, StopReason::Cancelled) };
        if is_alone {
            if self.sequence.max_tokens == 0 {
                runner.pacer.finish(gpu)?;
                return self.end(gpu, runner, port, is_alone, StopReason::Length);
            }
            began = Instant::now();
            runner.exec.attention_meter.begin(runner.page_view.n_head());
        }
        // The shared pages of a batch do not grow: if there are none, there is nothing to select.
        let has_pages = !matches!(placement, Placement::Tails { n_shared: 0, .. });
        let is_selective = self.sequence.attention != AttentionMode::Exact && has_pages;
        let n_context = match placement {
            Placement::Context => runner.tokens.len(),
            Placement::Tails { n_shared, .. } => n_shared,
        };
        let mut policy = runner.begin_answer(gpu, self.sequence.max_tokens, n_context)?.filter(|_| is_selective);
        if let Some(policy) = policy.as_mut().filter(|_| self.sequence.attention == AttentionMode::Sampled) {
            policy.mass_steps = MassSteps::Few;
        }
        if let (Some(tail), Some(_), Some(selector)) = (&mut tail, &policy, &runner.exec.selector) {
            tail.bind_scores(gpu, &runner.exec, selector.tail_kernel())?;
        }
        self.active = Some(Active { tail, stream: self.sequence.stream(runner)?, policy, phase_began: began });
        let sampled = runner.sample(gpu, last_chunk - 1, &[&self.sequence.sampler])?;
        match placement {
            Placement::Context => runner.end_step(StepKind::Decode, target.len().saturating_sub(1), 1),
            Placement::Tails { n_shared, .. } => {
                runner.end_step(StepKind::Prefill, n_shared, target.len() - n_shared);
                runner.drain_events(gpu, port)?;
            }
        }
        let vocab_size = runner.exec.model.dims.vocab_size;
        for row in sampled {
            let token = self.sequence.sample(row.result, vocab_size, || runner.logits_of(gpu, 0))?;
            self.sequence.record_sampled(began);
            if let Some(active) = self.active.as_mut().filter(|_| is_alone) {
                runner.steps.end_phase(Phase::FirstToken, active.phase_began);
                active.phase_began = Instant::now();
            }
            self.take(gpu, runner, port, token)?;
        }
        Ok(())
    }

    /// Adds the next token to the answer.
    fn take(&mut self, gpu: &Gpu, runner: &mut ModelRunner, port: &EnginePort, token: u32) -> Result<(), EngineError> {
        let Some(active) = &mut self.active else { return Ok(()) };
        let is_alone = active.tail.is_none();
        match self.sequence.take(runner, port, &mut active.stream, token)? {
            Some(stop) => self.end(gpu, runner, port, is_alone, stop),
            None => Ok(()),
        }
    }

    /// Completes the answer: frees its buffers on the device, and saves the context if it `is_alone`.
    fn end(
        &mut self,
        gpu: &Gpu,
        runner: &mut ModelRunner,
        port: &EnginePort,
        is_alone: bool,
        stop: StopReason,
    ) -> Result<(), EngineError> {
        let mut active = self.active.take();
        let tail = active.as_ref().and_then(|active| active.tail.as_ref());
        self.sequence.ended_ns = Some(telemetry::now());
        let context_used = match (is_alone, stop) {
            (true, _) => {
                if let Some(active) = &active {
                    runner.steps.end_phase(Phase::Decode, active.phase_began);
                }
                runner.pacer.finish(gpu)?;
                runner.drain_events(gpu, port)?;
                runner.flush(gpu, port, self.sequence.prefill)?;
                runner.emit_page_attention(port, self.sequence.id);
                runner.tokens.len()
            }
            // A lookahead step may have added a token.
            (false, StopReason::Cancelled) => {
                let n_tokens = runner.tokens.len() + tail.map_or(0, |tail| tail.n_tokens);
                n_tokens.min(self.sequence.context_used())
            }
            (false, _) => self.sequence.context_used(),
        };
        let selection = runner.selection_summary(gpu, active.as_mut().and_then(|active| active.policy.as_mut()))?;
        let summary = self.sequence.summary(gpu, runner, selection, context_used, stop);
        self.is_done = true;
        port.emit(EngineEvent::Finished { request: self.sequence.id, summary: Box::new(summary) });
        Ok(())
    }
}

/// Common prefix of all sequences, in whole pages, which leaves at least one token of each.
fn shared<'a>(sequences: impl IntoIterator<Item = &'a Sequence>) -> Vec<u32> {
    let mut targets = sequences.into_iter().map(Sequence::target);
    let Some(first) = targets.next() else { return Vec::new() };
    let common =
        |target: Vec<u32>| first.iter().zip(&target[..target.len().saturating_sub(1)]).take_while(|(a, b)| a == b).count();
    let n = targets.map(common).fold(first.len().saturating_sub(1), usize::min);
    first[..n / KV_PAGE_TOKENS * KV_PAGE_TOKENS].to_vec()
}

/// Tokens that a sequence may have in a tail of its own.
fn own_tokens(sequence: &Sequence, n_shared: usize, limit: usize) -> usize {
    (sequence.prompt.len() + sequence.max_tokens.max(1)).min(limit) - n_shared
}

#[cfg(test)]
mod tests;
