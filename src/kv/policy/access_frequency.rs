//! Access frequency: decayed selection counts of pages, and the hot pages that should stay off the disk.
//!
//! ```text
//! selections ─► count per page, with a half-life in steps ─► the hottest that fit ─► stay in RAM or VRAM
//! ```
//! 1. First layers come first, whatever their counts. 2. Counting costs nothing for unselected pages.
//!
//! Shapes: counts `[L][P]`. Units: pages of 64 tokens of one layer, decode steps.
//!
//! Limits: counts are per page, where the paper counts tokens, because pages are the unit of transfer.
//!
//! Source: LeoAM §4.3: "we maintain an access frequency table for all tokens and avoid offloading KV data with high
//! access rates to the disk"; the first layers are not stored there.

/// A page of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerPage {
    /// model layer
    pub layer: u32,
    /// index from the beginning of the context
    pub page: u32,
}

/// Selection counts of every page of every layer.
#[derive(Debug, Clone)]
pub struct FrequencyTable {
    layers: Vec<Vec<Count>>,
    /// steps until a count has decayed to half
    half_life: f64,
}

/// A count as of its last change.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    value: f64,
    step: u64,
}

impl FrequencyTable {
    /// An empty table; counts decay by half every `half_life_steps`.
    pub fn new(n_layer: usize, half_life_steps: usize) -> FrequencyTable {
        FrequencyTable { layers: vec![Vec::new(); n_layer], half_life: half_life_steps.max(1) as f64 }
    }

    /// Records that pages of a layer were selected in a step, with weight `times`. Steps must not decrease.
    pub fn record(&mut self, layer: usize, step: u64, pages: &[u32], times: f64) {
        let half_life = self.half_life;
        let Some(counts) = self.layers.get_mut(layer) else { return };
        for page in pages.iter().map(|page| *page as usize) {
            if counts.len() <= page {
                counts.resize(page + 1, Count::default());
            }
            counts[page] = Count { value: counts[page].at(step, half_life) + times, step };
        }
    }

    /// Drops all pages from `n_pages` on.
    pub fn truncate(&mut self, n_pages: usize) {
        self.layers.iter_mut().for_each(|counts| counts.truncate(n_pages));
    }

    /// Decayed count of a page, as of a step.
    pub fn count(&self, page: LayerPage, step: u64) -> f64 {
        let counts = self.layers.get(page.layer as usize);
        counts.and_then(|counts| counts.get(page.page as usize)).map_or(0.0, |count| count.at(step, self.half_life))
    }

    /// The `n_room` pages to keep off the disk, best first: those of the first layers, then the hottest. The earlier
    /// page wins a tie. Each layer has `n_pages`; those for which `elsewhere` is true need no room.
    pub fn keep_off_disk(
        &self,
        step: u64,
        n_pages: usize,
        n_first_layers: usize,
        n_room: usize,
        elsewhere: impl Fn(LayerPage) -> bool,
    ) -> Vec<LayerPage> {
        let all = (0..n_pages as u32).flat_map(|page| (0..self.layers.len() as u32).map(move |layer| LayerPage { layer, page }));
        let all = all.filter(|page| !elsewhere(*page));
        let rate = |page: LayerPage| (page.layer as usize >= n_first_layers, self.count(page, step), page);
        let mut rated: Vec<(bool, f64, LayerPage)> = all.map(rate).collect();
        let order = |a: &(bool, f64, LayerPage), b: &(bool, f64, LayerPage)| {
            a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)).then((a.2.page, a.2.layer).cmp(&(b.2.page, b.2.layer)))
        };
        if n_room < rated.len() {
            rated.select_nth_unstable_by(n_room, order);
            rated.truncate(n_room);
        }
        rated.sort_unstable_by(order);
        rated.into_iter().map(|(_, _, page)| page).collect()
    }
}

impl Count {
    fn at(self, step: u64, half_life: f64) -> f64 {
        self.value * (-(step.saturating_sub(self.step) as f64) / half_life).exp2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(layer: u32, page: u32) -> LayerPage {
        LayerPage { layer, page }
    }

    #[test]
    fn frequency_counts_selections_and_halves_them() {
        let mut table = FrequencyTable::new(1, 10);
        table.record(0, 5, &[1, 4], 3.0);
        assert_eq!([0, 1, 4, 9].map(|p| table.count(page(0, p), 5)), [0.0, 3.0, 3.0, 0.0]);
        table.record(0, 15, &[4], 1.0);
        assert_eq!([1, 4].map(|p| table.count(page(0, p), 15)), [1.5, 2.5]);
        assert_eq!(table.count(page(7, 1), 15), 0.0);
        table.record(7, 15, &[1], 1.0);
        table.truncate(2);
        assert_eq!([1, 4].map(|p| table.count(page(0, p), 15)), [1.5, 0.0]);
    }

    #[test]
    fn frequency_ranks_first_layers_then_the_hottest_then_the_earliest() {
        let mut table = FrequencyTable::new(3, 10);
        table.record(2, 1, &[2], 1.0);
        (0..2).for_each(|_| table.record(1, 1, &[3], 1.0));
        let is_nowhere = |_: LayerPage| false;
        let hot_pages = table.keep_off_disk(1, 4, 1, 8, is_nowhere);
        let first = [page(0, 0), page(0, 1), page(0, 2), page(0, 3)];
        assert_eq!(hot_pages, [first.as_slice(), &[page(1, 3), page(2, 2), page(1, 0), page(2, 0)]].concat());
        assert_eq!(table.keep_off_disk(1, 4, 1, 2, is_nowhere), first[..2]);
        assert_eq!(table.keep_off_disk(1, 4, 1, 100, is_nowhere).len(), 12);
        assert_eq!(table.keep_off_disk(1, 0, 1, 5, is_nowhere), []);
        assert_eq!(FrequencyTable::new(0, 0).keep_off_disk(0, 5, 2, 5, is_nowhere), []);
        assert_eq!(table.keep_off_disk(1, 4, 1, 2, |p| p.page < 2), first[2..], "what is elsewhere needs no room");
    }

    #[test]
    fn recent_selections_outweigh_old_ones() {
        let mut table = FrequencyTable::new(1, 4);
        (0..3).for_each(|_| table.record(0, 0, &[0], 1.0));
        table.record(0, 40, &[1], 1.0);
        assert_eq!(table.keep_off_disk(40, 2, 0, 1, |_| false), [page(0, 1)]);
    }
}
