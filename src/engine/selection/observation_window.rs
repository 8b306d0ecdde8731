//! SnapKV observation window: attention of the last prompt tokens, which predicts the pages that the answer attends to.
//!
//! ```text
//! last tokens of the prompt, read exactly ─► attention mass by layer and page ─► RetainedPages
//! ```
//! 1. Nothing is observed if all pages are in VRAM: there every page that may matter is scored.
//!
//! Owner: the engine thread. Shapes: L layers, P pages in the order in which attention read them.
//!
//! Source: SnapKV §3 (see [`crate::kv::policy::retention`]).

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::error::EngineError;
use crate::engine::runner::gpu_model::GpuModel;
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::engine::selection::Selector;
use crate::gpu::kernels::attention_prefill::KeyTile;
use crate::gpu::kernels::page_attention::{PageAttentionKernel, Window};
use crate::gpu::{Binding, Buffer, Gpu, Recorder, Slice};
use crate::kv::policy::retention::RetainedPages;

/// Tokens of the observation window.
const OBSERVED_TOKENS: usize = 32;

/// Observed attention of one pass.
pub(in crate::engine) struct ObservationWindow {
    kernel: PageAttentionKernel,
    window: Window,
    bindings: [Binding; 2],
    /// f32 `[L, P]`
    shares: Slice,
    readback: Buffer,
    /// by layer: pages in the order in which attention came to them
    order: Vec<Vec<u32>>,
}

impl ObservationWindow {
    fn new(
        gpu: &Gpu,
        model: &GpuModel,
        n_tokens: usize,
        n_observed: usize,
        n_pages: usize,
    ) -> Result<ObservationWindow, EngineError> {
        let d = &model.dims;
        let kernel = PageAttentionKernel::new(gpu, d.n_head, d.n_kv_head)?;
        let window = Window { n_tokens, n_observed, stride: n_pages };
        let lse = gpu.buffer("attention of pages", kernel.lse_bytes(window))?.all();
        let n_bytes = (d.n_layer * n_pages * size_of::<f32>()) as u64;
        let shares = gpu.buffer("shares of pages", n_bytes)?.all();
        let bindings = kernel.bind(gpu, [&model.act.scores, &model.act.prefill_state, &lse, &shares])?;
        let readback = gpu.readback_buffer("shares of pages", n_bytes)?;
        Ok(ObservationWindow { kernel, window, bindings, shares, readback, order: Vec::new() })
    }

    /// Records a tile of whole pages, of which `first_page` come before it, behind its scores.
    pub fn record_tile(&self, recorder: &mut Recorder, tile: &KeyTile, first_page: usize) {
        self.kernel.record_tile(recorder, &self.bindings, self.window, tile, first_page);
    }

    /// Records the shares of the layer that was begun last, behind its last tile.
    pub fn record_layer(&self, recorder: &mut Recorder) {
        let Some(layer) = self.order.len().checked_sub(1) else { return };
        let to = layer * self.window.stride;
        self.kernel.record_shares(recorder, &self.bindings, self.window, self.order[layer].len(), to);
    }
}

impl Selector {
    /// The prefill of a prompt of `n_tokens` begins.
    pub(in crate::engine) fn begin_prompt(&mut self, n_tokens: usize) {
        self.observation_window = None;
        self.observed = RetainedPages::of_prompt(n_tokens);
    }

    /// Attention of the next layer reads these pages, in this order.
    pub(in crate::engine) fn observe(&mut self, pages: &[u32]) {
        self.observation_window.iter_mut().for_each(|window| window.order.push(pages.to_vec()));
    }
}

impl GpuModel {
    /// Looks at the attention of the pass that begins to the first `n_before` tokens, if that is the end of a prompt over pages that are not all in VRAM. Where the
    /// device has no memory for that, the answer does without.
    pub(in crate::engine) fn begin_observation(&mut self, gpu: &Gpu, first_pos: usize, n_tokens: usize, n_before: usize) {
        // Of a pass that failed.
        self.selector.iter_mut().for_each(|selector| selector.observation_window = None);
        let Some(selector) = self.selector.as_ref().filter(|s| s.spec.kind.reads_abstracts()) else { return };
        let (end, prompt_len) = (first_pos + n_tokens, selector.observed.prompt_len());
        let first_observed = first_pos.max(prompt_len.saturating_sub(OBSERVED_TOKENS));
        let n_pages = n_before / KV_PAGE_TOKENS;
        let is_all_here = || (0..self.dims.n_layer).all(|layer| self.kv.is_all_resident(layer, n_pages as u32));
        // A single token takes another way, and nothing is to be found behind the prompt.
        if n_tokens < 2 || end > prompt_len || first_observed >= end || n_pages == 0 || is_all_here() {
            return;
        }
        let observation_window = ObservationWindow::new(gpu, self, n_tokens, end - first_observed, n_pages).ok();
        if let Some(selector) = &mut self.selector {
            selector.observation_window = observation_window;
        }
    }

    /// Waits for what the pass looked at, if it did.
    pub(in crate::engine) fn end_observation(&mut self, gpu: &Gpu, pacer: &mut SubmitPacer) -> Result<(), EngineError> {
        let Some(selector) = &mut self.selector else { return Ok(()) };
        let Some(observation_window) = selector.observation_window.take() else { return Ok(()) };
        let ObservationWindow { shares, readback, order, window, .. } = observation_window;
        pacer.recorder.copy(&shares, &readback.slice(0, shares.size));
        let submitted = pacer.submit(gpu)?;
        let shares: Vec<f32> = pacer.read_after(gpu, &submitted, &readback, bytemuck::pod_collect_to_vec)?;
        for (layer, (pages, shares)) in order.iter().zip(shares.chunks(window.stride)).enumerate() {
            selector.observed.add(layer, pages, shares);
        }
        Ok(())
    }

    /// What looks at the attention of this pass.
    pub(in crate::engine) fn observation_window(&self) -> Option<&ObservationWindow> {
        self.selector.as_ref()?.observation_window.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Bytes, Rng, Tiers};
    use crate::engine::api::{LoadOptions, ModelSource};
    use crate::engine::runner::{ModelRunner, open};
    use crate::engine::selection::sequence_policy::SequencePolicy;
    use crate::gpu::testing::gpu;
    use crate::kv::policy::PolicySpec;
    use crate::telemetry::Hub;

    #[test]
    fn page_that_the_prompt_ends_like_is_kept_at_hand_wherever_it_was() {
        let Some(gpu) = gpu("page_that_the_prompt_ends_like_is_kept_at_hand_wherever_it_was") else { return };
        let dir = tempfile::tempdir().unwrap();
        let (hub, source) = (Hub::new(64), ModelSource::BuiltIn);
        // Of 40 pages of six layers, VRAM has room for a few and RAM for half: most of the layers that retrieve lies on the disk.
        let budgets = Tiers { vram: Some(Bytes(5 << 19)), ram: Some(Bytes(6 << 20)), disk: None };
        let (context, kv_dir, policy) = (Some(2688), Some(dir.path().to_owned()), Some(PolicySpec::default()));
        let options = LoadOptions { budgets, context, kv_dir, policy, ..LoadOptions::default() };
        let mut runner =
            ModelRunner::load(&gpu, &hub, None, open(&source).unwrap(), &source, &options, &mut |_, _| true).unwrap();
        let mut rng = Rng::new(12);
        let mut prompt: Vec<u32> = (0..2600).map(|_| 300 + rng.below(2000)).collect();
        // The end of the prompt is a passage of page 23, which goes on there.
        let passage = prompt[23 * KV_PAGE_TOKENS + 20..][..12].to_vec();
        prompt.extend(passage);
        runner.begin_prompt(prompt.len());
        runner.reserve(&gpu, prompt.len() + 4).unwrap();
        while runner.tokens.len() < prompt.len() {
            let at = runner.tokens.len();
            let n = runner.next_chunk(at, prompt.len() - at);
            runner.run_chunk(&gpu, &prompt[at..at + n]).unwrap();
        }
        let mut policy = runner.begin_answer(8).unwrap().unwrap();
        for layer in [2, 3, 4] {
            let kept = policy.retained.retained(layer);
            assert!(kept.contains(&23), "layer {layer} keeps {kept:?}");
        }
        assert!(policy.retained.retained(0).is_empty() && policy.retained.retained(1).is_empty());
        // Retained pages that are neither in VRAM nor in RAM.
        let far = |runner: &ModelRunner, policy: &SequencePolicy| -> Vec<Vec<u32>> {
            let far = |layer| runner.model.offloaded_hits(policy, layer, prompt.len() / KV_PAGE_TOKENS).on_disk;
            let kept = |layer| far(layer).into_iter().filter(|page| policy.retained.retained(layer).contains(page)).collect();
            (0..6).map(kept).collect()
        };
        let before = far(&runner, &policy);
        assert!(before.iter().any(|pages| !pages.is_empty()), "nothing of {before:?} is on the disk: the test is too easy");
        for token in [300, 301] {
            runner.decode(&gpu, token, Some(&mut policy)).unwrap();
        }
        let after = far(&runner, &policy);
        assert!(after.iter().all(Vec::is_empty), "{before:?} was on the disk, {after:?} still is");
        // Nothing of it counts for the next prompt.
        runner.begin_prompt(5);
        let policy = runner.begin_answer(8).unwrap().unwrap();
        assert!((0..6).all(|layer| policy.retained.retained(layer).is_empty()));
    }
}
