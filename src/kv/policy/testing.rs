//! Recorded layer for tests: scores of every token, looser page bounds, and the tier of each page.

use crate::base::Rng;
use crate::base::limits::KV_PAGE_TOKENS;
use crate::kv::policy::{LayerView, Tier, TokenScores};

/// Gap between page bounds and the best and worst tokens.
const BOUND_GAP: f32 = 1.0;

/// Owned data of a [`LayerView`].
pub struct Recorded {
    n_kv_head: usize,
    /// `[G, P * 64]`
    scores: Vec<Vec<f32>>,
    bounds: Vec<[f32; 2]>,
    tiers: Vec<Tier>,
}

impl Recorded {
    /// Random scores in -8..0, mostly low; all pages in VRAM.
    pub fn random(seed: u64, n_kv_head: usize, n_pages: usize) -> Recorded {
        let mut rng = Rng::new(seed);
        let mut score = || -8.0 * rng.next_f32().sqrt();
        Recorded::of((0..n_kv_head).map(|_| (0..n_pages * KV_PAGE_TOKENS).map(|_| score()).collect()).collect())
    }

    /// A layer with these scores `[G][P * 64]`.
    pub fn of(scores: Vec<Vec<f32>>) -> Recorded {
        let page_bounds = |page: &[f32]| {
            let (best, worst) = page.iter().fold((f32::MIN, f32::MAX), |(b, w), s| (b.max(*s), w.min(*s)));
            [best + BOUND_GAP, worst - BOUND_GAP]
        };
        let bounds = scores.iter().flat_map(|head| head.chunks(KV_PAGE_TOKENS).map(page_bounds)).collect();
        let n_pages = scores.first().map_or(0, |head| head.len() / KV_PAGE_TOKENS);
        Recorded { n_kv_head: scores.len(), bounds, tiers: vec![Tier::Vram; n_pages], scores }
    }

    /// Moves pages from this one on to disk, with unknown scores.
    pub fn move_to_disk_from(&mut self, page: usize) {
        self.tiers.iter_mut().skip(page).for_each(|tier| *tier = Tier::Disk);
    }

    /// Moves pages from this one on to RAM, with known scores.
    pub fn move_to_ram_from(&mut self, page: usize) {
        self.tiers.iter_mut().skip(page).for_each(|tier| *tier = Tier::Ram);
    }

    /// Sets the upper bounds of all pages.
    pub fn set_upper_bounds(&mut self, upper: f32) {
        self.bounds.iter_mut().for_each(|bounds| bounds[0] = upper);
    }

    /// Same bounds and tiers with other scores.
    pub fn with_scores(&self, scores: Vec<Vec<f32>>) -> Recorded {
        Recorded { n_kv_head: self.n_kv_head, scores, bounds: self.bounds.clone(), tiers: self.tiers.clone() }
    }

    /// Makes the score of a token NaN, and thus the bounds of its page.
    pub fn set_nan(&mut self, kv_head: usize, token: usize) {
        self.scores[kv_head][token] = f32::NAN;
        self.bounds[kv_head * self.tiers.len() + token / KV_PAGE_TOKENS] = [f32::NAN; 2];
    }

    /// Scores `[G, P * 64]`.
    pub fn scores(&self) -> &[Vec<f32>] {
        &self.scores
    }

    /// The view of a policy in step 50 of 100.
    pub fn view(&self, layer: usize) -> LayerView<'_> {
        LayerView {
            layer,
            step: 50,
            n_steps: 100,
            n_kv_head: self.n_kv_head,
            tiers: &self.tiers,
            bounds: &self.bounds,
            scores: Some(self),
        }
    }
}

impl TokenScores for Recorded {
    fn page(&self, kv_head: usize, page: usize) -> Option<&[f32]> {
        if self.tiers.get(page) == Some(&Tier::Disk) {
            return None;
        }
        self.scores.get(kv_head)?.get(page * KV_PAGE_TOKENS..(page + 1) * KV_PAGE_TOKENS)
    }
}
