//! Steps of a runner: their times, page counts and KV bytes go to the step timer.

use crate::engine::runner::ModelRunner;
use crate::telemetry::StepKind;

impl ModelRunner {
    /// Begins the first step of an answer.
    pub(in crate::engine) fn begin_steps(&mut self) {
        self.steps.begin(self.exec.kv.counts());
    }

    /// Ends a step of `n_tokens` from position `first_token` on, and begins the next.
    pub(in crate::engine) fn end_step(&mut self, kind: StepKind, first_token: usize, n_tokens: usize) {
        let (counts, used) = (self.exec.kv.counts(), self.tiers_used());
        self.steps.end(kind, (first_token, n_tokens), counts, used);
    }
}
