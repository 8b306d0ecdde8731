//! The end of a pass of several rows: logits of all of them, and what their samplers need of these.
//!
//! ```text
//! x [R, C] ─► norm ─► output projection ─► logits [R, V] ─► row by row: argmax or top-k ─► one readback for all
//! ```
//! Owner: the engine thread.

use crate::base::limits::TOP_K_CANDIDATES;
use crate::engine::error::EngineError;
use crate::engine::runner::SampleResult;
use crate::engine::runner::gpu_model::{GpuModel, LinearOp};
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::engine::sampler::Sampler;
use crate::gpu::kernels::sample::{self, TOP_K_BYTES};
use crate::gpu::{Buffer, Gpu, Slice};
use crate::telemetry::{KernelFamily, NO_LAYER};

/// Buffers for the logits and picks of several rows.
pub(in crate::engine) struct BatchSampler {
    output: LinearOp,
    logits: Slice,
    readback: Buffer,
}

impl BatchSampler {
    /// Buffers for `n_rows`.
    pub fn new(gpu: &Gpu, model: &GpuModel, n_rows: usize) -> Result<BatchSampler, EngineError> {
        let (output, logits) = model.wide_output(gpu, n_rows)?;
        let readback = gpu.readback_buffer("picks", n_rows as u64 * TOP_K_BYTES)?;
        Ok(BatchSampler { output, logits, readback })
    }

    /// Projects a row of the pass for each sampler, submits everything and waits for what they need.
    pub fn pick(
        &self,
        gpu: &Gpu,
        model: &GpuModel,
        pacer: &mut SubmitPacer,
        samplers: &[&Sampler],
    ) -> Result<Vec<SampleResult>, EngineError> {
        model.run_wide_output(gpu, pacer, &self.output, samplers.len())?;
        pacer.mark(KernelFamily::Sample, NO_LAYER);
        let vocab_size = model.dims.vocab_size;
        for (row, sampler) in samplers.iter().enumerate().filter(|(_, sampler)| !sampler.needs_all_logits()) {
            let logits = self.row(model, row);
            pacer.recorder.copy(&logits, &model.act.logits.buffer.slice(0, logits.size));
            match sampler.is_greedy() {
                true => model.sample.record_argmax(&mut pacer.recorder, &model.sample_bindings, vocab_size),
                false => model.sample.record_top_k(&mut pacer.recorder, &model.sample_bindings, vocab_size, TOP_K_CANDIDATES),
            }
            let to = self.readback.slice(row as u64 * TOP_K_BYTES, TOP_K_BYTES);
            pacer.recorder.copy(&model.act.result.buffer.slice(0, TOP_K_BYTES), &to);
        }
        let submitted = pacer.submit(gpu)?;
        let bytes = pacer.read_after(gpu, &submitted, &self.readback, <[u8]>::to_vec)?;
        pacer.finish(gpu)?;
        let results = bytes.chunks_exact(TOP_K_BYTES as usize);
        let picked = samplers.iter().zip(results).enumerate().map(|(row, (sampler, bytes))| {
            Ok(match sampler {
                sampler if sampler.needs_all_logits() => SampleResult::All(self.all_logits(gpu, model, row)?),
                sampler if sampler.is_greedy() => SampleResult::Greedy(sample::parse_argmax(bytes).0),
                _ => SampleResult::Few(sample::parse_top_k(bytes, TOP_K_CANDIDATES)),
            })
        });
        picked.collect()
    }

    /// The logits of a row of the last pick, f32 `[V]`.
    pub fn all_logits(&self, gpu: &Gpu, model: &GpuModel, row: usize) -> Result<Vec<f32>, EngineError> {
        Ok(bytemuck::pod_collect_to_vec(&gpu.download(&self.row(model, row))?))
    }

    fn row(&self, model: &GpuModel, row: usize) -> Slice {
        let size = (model.dims.vocab_size * 4) as u64;
        self.logits.buffer.slice(row as u64 * size, size)
    }
}
