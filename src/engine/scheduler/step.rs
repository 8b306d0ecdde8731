//! Step: one token of every running sequence; on a real GPU recorded while the step before it still runs.
//!
//! ```text
//! step N (known tokens, or recorded in advance) ─► record step N+1 with the tokens on the device ─► read N ─► sample, emit
//!                                                              └ discarded: the CPU samples another token, or a sequence ends
//! ```
//! 1. Each recorded step has the rows of all running sequences. If these change, the next step has known tokens. 2. A step with
//!    known tokens begins at the last token of each answer, so nothing of a discarded step remains.
//!
//! Owner: the engine thread. Limits: no selection by the CPU, no step that measures attention, no waiting sequences.

use std::time::Instant;

use crate::engine::api::{AttentionMode, RequestId};
use crate::engine::error::EngineError;
use crate::engine::handle::EnginePort;
use crate::engine::runner::ModelRunner;
use crate::engine::runner::pass::{NextToken, Row, SequenceKv};
use crate::engine::runner::sampling::{SampleResult, SampledRow};
use crate::engine::scheduler::recorded_step::RecordedStep;
use crate::engine::scheduler::{Placement, Scheduled, Scheduler};
use crate::engine::selection::sequence_policy::{PolicyProgress, SequencePolicy};
use crate::gpu::Gpu;
use crate::telemetry::StepKind;

impl Scheduler {
    /// One more token of every answer.
    pub(super) fn step(
        &mut self,
        gpu: &Gpu,
        runner: &mut ModelRunner,
        port: &EnginePort,
        placement: Placement,
    ) -> Result<(), EngineError> {
        let began = Instant::now();
        runner.pacer.set_whole(true);
        let mut step = match self.lookahead.take() {
            Some(step) => {
                self.unfinished().for_each(|scheduled| scheduled.sequence.steps.n_lookahead += 1);
                self.confirm(runner, placement);
                self.set_progress(&step.progress);
                step
            }
            None => self.record_step(gpu, runner, placement, 0)?,
        };
        if self.allows_lookahead(gpu, runner, placement, &step) {
            self.lookahead = Some(self.record_step(gpu, runner, placement, 1)?);
        }
        let mut sampled = runner.read_sampling(gpu, &step.sampling)?;
        if self.lookahead.is_some() && self.needs_logits_of(&step, &sampled, runner.exec.model.dims.vocab_size) {
            // The lookahead step has overwritten the logits.
            self.lookahead = None;
            if matches!(placement, Placement::Context) {
                runner.truncate(runner.tokens.len().saturating_sub(1));
            }
            self.unfinished().for_each(|scheduled| scheduled.sequence.steps.has_no_lookahead = true);
            step = self.record_step(gpu, runner, placement, 0)?;
            sampled = runner.read_sampling(gpu, &step.sampling)?;
        }
        runner.end_step(StepKind::Decode, step.n_context, step.rows.len());
        runner.drain_events(gpu, port)?;
        if matches!(placement, Placement::Context) {
            runner.show_pages(port);
        }
        let vocab_size = runner.exec.model.dims.vocab_size;
        let mut is_predicted = true;
        for (row, (id, SampledRow { result, predicted })) in step.rows.iter().zip(sampled).enumerate() {
            let Some(scheduled) = self.unfinished().find(|scheduled| scheduled.sequence.id == *id) else { continue };
            let sequence = &mut scheduled.sequence;
            let token = sequence.sample(result, vocab_size, || runner.logits_of(gpu, row))?;
            is_predicted &= predicted == Some(token);
            sequence.record_sampled(began);
            sequence.steps.encode += step.encode;
            sequence.steps.n_dispatches = step.n_dispatches;
            scheduled.take(gpu, runner, port, token)?;
        }
        if !is_predicted {
            self.lookahead = None;
        }
        Ok(())
    }

    /// Records a step of all running sequences, after `n_unread` recorded ones whose tokens are on the device.
    fn record_step(
        &mut self,
        gpu: &Gpu,
        runner: &mut ModelRunner,
        placement: Placement,
        n_unread: usize,
    ) -> Result<RecordedStep, EngineError> {
        let (encode, n_dispatches) = (runner.pacer.encode, runner.pacer.n_dispatches);
        let n_context = match placement {
            Placement::Tails { n_shared, .. } => n_shared,
            Placement::Context => {
                runner.reserve(gpu, runner.tokens.len() + 1)?;
                if n_unread == 0 {
                    self.unfinished().for_each(|scheduled| scheduled.sequence.measure_step(gpu, runner));
                }
                runner.tokens.len()
            }
        };
        let is_known = n_unread == 0;
        let (mut rows, mut ids) = (Vec::new(), Vec::new());
        for scheduled in self.unfinished() {
            ids.push(scheduled.sequence.id);
            rows.extend(scheduled.row(n_context, is_known));
        }
        let before: Vec<_> = rows.iter().map(progress_of).collect();
        runner.decode_rows(gpu, n_context, &mut rows)?;
        let after = rows.iter().map(progress_of);
        let progress_by = |all: Vec<Option<PolicyProgress>>| -> Vec<(RequestId, PolicyProgress)> {
            ids.iter().zip(all).filter_map(|(id, progress)| Some((*id, progress?))).collect()
        };
        let (after, before) = (progress_by(after.collect()), progress_by(before));
        if !is_known {
            // The policies have it once the tokens are known.
            self.set_progress(&before);
        }
        let samplers: Vec<_> = self.sequences.iter().filter(|s| !s.is_done).map(|s| &s.sequence.sampler).collect();
        let sampling = runner.record_sampling(gpu, 0, &samplers, n_unread)?;
        let (encode, n_dispatches) = (runner.pacer.encode - encode, runner.pacer.n_dispatches - n_dispatches);
        Ok(RecordedStep { rows: ids, n_context, sampling, encode, n_dispatches, progress: after })
    }

    fn set_progress(&mut self, progress: &[(RequestId, PolicyProgress)]) {
        for scheduled in self.unfinished() {
            let own = progress.iter().find(|(id, _)| *id == scheduled.sequence.id);
            let policy = scheduled.active.as_mut().and_then(|active| active.policy.as_mut());
            if let (Some((_, progress)), Some(policy)) = (own, policy) {
                policy.set_progress(*progress);
            }
        }
    }

    /// Counts the tokens of the lookahead step: now they are known.
    fn confirm(&mut self, runner: &mut ModelRunner, placement: Placement) {
        if !matches!(placement, Placement::Context) {
            return;
        }
        if let Some(token) = self.unfinished().find_map(|scheduled| scheduled.sequence.generated.last().copied()) {
            runner.confirm(token);
        }
    }

    /// True if the step after `step` may be recorded before the tokens of `step` are known.
    fn allows_lookahead(&mut self, gpu: &Gpu, runner: &ModelRunner, placement: Placement, step: &RecordedStep) -> bool {
        let is_context = matches!(placement, Placement::Context);
        let may = runner.allows_lookahead(gpu, is_context) && self.waiting.is_empty();
        let same_rows = || self.sequences.iter().filter(|s| !s.is_done).map(|s| s.sequence.id).eq(step.rows.iter().copied());
        may && same_rows() && self.unfinished().all(|scheduled| scheduled.allows_lookahead(runner, is_context))
    }

    /// True if some sequence cannot be sampled without all logits.
    fn needs_logits_of(&mut self, step: &RecordedStep, sampled: &[SampledRow], vocab_size: usize) -> bool {
        let rows = step.rows.iter().zip(sampled);
        rows.into_iter().any(|(id, row)| {
            let SampleResult::Few(candidates) = &row.result else { return false };
            let sequence = self.unfinished().map(|scheduled| &scheduled.sequence).find(|sequence| sequence.id == *id);
            sequence.is_some_and(|sequence| sequence.sampler.clone().sample(candidates, vocab_size).is_none())
        })
    }
}

fn progress_of(row: &Row) -> Option<PolicyProgress> {
    row.policy.as_deref().map(SequencePolicy::progress)
}

impl Scheduled {
    /// The row of the next step: the token that was sampled last if it `is_known`, otherwise the one on the device. Known tokens
    /// follow the last one of the answer.
    fn row(&mut self, n_context: usize, is_known: bool) -> Option<Row<'_>> {
        let n_own = self.sequence.context_used();
        let (active, token) = (self.active.as_mut()?, *self.sequence.generated.last()?);
        if let Some(tail) = active.tail.as_mut().filter(|_| is_known) {
            tail.n_tokens = n_own.saturating_sub(n_context);
        }
        let kv = active.tail.as_mut().map_or(SequenceKv::Context, SequenceKv::Own);
        let token = if is_known { NextToken::Known(token) } else { NextToken::OnDevice };
        Some(Row { token, kv, policy: active.policy.as_mut() })
    }

    /// True if the answer has a step after the next one, whatever its token, and the GPU can choose that token.
    fn allows_lookahead(&self, runner: &ModelRunner, is_context: bool) -> bool {
        let sequence = &self.sequence;
        let n_next = sequence.generated.len() + 1;
        let ends = n_next >= sequence.max_tokens || sequence.prompt.len() + n_next > runner.exec.kv.limit();
        let is_measured = is_context && sequence.attention == AttentionMode::Sampled && runner.measures_step(n_next - 1);
        let on_device = |policy: &SequencePolicy| runner.selects_on_device() && !policy.measures_mass();
        let may_select = self.active.as_ref().is_some_and(|active| active.policy.as_ref().is_none_or(on_device));
        let can_draw = !sequence.steps.has_no_lookahead && !sequence.sampler.needs_all_logits();
        can_draw && !ends && !is_measured && may_select && !sequence.watch.stopped()
    }
}
