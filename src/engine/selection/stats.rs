//! Selection statistics of one answer: tokens read, pages resident or prefetched, attention mass retained.
//!
//! Units: tokens and pages of all KV heads and layers, summed over decode steps.

use std::time::Duration;

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::api::{MassKept, SelectionSummary};
use crate::engine::selection::device_selection::DeviceCounters;
use crate::kv::SelectedStream;
use crate::kv::policy::fidelity::{Fidelity, fidelity};
use crate::kv::policy::{PolicySpec, Selection};

/// Sums over the steps in which the GPU selected.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::engine) struct DeviceCounts {
    /// selected tokens, and all tokens of complete pages
    n_selected: u64,
    n_tokens: u64,
    /// selections of a layer whose evaluations are not counted yet
    n_layers: u64,
    /// selected tokens whose tiers are counted
    n_counted: u64,
}

/// Sums over the steps of an answer.
#[derive(Debug, Clone, Default)]
pub(in crate::engine) struct SelectionStats {
    /// evaluated token ranges
    n_evaluations: u64,
    pub device: DeviceCounts,
    /// selection time: the policy, and waits for scores that only it needs
    pub evaluation: Duration,
    /// selected tokens, and all tokens of complete pages
    n_selected: u64,
    n_tokens: u64,
    /// selected pages, and those of them in VRAM
    n_pages: u64,
    n_resident: u64,
    /// those of them that were prefetched
    n_foreseen: u64,
    /// transferred pages, and those of them compressed (INT4)
    n_moved: u64,
    n_compressed: u64,
    /// by layer: sum over steps and KV heads, and number of terms; empty if mass was not measured
    mass: Vec<(Fidelity, u64)>,
    /// by layer: attention mass of every page in the last measured step, mean over KV heads
    page_mass: Vec<Vec<f32>>,
    /// measured steps
    n_mass_steps: u64,
}

impl SelectionStats {
    /// Records the start of a layer's stream.
    pub fn record_stream(&mut self, stream: &SelectedStream) {
        self.n_moved += stream.n_pages as u64;
        self.n_compressed += stream.n_compressed as u64;
    }

    /// Records a selection of the GPU in a layer: `n_selected` of `n_tokens`, over all KV heads.
    pub fn record_device(&mut self, n_selected: usize, n_tokens: usize) {
        self.device.n_selected += n_selected as u64;
        self.device.n_tokens += n_tokens as u64;
        self.device.n_layers += 1;
    }

    /// Records that attention read all `n_tokens` of a layer, over all KV heads, and all of its mass if that is measured.
    pub fn record_all(&mut self, layer: usize, n_tokens: usize, measures_mass: bool) {
        self.device.n_selected += n_tokens as u64;
        self.device.n_tokens += n_tokens as u64;
        if measures_mass {
            self.begin_mass(layer);
            let (sum, n) = &mut self.mass[layer];
            *sum = Fidelity { kept: sum.kept + 1.0, best: sum.best + 1.0, recall: sum.recall + 1.0 };
            *n += 1;
        }
    }

    /// Begins the measurement of a layer.
    fn begin_mass(&mut self, layer: usize) {
        self.n_mass_steps += u64::from(layer == 0);
        if self.mass.len() <= layer {
            self.mass.resize(layer + 1, Default::default());
            self.page_mass.resize(layer + 1, Vec::new());
        }
    }

    /// Adds the counters of the GPU once they are read. 64 selected tokens count as a page.
    pub fn add_device_counters(&mut self, counters: &DeviceCounters) {
        let n_layers = std::mem::take(&mut self.device.n_layers) as f64;
        let n_tokens = counters.scored_pages * KV_PAGE_TOKENS as f64 * n_layers;
        self.n_evaluations += n_tokens.round() as u64;
        let n_pages = self.device.n_selected.saturating_sub(self.device.n_counted) as f64 / KV_PAGE_TOKENS as f64;
        let n_in_ram = counters.selected_in_ram * n_layers / KV_PAGE_TOKENS as f64;
        self.n_pages += n_pages.round() as u64;
        self.n_resident += (n_pages - n_in_ram).max(0.0).round() as u64;
        self.device.n_counted = self.device.n_selected;
    }

    /// Records the selection of a layer of `n_pages`: `n_missing` were not in VRAM, `prefetched` were prefetched in this step.
    pub fn record(&mut self, selection: &Selection, n_pages: usize, n_missing: usize, prefetched: &[u32]) {
        let n_foreseen = prefetched.iter().filter(|page| selection.pages.binary_search(page).is_ok()).count();
        self.n_foreseen += n_foreseen as u64;
        self.n_evaluations += selection.n_evaluations as u64;
        self.n_selected += selection.n_tokens() as u64;
        self.n_tokens += (n_pages * KV_PAGE_TOKENS * selection.blocks.len()) as u64;
        self.n_pages += selection.pages.len() as u64;
        self.n_resident += (selection.pages.len() - n_missing - n_foreseen) as u64;
    }

    /// Compares the selection of a layer with the full attention, mean over KV heads. `mass` has the attention mass of every
    /// token per KV head. The last `n_tail` tokens follow the last complete page and are always read.
    pub fn record_mass(&mut self, layer: usize, selection: &Selection, mass: &[Vec<f64>], n_tail: usize) -> MassKept {
        self.begin_mass(layer);
        let n_tokens = mass.first().map_or(0, Vec::len).saturating_sub(n_tail);
        self.page_mass[layer] = vec![0.0; n_tokens / KV_PAGE_TOKENS];
        let (sum, n) = &mut self.mass[layer];
        let before = *sum;
        for (blocks, mass) in selection.blocks.iter().zip(mass) {
            for (page, tokens) in self.page_mass[layer].iter_mut().zip(mass.chunks(KV_PAGE_TOKENS)) {
                *page += (tokens.iter().sum::<f64>() / selection.blocks.len() as f64) as f32;
            }
            let one = fidelity(mass, blocks, n_tail);
            *sum = Fidelity { kept: sum.kept + one.kept, best: sum.best + one.best, recall: sum.recall + one.recall };
            *n += 1;
        }
        let step = Fidelity { kept: sum.kept - before.kept, best: sum.best - before.best, recall: sum.recall - before.recall };
        mean(&step, selection.blocks.len() as u64)
    }

    /// Attention mass of every page by layer, in the last measured step. Empty if none was measured.
    pub fn page_mass(&self) -> &[Vec<f32>] {
        &self.page_mass
    }

    /// Summary over `steps`. None if there were none.
    pub fn summary(&self, spec: PolicySpec, steps: u64) -> Option<SelectionSummary> {
        if steps == 0 {
            return None;
        }
        let share = |part: u64, whole: u64| if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
        Some(SelectionSummary {
            spec,
            steps,
            share_read: share(self.n_selected + self.device.n_selected, self.n_tokens + self.device.n_tokens),
            reuse: share(self.n_resident, self.n_pages),
            compressed: if self.n_compressed == 0 { 0.0 } else { share(self.n_compressed, self.n_moved) },
            foreseen: share(self.n_foreseen, self.n_pages - self.n_resident),
            evaluations_per_step: self.n_evaluations as f64 / steps as f64,
            evaluation_ms_per_step: self.evaluation.as_secs_f64() * 1e3 / steps as f64,
            mass: (self.n_mass_steps > 0).then(|| self.mass.iter().map(|(sum, n)| mean(sum, *n)).collect()),
            mass_steps: self.n_mass_steps,
        })
    }
}

fn mean(sum: &Fidelity, n: u64) -> MassKept {
    let n = n.max(1) as f64;
    MassKept { kept: sum.kept / n, best: sum.best / n, recall: sum.recall / n }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::policy::SelectedBlock;

    #[test]
    fn mass_of_the_tail_counts_as_kept_but_belongs_to_no_page() {
        // Two pages and a tail of three tokens, which has half of the attention. Half of the rest is on the selected page.
        let mut mass = vec![0.0; 2 * KV_PAGE_TOKENS + 3];
        (mass[7], mass[KV_PAGE_TOKENS + 7], mass[2 * KV_PAGE_TOKENS + 2]) = (0.25, 0.25, 0.5);
        let selection = Selection { blocks: vec![SelectedBlock::of_pages(&[1])], pages: vec![1], n_evaluations: 0 };
        let mut stats = SelectionStats::default();
        let kept = stats.record_mass(0, &selection, &[mass], 3);
        assert!((kept.kept - 0.75).abs() < 1e-9 && (kept.best - 1.0).abs() < 1e-9, "{kept:?}");
        assert_eq!(stats.page_mass(), [[0.25, 0.25]]);
    }
}
