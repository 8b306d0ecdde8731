//! What one answer looks at: the pages that the end of its prompt looked at, and those that it has come to since.
//!
//! ```text
//! shares of attention at the end of the prompt ─► kept: the pages that hold most of it ───────┐
//! each step: a token holds much ─► followed for some steps: its page and, from the page's    ├─► tokens scored one by one
//!                                  second half on, the next one ─────────────────────────────┘   ─► RAM holds on to them
//! ```
//! 1. Bounds say that a page may matter, not that it does: of pages on the disk nothing else is known, and of a passage that is
//!    quoted the next page is not looked at before it is there. 2. Kept pages are scored where VRAM or RAM has them, in the first
//!    steps wherever they are. 3. Followed pages are scored wherever they are: they come from the disk once, before they are needed.
//!
//! Pure. Shapes: P pages.
//!
//! Source: SnapKV (Li et al. 2024), section 3: an observation window at the end of the prompt finds what the answer attends to.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::kv::RamKeys;
use crate::kv::policy::access_frequency::FrequencyTable;
use crate::kv::policy::{LayerView, PolicySpec, Tier, unique};

/// A page that holds less of what a layer's free pages hold is not kept.
const LEAST_SHARE: f32 = 0.02;
/// As many pages of a layer are kept at most as it reads, divided by this.
const READ_OVER_KEPT: usize = 4;
/// Steps of an answer in which kept pages are read from the disk for their scores, where neither VRAM nor RAM held on to them.
const FAR_STEPS: usize = 8;
/// A kept page counts as if it had been chosen in so many steps.
const KEPT_TIMES: f64 = 32.0;
/// Share of a query head's attention that a token holds whose page is followed.
const FOLLOWED_SHARE: f32 = 0.2;
/// Steps in which it is.
const FOLLOWED_STEPS: usize = 8;
/// A page that comes to be followed counts as if it had been chosen in so many steps.
pub const FOLLOWED_TIMES: f64 = 8.0;

/// What one answer looks at.
#[derive(Debug, Default)]
pub struct RetainedPages {
    /// tokens of the prompt while it is read; 0 otherwise
    prompt_len: usize,
    /// by layer, then page: sum of the shares of the prompt's passes
    shares: Vec<Vec<f32>>,
    /// by layer: pages to keep at hand, ascending
    kept: Vec<Vec<u32>>,
    /// by layer: pages that the answer has come to, and the first step in which they are not followed any more
    followed: Vec<Vec<(u32, usize)>>,
}

/// Pages of a layer that are to be scored although VRAM has them not.
#[derive(Debug, Default)]
pub struct OffloadedHits {
    /// ascending
    pub pages: Vec<u32>,
    /// those of them that have to come from the disk
    pub far: Vec<u32>,
}

impl OffloadedHits {
    /// What is to be scored where RAM has it: `candidates` and these, but those that come from the disk for it; ascending.
    pub fn in_ram(&self, candidates: Vec<u32>) -> Vec<u32> {
        let mut pages = unique([candidates, self.pages.clone()].concat());
        pages.retain(|page| !self.far.contains(page));
        pages
    }
}

impl RetainedPages {
    /// A prompt of so many tokens is read next.
    pub fn of_prompt(n_tokens: usize) -> RetainedPages {
        RetainedPages { prompt_len: n_tokens, ..RetainedPages::default() }
    }

    /// Tokens of the prompt that is being read.
    pub fn prompt_len(&self) -> usize {
        self.prompt_len
    }

    /// Adds what the pages of a layer held in a pass, in the order of `pages`.
    pub fn add(&mut self, layer: usize, pages: &[u32], shares: &[f32]) {
        let of_layer = of_layer(&mut self.shares, layer);
        for (page, share) in pages.iter().map(|page| *page as usize).zip(shares) {
            if of_layer.len() <= page {
                of_layer.resize(page + 1, 0.0);
            }
            of_layer[page] += share;
        }
    }

    /// The prompt is read: its answer begins.
    pub fn end_prompt(&mut self, spec: &PolicySpec) {
        let kept = |(layer, shares): (usize, &Vec<f32>)| {
            // These are never on the disk.
            if spec.is_first(layer) {
                return Vec::new();
            }
            let free = spec.free_pages(shares.len());
            let n_read = spec.n_wanted(layer, free.len() * KV_PAGE_TOKENS).div_ceil(KV_PAGE_TOKENS);
            let of_free: Vec<(u32, f32)> = free.map(|page| (page as u32, shares[page])).collect();
            that_hold_most(&of_free, n_read.div_ceil(READ_OVER_KEPT))
        };
        self.kept = self.shares.iter().enumerate().map(kept).collect();
        self.prompt_len = 0;
        self.followed.clear();
    }

    /// Kept pages count as chosen often.
    pub fn record_kept(&self, frequency: &mut FrequencyTable, clock: u64) {
        self.kept.iter().enumerate().for_each(|(layer, pages)| frequency.note(layer, clock, pages, KEPT_TIMES));
    }

    /// Follows what the tokens of a layer hold in this step; the pages that were not followed before, which count
    /// [`FOLLOWED_TIMES`].
    #[must_use]
    pub fn follow(&mut self, spec: &PolicySpec, view: &LayerView) -> Vec<u32> {
        // Without abstracts all is scored or nothing is; the first layers are never on the disk, and in VRAM all is scored that may matter.
        if !spec.kind.reads_abstracts() || spec.is_first(view.layer) || view.tiers.iter().all(|tier| *tier == Tier::Vram) {
            return Vec::new();
        }
        self.come_to(view.layer, view.step, where_attention_is(spec, view))
    }

    /// Follows `pages` from this step on; those that were not followed before.
    fn come_to(&mut self, layer: usize, step: usize, pages: Vec<u32>) -> Vec<u32> {
        let followed = of_layer(&mut self.followed, layer);
        followed.retain(|(_, end)| *end > step);
        let mut new = Vec::new();
        for page in pages {
            let end = step + FOLLOWED_STEPS;
            match followed.iter_mut().find(|(known, _)| *known == page) {
                Some(known) => known.1 = end,
                None => {
                    followed.push((page, end));
                    new.push(page);
                }
            }
        }
        new
    }

    /// Of the first `n_pages` pages of a layer, those to score in a step although VRAM has them not.
    pub fn below(
        &self,
        (layer, step): (usize, usize),
        n_pages: usize,
        is_resident: impl Fn(u32) -> bool,
        in_ram: &RamKeys,
    ) -> OffloadedHits {
        let followed = || self.followed.get(layer).into_iter().flatten().map(|(page, _)| *page);
        let is_below = |page: &u32| (*page as usize) < n_pages && !is_resident(*page);
        let pages = unique(self.kept(layer).iter().copied().chain(followed()).filter(is_below).collect());
        let mut far = if pages.is_empty() { Vec::new() } else { in_ram.missing_of(&pages) };
        far.retain(|page| step < FAR_STEPS || followed().any(|followed| followed == *page));
        OffloadedHits { pages, far }
    }

    /// Pages of a layer to keep at hand.
    pub fn kept(&self, layer: usize) -> &[u32] {
        self.kept.get(layer).map_or(&[], Vec::as_slice)
    }
}

fn of_layer<T>(layers: &mut Vec<Vec<T>>, layer: usize) -> &mut Vec<T> {
    if layers.len() <= layer {
        layers.resize_with(layer + 1, Vec::new);
    }
    &mut layers[layer]
}

/// Of pages with these shares, the `n_most` that hold most, but none that holds next to nothing of all; ascending.
fn that_hold_most(shares: &[(u32, f32)], n_most: usize) -> Vec<u32> {
    let least = LEAST_SHARE * shares.iter().map(|(_, share)| share).sum::<f32>();
    let mut held: Vec<(u32, f32)> = shares.iter().copied().filter(|(_, share)| *share > least).collect();
    held.sort_by(|a, b| b.1.total_cmp(&a.1));
    held.truncate(n_most);
    let mut pages: Vec<u32> = held.into_iter().map(|(page, _)| page).collect();
    pages.sort_unstable();
    pages
}

/// Pages with a token that holds [`FOLLOWED_SHARE`], and the next one where that is in the page's second half; ascending.
fn where_attention_is(spec: &PolicySpec, view: &LayerView) -> Vec<u32> {
    let (least, pages) = (FOLLOWED_SHARE.ln(), spec.free_pages(view.n_pages()));
    let mut found = Vec::new();
    for (kv_head, page) in (0..view.n_kv_head).flat_map(|kv_head| pages.clone().map(move |page| (kv_head, page))) {
        let holds_much = |scores: &[f32]| scores.iter().rposition(|score| *score >= least);
        let Some(last) = view.page_scores(kv_head, page).and_then(holds_much) else { continue };
        found.push(page as u32);
        if last >= KV_PAGE_TOKENS / 2 && pages.contains(&(page + 1)) {
            found.push(page as u32 + 1);
        }
    }
    unique(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::policy::{PolicyKind, TokenScores};

    /// Scores of one page each, `[page]`.
    struct Pages(Vec<Option<[f32; KV_PAGE_TOKENS]>>);

    impl TokenScores for Pages {
        fn page(&self, _kv_head: usize, page: usize) -> Option<&[f32]> {
            self.0.get(page)?.as_ref().map(|scores| scores.as_slice())
        }
    }

    /// A page on which one token holds this share of the attention.
    fn holding(token: usize, share: f32) -> Option<[f32; KV_PAGE_TOKENS]> {
        let mut scores = [-20.0; KV_PAGE_TOKENS];
        scores[token] = share.ln();
        Some(scores)
    }

    fn follow(
        seen: &mut RetainedPages,
        layer: usize,
        step: usize,
        tiers: &[Tier],
        pages: Vec<Option<[f32; KV_PAGE_TOKENS]>>,
    ) -> Vec<u32> {
        follow_by(PolicySpec::default(), seen, layer, step, tiers, pages)
    }

    fn follow_by(
        spec: PolicySpec,
        seen: &mut RetainedPages,
        layer: usize,
        step: usize,
        tiers: &[Tier],
        pages: Vec<Option<[f32; KV_PAGE_TOKENS]>>,
    ) -> Vec<u32> {
        let scores = Pages(pages);
        let bounds = vec![[0.0; 2]; tiers.len()];
        let view = LayerView { layer, step, n_steps: 100, n_kv_head: 1, tiers, bounds: &bounds, scores: Some(&scores) };
        let _ = seen.follow(&spec, &view);
        let mut pages: Vec<u32> = seen.followed.get(layer).into_iter().flatten().map(|(page, _)| *page).collect();
        pages.sort_unstable();
        pages
    }

    #[test]
    fn pages_that_hold_most_are_kept_and_none_that_holds_next_to_nothing() {
        let shares = [(3, 0.01), (4, 0.5), (5, 0.0), (6, 0.09), (7, 0.3)];
        assert_eq!(that_hold_most(&shares, 9), [4, 6, 7]);
        assert_eq!(that_hold_most(&shares, 2), [4, 7]);
        assert_eq!(that_hold_most(&shares, 0), [0; 0]);
        assert_eq!(that_hold_most(&[(1, 0.0), (2, 0.0)], 2), [0; 0]);
        assert_eq!(that_hold_most(&[(1, f32::NAN)], 2), [0; 0]);
    }

    #[test]
    fn shares_of_several_passes_add_up_by_page_whatever_their_order() {
        let mut seen = RetainedPages::default();
        seen.add(1, &[4, 0, 2], &[0.5, 0.25, 0.125]);
        seen.add(1, &[0, 2], &[0.25, 0.0, 9.0]);
        assert_eq!(seen.shares, [vec![], vec![0.5, 0.0, 0.125, 0.0, 0.5]]);
    }

    #[test]
    fn a_passage_is_followed_to_its_next_page_once_its_second_half_is_read() {
        let (mut seen, tiers) = (RetainedPages::default(), [Tier::Disk; 8]);
        let at = |token, share| vec![None, None, None, holding(token, share), None, None, None, None];
        assert_eq!(follow(&mut seen, 2, 0, &tiers, at(31, 0.9)), [3]);
        assert_eq!(follow(&mut seen, 2, 1, &tiers, at(32, 0.9)), [3, 4]);
        // Attention that spreads is not followed; what was is forgotten some steps later, and so is all in the next answer.
        assert_eq!(follow(&mut seen, 2, FOLLOWED_STEPS, &tiers, at(40, 0.1)), [3, 4]);
        assert_eq!(follow(&mut seen, 2, 1 + FOLLOWED_STEPS, &tiers, at(40, 0.1)), [0; 0]);
        assert_eq!(follow(&mut seen, 3, 1, &tiers, at(50, 0.5)), [3, 4]);
        seen.end_prompt(&PolicySpec::default());
        assert!(seen.followed.is_empty());
    }

    #[test]
    fn nothing_is_followed_in_first_layers_in_vram_and_where_no_bounds_are_read() {
        let mut tiers = [Tier::Disk; 8];
        let pages = || (0..8).map(|_| holding(60, 0.9)).collect();
        assert_eq!(follow(&mut RetainedPages::default(), 0, 0, &tiers, pages()), [0; 0]);
        // Neither the first page nor the newest, which are read always.
        assert_eq!(follow(&mut RetainedPages::default(), 2, 0, &tiers, pages()), [1, 2, 3, 4, 5, 6]);
        let h2o = PolicySpec { kind: PolicyKind::H2o, ..PolicySpec::default() };
        assert_eq!(follow_by(h2o, &mut RetainedPages::default(), 2, 0, &tiers, pages()), [0; 0]);
        tiers.fill(Tier::Vram);
        assert_eq!(follow(&mut RetainedPages::default(), 2, 0, &tiers, pages()), [0; 0]);
    }
}
