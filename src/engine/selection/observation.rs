//! Observation: measures the attention of the last prompt tokens in prefill, with an observation window.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::error::EngineError;
use crate::engine::runner::executor::Executor;
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::engine::selection::Selector;
use crate::engine::selection::observation_window::{OBSERVED_TOKENS, ObservationWindow};
use crate::gpu::Gpu;
use crate::kv::policy::retention::RetainedPages;

impl Selector {
    /// Begins the prefill of a prompt of `n_tokens`.
    pub(in crate::engine) fn begin_prompt(&mut self, n_tokens: usize) {
        self.observation_window = None;
        self.observed = RetainedPages::of_prompt(n_tokens);
    }

    /// Begins the next layer, whose attention reads these pages in this order.
    pub(in crate::engine) fn observe(&mut self, pages: &[u32]) {
        self.observation_window.iter_mut().for_each(|window| window.order.push(pages.to_vec()));
    }
}

impl Executor {
    /// Begins the observation of a pass, if it ends a prompt, and if not all pages of the first `n_before` tokens are in VRAM.
    /// Without GPU memory for it, the answer has no retained pages.
    pub(in crate::engine) fn begin_observation(&mut self, gpu: &Gpu, first_pos: usize, n_tokens: usize, n_before: usize) {
        // One may remain from a failed pass.
        self.selector.iter_mut().for_each(|selector| selector.observation_window = None);
        let Some(selector) = self.selector.as_ref().filter(|s| s.spec.kind.reads_abstracts()) else { return };
        let (end, prompt_len) = (first_pos + n_tokens, selector.observed.prompt_len());
        let first_observed = first_pos.max(prompt_len.saturating_sub(OBSERVED_TOKENS));
        let n_pages = n_before / KV_PAGE_TOKENS;
        let is_all_here = || (0..self.model.dims.n_layer).all(|layer| self.kv.is_all_resident(layer, n_pages as u32));
        // A single token uses decode attention, and nothing after the prompt is observed.
        if n_tokens < 2 || end > prompt_len || first_observed >= end || n_pages == 0 || is_all_here() {
            return;
        }
        let observation_window = ObservationWindow::new(gpu, self.parts(), n_tokens, end - first_observed, n_pages).ok();
        if let Some(selector) = &mut self.selector {
            selector.observation_window = observation_window;
        }
    }

    /// Waits for the observed attention of the pass, if any.
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

    /// Observation window of this pass. None if it is not observed.
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
    use crate::gpu::FeatureOverrides;
    use crate::gpu::testing::gpu_with;
    use crate::kv::policy::PolicySpec;
    use crate::telemetry::Hub;

    #[test]
    fn page_similar_to_the_prompt_end_is_retained_and_fetched_from_any_tier() {
        // Prefill attention has a scores buffer on software devices, and none on others. The CPU selects: the GPU retains nothing.
        for hardware_kernels in [false, true] {
            let overrides = FeatureOverrides { hardware_kernels, host_import: Some(false), ..FeatureOverrides::default() };
            let test = "page_similar_to_the_prompt_end_is_retained_and_fetched_from_any_tier";
            let Some(gpu) = gpu_with(test, overrides) else { return };
            check_retained_page(&gpu);
        }
    }

    fn check_retained_page(gpu: &Gpu) {
        let dir = tempfile::tempdir().unwrap();
        let (hub, source) = (Hub::new(64), ModelSource::BuiltIn);
        // Of 40 pages of six layers, VRAM holds a few and RAM half: most pages of the retrieval layers are on disk.
        let budgets = Tiers { vram: Some(Bytes(5 << 19)), ram: Some(Bytes(6 << 20)), disk: None };
        let (context, kv_dir, policy) = (Some(2688), Some(dir.path().to_owned()), Some(PolicySpec::default()));
        let options = LoadOptions { budgets, context, kv_dir, policy, ..LoadOptions::default() };
        let mut runner = ModelRunner::load(gpu, &hub, None, open(&source).unwrap(), &source, &options, &mut |_, _| true).unwrap();
        let mut rng = Rng::new(12);
        let mut prompt: Vec<u32> = (0..2600).map(|_| 300 + rng.uniform(2000)).collect();
        // The end of the prompt repeats a passage of page 23, which continues there.
        let passage = prompt[23 * KV_PAGE_TOKENS + 20..][..12].to_vec();
        prompt.extend(passage);
        runner.begin_prompt(prompt.len());
        runner.reserve(gpu, prompt.len() + 4).unwrap();
        while runner.tokens.len() < prompt.len() {
            let at = runner.tokens.len();
            let n = runner.next_chunk(at, prompt.len() - at);
            runner.run_chunk(gpu, &prompt[at..at + n]).unwrap();
        }
        let mut policy = runner.begin_answer(gpu, 8, runner.tokens.len()).unwrap().unwrap();
        for layer in [2, 3, 4] {
            let retained = policy.retained.retained(layer);
            assert!(retained.contains(&23), "layer {layer} keeps {retained:?}");
        }
        assert!(policy.retained.retained(0).is_empty() && policy.retained.retained(1).is_empty());
        // Retained pages that are neither in VRAM nor in RAM.
        let far = |runner: &ModelRunner, policy: &SequencePolicy| -> Vec<Vec<u32>> {
            let far = |layer| runner.exec.offloaded_hits(policy, layer, prompt.len() / KV_PAGE_TOKENS).on_disk;
            let retained = |layer| far(layer).into_iter().filter(|page| policy.retained.retained(layer).contains(page)).collect();
            (0..6).map(retained).collect()
        };
        let before = far(&runner, &policy);
        assert!(before.iter().any(|pages| !pages.is_empty()), "nothing of {before:?} is on the disk: the test is too easy");
        for token in [300, 301] {
            runner.decode(gpu, token, Some(&mut policy)).unwrap();
        }
        let after = far(&runner, &policy);
        assert!(after.iter().all(Vec::is_empty), "{before:?} was on the disk, {after:?} still is");
        // The next prompt retains nothing of it.
        runner.begin_prompt(5);
        let policy = runner.begin_answer(gpu, 8, runner.tokens.len()).unwrap().unwrap();
        assert!((0..6).all(|layer| policy.retained.retained(layer).is_empty()));
    }
}
