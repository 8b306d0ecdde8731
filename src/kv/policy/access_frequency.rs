//! How often pages were selected lately, and which of them to keep off the disk.
//!
//! ```text
//! selections ─► count of every page, halved every so many steps ─► the hottest that fit ─► stay in RAM or VRAM
//! ```
//! 1. First layers come first, whatever their counts are. 2. Counting costs nothing for pages that were not selected.
//!
//! Shapes: counts `[L][P]`. Units: pages of 64 tokens of one layer, decode steps.
//!
//! Limits: counts are of pages, where the paper counts tokens: what moves between tiers is pages.
//!
//! Source: LeoAM, section 4.3: "we maintain an access frequency table for all tokens and avoid offloading KV data with high
//! access rates to the disk", and the first layers are not stored there.

/// A page of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerPage {
    /// model layer
    pub layer: u32,
    /// counted from the beginning of the context
    pub page: u32,
}

/// Counts of every page of every layer.
#[derive(Debug, Clone)]
pub struct FrequencyTable {
    layers: Vec<Vec<Count>>,
    /// steps after which a count is worth half
    half_life: f64,
}

/// A count as it was when it last changed.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    value: f64,
    step: u64,
}

impl FrequencyTable {
    /// Nothing was selected yet; counts halve every `half_life_steps`.
    pub fn new(n_layer: usize, half_life_steps: usize) -> FrequencyTable {
        FrequencyTable { layers: vec![Vec::new(); n_layer], half_life: half_life_steps.max(1) as f64 }
    }

    /// These pages of a layer were selected in a step, which counts so many `times`; steps never go back.
    pub fn note(&mut self, layer: usize, step: u64, pages: &[u32], times: f64) {
        let half_life = self.half_life;
        let Some(counts) = self.layers.get_mut(layer) else { return };
        for page in pages.iter().map(|page| *page as usize) {
            if counts.len() <= page {
                counts.resize(page + 1, Count::default());
            }
            counts[page] = Count { value: counts[page].at(step, half_life) + times, step };
        }
    }

    /// Forgets all pages from `n_pages` on.
    pub fn truncate(&mut self, n_pages: usize) {
        self.layers.iter_mut().for_each(|counts| counts.truncate(n_pages));
    }

    /// How often a page was selected lately, as of a step.
    pub fn count(&self, page: LayerPage, step: u64) -> f64 {
        let counts = self.layers.get(page.layer as usize);
        counts.and_then(|counts| counts.get(page.page as usize)).map_or(0.0, |count| count.at(step, self.half_life))
    }

    /// The `n_room` pages to keep off the disk, best first: those of the first layers, then the hottest; ties go to earlier
    /// pages of all layers. Each layer has `n_pages`, of which those that are `elsewhere` need no room.
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
        table.note(0, 5, &[1, 4], 3.0);
        assert_eq!([0, 1, 4, 9].map(|p| table.count(page(0, p), 5)), [0.0, 3.0, 3.0, 0.0]);
        table.note(0, 15, &[4], 1.0);
        assert_eq!([1, 4].map(|p| table.count(page(0, p), 15)), [1.5, 2.5]);
        assert_eq!(table.count(page(7, 1), 15), 0.0);
        table.note(7, 15, &[1], 1.0);
        table.truncate(2);
        assert_eq!([1, 4].map(|p| table.count(page(0, p), 15)), [1.5, 0.0]);
    }

    #[test]
    fn frequency_keeps_first_layers_then_the_hottest_then_the_earliest() {
        let mut table = FrequencyTable::new(3, 10);
        table.note(2, 1, &[2], 1.0);
        (0..2).for_each(|_| table.note(1, 1, &[3], 1.0));
        let nowhere = |_: LayerPage| false;
        let kept = table.keep_off_disk(1, 4, 1, 8, nowhere);
        let first = [page(0, 0), page(0, 1), page(0, 2), page(0, 3)];
        assert_eq!(kept, [first.as_slice(), &[page(1, 3), page(2, 2), page(1, 0), page(2, 0)]].concat());
        assert_eq!(table.keep_off_disk(1, 4, 1, 2, nowhere), first[..2]);
        assert_eq!(table.keep_off_disk(1, 4, 1, 100, nowhere).len(), 12);
        assert_eq!(table.keep_off_disk(1, 0, 1, 5, nowhere), []);
        assert_eq!(FrequencyTable::new(0, 0).keep_off_disk(0, 5, 2, 5, nowhere), []);
        assert_eq!(table.keep_off_disk(1, 4, 1, 2, |p| p.page < 2), first[2..], "what is elsewhere needs no room");
    }

    #[test]
    fn frequency_of_lately_beats_frequency_of_long_ago() {
        let mut table = FrequencyTable::new(1, 4);
        (0..3).for_each(|_| table.note(0, 0, &[0], 1.0));
        table.note(0, 40, &[1], 1.0);
        assert_eq!(table.keep_off_disk(40, 2, 0, 1, |_| false), [page(0, 1)]);
    }
}
