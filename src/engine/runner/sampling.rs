//! Sampling readback: logits of the rows of a pass, and the candidates for their samplers.
//!
//! ```text
//! x [R, C] ─► norm ─► output projection ─► logits [R, V] ─► row by row: argmax or top-k ─► one readback for all rows
//!                                                                        └► best or drawn token ─► ids of the next pass
//! ```
//! 1. A single answer is one row; its logits need no extra buffer. 2. Recording and reading are apart, so that the next step can
//!    be recorded in between, with the token that the GPU chose. 3. The CPU decides: what it samples is the answer.
//!
//! Owner: the engine thread.

use crate::base::limits::TOP_K_CANDIDATES;
use crate::engine::error::EngineError;
use crate::engine::runner::ModelRunner;
use crate::engine::runner::executor::Executor;
use crate::engine::runner::row_logits::RowLogits;
use crate::engine::sampler::Sampler;
use crate::gpu::kernels::sample::{self, Candidates, TOP_K_BYTES};
use crate::gpu::{Gpu, Slice, Submitted};
use crate::telemetry::{KernelFamily, NO_LAYER};

/// Result of sampling on the GPU.
pub(in crate::engine) enum SampleResult {
    /// the best token
    Greedy(u32),
    /// the best candidates
    Few(Candidates),
    /// all logits
    All(Vec<f32>),
}

/// A row of a sampling that was read back.
pub(in crate::engine) struct SampledRow {
    pub result: SampleResult,
    /// token that the GPU chose for the next pass; None if it chose none
    pub predicted: Option<u32>,
}

/// Kind of result that a row is sampled from.
#[derive(Clone, Copy)]
enum RowSampling {
    Best,
    Few,
    All,
}

/// A submitted sampling that was not read back yet.
pub(in crate::engine) struct RecordedSampling {
    submitted: Submitted,
    /// submits up to this one are done when it is
    n_submits: u64,
    readback: usize,
    rows: Vec<RowSampling>,
}

impl ModelRunner {
    /// Allocates buffers for the logits of `n_rows`. A single row needs none.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub(in crate::engine) fn reserve_logits(&mut self, gpu: &Gpu, n_rows: usize) -> Result<(), EngineError> {
        if n_rows < 2 {
            self.row_logits = None;
        } else if self.row_logits.as_ref().is_none_or(|rows| rows.n_rows < n_rows) {
            let (output, logits) = self.exec.model.wide_output(gpu, n_rows)?;
            let readback = || gpu.readback_buffer("candidates", n_rows as u64 * TOP_K_BYTES);
            let readbacks = self.exec.model.act.readbacks.iter().map(|_| readback()).collect::<Result<_, _>>()?;
            self.row_logits = Some(RowLogits { n_rows, output, logits, readbacks });
        }
        Ok(())
    }

    /// Projects rows `first_row ..` of the last pass, one per sampler, submits, and waits for the candidates.
    ///
    /// # Errors
    /// A lost device.
    pub(in crate::engine) fn sample(
        &mut self,
        gpu: &Gpu,
        first_row: usize,
        samplers: &[&Sampler],
    ) -> Result<Vec<SampledRow>, EngineError> {
        let recorded = self.record_sampling(gpu, first_row, samplers, 0)?;
        self.read_sampling(gpu, &recorded)
    }

    /// Projects rows `first_row ..` of the last pass, one per sampler, and submits. `n_unread` samplings before this one were not
    /// read back yet, at most one.
    ///
    /// # Errors
    /// A lost device.
    pub(in crate::engine) fn record_sampling(
        &mut self,
        gpu: &Gpu,
        first_row: usize,
        samplers: &[&Sampler],
        n_unread: usize,
    ) -> Result<RecordedSampling, EngineError> {
        let (exec, pacer, vocab_size) = (&self.exec, &mut self.pacer, self.exec.model.dims.vocab_size);
        let rows = self.row_logits.as_ref();
        let (output, readbacks) =
            rows.map_or((&exec.model.ops.output, &exec.model.act.readbacks), |rows| (&rows.output, &rows.readbacks));
        debug_assert!(samplers.len() <= rows.map_or(1, |rows| rows.n_rows), "{} samplers have no room", samplers.len());
        debug_assert!(n_unread < readbacks.len(), "{n_unread} unread samplings");
        self.next_readback = (self.next_readback + 1) % readbacks.len();
        exec.run_output(gpu, pacer, output, (first_row, samplers.len()))?;
        pacer.mark(KernelFamily::Sample, NO_LAYER);
        let (ops, bindings) = (&exec.model.sample, &exec.model.sample_bindings);
        let kinds: Vec<RowSampling> = samplers.iter().map(|sampler| RowSampling::of(sampler)).collect();
        for (i, (sampler, kind)) in samplers.iter().zip(&kinds).enumerate() {
            if matches!(kind, RowSampling::All) {
                continue;
            }
            if let Some(rows) = rows {
                let logits = row_of(&rows.logits, i, vocab_size);
                pacer.recorder.copy(&logits, &exec.model.act.logits.buffer.slice(0, logits.size));
            }
            let next_id = exec.model.act.ids.buffer.slice(exec.model.act.ids.offset + 4 * i as u64, 4);
            match kind {
                RowSampling::Best => {
                    ops.record_argmax(&mut pacer.recorder, bindings, vocab_size);
                    if ops.can_draw() {
                        ops.record_best_id(&mut pacer.recorder, bindings, &next_id);
                    }
                }
                _ => {
                    ops.record_top_k(&mut pacer.recorder, bindings, vocab_size, TOP_K_CANDIDATES);
                    if ops.can_draw() {
                        ops.record_draw(&mut pacer.recorder, bindings, sampler.draw(n_unread));
                        ops.record_drawn_id(&mut pacer.recorder, bindings, &next_id);
                    }
                }
            }
            let to = readbacks[self.next_readback].slice(i as u64 * TOP_K_BYTES, TOP_K_BYTES);
            pacer.recorder.copy(&exec.model.act.result.buffer.slice(0, TOP_K_BYTES), &to);
        }
        let submitted = pacer.submit(gpu)?;
        Ok(RecordedSampling { submitted, n_submits: pacer.n_submits(), readback: self.next_readback, rows: kinds })
    }

    /// Waits for a sampling and reads it back. All logits are those of the last sampling recorded.
    ///
    /// # Errors
    /// A lost device.
    pub(in crate::engine) fn read_sampling(
        &mut self,
        gpu: &Gpu,
        recorded: &RecordedSampling,
    ) -> Result<Vec<SampledRow>, EngineError> {
        let RecordedSampling { submitted, n_submits, readback, rows } = recorded;
        let mut bytes = Vec::new();
        if rows.iter().any(|kind| !matches!(kind, RowSampling::All)) {
            let readbacks = self.row_logits.as_ref().map_or(&self.exec.model.act.readbacks, |rows| &rows.readbacks);
            bytes = self.pacer.read_after(gpu, submitted, &readbacks[*readback], <[u8]>::to_vec)?;
        }
        self.pacer.wait_for(gpu, *n_submits)?;
        if let Executor { selector: Some(selector), kv, .. } = &mut self.exec
            && kv.is_link_limited()
        {
            selector.device_counters(gpu, kv)?;
        }
        let can_draw = self.exec.model.sample.can_draw();
        let of_row = |(i, kind): (usize, &RowSampling)| {
            let bytes = bytes.get(i * TOP_K_BYTES as usize..).unwrap_or_default();
            let (result, predicted) = match kind {
                RowSampling::All => (SampleResult::All(self.logits_of(gpu, i)?), None),
                RowSampling::Best => {
                    let best = sample::parse_argmax(bytes).0;
                    (SampleResult::Greedy(best), Some(best))
                }
                RowSampling::Few => {
                    (SampleResult::Few(sample::parse_top_k(bytes, TOP_K_CANDIDATES)), Some(sample::parse_drawn(bytes)))
                }
            };
            Ok(SampledRow { result, predicted: predicted.filter(|_| can_draw) })
        };
        rows.iter().enumerate().map(of_row).collect()
    }

    /// Logits f32 `[V]` of the last decoded token. Waits for the GPU.
    ///
    /// # Errors
    /// A lost device.
    pub(in crate::engine) fn last_logits(&mut self, gpu: &Gpu) -> Result<Vec<f32>, EngineError> {
        let output = self.row_logits.as_ref().map_or(&self.exec.model.ops.output, |rows| &rows.output);
        self.exec.run_output(gpu, &mut self.pacer, output, (0, 1))?;
        self.pacer.finish(gpu)?;
        self.logits_of(gpu, 0)
    }

    /// Logits f32 `[V]` of row `i` of the last sampling.
    ///
    /// # Errors
    /// A lost device.
    pub(in crate::engine) fn logits_of(&self, gpu: &Gpu, i: usize) -> Result<Vec<f32>, EngineError> {
        let vocab_size = self.exec.model.dims.vocab_size;
        let logits = self.row_logits.as_ref().map_or(&self.exec.model.act.logits, |rows| &rows.logits);
        Ok(bytemuck::pod_collect_to_vec(&gpu.download(&row_of(logits, i, vocab_size))?))
    }
}

impl RowSampling {
    fn of(sampler: &Sampler) -> RowSampling {
        match (sampler.needs_all_logits(), sampler.is_greedy()) {
            (true, _) => RowSampling::All,
            (false, true) => RowSampling::Best,
            (false, false) => RowSampling::Few,
        }
    }
}

fn row_of(logits: &Slice, i: usize, vocab_size: usize) -> Slice {
    let n_bytes = (vocab_size * size_of::<f32>()) as u64;
    logits.buffer.slice(logits.offset + i as u64 * n_bytes, n_bytes)
}
