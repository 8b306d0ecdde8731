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

mod ask;
mod chosen;
mod pass;
mod pick;
mod tail;

use std::time::Instant;

use super::command::EngineEvent;
use super::error::EngineError;
use super::handle::EnginePort;
use super::loaded::{Loaded, Spent};
use super::saved::DocumentRef;
use super::summary::StopReason;
use super::turn::Turn;
use crate::base::limits::KV_PAGE_TOKENS;
use crate::gpu::Gpu;
use crate::kv::KvSpec;
use crate::telemetry::{self, StepKind};
use crate::token::Detokenizer;
use chosen::{Chooser, RowPolicy};
use pass::Row;
use pick::Picker;
use tail::{BranchTail, tail_bytes};

/// Questions that are answered at once, as far as they have come; survives a lost device.
pub(super) struct Batch {
    branches: Vec<Branch>,
    /// document that the prompts begin with, and its tokens
    document: Option<(DocumentRef, Vec<u32>)>,
    before: Option<Spent>,
}

struct Branch {
    turn: Turn,
    is_done: bool,
    /// while it is on the device
    live: Option<Live>,
}

struct Live {
    tail: BranchTail,
    stream: Detokenizer,
    policy: Option<RowPolicy>,
}

impl Batch {
    /// Questions with prompts that begin with the same document, whose KV may be there already or is to be kept.
    pub(super) fn new(turns: Vec<Turn>, document: Option<(DocumentRef, Vec<u32>)>) -> Batch {
        let branches = turns.into_iter().map(|turn| Branch { turn, is_done: false, live: None }).collect();
        Batch { branches, document, before: None }
    }

    /// The first of `turns` that fit into `room` bytes of VRAM: how many, and what their tails take.
    pub(super) fn fitting<'a>(
        spec: &KvSpec,
        turns: impl IntoIterator<Item = &'a Turn, IntoIter: Clone>,
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
    pub(super) fn unanswered(self) -> impl Iterator<Item = Turn> {
        self.branches.into_iter().filter(|branch| !branch.is_done).map(|branch| branch.turn)
    }

    /// Answers all questions, or what is left of them after a lost device.
    ///
    /// # Errors
    /// Out of VRAM, a page that must be computed again, a lost device: what is unanswered then can be tried again.
    pub(super) fn run(&mut self, gpu: &Gpu, loaded: &mut Loaded, port: &EnginePort) -> Result<(), EngineError> {
        let (spec, limit) = (*loaded.model.kv.spec(), loaded.model.kv.limit());
        let turns = self.branches.iter().filter(|branch| !branch.is_done).map(|branch| &branch.turn);
        let (_, tail_bytes) = Batch::fitting(&spec, turns, limit, u64::MAX);
        loaded.reserve_for_batch(gpu, tail_bytes);
        loaded.model.kv.count_tails(tail_bytes);
        let result = self.answer(gpu, loaded, port);
        self.branches.iter_mut().for_each(|branch| branch.live = None);
        loaded.model.kv.count_tails(0);
        loaded.tell(port);
        result
    }

    fn answer(&mut self, gpu: &Gpu, loaded: &mut Loaded, port: &EnginePort) -> Result<(), EngineError> {
        let n_shared = self.read_shared(gpu, loaded, port)?;
        let limit = loaded.model.kv.limit();
        let room = |turn: &Turn| own_tokens(turn, n_shared, limit);
        let n_rows = self.unfinished().count();
        if n_rows == 0 {
            return Ok(());
        }
        let n_own = self.unfinished().map(|branch| room(&branch.turn)).max().unwrap_or(0);
        loaded.model.reserve_rows(gpu, n_rows, n_shared, n_own)?;
        // Without a complete page there is nothing to choose.
        let spec = loaded.model.selective.as_ref().map(|s| s.spec()).filter(|_| n_shared > 0);
        for branch in self.unfinished() {
            let tail = BranchTail::new(gpu, &loaded.model, room(&branch.turn))?;
            let policy = spec.map(|spec| RowPolicy::new(spec, branch.turn.max_tokens, &loaded.model.dims)).transpose()?;
            branch.live = Some(Live { tail, stream: branch.turn.stream(loaded)?, policy });
        }
        for branch in self.unfinished() {
            branch.read(gpu, loaded, port, n_shared)?;
        }
        let picker = Picker::new(gpu, &loaded.model, n_rows)?;
        let mut chooser = spec.map(|spec| Chooser::new(gpu, &loaded.model, spec, n_rows, n_own)).transpose()?;
        if let Some(chooser) = &mut chooser {
            let clock = loaded.model.selective.as_ref().map_or(0, |selective| selective.last_step());
            chooser.note_kept(self.unfinished().filter_map(|branch| branch.live.as_ref()?.policy.as_ref()), clock);
            for live in self.unfinished().filter_map(|branch| branch.live.as_mut()) {
                live.tail.bind_scores(gpu, &loaded.model, &chooser.own_scores)?;
            }
        }
        loaded.pace.set_whole(true);
        while self.unfinished().next().is_some() {
            self.step(gpu, loaded, port, &picker, chooser.as_mut(), n_shared)?;
        }
        Ok(())
    }

    fn unfinished(&mut self) -> impl Iterator<Item = &mut Branch> {
        self.branches.iter_mut().filter(|branch| !branch.is_done)
    }

    /// Reads what the prompts have in common. A question that is stopped meanwhile leaves it to the others.
    fn read_shared(&mut self, gpu: &Gpu, loaded: &mut Loaded, port: &EnginePort) -> Result<usize, EngineError> {
        let shared = shared(self.unfinished().map(|branch| &branch.turn));
        if let Some((document, tokens)) = &self.document {
            loaded.open_document(gpu, document, tokens)?;
        }
        if let Some(first) = self.unfinished().next() {
            loaded.leave_document(gpu, &first.turn.target())?;
        }
        let before = *self.before.get_or_insert_with(|| {
            loaded.observer.begin();
            loaded.spent()
        });
        for branch in self.unfinished() {
            let cached = loaded.cached_prefix(&shared, false);
            branch.turn.before = Some(before);
            branch.turn.tell_started(port, cached);
            match branch.turn.read(gpu, loaded, port, &shared, cached)? {
                Some(_) => {}
                None => branch.end(gpu, loaded, port, StopReason::Cancelled)?,
            }
        }
        loaded.pace.finish(gpu)?;
        let read = self.branches.iter().map(|branch| branch.turn.prefill).max().unwrap_or_default();
        loaded.settle(gpu, port, read)?;
        Ok(shared.len())
    }

    /// One more token of every answer.
    fn step(
        &mut self,
        gpu: &Gpu,
        loaded: &mut Loaded,
        port: &EnginePort,
        picker: &Picker,
        chooser: Option<&mut Chooser>,
        n_shared: usize,
    ) -> Result<(), EngineError> {
        let began = Instant::now();
        let (encode, dispatches) = (loaded.pace.encode, loaded.pace.n_dispatches);
        let mut rows: Vec<Row> = self.unfinished().filter_map(Branch::row).collect();
        loaded.model.decode_rows(gpu, &mut loaded.pace, n_shared, &mut rows, chooser)?;
        let samplers: Vec<_> = self.branches.iter().filter(|b| !b.is_done).map(|b| &b.turn.sampler).collect();
        let picked = picker.pick(gpu, &loaded.model, &mut loaded.pace, &samplers)?;
        loaded.end_step(StepKind::Decode, n_shared, samplers.len());
        loaded.look(gpu, port)?;
        let vocab_size = loaded.model.dims.vocab_size;
        for (row, (branch, picked)) in self.unfinished().zip(picked).enumerate() {
            let token = branch.turn.choose(picked, vocab_size, || picker.all_logits(gpu, &loaded.model, row))?;
            branch.turn.note_picked(began);
            branch.turn.encode += loaded.pace.encode - encode;
            branch.turn.dispatches = loaded.pace.n_dispatches - dispatches;
            branch.take(gpu, loaded, port, token)?;
        }
        Ok(())
    }
}

impl Branch {
    /// Reads the rest of the prompt, and what there is of the answer, and picks the next token.
    fn read(&mut self, gpu: &Gpu, loaded: &mut Loaded, port: &EnginePort, n_shared: usize) -> Result<(), EngineError> {
        let began = Instant::now();
        loaded.begin_steps();
        let target = self.turn.target();
        let rest = &target[n_shared..];
        let (mut done, mut last) = (0, 1);
        loaded.pace.set_whole(false);
        loaded.model.selective.iter_mut().for_each(|selective| selective.begin_prompt(target.len()));
        while done < rest.len() {
            if self.turn.watch.stopped() {
                loaded.pace.finish(gpu)?;
                return self.end(gpu, loaded, port, StopReason::Cancelled);
            }
            let Some(live) = &mut self.live else { return Ok(()) };
            last = loaded.branch_chunk(rest.len() - done);
            let chunk = &rest[done..done + last];
            loaded.model.read_branch(gpu, &mut loaded.pace, n_shared, &mut live.tail, chunk)?;
            done += last;
            let tokens_per_s = done as f64 / began.elapsed().as_secs_f64().max(1e-9);
            port.emit(EngineEvent::Prefill { turn: self.turn.id, done: n_shared + done, total: target.len(), tokens_per_s });
        }
        let policy = self.live.as_mut().and_then(|live| live.policy.as_mut());
        if let (Some(policy), Some(selective)) = (policy, &mut loaded.model.selective) {
            policy.begin(selective.take_seen());
        }
        let picked = loaded.pick(gpu, last - 1, &self.turn.sampler)?;
        loaded.end_step(StepKind::Prefill, n_shared, rest.len());
        loaded.look(gpu, port)?;
        let token = self.turn.choose(picked, loaded.model.dims.vocab_size, || loaded.all_logits(gpu))?;
        self.turn.note_picked(began);
        self.take(gpu, loaded, port, token)
    }

    /// The row of the next pass: the token that was picked last.
    fn row(&mut self) -> Option<Row<'_>> {
        let (live, token) = (self.live.as_mut()?, *self.turn.generated.last()?);
        Some(Row { token, tail: &mut live.tail, policy: live.policy.as_mut() })
    }

    /// The next token of the answer.
    fn take(&mut self, gpu: &Gpu, loaded: &mut Loaded, port: &EnginePort, token: u32) -> Result<(), EngineError> {
        let Some(live) = &mut self.live else { return Ok(()) };
        match self.turn.take(loaded, port, &mut live.stream, token)? {
            Some(stop) => self.end(gpu, loaded, port, stop),
            None => Ok(()),
        }
    }

    /// The answer is complete: what it took on the device is free.
    fn end(&mut self, gpu: &Gpu, loaded: &mut Loaded, port: &EnginePort, stop: StopReason) -> Result<(), EngineError> {
        self.turn.ended_ns = Some(telemetry::now());
        self.is_done = true;
        let context_used = match stop {
            StopReason::Cancelled => loaded.tokens.len() + self.live.as_ref().map_or(0, |live| live.tail.n_tokens),
            _ => self.turn.context_used(),
        };
        let chosen = self.live.as_ref().and_then(|live| live.policy.as_ref()?.summary());
        let summary = self.turn.summary(gpu, loaded, chosen, context_used, stop);
        port.emit(EngineEvent::Finished { turn: self.turn.id, summary: Box::new(summary) });
        self.live = None;
        Ok(())
    }
}

/// What has to be read of all of `turns`, whole pages of it, leaving something of each.
fn shared<'a>(turns: impl IntoIterator<Item = &'a Turn>) -> Vec<u32> {
    let mut targets = turns.into_iter().map(Turn::target);
    let Some(first) = targets.next() else { return Vec::new() };
    let common =
        |target: Vec<u32>| first.iter().zip(&target[..target.len().saturating_sub(1)]).take_while(|(a, b)| a == b).count();
    let n = targets.map(common).fold(first.len().saturating_sub(1), usize::min);
    first[..n / KV_PAGE_TOKENS * KV_PAGE_TOKENS].to_vec()
}

/// Tokens that a question may come to have to itself.
fn own_tokens(turn: &Turn, n_shared: usize, limit: usize) -> usize {
    (turn.prompt.len() + turn.max_tokens.max(1)).min(limit) - n_shared
}

#[cfg(test)]
mod tests;
