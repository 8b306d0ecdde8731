//! Several questions on one document at once: each is a branch after what their prompts have in common.
//!
//! ```text
//! prompts ─► common prefix, whole pages of 64 ─► read or restored once (turn) ─► branch by branch: rest of the prompt
//!                                                                                        │
//!          events under each question's own id ◄── pick ◄── one row of each branch ◄── decode steps
//! ```
//! 1. The context holds the common prefix and nothing else: branches append to tails of their own, so that none of them changes
//!    a page that another reads. 2. Answers are those of asking one by one, but for the order of sums; where complete pages are
//!    rounded, a branch's own are not. 3. A stop is obeyed between chunks and between steps, for one question or for all. 4. A
//!    lost device or a damaged page is repaired by the worker, and the branches go on from their tokens.
//!
//! Owner: the engine thread. Limits: a branch's tail lies in VRAM as a whole.

mod batch_forward;
mod batch_sampler;
mod batch_selection;
mod generate_batch;
mod sequence_tail;

use std::time::Instant;

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::api::{DocumentRef, EngineEvent, StopReason};
use crate::engine::error::EngineError;
use crate::engine::handle::EnginePort;
use crate::engine::runner::{ModelRunner, UsageCounters};
use crate::engine::sequence::Sequence;
use crate::gpu::Gpu;
use crate::kv::KvSpec;
use crate::telemetry::{self, StepKind};
use crate::token::Detokenizer;
use batch_forward::Row;
use batch_sampler::BatchSampler;
use batch_selection::{BatchSelector, RowPolicy};
use sequence_tail::{SequenceTail, tail_bytes};

/// Questions that are answered at once, as far as they have come; survives a lost device.
pub(in crate::engine) struct Scheduler {
    branches: Vec<BatchSequence>,
    /// document that the prompts begin with, and its tokens
    document: Option<(DocumentRef, Vec<u32>)>,
    before: Option<UsageCounters>,
}

struct BatchSequence {
    turn: Sequence,
    is_done: bool,
    /// while it is on the device
    live: Option<ActiveSequence>,
}

struct ActiveSequence {
    tail: SequenceTail,
    stream: Detokenizer,
    policy: Option<RowPolicy>,
}

impl Scheduler {
    /// Questions with prompts that begin with the same document, whose KV may be there already or is to be kept.
    pub(in crate::engine) fn new(turns: Vec<Sequence>, document: Option<(DocumentRef, Vec<u32>)>) -> Scheduler {
        let branches = turns.into_iter().map(|turn| BatchSequence { turn, is_done: false, live: None }).collect();
        Scheduler { branches, document, before: None }
    }

    /// The first of `turns` that fit into `room` bytes of VRAM: how many, and what their tails take.
    pub(in crate::engine) fn fitting<'a>(
        spec: &KvSpec,
        turns: impl IntoIterator<Item = &'a Sequence, IntoIter: Clone>,
        limit: usize,
        room: u64,
    ) -> (usize, u64) {
        let turns = turns.into_iter();
        let n_shared = shared(turns.clone()).len();
        let mut taken = 0;
        let sums = turns.map(|turn| {
            taken += tail_bytes(spec, own_tokens(turn, n_shared, limit));
            taken
        });
        let fits: Vec<u64> = sums.take_while(|sum| *sum <= room).collect();
        (fits.len(), fits.last().copied().unwrap_or(0))
    }

    /// Questions without an answer.
    pub(in crate::engine) fn unanswered(self) -> impl Iterator<Item = Sequence> {
        self.branches.into_iter().filter(|branch| !branch.is_done).map(|branch| branch.turn)
    }

    /// Answers all questions, or what is left of them after a lost device.
    ///
    /// # Errors
    /// Out of VRAM, a page that must be computed again, a lost device: what is unanswered then can be tried again.
    pub(in crate::engine) fn run(&mut self, gpu: &Gpu, runner: &mut ModelRunner, port: &EnginePort) -> Result<(), EngineError> {
        let (spec, limit) = (*runner.model.kv.spec(), runner.model.kv.limit());
        let turns = self.branches.iter().filter(|branch| !branch.is_done).map(|branch| &branch.turn);
        let (_, tail_bytes) = Scheduler::fitting(&spec, turns, limit, u64::MAX);
        runner.reserve_for_batch(gpu, tail_bytes);
        runner.model.kv.count_tails(tail_bytes);
        let result = self.answer(gpu, runner, port);
        self.branches.iter_mut().for_each(|branch| branch.live = None);
        runner.model.kv.count_tails(0);
        runner.emit_notices(port);
        result
    }

    fn answer(&mut self, gpu: &Gpu, runner: &mut ModelRunner, port: &EnginePort) -> Result<(), EngineError> {
        let n_shared = self.read_shared(gpu, runner, port)?;
        let limit = runner.model.kv.limit();
        let room = |turn: &Sequence| own_tokens(turn, n_shared, limit);
        let n_rows = self.unfinished().count();
        if n_rows == 0 {
            return Ok(());
        }
        let n_own = self.unfinished().map(|branch| room(&branch.turn)).max().unwrap_or(0);
        runner.model.reserve_rows(gpu, n_rows, n_shared, n_own)?;
        // Without a complete page there is nothing to choose.
        let spec = runner.model.selective.as_ref().map(|s| s.spec()).filter(|_| n_shared > 0);
        for branch in self.unfinished() {
            let tail = SequenceTail::new(gpu, &runner.model, room(&branch.turn))?;
            let policy = spec.map(|spec| RowPolicy::new(spec, branch.turn.max_tokens, &runner.model.dims)).transpose()?;
            branch.live = Some(ActiveSequence { tail, stream: branch.turn.stream(runner)?, policy });
        }
        for branch in self.unfinished() {
            branch.read(gpu, runner, port, n_shared)?;
        }
        let picker = BatchSampler::new(gpu, &runner.model, n_rows)?;
        let mut chooser = spec.map(|spec| BatchSelector::new(gpu, &runner.model, spec, n_rows, n_own)).transpose()?;
        if let Some(chooser) = &mut chooser {
            let clock = runner.model.selective.as_ref().map_or(0, |selective| selective.last_step());
            chooser.record_retained(self.unfinished().filter_map(|branch| branch.live.as_ref()?.policy.as_ref()), clock);
            for live in self.unfinished().filter_map(|branch| branch.live.as_mut()) {
                live.tail.bind_scores(gpu, &runner.model, &chooser.own_scores)?;
            }
        }
        runner.pacer.set_whole(true);
        while self.unfinished().next().is_some() {
            self.step(gpu, runner, port, &picker, chooser.as_mut(), n_shared)?;
        }
        Ok(())
    }

    fn unfinished(&mut self) -> impl Iterator<Item = &mut BatchSequence> {
        self.branches.iter_mut().filter(|branch| !branch.is_done)
    }

    /// Reads what the prompts have in common. A question that is stopped meanwhile leaves it to the others.
    fn read_shared(&mut self, gpu: &Gpu, runner: &mut ModelRunner, port: &EnginePort) -> Result<usize, EngineError> {
        let shared = shared(self.unfinished().map(|branch| &branch.turn));
        if let Some((document, tokens)) = &self.document {
            runner.open_document(gpu, document, tokens)?;
        }
        if let Some(first) = self.unfinished().next() {
            runner.close_foreign_document(gpu, &first.turn.target())?;
        }
        let before = *self.before.get_or_insert_with(|| {
            runner.observer.begin();
            runner.spent()
        });
        for branch in self.unfinished() {
            let cached = runner.cached_prefix(&shared, false);
            branch.turn.before = Some(before);
            branch.turn.emit_started(port, cached);
            match branch.turn.read(gpu, runner, port, &shared, cached)? {
                Some(_) => {}
                None => branch.end(gpu, runner, port, StopReason::Cancelled)?,
            }
        }
        runner.pacer.finish(gpu)?;
        let read = self.branches.iter().map(|branch| branch.turn.prefill).max().unwrap_or_default();
        runner.flush(gpu, port, read)?;
        Ok(shared.len())
    }

    /// One more token of every answer.
    fn step(
        &mut self,
        gpu: &Gpu,
        runner: &mut ModelRunner,
        port: &EnginePort,
        picker: &BatchSampler,
        chooser: Option<&mut BatchSelector>,
        n_shared: usize,
    ) -> Result<(), EngineError> {
        let began = Instant::now();
        let (encode, dispatches) = (runner.pacer.encode, runner.pacer.n_dispatches);
        let mut rows: Vec<Row> = self.unfinished().filter_map(BatchSequence::row).collect();
        runner.model.decode_rows(gpu, &mut runner.pacer, n_shared, &mut rows, chooser)?;
        let samplers: Vec<_> = self.branches.iter().filter(|b| !b.is_done).map(|b| &b.turn.sampler).collect();
        let picked = picker.pick(gpu, &runner.model, &mut runner.pacer, &samplers)?;
        runner.end_step(StepKind::Decode, n_shared, samplers.len());
        runner.drain_events(gpu, port)?;
        let vocab_size = runner.model.dims.vocab_size;
        for (row, (branch, picked)) in self.unfinished().zip(picked).enumerate() {
            let token = branch.turn.choose(picked, vocab_size, || picker.all_logits(gpu, &runner.model, row))?;
            branch.turn.record_picked(began);
            branch.turn.encode += runner.pacer.encode - encode;
            branch.turn.dispatches = runner.pacer.n_dispatches - dispatches;
            branch.take(gpu, runner, port, token)?;
        }
        Ok(())
    }
}

impl BatchSequence {
    /// Reads the rest of the prompt, and what there is of the answer, and picks the next token.
    fn read(&mut self, gpu: &Gpu, runner: &mut ModelRunner, port: &EnginePort, n_shared: usize) -> Result<(), EngineError> {
        let began = Instant::now();
        runner.begin_steps();
        let target = self.turn.target();
        let rest = &target[n_shared..];
        let (mut done, mut last) = (0, 1);
        runner.pacer.set_whole(false);
        runner.model.selective.iter_mut().for_each(|selective| selective.begin_prompt(target.len()));
        while done < rest.len() {
            if self.turn.watch.stopped() {
                runner.pacer.finish(gpu)?;
                return self.end(gpu, runner, port, StopReason::Cancelled);
            }
            let Some(live) = &mut self.live else { return Ok(()) };
            last = runner.branch_chunk(rest.len() - done);
            let chunk = &rest[done..done + last];
            runner.model.read_branch(gpu, &mut runner.pacer, n_shared, &mut live.tail, chunk)?;
            done += last;
            let tokens_per_s = done as f64 / began.elapsed().as_secs_f64().max(1e-9);
            port.emit(EngineEvent::Prefill { turn: self.turn.id, done: n_shared + done, total: target.len(), tokens_per_s });
        }
        let policy = self.live.as_mut().and_then(|live| live.policy.as_mut());
        if let (Some(policy), Some(selective)) = (policy, &mut runner.model.selective) {
            policy.begin(selective.take_seen());
        }
        let picked = runner.pick(gpu, last - 1, &self.turn.sampler)?;
        runner.end_step(StepKind::Prefill, n_shared, rest.len());
        runner.drain_events(gpu, port)?;
        let token = self.turn.choose(picked, runner.model.dims.vocab_size, || runner.all_logits(gpu))?;
        self.turn.record_picked(began);
        self.take(gpu, runner, port, token)
    }

    /// The row of the next pass: the token that was picked last.
    fn row(&mut self) -> Option<Row<'_>> {
        let (live, token) = (self.live.as_mut()?, *self.turn.generated.last()?);
        Some(Row { token, tail: &mut live.tail, policy: live.policy.as_mut() })
    }

    /// The next token of the answer.
    fn take(&mut self, gpu: &Gpu, runner: &mut ModelRunner, port: &EnginePort, token: u32) -> Result<(), EngineError> {
        let Some(live) = &mut self.live else { return Ok(()) };
        match self.turn.take(runner, port, &mut live.stream, token)? {
            Some(stop) => self.end(gpu, runner, port, stop),
            None => Ok(()),
        }
    }

    /// The answer is complete: what it took on the device is free.
    fn end(&mut self, gpu: &Gpu, runner: &mut ModelRunner, port: &EnginePort, stop: StopReason) -> Result<(), EngineError> {
        self.turn.ended_ns = Some(telemetry::now());
        self.is_done = true;
        let context_used = match stop {
            StopReason::Cancelled => runner.tokens.len() + self.live.as_ref().map_or(0, |live| live.tail.n_tokens),
            _ => self.turn.context_used(),
        };
        let chosen = self.live.as_ref().and_then(|live| live.policy.as_ref()?.summary());
        let summary = self.turn.summary(gpu, runner, chosen, context_used, stop);
        port.emit(EngineEvent::Finished { turn: self.turn.id, summary: Box::new(summary) });
        self.live = None;
        Ok(())
    }
}

/// What has to be read of all of `turns`, whole pages of it, leaving something of each.
fn shared<'a>(turns: impl IntoIterator<Item = &'a Sequence>) -> Vec<u32> {
    let mut targets = turns.into_iter().map(Sequence::target);
    let Some(first) = targets.next() else { return Vec::new() };
    let common =
        |target: Vec<u32>| first.iter().zip(&target[..target.len().saturating_sub(1)]).take_while(|(a, b)| a == b).count();
    let n = targets.map(common).fold(first.len().saturating_sub(1), usize::min);
    first[..n / KV_PAGE_TOKENS * KV_PAGE_TOKENS].to_vec()
}

/// Tokens that a question may come to have to itself.
fn own_tokens(turn: &Sequence, n_shared: usize, limit: usize) -> usize {
    (turn.prompt.len() + turn.max_tokens.max(1)).min(limit) - n_shared
}

#[cfg(test)]
mod tests;
