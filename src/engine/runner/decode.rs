//! Decode: the next token of every sequence, also before the last one is read back.
//!
//! ```text
//! pass N ─► sampling N ─┬─► id on the device ─► pass N+1 ─► sampling N+1 ...      lookahead: the queue never drains
//!                       └─► readback ─► CPU samples ─► the same token? ─► confirm; otherwise pass N+1 is discarded
//! ```
//! A discarded pass leaves nothing behind: its K and V are beyond the last token, where the next pass writes.
//!
//! Owner: the engine thread.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::api::SelectionSummary;
use crate::engine::error::EngineError;
use crate::engine::runner::ModelRunner;
use crate::engine::runner::executor::Executor;
use crate::engine::runner::pass::{NextToken, Pass, Row, SequenceKv};
use crate::engine::selection::sequence_policy::SequencePolicy;
use crate::gpu::Gpu;

impl ModelRunner {
    /// Policy state of an answer of up to `n_steps` tokens, after `n_context` tokens in complete pages. None if the model has no policy, or if reading everything is faster than selecting.
    ///
    /// # Errors
    /// Numbers of the policy that are out of range.
    pub(in crate::engine) fn begin_answer(
        &mut self,
        gpu: &Gpu,
        n_steps: usize,
        n_context: usize,
    ) -> Result<Option<SequencePolicy>, EngineError> {
        let Executor { selector, model, kv, .. } = &mut self.exec;
        let Some(selector) = selector else { return Ok(None) };
        let policy = selector.begin_answer(n_steps, &model.dims)?;
        Ok(selector.with_costs(policy, gpu.selection_costs().as_ref(), kv, n_context / KV_PAGE_TOKENS, n_steps))
    }

    /// Summary of the selections of an answer. None before its first step.
    ///
    /// # Errors
    /// A lost device.
    pub(in crate::engine) fn selection_summary(
        &mut self,
        gpu: &Gpu,
        policy: Option<&mut SequencePolicy>,
    ) -> Result<Option<SelectionSummary>, EngineError> {
        let Executor { selector, kv, .. } = &mut self.exec;
        let (Some(policy), Some(selector)) = (policy, selector) else { return Ok(None) };
        if let Some(counters) = selector.device_counters(gpu, kv)? {
            policy.stats.add_device_counters(&counters);
        }
        Ok(policy.summary())
    }

    /// Runs the next token of the context, with the selection of `policy`, or with full attention if None.
    pub(in crate::engine) fn decode(
        &mut self,
        gpu: &Gpu,
        token: u32,
        policy: Option<&mut SequencePolicy>,
    ) -> Result<(), EngineError> {
        let rows = &mut [Row { token: NextToken::Known(token), kv: SequenceKv::Context, policy }];
        self.decode_rows(gpu, self.tokens.len(), rows)
    }

    /// Runs one token of each sequence, after `n_context` tokens that all of them share. A token of the context that is on the
    /// device does not count before [`ModelRunner::confirm`].
    pub(in crate::engine) fn decode_rows(&mut self, gpu: &Gpu, n_context: usize, rows: &mut [Row]) -> Result<(), EngineError> {
        let appended = match rows {
            [Row { token: NextToken::Known(token), kv: SequenceKv::Context, .. }] => Some(*token),
            _ => None,
        };
        if let Some(token) = appended {
            self.exec.kv.append_tokens(n_context, &[token]);
        }
        self.exec.run_pass(gpu, &mut self.pacer, n_context, Pass::Rows(rows))?;
        self.tokens.extend(appended);
        Ok(())
    }

    /// Counts the token of a pass of the context that was recorded before the token was read back.
    pub(in crate::engine) fn confirm(&mut self, token: u32) {
        self.exec.kv.append_tokens(self.tokens.len(), &[token]);
        self.tokens.push(token);
    }

    /// True if the GPU selected in the last pass: then the next one needs no readback either.
    pub(in crate::engine) fn selects_on_device(&self) -> bool {
        self.exec.selector.as_ref().is_some_and(|selector| selector.selects_on_device())
    }

    /// True if the next pass, of the context or of sequences with tails of their own, may be recorded before the last tokens are
    /// read back. On a software device nothing would be faster. A pass that completes a page of the context moves the page, so it
    /// can be neither discarded nor repeated.
    pub(in crate::engine) fn allows_lookahead(&self, gpu: &Gpu, is_context: bool) -> bool {
        let at_boundary = |n_tokens: usize| n_tokens.is_multiple_of(KV_PAGE_TOKENS);
        let moves_page = is_context && (at_boundary(self.tokens.len()) || at_boundary(self.tokens.len() + 1));
        self.exec.model.sample.can_draw() && !gpu.uses_software_kernels() && !self.exec.synchronous && !moves_page
    }
}
