//! The command: prompts of all questions, how many fit at once, and what happens to those that do not.
//!
//! ```text
//! questions ─► prompts ─► as many as VRAM has room for ─► Scheduler ─► the next as many ...
//!                               └ fewer than two: one after the other, as ordinary turns
//! ```
//! 1. Every question ends in exactly one Finished or Failed. 2. One that cannot be answered keeps none of the others from it.

use crate::base::Bytes;
use crate::engine::api::{DocumentRef, EngineEvent, PromptRequest, Sampling};
use crate::engine::context::document_parts::DocumentTokens;
use crate::engine::error::EngineError;
use crate::engine::handle::CancelFlag;
use crate::engine::scheduler::Scheduler;
use crate::engine::sequence::Sequence;
use crate::engine::worker::{Worker, document_tokens};
use crate::gpu::GpuError;
use crate::kv::KvError;

impl Worker {
    /// Answers `questions` at once, as far as there is room for them.
    pub(in crate::engine) fn generate_batch(
        &mut self,
        questions: &[PromptRequest],
        documents: &[DocumentRef],
        sampling: Sampling,
        max_tokens: usize,
    ) {
        let watch = self.port.cancel_flag();
        let mut turns = Vec::new();
        let mut begins = None;
        for question in questions {
            match self.prepare(question, documents, &watch, sampling, max_tokens) {
                Ok((turn, found)) => {
                    begins = begins.or(found);
                    turns.push(turn);
                }
                Err(error) => {
                    self.fail(question.turn, &error);
                }
            }
        }
        self.run_all(turns, begins);
    }

    /// Runs sequences that begin with the same documents: as many at once as VRAM has room for. Each ends in one event.
    pub(in crate::engine) fn run_all(&mut self, mut sequences: Vec<Sequence>, begins: Option<DocumentTokens>) {
        let mut is_told = false;
        while !sequences.is_empty() {
            let n_at_once = if sequences.len() > 1 { self.n_fitting(&sequences, &mut is_told) } else { 1 };
            let later = if n_at_once > 1 { Vec::new() } else { sequences.split_off(1) };
            sequences = self.run_batch(std::mem::take(&mut sequences), &begins, n_at_once).into_iter().chain(later).collect();
        }
    }

    /// The sequence of a question, and the documents that it begins with.
    fn prepare(
        &self,
        question: &PromptRequest,
        documents: &[DocumentRef],
        watch: &CancelFlag,
        sampling: Sampling,
        max_tokens: usize,
    ) -> Result<(Sequence, Option<DocumentTokens>), EngineError> {
        let runner = self.runner.as_ref().ok_or(EngineError::NoModel)?;
        let prompt = runner.encode(&question.messages, true)?;
        if let Some(note) = prompt.note {
            self.port.emit(EngineEvent::Notice(note));
        }
        let begins = document_tokens(runner, &question.messages, documents, &prompt.tokens);
        let turn = Sequence::new(question.turn, prompt.tokens, sampling, max_tokens, watch.of(question.turn));
        turn.check(runner)?;
        Ok((turn, begins))
    }

    /// How many of `turns` fit into VRAM at once. Says once that they are not all.
    fn n_fitting(&self, turns: &[Sequence], is_told: &mut bool) -> usize {
        let Some(runner) = &self.runner else { return 0 };
        let (kv, budget) = (&runner.exec.kv, runner.below.setup.budgets.vram);
        let (limit, room) = (kv.limit(), kv.tail_room(budget));
        let (n_fitting, _) = Scheduler::fitting(kv.spec(), turns, limit, room);
        if n_fitting < turns.len() && !std::mem::replace(is_told, true) {
            let (_, needed) = Scheduler::fitting(kv.spec(), turns, limit, u64::MAX);
            let how = if n_fitting > 1 { format!("{n_fitting} at a time") } else { "one after the other".to_owned() };
            self.port.emit(EngineEvent::Notice(format!(
                "{} questions at once need {} of VRAM for their own tokens, and {} of the budget of {} can be had; they are \
                 answered {how}: raise --vram-budget or lower --max-tokens",
                turns.len(),
                Bytes(needed),
                Bytes(room),
                Bytes(budget)
            )));
        }
        n_fitting
    }

    /// Runs the sequences, `n_at_once` together; those that found no room are left.
    fn run_batch(&mut self, sequences: Vec<Sequence>, begins: &Option<DocumentTokens>, n_at_once: usize) -> Vec<Sequence> {
        let is_batch = n_at_once > 1;
        let mut scheduler = Scheduler::new(sequences, begins.clone(), n_at_once);
        let Err(error) = self.until_done(|gpu, runner, port| scheduler.run(gpu, runner, port)) else {
            return scheduler.unanswered().collect();
        };
        let is_memory = matches!(
            error,
            EngineError::Gpu(GpuError::OutOfMemory { .. }) | EngineError::Kv(KvError::Gpu(GpuError::OutOfMemory { .. }))
        );
        if !is_memory || !is_batch {
            scheduler.unanswered().for_each(|sequence| {
                self.fail(sequence.id, &error);
            });
            return Vec::new();
        }
        self.port.emit(EngineEvent::Notice(format!("{error}; the questions are answered one after the other")));
        for sequence in scheduler.unanswered() {
            self.run_batch(vec![sequence], begins, 1);
        }
        Vec::new()
    }
}
