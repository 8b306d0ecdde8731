//! What the end of a prompt looks at: its answer will look there as well, so those pages are kept at hand while it is written.
//!
//! ```text
//! last tokens of the prompt, read exactly, page after page ─► share of their attention, by layer and page ─► Seen
//! ```
//! 1. Nothing is looked at where nothing lies below VRAM: there all pages are scored that may matter.
//!
//! Owner: the engine thread. Shapes: L layers, P pages in the order in which attention came to them.
//!
//! Source: SnapKV (Li et al. 2024), section 3 (see [`super::seen`]).

use super::Selective;
use super::seen::Seen;
use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::device_model::DeviceModel;
use crate::engine::error::EngineError;
use crate::engine::pace::Pace;
use crate::gpu::kernels::attention_prefill::KeyTile;
use crate::gpu::kernels::page_attention::{PageAttentionKernel, Window};
use crate::gpu::{Binding, Buffer, Gpu, Recorder, Slice};

/// Tokens at the end of a prompt whose attention is looked at.
const OBSERVED_TOKENS: usize = 32;

/// Attention of one pass that is looked at.
pub(in crate::engine) struct Lookout {
    kernel: PageAttentionKernel,
    window: Window,
    bindings: [Binding; 2],
    /// f32 `[L, P]`
    shares: Slice,
    readback: Buffer,
    /// by layer: pages in the order in which attention came to them
    order: Vec<Vec<u32>>,
}

impl Lookout {
    fn new(gpu: &Gpu, model: &DeviceModel, n_tokens: usize, n_observed: usize, n_pages: usize) -> Result<Lookout, EngineError> {
        let d = &model.dims;
        let kernel = PageAttentionKernel::new(gpu, d.n_head, d.n_kv_head)?;
        let window = Window { n_tokens, n_observed, stride: n_pages };
        let lse = gpu.buffer("attention of pages", kernel.lse_bytes(window))?.all();
        let n_bytes = (d.n_layer * n_pages * size_of::<f32>()) as u64;
        let shares = gpu.buffer("shares of pages", n_bytes)?.all();
        let bindings = kernel.bind(gpu, [&model.act.scores, &model.act.prefill_state, &lse, &shares])?;
        let readback = gpu.readback_buffer("shares of pages", n_bytes)?;
        Ok(Lookout { kernel, window, bindings, shares, readback, order: Vec::new() })
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

impl Selective {
    /// A prompt of so many tokens is read next.
    pub(in crate::engine) fn begin_prompt(&mut self, n_tokens: usize) {
        self.lookout = None;
        self.seen = Seen::of_prompt(n_tokens);
    }

    /// What the prompt that was read last looked at.
    pub(in crate::engine) fn take_seen(&mut self) -> Seen {
        let mut seen = std::mem::take(&mut self.seen);
        seen.end_prompt(&self.spec);
        seen
    }

    /// Attention of the next layer comes to these pages, in this order.
    pub(in crate::engine) fn look_at(&mut self, pages: &[u32]) {
        self.lookout.iter_mut().for_each(|lookout| lookout.order.push(pages.to_vec()));
    }
}

impl DeviceModel {
    /// Looks at the attention of the pass that begins to the first `n_before` tokens, if that is the end of a prompt over pages that are not all in VRAM. Where the
    /// device has no memory for that, the answer does without.
    pub(in crate::engine) fn begin_lookout(&mut self, gpu: &Gpu, first_pos: usize, n_tokens: usize, n_before: usize) {
        // Of a pass that failed.
        self.selective.iter_mut().for_each(|selective| selective.lookout = None);
        let Some(selective) = self.selective.as_ref().filter(|s| s.spec.kind.reads_abstracts()) else { return };
        let (end, prompt_len) = (first_pos + n_tokens, selective.seen.prompt_len());
        let first_observed = first_pos.max(prompt_len.saturating_sub(OBSERVED_TOKENS));
        let n_pages = n_before / KV_PAGE_TOKENS;
        let is_all_here = || (0..self.dims.n_layer).all(|layer| self.kv.is_all_resident(layer, n_pages as u32));
        // A single token takes another way, and nothing is to be found behind the prompt.
        if n_tokens < 2 || end > prompt_len || first_observed >= end || n_pages == 0 || is_all_here() {
            return;
        }
        let lookout = Lookout::new(gpu, self, n_tokens, end - first_observed, n_pages).ok();
        if let Some(selective) = &mut self.selective {
            selective.lookout = lookout;
        }
    }

    /// Waits for what the pass looked at, if it did.
    pub(in crate::engine) fn end_lookout(&mut self, gpu: &Gpu, pace: &mut Pace) -> Result<(), EngineError> {
        let Some(selective) = &mut self.selective else { return Ok(()) };
        let Some(lookout) = selective.lookout.take() else { return Ok(()) };
        let Lookout { shares, readback, order, window, .. } = lookout;
        pace.recorder.copy(&shares, &readback.slice(0, shares.size));
        let submitted = pace.submit(gpu)?;
        let shares: Vec<f32> = pace.read_after(gpu, &submitted, &readback, bytemuck::pod_collect_to_vec)?;
        for (layer, (pages, shares)) in order.iter().zip(shares.chunks(window.stride)).enumerate() {
            selective.seen.add(layer, pages, shares);
        }
        Ok(())
    }

    /// What looks at the attention of this pass.
    pub(in crate::engine) fn lookout(&self) -> Option<&Lookout> {
        self.selective.as_ref()?.lookout.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Bytes, Rng, Tiers};
    use crate::engine::command::{LoadOptions, ModelSource};
    use crate::engine::loaded::{Loaded, open};
    use crate::engine::turn::TurnPolicy;
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
        let mut loaded = Loaded::load(&gpu, &hub, None, open(&source).unwrap(), &source, &options, &mut |_, _| true).unwrap();
        let mut rng = Rng::new(12);
        let mut prompt: Vec<u32> = (0..2600).map(|_| 300 + rng.below(2000)).collect();
        // The end of the prompt is a passage of page 23, which goes on there.
        let passage = prompt[23 * KV_PAGE_TOKENS + 20..][..12].to_vec();
        prompt.extend(passage);
        loaded.model.selective.iter_mut().for_each(|selective| selective.begin_prompt(prompt.len()));
        loaded.reserve(&gpu, prompt.len() + 4).unwrap();
        while loaded.tokens.len() < prompt.len() {
            let at = loaded.tokens.len();
            let n = loaded.next_chunk(at, prompt.len() - at);
            loaded.run_chunk(&gpu, &prompt[at..at + n]).unwrap();
        }
        let selective = loaded.model.selective.as_mut().unwrap();
        selective.begin_answer(8);
        for layer in [2, 3, 4] {
            assert!(selective.seen.kept(layer).contains(&23), "layer {layer} keeps {:?}", selective.seen.kept(layer));
        }
        assert!(selective.seen.kept(0).is_empty() && selective.seen.kept(1).is_empty());
        // Of the kept pages, those that neither VRAM nor RAM has.
        let far = |loaded: &Loaded| -> Vec<Vec<u32>> {
            let (model, selective) = (&loaded.model, loaded.model.selective.as_ref().unwrap());
            let far = |layer| model.seen_below(selective, layer, prompt.len() / KV_PAGE_TOKENS).far;
            (0..6)
                .map(|layer| far(layer).into_iter().filter(|page| selective.seen.kept(layer).contains(page)).collect())
                .collect()
        };
        let before = far(&loaded);
        assert!(before.iter().any(|pages| !pages.is_empty()), "nothing of {before:?} is on the disk: the test is too easy");
        for token in [300, 301] {
            loaded.decode(&gpu, token, TurnPolicy::AsLoaded).unwrap();
        }
        let after = far(&loaded);
        assert!(after.iter().all(Vec::is_empty), "{before:?} was on the disk, {after:?} still is");
        // Nothing of it counts for the next prompt.
        let selective = loaded.model.selective.as_mut().unwrap();
        selective.begin_prompt(5);
        selective.begin_answer(8);
        assert!((0..6).all(|layer| selective.seen.kept(layer).is_empty()));
    }
}
