//! SnapKV observation window: retained pages of a prompt, and tracked pages of its answer.
//!
//! ```text
//! attention shares at the end of the prompt ─► retained: the pages with most of it ──────┐
//! each step: a token with a high share ─► tracked for some steps: its page and, from the ├─► tokens scored one by one
//!                             second half of the page on, the next page ─────────────────┘   ─► copies pinned in RAM
//! ```
//! 1. A bound only shows that a page may matter, and it is all that is known of a page on disk. While a passage is
//!    quoted, the next page would not be scored in time.
//! 2. Retained pages are scored if VRAM or RAM has them; in the first steps also from disk.
//! 3. Tracked pages are scored in any tier: they are read from disk once, before they are needed.
//!
//! Pure. Shapes: P pages.
//!
//! Source: SnapKV §3 (an observation window at the end of the prompt identifies what the answer attends to).

use crate::base::limits::KV_PAGE_TOKENS;
use crate::kv::RamKeys;
use crate::kv::policy::access_frequency::FrequencyTable;
use crate::kv::policy::{LayerView, PolicySpec, Tier, unique};

/// Minimum share of the attention on the free pages of a layer for a page to be retained.
const MIN_SHARE: f32 = 0.02;
/// A layer retains at most the number of pages it reads divided by this.
const READ_PER_RETAINED: usize = 4;
/// Steps of an answer in which retained pages are read from disk to score them.
const DISK_SCORE_STEPS: usize = 8;
/// Weight of a retained page, in selections.
const RETAINED_WEIGHT: f64 = 32.0;
/// Attention share of a token, for one query head, from which its page is tracked.
const TRACKED_SHARE: f32 = 0.2;
/// Number of steps for which a page is tracked.
const TRACKED_STEPS: usize = 8;
/// Weight of a newly tracked page, in selections.
pub const TRACKED_WEIGHT: f64 = 8.0;

/// Retained and tracked pages of one answer.
#[derive(Debug, Default)]
pub struct RetainedPages {
    /// tokens of the prompt during prefill; 0 otherwise
    prompt_len: usize,
    /// by layer, then page: sum of attention shares over the passes of the observation window
    shares: Vec<Vec<f32>>,
    /// by layer: retained pages, ascending
    retained: Vec<Vec<u32>>,
    /// by layer: tracked pages, each with the first step in which it is no longer tracked
    tracked: Vec<Vec<(u32, usize)>>,
}

/// Offloaded pages of a layer that should be scored.
#[derive(Debug, Default)]
pub struct OffloadedHits {
    /// all of them, ascending
    pub pages: Vec<u32>,
    /// those to read from disk
    pub on_disk: Vec<u32>,
}

impl OffloadedHits {
    /// Pages to score if RAM has them: `candidates` and these, except those read from disk. Ascending.
    pub fn in_ram(&self, candidates: Vec<u32>) -> Vec<u32> {
        let mut pages = unique([candidates, self.pages.clone()].concat());
        pages.retain(|page| !self.on_disk.contains(page));
        pages
    }
}

impl RetainedPages {
    /// Starts the prefill of a prompt of `n_tokens`.
    pub fn of_prompt(n_tokens: usize) -> RetainedPages {
        RetainedPages { prompt_len: n_tokens, ..RetainedPages::default() }
    }

    /// Tokens of the prompt during prefill.
    pub fn prompt_len(&self) -> usize {
        self.prompt_len
    }

    /// Adds the attention shares of `pages` of a layer in one pass.
    pub fn add(&mut self, layer: usize, pages: &[u32], shares: &[f32]) {
        let of_layer = of_layer(&mut self.shares, layer);
        for (page, share) in pages.iter().map(|page| *page as usize).zip(shares) {
            if of_layer.len() <= page {
                of_layer.resize(page + 1, 0.0);
            }
            of_layer[page] += share;
        }
    }

    /// Ends the prefill: determines the retained pages of the answer.
    pub fn end_prompt(&mut self, spec: &PolicySpec) {
        let retained = |(layer, shares): (usize, &Vec<f32>)| {
            // First layers are never on disk.
            if spec.is_first(layer) {
                return Vec::new();
            }
            let free = spec.free_pages(shares.len());
            let n_read = spec.n_wanted(layer, free.len() * KV_PAGE_TOKENS).div_ceil(KV_PAGE_TOKENS);
            let free_shares: Vec<(u32, f32)> = free.map(|page| (page as u32, shares[page])).collect();
            largest_shares(&free_shares, n_read.div_ceil(READ_PER_RETAINED))
        };
        self.retained = self.shares.iter().enumerate().map(retained).collect();
        self.prompt_len = 0;
        self.tracked.clear();
    }

    /// Records the retained pages in the frequency table.
    pub fn record_retained(&self, frequency: &mut FrequencyTable, clock: u64) {
        self.retained.iter().enumerate().for_each(|(layer, pages)| frequency.record(layer, clock, pages, RETAINED_WEIGHT));
    }

    /// Updates the tracked pages from the scores of a layer in this step. Returns newly tracked pages, each with
    /// weight [`TRACKED_WEIGHT`].
    #[must_use]
    pub fn track(&mut self, spec: &PolicySpec, view: &LayerView) -> Vec<u32> {
        // Without abstracts, either all pages or none are scored. First layers are never on disk. In VRAM all that may
        // matter is scored.
        if !spec.kind.reads_abstracts() || spec.is_first(view.layer) || view.tiers.iter().all(|tier| *tier == Tier::Vram) {
            return Vec::new();
        }
        self.track_pages(view.layer, view.step, pages_with_attention(spec, view))
    }

    /// Tracks `pages` from this step on. Returns the newly tracked ones.
    fn track_pages(&mut self, layer: usize, step: usize, pages: Vec<u32>) -> Vec<u32> {
        let tracked = of_layer(&mut self.tracked, layer);
        tracked.retain(|(_, end)| *end > step);
        let mut newly_tracked = Vec::new();
        for page in pages {
            let end = step + TRACKED_STEPS;
            match tracked.iter_mut().find(|(entry, _)| *entry == page) {
                Some(entry) => entry.1 = end,
                None => {
                    tracked.push((page, end));
                    newly_tracked.push(page);
                }
            }
        }
        newly_tracked
    }

    /// Offloaded pages to score in a step, among the first `n_pages` of a layer.
    pub fn offloaded_hits(
        &self,
        (layer, step): (usize, usize),
        n_pages: usize,
        is_resident: impl Fn(u32) -> bool,
        in_ram: &RamKeys,
    ) -> OffloadedHits {
        let tracked = || self.tracked.get(layer).into_iter().flatten().map(|(page, _)| *page);
        let is_offloaded = |page: &u32| (*page as usize) < n_pages && !is_resident(*page);
        let pages = unique(self.retained(layer).iter().copied().chain(tracked()).filter(is_offloaded).collect());
        let mut on_disk = if pages.is_empty() { Vec::new() } else { in_ram.missing_from_ram(&pages) };
        on_disk.retain(|page| step < DISK_SCORE_STEPS || tracked().any(|tracked| tracked == *page));
        OffloadedHits { pages, on_disk }
    }

    /// Retained pages of a layer.
    pub fn retained(&self, layer: usize) -> &[u32] {
        self.retained.get(layer).map_or(&[], Vec::as_slice)
    }
}

fn of_layer<T>(layers: &mut Vec<Vec<T>>, layer: usize) -> &mut Vec<T> {
    if layers.len() <= layer {
        layers.resize_with(layer + 1, Vec::new);
    }
    &mut layers[layer]
}

/// Up to `n_most` pages with the largest shares, except negligible ones. Ascending.
fn largest_shares(shares: &[(u32, f32)], n_most: usize) -> Vec<u32> {
    let least = MIN_SHARE * shares.iter().map(|(_, share)| share).sum::<f32>();
    let mut large: Vec<(u32, f32)> = shares.iter().copied().filter(|(_, share)| *share > least).collect();
    large.sort_by(|a, b| b.1.total_cmp(&a.1));
    large.truncate(n_most);
    let mut pages: Vec<u32> = large.into_iter().map(|(page, _)| page).collect();
    pages.sort_unstable();
    pages
}

/// Pages with a token of at least [`TRACKED_SHARE`], and the next page if that token is in the second half. Ascending.
fn pages_with_attention(spec: &PolicySpec, view: &LayerView) -> Vec<u32> {
    let (least, pages) = (TRACKED_SHARE.ln(), spec.free_pages(view.n_pages()));
    let mut pages_found = Vec::new();
    for (kv_head, page) in (0..view.n_kv_head).flat_map(|kv_head| pages.clone().map(move |page| (kv_head, page))) {
        let reaches_least = |scores: &[f32]| scores.iter().rposition(|score| *score >= least);
        let Some(last) = view.page_scores(kv_head, page).and_then(reaches_least) else { continue };
        pages_found.push(page as u32);
        if last >= KV_PAGE_TOKENS / 2 && pages.contains(&(page + 1)) {
            pages_found.push(page as u32 + 1);
        }
    }
    unique(pages_found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::policy::{PolicyKind, TokenScores};

    /// Scores by page, `[page]`.
    struct Pages(Vec<Option<[f32; KV_PAGE_TOKENS]>>);

    impl TokenScores for Pages {
        fn page(&self, _kv_head: usize, page: usize) -> Option<&[f32]> {
            self.0.get(page)?.as_ref().map(|scores| scores.as_slice())
        }
    }

    /// Scores of a page in which one token holds this share of the attention.
    fn page_with_token(token: usize, share: f32) -> Option<[f32; KV_PAGE_TOKENS]> {
        let mut scores = [-20.0; KV_PAGE_TOKENS];
        scores[token] = share.ln();
        Some(scores)
    }

    fn track(
        retained_pages: &mut RetainedPages,
        layer: usize,
        step: usize,
        tiers: &[Tier],
        pages: Vec<Option<[f32; KV_PAGE_TOKENS]>>,
    ) -> Vec<u32> {
        track_with(PolicySpec::default(), retained_pages, layer, step, tiers, pages)
    }

    fn track_with(
        spec: PolicySpec,
        retained_pages: &mut RetainedPages,
        layer: usize,
        step: usize,
        tiers: &[Tier],
        pages: Vec<Option<[f32; KV_PAGE_TOKENS]>>,
    ) -> Vec<u32> {
        let scores = Pages(pages);
        let bounds = vec![[0.0; 2]; tiers.len()];
        let view = LayerView { layer, step, n_steps: 100, n_kv_head: 1, tiers, bounds: &bounds, scores: Some(&scores) };
        let _ = retained_pages.track(&spec, &view);
        let mut pages: Vec<u32> = retained_pages.tracked.get(layer).into_iter().flatten().map(|(page, _)| *page).collect();
        pages.sort_unstable();
        pages
    }

    #[test]
    fn pages_with_the_largest_shares_are_retained_except_negligible_ones() {
        let shares = [(3, 0.01), (4, 0.5), (5, 0.0), (6, 0.09), (7, 0.3)];
        assert_eq!(largest_shares(&shares, 9), [4, 6, 7]);
        assert_eq!(largest_shares(&shares, 2), [4, 7]);
        assert_eq!(largest_shares(&shares, 0), [0; 0]);
        assert_eq!(largest_shares(&[(1, 0.0), (2, 0.0)], 2), [0; 0]);
        assert_eq!(largest_shares(&[(1, f32::NAN)], 2), [0; 0]);
    }

    #[test]
    fn shares_of_several_passes_add_up_by_page_in_any_order() {
        let mut retained_pages = RetainedPages::default();
        retained_pages.add(1, &[4, 0, 2], &[0.5, 0.25, 0.125]);
        retained_pages.add(1, &[0, 2], &[0.25, 0.0, 9.0]);
        assert_eq!(retained_pages.shares, [vec![], vec![0.5, 0.0, 0.125, 0.0, 0.5]]);
    }

    #[test]
    fn tracking_extends_to_the_next_page_from_the_second_half_on() {
        let (mut retained_pages, tiers) = (RetainedPages::default(), [Tier::Disk; 8]);
        let at = |token, share| vec![None, None, None, page_with_token(token, share), None, None, None, None];
        assert_eq!(track(&mut retained_pages, 2, 0, &tiers, at(31, 0.9)), [3]);
        assert_eq!(track(&mut retained_pages, 2, 1, &tiers, at(32, 0.9)), [3, 4]);
        // Spread attention is not tracked. A page is dropped after some steps, and all pages with the next answer.
        assert_eq!(track(&mut retained_pages, 2, TRACKED_STEPS, &tiers, at(40, 0.1)), [3, 4]);
        assert_eq!(track(&mut retained_pages, 2, 1 + TRACKED_STEPS, &tiers, at(40, 0.1)), [0; 0]);
        assert_eq!(track(&mut retained_pages, 3, 1, &tiers, at(50, 0.5)), [3, 4]);
        retained_pages.end_prompt(&PolicySpec::default());
        assert!(retained_pages.tracked.is_empty());
    }

    #[test]
    fn first_layers_full_vram_and_policies_without_bounds_track_nothing() {
        let mut tiers = [Tier::Disk; 8];
        let pages = || (0..8).map(|_| page_with_token(60, 0.9)).collect();
        assert_eq!(track(&mut RetainedPages::default(), 0, 0, &tiers, pages()), [0; 0]);
        // Neither the first page nor the newest, which are always read.
        assert_eq!(track(&mut RetainedPages::default(), 2, 0, &tiers, pages()), [1, 2, 3, 4, 5, 6]);
        let h2o = PolicySpec { kind: PolicyKind::H2o, ..PolicySpec::default() };
        assert_eq!(track_with(h2o, &mut RetainedPages::default(), 2, 0, &tiers, pages()), [0; 0]);
        tiers.fill(Tier::Vram);
        assert_eq!(track(&mut RetainedPages::default(), 2, 0, &tiers, pages()), [0; 0]);
    }
}
