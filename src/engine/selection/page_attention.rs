//! Page attention: attention mass per page during an answer, measured in a few of its steps.
//!
//! ```text
//! exact step: q, keys in frames ─ PageAttentionProbe ─┐
//! selective step: scores of every token ──────────────┴─► mass per token ─► by page, over layers and steps ─► PageAttention
//! ```
//! 1. The tokens before the text of the first user message, at least [`MIN_RESTING`], are left out: they are attention sinks.
//! 2. An exact step is measured only if all pages are in VRAM; nothing is fetched for it.
//! 3. Without memory for the measurement, the answer continues unmeasured.
//!
//! Owner thread: the engine. Shapes: H query heads, P complete pages. Units: fractions, 0 to 1. Limits: [`MAX_EXACT_STEPS`].

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::api::{EngineEvent, PageAttention, RequestId};
use crate::engine::error::EngineError;
use crate::engine::handle::EnginePort;
use crate::engine::runner::ModelRunner;
use crate::engine::runner::executor::Executor;
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::engine::selection::page_attention_meter::{MAX_EXACT_STEPS, PageAttentionProbe};
use crate::engine::selection::sequence_policy::MassSteps;
use crate::gpu::Gpu;
use crate::kv::policy::scores::{ScoreRuns, head_masses};
use crate::telemetry::KernelFamily;

impl Executor {
    /// Prepares the measurement of the next exact step, if all pages are in VRAM.
    fn measure_next(&mut self, gpu: &Gpu) {
        let n_pages = self.kv.n_sealed();
        let is_here = (0..self.model.dims.n_layer).all(|layer| self.kv.is_all_resident(layer, n_pages));
        if n_pages > 0 && is_here {
            self.attention_meter.probe = PageAttentionProbe::new(gpu, self.parts()).ok();
        }
    }

    /// Measures the attention mass of a layer, if this step is measured. Waits for the GPU.
    pub(in crate::engine) fn measure_attention(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer: usize,
        first_pos: usize,
    ) -> Result<(), EngineError> {
        let Some(probe) = self.attention_meter.probe.take() else { return Ok(()) };
        pacer.mark(KernelFamily::Evaluation, layer as u32);
        let pages: Vec<u32> = (0..(first_pos / KV_PAGE_TOKENS) as u32).collect();
        let mut scoring = ScoreRuns::new(0);
        let device = (gpu, &mut pacer.recorder);
        self.score_in_frames(&probe.scorer, probe.segments.iter(), device, layer, &pages, &mut scoring);
        let submitted = pacer.submit(gpu)?;
        let n_bytes = scoring.end as usize;
        let scores: Vec<f32> = pacer.read_after(gpu, &submitted, &probe.scorer.readback, |bytes| {
            bytemuck::pod_collect_to_vec(bytes.get(..n_bytes).unwrap_or_default())
        })?;
        self.attention_meter
            .record(layer, &head_masses(&scoring.in_order(&scores, self.model.dims.n_head), self.model.dims.n_kv_head));
        if layer + 1 < self.model.dims.n_layer {
            self.attention_meter.probe = Some(probe);
        }
        pacer.mark(KernelFamily::Attention, layer as u32);
        Ok(())
    }
}

impl ModelRunner {
    /// Prepares the measurement of step `step` of an exact answer, if it is due.
    pub(in crate::engine) fn measure_step(&mut self, gpu: &Gpu, step: usize) {
        if self.measures_step(step) {
            self.exec.measure_next(gpu);
        }
    }

    /// True if the measurement of step `step` of an exact answer is due.
    pub(in crate::engine) fn measures_step(&self, step: usize) -> bool {
        let is_due = MassSteps::Few.holds(step) && self.exec.attention_meter.n_steps < MAX_EXACT_STEPS;
        is_due && self.exec.selector.is_none()
    }

    /// Emits the page attention of the answer, if it was measured and the context has text.
    pub(in crate::engine) fn emit_page_attention(&mut self, port: &EnginePort, request: RequestId) {
        let Some(mass) = self.exec.attention_meter.shares() else { return };
        let first_byte = self.first_bytes(mass.len());
        if first_byte.len() == mass.len() + 1 {
            let page_attention = PageAttention { n_steps: self.exec.attention_meter.n_steps, mass, first_byte };
            port.emit(EngineEvent::PageAttention { request, page_attention: Box::new(page_attention) });
        }
    }
}
