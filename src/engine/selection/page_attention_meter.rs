//! Page attention meter: sums of attention mass per page over the measured steps of an answer, and the buffers of a measurement.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::error::EngineError;
use crate::engine::runner::device_parts::DeviceParts;
use crate::engine::selection::token_scorer::{ScoreOps, Scorer, pages_of};
use crate::gpu::Gpu;
use crate::gpu::kernels::qk_scores::QkScores;

/// Minimum number of attention sinks: tokens at the front that get attention regardless of their content.
///
/// Source: StreamingLLM §3.1 (arXiv 2309.17453).
const MIN_RESTING: usize = 4;

/// Maximum number of measured exact steps per answer. Each reads back the scores of the whole context.
pub(super) const MAX_EXACT_STEPS: usize = 3;

/// Sums over the measured steps of an answer.
#[derive(Default)]
pub(in crate::engine) struct PageAttentionMeter {
    /// attention sinks at the front, which do not count
    n_resting: usize,
    by_page: Vec<f64>,
    pub(super) n_steps: usize,
    pub(super) probe: Option<PageAttentionProbe>,
}

/// Kernel and buffers to measure one exact step.
pub(super) struct PageAttentionProbe {
    pub(super) scorer: Scorer,
    /// by segment
    pub(super) segments: Vec<ScoreOps>,
}

impl PageAttentionMeter {
    /// Begins another answer. The first `n_head` tokens of its context precede the text of the first user message.
    pub(in crate::engine) fn begin(&mut self, n_head: usize) {
        *self = PageAttentionMeter { n_resting: n_head.max(MIN_RESTING), ..PageAttentionMeter::default() };
    }

    /// Adds the attention mass of every token of a layer, per KV head.
    pub(in crate::engine) fn record(&mut self, layer: usize, mass: &[Vec<f64>]) {
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
    pub(super) fn shares(&self) -> Option<Vec<f32>> {
        let sum: f64 = self.by_page.iter().sum();
        (sum > 0.0).then(|| self.by_page.iter().map(|mass| (mass / sum) as f32).collect())
    }
}

impl PageAttentionProbe {
    pub(super) fn new(gpu: &Gpu, parts: DeviceParts<'_>) -> Result<PageAttentionProbe, EngineError> {
        let (d, kv) = (&parts.model.dims, parts.kv);
        let kernel = QkScores::new(gpu, d.n_head, d.n_kv_head, d.head_dim, kv.spec().sealed)?;
        let segment = |i: usize| ScoreOps::new(gpu, parts, &kernel, 1, kv.shapes()[i].n_frames, &pages_of(parts, i));
        let segments = (0..kv.shapes().len()).map(segment).collect::<Result<_, _>>()?;
        let n_keys = kv.n_sealed() as usize * KV_PAGE_TOKENS;
        let readback = gpu.readback_buffer("token scores", kernel.scores_bytes(n_keys))?;
        Ok(PageAttentionProbe { scorer: Scorer { kernel, readback }, segments })
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
            attention_meter.record(layer, &[mass.clone(), mass.clone()]);
        }
        let shares = attention_meter.shares().unwrap();
        assert!((shares[0] - 0.25).abs() < 1e-6 && (shares[1] - 0.75).abs() < 1e-6, "{shares:?}");
        assert_eq!(attention_meter.n_steps, 1);
        // Another page has become complete.
        let mut longer = vec![0.0; 3 * KV_PAGE_TOKENS];
        longer[150] = 0.4;
        attention_meter.record(0, &[longer]);
        let shares = attention_meter.shares().unwrap();
        assert!((shares[2] - 0.5).abs() < 1e-6 && (shares.iter().sum::<f32>() - 1.0).abs() < 1e-6, "{shares:?}");
        attention_meter.begin(0);
        assert_eq!((attention_meter.shares(), attention_meter.n_resting), (None, MIN_RESTING));
    }
}
