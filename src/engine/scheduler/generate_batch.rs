//! Batch generation: answers several prompts together, in groups as large as VRAM has room for.
//!
//! ```text
//! requests ─► prompts ─► as many as VRAM has room for ─► Scheduler ─► the next group ...
//!                              └ fewer than two: one after the other, as single requests
//! ```
//! 1. Each request ends in exactly one Finished or Failed. 2. A request that fails does not stop the others.

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
    /// Answers all `requests`, as many at once as VRAM has room for.
    pub(in crate::engine) fn generate_batch(
        &mut self,
        requests: &[PromptRequest],
        documents: &[DocumentRef],
        sampling: Sampling,
        max_tokens: usize,
    ) {
        let watch = self.port.cancel_flag();
        let mut sequences = Vec::new();
        let mut begins = None;
        for request in requests {
            match self.prepare(request, documents, &watch, sampling, max_tokens) {
                Ok((sequence, found)) => {
                    begins = begins.or(found);
                    sequences.push(sequence);
                }
                Err(error) => {
                    self.fail(request.id, &error);
                }
            }
        }
        self.run_all(sequences, begins);
    }

    /// Runs sequences that begin with the same documents: as many at once as VRAM has room for. Each ends in one event.
    pub(in crate::engine) fn run_all(&mut self, mut sequences: Vec<Sequence>, begins: Option<DocumentTokens>) {
        let mut has_notified = false;
        while !sequences.is_empty() {
            let n_at_once = if sequences.len() > 1 { self.n_fitting(&sequences, &mut has_notified) } else { 1 };
            let later = if n_at_once > 1 { Vec::new() } else { sequences.split_off(1) };
            sequences = self.run_batch(std::mem::take(&mut sequences), &begins, n_at_once).into_iter().chain(later).collect();
        }
    }

    /// Sequence of a request, and the documents that its prompt begins with.
    fn prepare(
        &self,
        request: &PromptRequest,
        documents: &[DocumentRef],
        watch: &CancelFlag,
        sampling: Sampling,
        max_tokens: usize,
    ) -> Result<(Sequence, Option<DocumentTokens>), EngineError> {
        let runner = self.runner.as_ref().ok_or(EngineError::NoModel)?;
        let mut prompt = runner.encode(&request.messages, true)?;
        if let Some(note) = runner.text()?.new_note(&mut prompt) {
            self.port.emit(EngineEvent::Notice(note));
        }
        let begins = document_tokens(runner, &request.messages, documents, &prompt.tokens);
        let sequence = Sequence::new(request.id, prompt.tokens, sampling, max_tokens, watch.of(request.id));
        sequence.check(runner)?;
        Ok((sequence, begins))
    }

    /// Number of `sequences` that fit into VRAM at once. Emits a notice, once, if not all of them do.
    fn n_fitting(&self, sequences: &[Sequence], has_notified: &mut bool) -> usize {
        let Some(runner) = &self.runner else { return 0 };
        let (kv, budget) = (&runner.exec.kv, runner.storage.setup.budgets.vram);
        let (limit, room) = (kv.limit(), kv.tail_room(budget));
        let (n_fitting, _) = Scheduler::fitting(kv.spec(), sequences, limit, room);
        if n_fitting < sequences.len() && !std::mem::replace(has_notified, true) {
            let (_, needed) = Scheduler::fitting(kv.spec(), sequences, limit, u64::MAX);
            let how = if n_fitting > 1 { format!("{n_fitting} at a time") } else { "one after the other".to_owned() };
            self.port.emit(EngineEvent::Notice(format!(
                "{} questions at once need {} of VRAM for their own tokens, and {} of the budget of {} can be had; they are \
                 answered {how}: raise --vram-budget or lower --max-tokens",
                sequences.len(),
                Bytes(needed),
                Bytes(room),
                Bytes(budget)
            )));
        }
        n_fitting
    }

    /// Runs the sequences, `n_at_once` together. Returns those that VRAM had no room for.
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
