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
use crate::engine::selection::sequence_policy::MassSteps;
use crate::engine::selection::token_scorer::{ScoreOps, Scorer, pages_of};
use crate::gpu::Gpu;
use crate::gpu::kernels::qk_scores::QkScores;
use crate::kv::policy::scores::{ScoreRuns, head_masses};
use crate::telemetry::KernelFamily;

/// Minimum number of attention sinks: tokens at the front that get attention regardless of their content.
///
/// Source: StreamingLLM §3.1 (arXiv 2309.17453).
const MIN_RESTING: usize = 4;

/// Maximum number of measured exact steps per answer. Each reads back the scores of the whole context.
const MAX_EXACT_STEPS: usize = 3;

/// Sums over the measured steps of an answer.
#[derive(Default)]
pub(in crate::engine) struct PageAttentionMeter {
    /// attention sinks at the front, which do not count
    n_resting: usize,
    by_page: Vec<f64>,
    n_steps: usize,
    probe: Option<PageAttentionProbe>,
}

/// Kernel and buffers to measure one exact step.
struct PageAttentionProbe {
    scorer: Scorer,
    /// by segment
    segments: Vec<ScoreOps>,
}

impl PageAttentionMeter {
    /// Begins another answer. The first `n_head` tokens of its context precede the text of the first user message.
    pub(in crate::engine) fn begin(&mut self, n_head: usize) {
        *self = PageAttentionMeter { n_resting: n_head.max(MIN_RESTING), ..PageAttentionMeter::default() };
    }

    /// Adds the attention mass of every token of a layer, per KV head.
    pub(in crate::engine) fn note(&mut self, layer: usize, mass: &[Vec<f64>]) {
        self.n_steps += usize::from(layer == 0);
        for of_head in mass {
            let n_pages = of_head.len().div_ceil(KV_PAGE_TOKENS);
            self.by_page.resize(self.by_page.len().max(n_pages), 0.0);
            for (token, mass) in of_head.iter().enumerate().skip(self.n_resting) {
                if let Some(sum) = self.by_page.get_mut(token / KV_PAGE_TOKENS) {
                    *sum += mass;
                }
            }
        }
    }

    /// Fraction of the total mass on each page. None if nothing was measured.
    fn shares(&self) -> Option<Vec<f32>> {
        let sum: f64 = self.by_page.iter().sum();
        (sum > 0.0).then(|| self.by_page.iter().map(|mass| (mass / sum) as f32).collect())
    }
}

impl PageAttentionProbe {
    fn new(gpu: &Gpu, exec: &Executor) -> Result<PageAttentionProbe, EngineError> {
        let (d, kv) = (&exec.model.dims, &exec.kv);
        let kernel = QkScores::new(gpu, d.n_head, d.n_kv_head, d.head_dim, kv.spec().sealed)?;
        let segment = |i: usize| ScoreOps::new(gpu, exec, &kernel, 1, kv.shapes()[i].n_frames, &pages_of(exec, i));
        let segments = (0..kv.shapes().len()).map(segment).collect::<Result<_, _>>()?;
        let n_keys = kv.n_sealed() as usize * KV_PAGE_TOKENS;
        let readback = gpu.readback_buffer("token scores", kernel.scores_bytes(n_keys))?;
        Ok(PageAttentionProbe { scorer: Scorer { kernel, readback }, segments })
    }
}

impl Executor {
    /// Prepares the measurement of the next exact step, if all pages are in VRAM.
    fn measure_next(&mut self, gpu: &Gpu) {
        let n_pages = self.kv.n_sealed();
        let is_here = (0..self.model.dims.n_layer).all(|layer| self.kv.is_all_resident(layer, n_pages));
        if n_pages > 0 && is_here {
            self.attention_meter.probe = PageAttentionProbe::new(gpu, self).ok();
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
            .note(layer, &head_masses(&scoring.in_order(&scores, self.model.dims.n_head), self.model.dims.n_kv_head));
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
        let is_due = MassSteps::Few.holds(step) && self.exec.attention_meter.n_steps < MAX_EXACT_STEPS;
        if is_due && self.exec.selector.is_none() {
            self.exec.measure_next(gpu);
        }
    }

    /// Emits the page attention of the answer, if it was measured and the context has text.
    pub(in crate::engine) fn emit_page_attention(&mut self, port: &EnginePort, turn: RequestId) {
        let Some(mass) = self.exec.attention_meter.shares() else { return };
        let first_byte = self.first_bytes(mass.len());
        if first_byte.len() == mass.len() + 1 {
            let page_attention = PageAttention { n_steps: self.exec.attention_meter.n_steps, mass, first_byte };
            port.emit(EngineEvent::PageAttention { turn, page_attention: Box::new(page_attention) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meter_leaves_attention_sinks_out_and_returns_fractions_of_the_rest() {
        let mut attention_meter = PageAttentionMeter::default();
        assert_eq!(attention_meter.shares(), None);
        attention_meter.begin(10);
        // Most of the mass is on attention sinks; of the rest, a quarter is on page 0 and three quarters on page 1.
        let mut mass = vec![0.0; 2 * KV_PAGE_TOKENS];
        (mass[0], mass[9], mass[10], mass[100]) = (0.8, 0.1, 0.025, 0.075);
        for layer in 0..2 {
            attention_meter.note(layer, &[mass.clone(), mass.clone()]);
        }
        let shares = attention_meter.shares().unwrap();
        assert!((shares[0] - 0.25).abs() < 1e-6 && (shares[1] - 0.75).abs() < 1e-6, "{shares:?}");
        assert_eq!(attention_meter.n_steps, 1);
        // Another page has become complete.
        let mut longer = vec![0.0; 3 * KV_PAGE_TOKENS];
        longer[150] = 0.4;
        attention_meter.note(0, &[longer]);
        let shares = attention_meter.shares().unwrap();
        assert!((shares[2] - 0.5).abs() < 1e-6 && (shares.iter().sum::<f32>() - 1.0).abs() < 1e-6, "{shares:?}");
        attention_meter.begin(0);
        assert_eq!((attention_meter.shares(), attention_meter.n_resting), (None, MIN_RESTING));
    }
}
