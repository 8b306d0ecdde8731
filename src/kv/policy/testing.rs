//! A recorded layer for tests: scores of every token, page bounds looser than them, and which of it is known.

use crate::base::Rng;
use crate::base::limits::KV_PAGE_TOKENS;
use crate::kv::policy::{LayerView, Tier, TokenScores};

/// How much looser the bounds of pages are than their best and worst tokens.
const LOOSENESS: f32 = 1.0;

/// What [`LayerView`] borrows.
pub struct Recorded {
    n_kv_head: usize,
    /// `[G, P * 64]`
    scores: Vec<Vec<f32>>,
    bounds: Vec<[f32; 2]>,
    tiers: Vec<Tier>,
}

impl Recorded {
    /// Scores in -8..0, mostly low; everything in VRAM.
    pub fn random(seed: u64, n_kv_head: usize, n_pages: usize) -> Recorded {
        let mut rng = Rng::new(seed);
        let mut score = || -8.0 * rng.next_f32().sqrt();
        Recorded::of((0..n_kv_head).map(|_| (0..n_pages * KV_PAGE_TOKENS).map(|_| score()).collect()).collect())
    }

    /// These scores `[G][P * 64]`.
    pub fn of(scores: Vec<Vec<f32>>) -> Recorded {
        let page_bounds = |page: &[f32]| {
            let (best, worst) = page.iter().fold((f32::MIN, f32::MAX), |(b, w), s| (b.max(*s), w.min(*s)));
            [best + LOOSENESS, worst - LOOSENESS]
        };
        let bounds = scores.iter().flat_map(|head| head.chunks(KV_PAGE_TOKENS).map(page_bounds)).collect();
        let n_pages = scores.first().map_or(0, |head| head.len() / KV_PAGE_TOKENS);
        Recorded { n_kv_head: scores.len(), bounds, tiers: vec![Tier::Vram; n_pages], scores }
    }

    /// Pages from this one on are on the disk, and scores of their tokens are not known.
    pub fn forget_scores_from(&mut self, page: usize) {
        self.tiers.iter_mut().skip(page).for_each(|tier| *tier = Tier::Disk);
    }

    /// Pages from this one on are in RAM, and scores of their tokens are known.
    pub fn put_into_ram_from(&mut self, page: usize) {
        self.tiers.iter_mut().skip(page).for_each(|tier| *tier = Tier::Ram);
    }

    /// Upper bounds of all pages are this.
    pub fn set_upper_bounds(&mut self, upper: f32) {
        self.bounds.iter_mut().for_each(|bounds| bounds[0] = upper);
    }

    /// The same bounds and tiers with other scores.
    pub fn with_scores(&self, scores: Vec<Vec<f32>>) -> Recorded {
        Recorded { n_kv_head: self.n_kv_head, scores, bounds: self.bounds.clone(), tiers: self.tiers.clone() }
    }

    /// The key of a token is no number, nor then are the bounds of its page.
    pub fn spoil(&mut self, kv_head: usize, token: usize) {
        self.scores[kv_head][token] = f32::NAN;
        self.bounds[kv_head * self.tiers.len() + token / KV_PAGE_TOKENS] = [f32::NAN; 2];
    }

    /// `[G, P * 64]`
    pub fn scores(&self) -> &[Vec<f32>] {
        &self.scores
    }

    /// As a policy sees it in step 50 of 100.
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
