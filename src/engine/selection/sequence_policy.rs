//! Policy state of one sequence: results of earlier steps, and the selection of a layer from the scores of this step.
//!
//! ```text
//! page bounds, tail scores, scores of candidates ─► pages_to_score ─► more scores
//! all scores, keys in RAM ─► select ─► Selection, and the candidates and pages of the next layer
//! ```
//! 1. No GPU type: scores are plain data, so that the sequences of a batch select in parallel.
//! 2. Every sequence has its own policy state; frames, transfers and access frequency are shared by the batch.
//!
//! Owner: the engine thread. Shapes: H query heads, G KV heads, P complete pages.

use std::collections::HashSet;

use crate::base::ModelDims;
use crate::engine::api::SelectionSummary;
use crate::engine::error::EngineError;
use crate::engine::selection::SelectionStats;
use crate::engine::selection::stats::DeviceCounts;
use crate::gpu::kernels::selection::SelectionSizes;
use crate::kv::RamKeys;
use crate::kv::policy::scores::{PageBounds, PageScores, ScoreRuns, ScoreTotals};
use crate::kv::policy::{LayerView, Lookahead, Policy, PolicySpec, Selection, Tier, unique};

/// Decode steps that read every page to compare the selection with the full attention.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::engine) enum MassSteps {
    /// none
    #[default]
    None,
    /// the 3rd, the 7th, the 15th and so on: at most 8 of 1,000, and some of a short answer
    Few,
    /// every one
    All,
}

impl MassSteps {
    /// True if step `step` of an answer, from 0, is one of them.
    pub(in crate::engine) fn holds(self, step: usize) -> bool {
        match self {
            MassSteps::None => false,
            MassSteps::Few => step >= 2 && (step + 2).is_power_of_two(),
            MassSteps::All => true,
        }
    }
}

/// Selection state of one sequence.
pub(in crate::engine) struct SequencePolicy {
    pub spec: PolicySpec,
    policy: Box<dyn Policy>,
    /// by layer `[H]`: slack of the highest bound of each query head over its attention in the last step
    bound_slack: Vec<Vec<f32>>,
    /// by layer: candidates of the last step, in any tier
    candidates: Vec<Vec<u32>>,
    /// decode step of the answer
    pub step: usize,
    /// maximum steps of the answer
    n_steps: usize,
    pub mass_steps: MassSteps,
    /// by layer: attention reads everything, as that is faster; empty if it always selects
    pub exact_layers: Vec<bool>,
    pub stats: SelectionStats,
}

/// Progress of a policy by steps of the GPU.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct PolicyProgress {
    step: usize,
    device: DeviceCounts,
}

/// Inputs of one layer that all sequences of the batch share.
#[derive(Clone, Copy)]
pub(in crate::engine) struct LayerInputs<'a> {
    pub layer: usize,
    pub n_head: usize,
    pub n_kv_head: usize,
    pub tiers: &'a [Tier],
    pub ram_keys: RamKeys<'a>,
    /// tiers of the pages of the next layer; None if it cannot be prefetched
    pub next_tiers: Option<&'a [Tier]>,
}

/// Scores of one layer for one sequence.
#[derive(Default)]
pub(in crate::engine) struct RowScores {
    pub bounds: PageBounds,
    /// of the next layer, by the estimated query
    pub next_bounds: Option<PageBounds>,
    /// query f32 `[H, D]`
    pub q: Vec<f32>,
    /// scores f32 `[H, n_keys]` of the tokens after the last complete page
    pub tail: Vec<f32>,
    /// pages whose tokens were scored, and their scores f32 `[H, n_keys]` of each run
    pub runs: ScoreRuns,
    pub scores: Vec<f32>,
    /// the candidates come from the estimate or the last step
    pub is_predicted: bool,
    /// candidates in RAM, which the CPU scores
    pub in_ram: Vec<u32>,
    /// candidates on disk alone, which are read to score them
    pub on_disk: Vec<u32>,
    /// bounds on attention weights `[G, P]`, from the scores of the first readback
    weights: Vec<[f32; 2]>,
}

/// Outcome of one layer for one sequence.
pub(in crate::engine) struct RowSelection {
    pub selection: Selection,
    /// candidates of the next layer, and its pages to prefetch
    pub next: Option<(Vec<u32>, Vec<u32>)>,
}

impl RowScores {
    fn totals(&self, n_head: usize) -> ScoreTotals {
        let mut totals = ScoreTotals::none(n_head);
        totals.add(&self.tail);
        totals.add_runs(&self.runs, &self.scores);
        totals
    }
}

impl SequencePolicy {
    /// State of an answer of up to `n_steps` tokens, before its first step.
    ///
    /// # Errors
    /// Invalid parameters of `spec`.
    pub fn new(spec: PolicySpec, n_steps: usize, dims: &ModelDims) -> Result<SequencePolicy, EngineError> {
        Ok(SequencePolicy {
            spec,
            policy: spec.policy().map_err(|e| EngineError::Policy(e.to_string()))?,
            bound_slack: vec![vec![0.0; dims.n_head]; dims.n_layer],
            candidates: vec![Vec::new(); dims.n_layer],
            step: 0,
            n_steps: n_steps.max(1),
            mass_steps: MassSteps::None,
            exact_layers: Vec::new(),
            stats: SelectionStats::default(),
        })
    }

    /// Summary of this answer. None before its first step.
    pub fn summary(&self) -> Option<SelectionSummary> {
        self.stats.summary(self.spec, self.step as u64)
    }

    /// True if the selection of this step is compared with the full attention.
    pub fn measures_mass(&self) -> bool {
        self.mass_steps.holds(self.step)
    }

    /// Candidates before the bounds of this step are known: those `predicted` by the estimate, and those of the last step.
    pub fn candidates(&self, layer: usize, predicted: Option<&[u32]>, n_pages: usize) -> Vec<u32> {
        let pages = predicted.unwrap_or_default().iter().chain(&self.candidates[layer]).copied();
        self.spec.to_score(pages, n_pages)
    }

    /// Progress so far.
    pub fn progress(&self) -> PolicyProgress {
        PolicyProgress { step: self.step, device: self.stats.device }
    }

    /// Goes back to, or on to, the progress before or after a step on the device.
    pub fn set_progress(&mut self, progress: PolicyProgress) {
        self.step = progress.step;
        self.stats.device = progress.device;
    }

    /// True if attention of a layer reads everything.
    pub fn reads_all(&self, layer: usize) -> bool {
        self.exact_layers.get(layer) == Some(&true)
    }

    /// See [`Policy::device_sizes`].
    pub fn device_sizes(&self, layer: usize, n_pages: usize) -> Option<SelectionSizes> {
        self.policy.device_sizes(layer, n_pages)
    }

    /// True if the last step or the estimate has candidates of the layer.
    pub fn is_predicted(&self, layer: usize, predicted: Option<&[u32]>) -> bool {
        predicted.is_some() || !self.candidates[layer].is_empty()
    }

    fn view<'a>(&self, at: &LayerInputs<'a>, bounds: &'a [[f32; 2]]) -> LayerView<'a> {
        let LayerInputs { layer, n_kv_head, tiers, .. } = *at;
        LayerView { layer, step: self.step, n_steps: self.n_steps, n_kv_head, tiers, bounds, scores: None }
    }

    /// Further pages whose tokens must be scored, given the bounds of this step. Ascending.
    pub fn pages_to_score(&self, at: &LayerInputs, row: &mut RowScores) -> Vec<u32> {
        row.weights = row.bounds.of_weights(&row.bounds.slack(&row.totals(at.n_head)), at.n_kv_head);
        let view = self.view(at, &row.weights);
        let mut pages = if row.is_predicted { self.policy.unpredicted_candidates(&view) } else { self.policy.candidates(&view) };
        let scored: HashSet<u32> = row.runs.pages.iter().copied().collect();
        pages.retain(|page| !scored.contains(page));
        if at.tiers.iter().any(|tier| *tier != Tier::Vram) {
            (row.in_ram, row.on_disk) = at.ram_keys.partition(self.policy.offloaded_candidates(&view));
        }
        pages.extend_from_slice(&row.on_disk);
        unique(pages)
    }

    /// Selects the tokens that attention reads, and estimates the pages of the next layer.
    pub fn select(&mut self, at: &LayerInputs, row: &mut RowScores) -> RowSelection {
        let mut totals = row.totals(at.n_head);
        let (pages, in_ram) = at.ram_keys.scores(&row.in_ram, &row.q);
        totals.add(&in_ram);
        row.runs.add_run(&pages, &mut row.scores, in_ram);
        let n_pages = at.tiers.len();
        let mut tokens = PageScores::none(at.n_kv_head, n_pages);
        tokens.add(&row.runs, &row.scores, &totals);
        self.bound_slack[at.layer] = row.bounds.slack(&totals);
        let bounds = row.bounds.of_weights(&self.bound_slack[at.layer], at.n_kv_head);
        let view = LayerView { scores: Some(&tokens), ..self.view(at, &bounds) };
        let selection = self.policy.select(&view);
        let anywhere = vec![Tier::Vram; n_pages];
        if self.spec.kind.reads_abstracts() {
            self.candidates[at.layer] = self.policy.candidates(&LayerView { tiers: &anywhere, ..view });
        }
        RowSelection { selection, next: self.predict(at, row.next_bounds.take(), &anywhere) }
    }

    /// Candidates of the next layer and its pages to prefetch. None without estimated bounds, unless the policy is a window.
    fn predict(&self, at: &LayerInputs, bounds: Option<PageBounds>, anywhere: &[Tier]) -> Option<(Vec<u32>, Vec<u32>)> {
        let tiers = at.next_tiers.filter(|_| bounds.is_some() || self.spec.kind.lookahead() == Lookahead::Position)?;
        let bounds = bounds.unwrap_or_default().of_weights(&self.bound_slack[at.layer + 1], at.n_kv_head);
        let view = LayerView { layer: at.layer + 1, tiers: anywhere, ..self.view(at, &bounds) };
        Some((self.policy.candidates(&view), self.policy.predict(&LayerView { tiers, ..view })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::KV_PAGE_TOKENS;

    #[test]
    fn attention_of_a_sequence_counts_the_tokens_of_its_tail() {
        let mut row = RowScores { bounds: PageBounds::new(vec![[7.0, -2.0]], 1), ..RowScores::default() };
        row.runs.add_run(&[0], &mut row.scores, vec![1.0; KV_PAGE_TOKENS]);
        let slack = |row: &RowScores| row.bounds.slack(&row.totals(1))[0];
        assert!((slack(&row) - (7.0 - 1.0 - 64f32.ln())).abs() < 1e-3);
        row.tail = vec![9.0];
        let want = 7.0 - (9f32.exp() + 64.0 * 1f32.exp()).ln();
        assert!((slack(&row) - want).abs() < 1e-3, "{} instead of {want}", slack(&row));
    }

    #[test]
    fn mass_steps_are_few_and_early() {
        let steps: Vec<usize> = (0..1000).filter(|step| MassSteps::Few.holds(*step)).collect();
        assert_eq!(steps, [2, 6, 14, 30, 62, 126, 254, 510]);
    }
}
