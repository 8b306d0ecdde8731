//! Sampling readback: logits of the rows of a pass, and the candidates for their samplers.
//!
//! ```text
//! x [R, C] ─► norm ─► output projection ─► logits [R, V] ─► row by row: argmax or top-k ─► one readback for all rows
//! ```
//! A single answer is one row; its logits need no extra buffer.
//!
//! Owner: the engine thread.

use crate::base::limits::TOP_K_CANDIDATES;
use crate::engine::error::EngineError;
use crate::engine::runner::ModelRunner;
use crate::engine::runner::row_logits::RowLogits;
use crate::engine::sampler::Sampler;
use crate::gpu::kernels::sample::{self, Candidates, TOP_K_BYTES};
use crate::gpu::{Gpu, Slice};
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
            let readback = gpu.readback_buffer("candidates", n_rows as u64 * TOP_K_BYTES)?;
            self.row_logits = Some(RowLogits { n_rows, output, logits, readback });
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
    ) -> Result<Vec<SampleResult>, EngineError> {
        let (exec, pacer, vocab_size) = (&self.exec, &mut self.pacer, self.exec.model.dims.vocab_size);
        let rows = self.row_logits.as_ref();
        let (output, readback) =
            rows.map_or((&exec.model.ops.output, &exec.model.act.readback), |rows| (&rows.output, &rows.readback));
        debug_assert!(samplers.len() <= rows.map_or(1, |rows| rows.n_rows), "{} samplers have no room", samplers.len());
        exec.run_output(gpu, pacer, output, (first_row, samplers.len()))?;
        pacer.mark(KernelFamily::Sample, NO_LAYER);
        for (i, sampler) in samplers.iter().enumerate().filter(|(_, sampler)| !sampler.needs_all_logits()) {
            if let Some(rows) = rows {
                let logits = row_of(&rows.logits, i, vocab_size);
                pacer.recorder.copy(&logits, &exec.model.act.logits.buffer.slice(0, logits.size));
            }
            match sampler.is_greedy() {
                true => exec.model.sample.record_argmax(&mut pacer.recorder, &exec.model.sample_bindings, vocab_size),
                false => {
                    exec.model.sample.record_top_k(&mut pacer.recorder, &exec.model.sample_bindings, vocab_size, TOP_K_CANDIDATES)
                }
            }
            let to = readback.slice(i as u64 * TOP_K_BYTES, TOP_K_BYTES);
            pacer.recorder.copy(&exec.model.act.result.buffer.slice(0, TOP_K_BYTES), &to);
        }
        let mut bytes = Vec::new();
        if samplers.iter().any(|sampler| !sampler.needs_all_logits()) {
            let submitted = pacer.submit(gpu)?;
            bytes = pacer.read_after(gpu, &submitted, readback, <[u8]>::to_vec)?;
        }
        pacer.finish(gpu)?;
        let candidates = |i: usize| bytes.get(i * TOP_K_BYTES as usize..).unwrap_or_default();
        let result = |(i, sampler): (usize, &&Sampler)| {
            Ok(match sampler {
                sampler if sampler.needs_all_logits() => SampleResult::All(self.logits_of(gpu, i)?),
                sampler if sampler.is_greedy() => SampleResult::Greedy(sample::parse_argmax(candidates(i)).0),
                _ => SampleResult::Few(sample::parse_top_k(candidates(i), TOP_K_CANDIDATES)),
            })
        };
        samplers.iter().enumerate().map(result).collect()
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

fn row_of(logits: &Slice, i: usize, vocab_size: usize) -> Slice {
    let n_bytes = (vocab_size * size_of::<f32>()) as u64;
    logits.buffer.slice(logits.offset + i as u64 * n_bytes, n_bytes)
}
