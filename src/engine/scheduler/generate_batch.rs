//! The command: prompts of all questions, how many fit at once, and what happens to those that do not.
//!
//! ```text
//! questions ─► prompts ─► as many as VRAM has room for ─► Scheduler ─► the next as many ...
//!                               └ fewer than two: one after the other, as ordinary turns
//! ```
//! 1. Every question ends in exactly one Finished or Failed. 2. One that cannot be answered keeps none of the others from it.

use crate::base::Bytes;
use crate::engine::api::{DocumentRef, EngineEvent, PromptRequest, Sampling};
use crate::engine::error::EngineError;
use crate::engine::handle::CancelFlag;
use crate::engine::scheduler::Scheduler;
use crate::engine::sequence::Sequence;
use crate::engine::worker::{Worker, document_tokens};
use crate::gpu::GpuError;
use crate::kv::KvError;

type Document = Option<(DocumentRef, Vec<u32>)>;

impl Worker {
    /// Answers `questions` at once, as far as there is room for them.
    pub(in crate::engine) fn generate_batch(
        &mut self,
        questions: &[PromptRequest],
        document: Option<DocumentRef>,
        sampling: Sampling,
        max_tokens: usize,
    ) {
        let watch = self.port.cancel_flag();
        let mut turns = Vec::new();
        let mut begins = None;
        for question in questions {
            match self.prepare(question, document.as_ref(), &watch, sampling, max_tokens) {
                Ok((turn, document)) => {
                    begins = begins.or(document);
                    turns.push(turn);
                }
                Err(error) => {
                    self.fail(question.turn, &error);
                }
            }
        }
        let mut is_told = false;
        while !turns.is_empty() {
            let n_at_once = self.n_fitting(&turns, &mut is_told);
            let later = turns.split_off(n_at_once.max(1));
            let now = std::mem::replace(&mut turns, later);
            if n_at_once > 1 {
                self.run_batch(now, begins.clone());
            } else {
                now.into_iter().for_each(|turn| self.run_alone(turn, &begins));
            }
        }
    }

    /// The turn of a question, and the document that it begins with.
    fn prepare(
        &self,
        question: &PromptRequest,
        document: Option<&DocumentRef>,
        watch: &CancelFlag,
        sampling: Sampling,
        max_tokens: usize,
    ) -> Result<(Sequence, Document), EngineError> {
        let runner = self.runner.as_ref().ok_or(EngineError::NoModel)?;
        let prompt = runner.encode(&question.messages, true)?;
        if let Some(note) = prompt.note {
            self.port.emit(EngineEvent::Notice(note));
        }
        let tokens = document.and_then(|d| document_tokens(runner, &question.messages, d, &prompt.tokens));
        let turn = Sequence::new(question.turn, prompt.tokens, sampling, max_tokens, watch.of(question.turn));
        turn.check(runner)?;
        Ok((turn, document.cloned().zip(tokens)))
    }

    /// How many of `turns` fit into VRAM at once. Says once that they are not all.
    fn n_fitting(&self, turns: &[Sequence], is_told: &mut bool) -> usize {
        let Some(runner) = &self.runner else { return 0 };
        let (kv, budget) = (&runner.model.kv, runner.below.setup.budgets.vram);
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

    fn run_batch(&mut self, turns: Vec<Sequence>, document: Document) {
        let mut batch = Scheduler::new(turns, document.clone());
        let Err(error) = self.until_done(|gpu, runner, port| batch.run(gpu, runner, port)) else { return };
        let is_memory = matches!(
            error,
            EngineError::Gpu(GpuError::OutOfMemory { .. }) | EngineError::Kv(KvError::Gpu(GpuError::OutOfMemory { .. }))
        );
        if is_memory {
            self.port.emit(EngineEvent::Notice(format!("{error}; the questions are answered one after the other")));
        }
        for turn in batch.unanswered() {
            match is_memory {
                true => self.run_alone(turn, &document),
                false => {
                    self.fail(turn.id, &error);
                }
            }
        }
    }

    /// Answers a question as an ordinary turn.
    fn run_alone(&mut self, turn: Sequence, document: &Document) {
        let id = turn.id;
        let result = self.run_turn(match document {
            Some((document, tokens)) => turn.on_document(document.clone(), tokens.clone()),
            None => turn,
        });
        self.report(id, result);
    }
}
