//! Teacher forcing: logits of given tokens, by decode steps, to compare a policy with exact attention.
//!
//! ```text
//! tokens ─► prefill of the first n_prefix ─► one decode step per later token ─► LogitsRows [1, V] per step
//! ```
//! 1. Two runs on one device differ only in the tokens that decode steps read.
//! 2. So the prefix is prefilled in the largest chunks, not by measured speed as in answers: results are bit-identical.
//! 3. Stop takes effect between chunks and between steps.
//! 4. After a lost page, all steps are repeated, so that the policy has the state of all of them. Each row is emitted once.

use std::time::{Duration, Instant};

use crate::base::limits::MAX_PREFILL_CHUNK;
use crate::gpu::Gpu;

use crate::engine::api::{EngineEvent, RequestId, RequestSummary, StopReason};
use crate::engine::error::EngineError;
use crate::engine::handle::{CancelFlag, EnginePort};
use crate::engine::measure::benchmark::measured;
use crate::engine::runner::{ModelRunner, UsageCounters};
use crate::engine::selection::sequence_policy::{MassSteps, SequencePolicy};
use crate::engine::worker::Worker;

/// Progress of a scoring request; survives a lost page and a lost device.
struct Score {
    request: RequestId,
    tokens: Vec<u32>,
    n_prefix: usize,
    watch: CancelFlag,
    before: Option<UsageCounters>,
    prefill: Duration,
    decode: Duration,
    /// rows emitted so far
    n_told: usize,
}

impl Worker {
    /// Emits the logits of positions `n_prefix ..` of `tokens`, each by a decode step.
    pub(in crate::engine) fn score(
        &mut self,
        request: RequestId,
        tokens: Vec<u32>,
        n_prefix: usize,
    ) -> Result<RequestSummary, EngineError> {
        let (watch, prefill, decode) = (self.port.cancel_flag(), Duration::ZERO, Duration::ZERO);
        let mut score = Score { request, tokens, n_prefix, watch, before: None, prefill, decode, n_told: 0 };
        self.until_done(|gpu, runner, port| score.run(gpu, runner, port))
    }
}

impl Score {
    fn run(&mut self, gpu: &Gpu, runner: &mut ModelRunner, port: &EnginePort) -> Result<RequestSummary, EngineError> {
        if self.tokens.len() <= self.n_prefix {
            return Err(EngineError::Empty);
        }
        let limit = runner.exec.kv.limit();
        if self.tokens.len() > limit {
            return Err(EngineError::TooLong { tokens: self.tokens.len(), limit, advice: String::new() });
        }
        runner.close_foreign_document(gpu, &self.tokens)?;
        runner.truncate(if self.before.is_none() { 0 } else { self.n_prefix });
        let before = *self.before.get_or_insert_with(|| runner.usage());
        runner.reserve(gpu, self.tokens.len())?;
        runner.watch_device(gpu, port)?;
        let mut policy = runner.begin_answer(gpu, self.tokens.len() - self.n_prefix, self.n_prefix)?;
        policy.iter_mut().for_each(|policy| policy.mass_steps = MassSteps::All);
        let mut stop = StopReason::Length;
        while runner.tokens.len() < self.tokens.len() {
            if self.watch.stopped() {
                stop = StopReason::Cancelled;
                break;
            }
            match self.n_prefix.saturating_sub(runner.tokens.len()) {
                0 => self.step(gpu, runner, port, policy.as_mut())?,
                n_left => self.read(gpu, runner, port, n_left)?,
            }
            runner.drain_events(gpu, port)?;
        }
        runner.emit_notices(port);
        Ok(RequestSummary {
            generated_tokens: self.n_told,
            decode_ms: self.decode.as_secs_f64() * 1e3,
            tokens_per_s: self.n_told as f64 / self.decode.as_secs_f64().max(1e-9),
            selection: runner.selection_summary(gpu, policy.as_mut())?,
            ..measured(gpu, runner, &before, self.n_prefix, self.prefill, stop)
        })
    }

    /// Prefills the next chunk of the prefix, of which `n_left` tokens remain.
    fn read(&mut self, gpu: &Gpu, runner: &mut ModelRunner, port: &EnginePort, n_left: usize) -> Result<(), EngineError> {
        let (began, first) = (Instant::now(), runner.tokens.len());
        runner.pacer.set_whole(false);
        let n = runner.exec.chunk_at(first, n_left, MAX_PREFILL_CHUNK);
        runner.run_chunk(gpu, &self.tokens[first..first + n])?;
        runner.pacer.finish(gpu)?;
        self.prefill += began.elapsed();
        let tokens_per_s = (first + n) as f64 / self.prefill.as_secs_f64().max(1e-9);
        port.emit(EngineEvent::Prefill { request: self.request, done: first + n, total: self.n_prefix, tokens_per_s });
        Ok(())
    }

    /// Decodes the next token.
    fn step(
        &mut self,
        gpu: &Gpu,
        runner: &mut ModelRunner,
        port: &EnginePort,
        policy: Option<&mut SequencePolicy>,
    ) -> Result<(), EngineError> {
        let (began, first) = (Instant::now(), runner.tokens.len());
        runner.pacer.set_whole(true);
        runner.decode(gpu, self.tokens[first], policy)?;
        let (rows, vocab_size) = (runner.last_logits(gpu)?, runner.exec.model.dims.vocab_size);
        self.decode += began.elapsed();
        if first == self.n_prefix + self.n_told {
            self.n_told += 1;
            port.emit(EngineEvent::LogitsRows { request: self.request, first, rows, vocab_size });
        }
        Ok(())
    }
}
