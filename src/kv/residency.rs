//! Residency: the frame of each complete page in VRAM. The only module that changes it. Pure.
//!
//! ```text
//! (layer, group of 64 tokens) ─► frame of the layer's pool, or none: then the page is offloaded, to RAM or disk
//! ```
//! 1. A frame holds one page, and a page has at most one frame.
//! 2. A new page takes the lowest free frame, so the used frames are a prefix unless pages were evicted out of order.
//! 3. Full attention reads every page in every step. Any fixed set beats every replacement order, so pages keep their
//!    frames.
//! 4. Selective attention reads the selected pages. An offloaded page gives its frame to a selected or prefetched one.
//!    Pages cached in RAM are evicted first, so that the two tiers hold different pages.

use std::collections::BTreeSet;

/// Frames of every layer.
#[derive(Debug, Clone)]
pub struct Residency {
    layers: Vec<Layer>,
    max_frames: usize,
    /// number of changes of frames
    version: u64,
}

#[derive(Debug, Clone, Default)]
struct Layer {
    /// frame by group
    frame_of: Vec<Option<u32>>,
    /// group by frame
    group_in: Vec<Option<u32>>,
    n_used: usize,
    /// by group: the page is offloaded as well
    is_offloaded: Vec<bool>,
    /// by group: last demand
    demanded_at: Vec<Demand>,
    /// by group: RAM caches a copy
    in_ram: Vec<bool>,
    /// groups whose frame has pages that were transferred compressed
    compressed: BTreeSet<u32>,
}

/// A page without demand for this many steps is evicted before all others.
const COLD_STEPS: u64 = 8;

/// A step, and whether attention read the page in it (otherwise it was only prefetched).
type Demand = (u64, bool);

/// Demanded pages without a frame, ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MissingPages {
    /// a free frame exists for each
    pub framed: Vec<u32>,
    /// no free frame
    pub unframed: Vec<u32>,
}

impl Layer {
    fn is_in_ram(&self, group: u32) -> bool {
        self.in_ram.get(group as usize) == Some(&true)
    }
}

impl Residency {
    /// Nothing is resident; each of `n_layer` layers has `max_frames`.
    pub fn new(n_layer: usize, max_frames: usize) -> Residency {
        Residency { layers: vec![Layer::default(); n_layer], max_frames, version: 0 }
    }

    /// Frames per layer.
    pub fn max_frames(&self) -> usize {
        self.max_frames
    }

    /// Limits the frames to `max_frames`, for a GPU with less memory than planned.
    pub fn shrink_to(&mut self, max_frames: usize) {
        self.max_frames = max_frames.min(self.max_frames);
    }

    /// Frame of a page.
    pub fn frame(&self, layer: usize, group: u32) -> Option<u32> {
        self.layers[layer].frame_of.get(group as usize).copied().flatten()
    }

    /// A number that changes whenever a page gets or loses a frame.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Number of resident pages of a layer.
    pub fn n_resident(&self, layer: usize) -> usize {
        self.layers[layer].n_used
    }

    /// Gives a page the lowest free frame. None if all are used. A resident page keeps its frame.
    pub fn allocate(&mut self, layer: usize, group: u32) -> Option<u32> {
        if let Some(frame) = self.frame(layer, group) {
            return Some(frame);
        }
        let l = &mut self.layers[layer];
        if l.n_used >= self.max_frames {
            return None;
        }
        let is_prefix = l.group_in.iter().skip(l.n_used).all(Option::is_none);
        let frame = if is_prefix { l.n_used } else { l.group_in.iter().position(Option::is_none).unwrap_or(l.group_in.len()) };
        if l.group_in.len() <= frame {
            l.group_in.resize(frame + 1, None);
        }
        let group_idx = group as usize;
        if l.frame_of.len() <= group_idx {
            l.frame_of.resize(group_idx + 1, None);
        }
        l.group_in[frame] = Some(group);
        l.frame_of[group_idx] = Some(frame as u32);
        l.n_used += 1;
        self.version += 1;
        Some(frame as u32)
    }

    /// Records that a page is offloaded.
    pub fn set_offloaded(&mut self, layer: usize, group: u32) {
        let offloaded = &mut self.layers[layer].is_offloaded;
        if offloaded.len() <= group as usize {
            offloaded.resize(group as usize + 1, false);
        }
        offloaded[group as usize] = true;
    }

    /// Attention reads these pages of a layer in `step`. Evicts other pages as needed and possible, and returns those
    /// of the pages without a frame.
    pub fn require(&mut self, layer: usize, groups: &[u32], step: u64) -> MissingPages {
        self.demand(layer, groups, (step, true))
    }

    /// Attention may read these pages of a layer in `step`. Same as [`Residency::require`], but never evicts pages that
    /// were selected in this step or the previous one, or prefetched in this step.
    pub fn prefetch(&mut self, layer: usize, groups: &[u32], step: u64) -> MissingPages {
        self.demand(layer, groups, (step, false))
    }

    fn demand(&mut self, layer: usize, groups: &[u32], now: Demand) -> MissingPages {
        let l = &mut self.layers[layer];
        let n_groups = groups.iter().max().map_or(0, |g| *g as usize + 1);
        if l.demanded_at.len() < n_groups {
            l.demanded_at.resize(n_groups, (0, false));
        }
        for group in groups {
            let demanded_at = &mut l.demanded_at[*group as usize];
            *demanded_at = now.max(*demanded_at);
        }
        let mut framed: Vec<u32> = groups.iter().copied().filter(|g| self.frame(layer, *g).is_none()).collect();
        let n_free = |r: &Residency| r.max_frames.saturating_sub(r.layers[layer].n_used);
        // A prefetch never evicts a page selected in the previous step, which is likelier to be selected again.
        let before = if now.1 { now } else { (now.0.saturating_sub(1), true) };
        for group in self.victims(layer, before, framed.len().saturating_sub(n_free(self))) {
            self.release(layer, group);
        }
        let unframed = framed.split_off(n_free(self).min(framed.len()));
        MissingPages { framed, unframed }
    }

    /// Takes the frames of these pages of a layer, as far as they are offloaded.
    pub fn evict(&mut self, layer: usize, groups: &[u32]) {
        for group in groups {
            if self.layers[layer].is_offloaded.get(*group as usize) == Some(&true) {
                self.release(layer, *group);
            }
        }
    }

    /// Sets the pages of a layer that RAM caches.
    pub fn set_in_ram(&mut self, layer: usize, groups: impl Iterator<Item = u32>) {
        let in_ram = &mut self.layers[layer].in_ram;
        in_ram.fill(false);
        for group in groups.map(|group| group as usize) {
            if in_ram.len() <= group {
                in_ram.resize(group + 1, false);
            }
            in_ram[group] = true;
        }
    }

    /// True if a page has a frame, and RAM does not cache it.
    pub fn is_in_vram_alone(&self, layer: usize, group: u32) -> bool {
        self.frame(layer, group).is_some() && !self.layers[layer].is_in_ram(group)
    }

    /// Records that the page in a frame was transferred compressed, so it differs from its offloaded copy.
    pub fn set_compressed(&mut self, layer: usize, group: u32) {
        self.layers[layer].compressed.insert(group);
    }

    /// The last step in which attention read a page of a layer. None if it was never read.
    pub fn selected_at(&self, layer: usize, group: u32) -> Option<u64> {
        let wanted = self.layers.get(layer)?.demanded_at.get(group as usize)?;
        (wanted.1).then_some(wanted.0)
    }

    /// Releases all frames with pages that were transferred compressed.
    pub fn release_compressed(&mut self) {
        for layer in 0..self.layers.len() {
            for group in std::mem::take(&mut self.layers[layer].compressed) {
                self.release(layer, group);
            }
        }
    }

    /// Up to `n` pages to evict: offloaded pages, last demanded before `now`. Cold pages first, then pages cached in
    /// RAM, then the rest; least recently demanded first.
    fn victims(&self, layer: usize, now: Demand, n: usize) -> Vec<u32> {
        let l = &self.layers[layer];
        let demanded_at = |group: u32| l.demanded_at.get(group as usize).copied().unwrap_or_default();
        let is_evictable = |group: &u32| l.is_offloaded.get(*group as usize) == Some(&true) && demanded_at(*group) < now;
        let mut groups: Vec<u32> = l.group_in.iter().flatten().copied().filter(is_evictable).collect();
        let class = |group: u32| match demanded_at(group).0 + COLD_STEPS < now.0 {
            true => 0,
            false => 2 - u8::from(l.is_in_ram(group)),
        };
        groups.sort_by_key(|group| (class(*group), demanded_at(*group), *group));
        groups.truncate(n);
        groups
    }

    fn release(&mut self, layer: usize, group: u32) {
        let l = &mut self.layers[layer];
        l.compressed.remove(&group);
        if let Some(frame) = l.frame_of.get_mut(group as usize).and_then(Option::take) {
            l.group_in[frame as usize] = None;
            l.n_used -= 1;
            self.version += 1;
        }
    }

    /// Drops all pages from group `n_groups` on.
    pub fn truncate(&mut self, n_groups: u32) {
        for l in &mut self.layers {
            l.is_offloaded.truncate(n_groups as usize);
            l.demanded_at.truncate(n_groups as usize);
            l.in_ram.truncate(n_groups as usize);
            l.compressed.split_off(&n_groups);
            for frame in l.frame_of.drain((n_groups as usize).min(l.frame_of.len())..).flatten() {
                l.group_in[frame as usize] = None;
                l.n_used -= 1;
                self.version += 1;
            }
        }
    }

    /// Used frames within `first_frame .. first_frame + n_frames`, ascending, relative to `first_frame`.
    pub fn used_in(&self, layer: usize, first_frame: usize, n_frames: usize) -> Vec<usize> {
        let frames = self.layers[layer].group_in.iter().skip(first_frame).take(n_frames).enumerate();
        frames.filter(|(_, group)| group.is_some()).map(|(i, _)| i).collect()
    }

    /// True if a frame within `first_frame .. first_frame + n_frames` has a page.
    pub fn is_any_used(&self, layer: usize, first_frame: usize, n_frames: usize) -> bool {
        self.layers[layer].group_in.iter().skip(first_frame).take(n_frames).any(Option::is_some)
    }

    /// Groups before `n_groups` without a frame in a layer.
    pub fn missing(&self, layer: usize, n_groups: u32) -> Vec<u32> {
        (0..n_groups).filter(|g| self.frame(layer, *g).is_none()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn residency_is_a_one_to_one_map_within_its_frames(
            max_frames in 0usize..12, steps in prop::collection::vec((0usize..2, 0u32..20, 0u8..8), 0..60),
        ) {
            let mut residency = Residency::new(2, max_frames);
            let mut model: HashMap<(usize, u32), u32> = HashMap::new();
            for (layer, group, what) in steps {
                if what == 0 {
                    residency.truncate(group);
                    model.retain(|(_, g), _| *g < group);
                } else if let Some(frame) = residency.allocate(layer, group) {
                    if let Some(old) = model.insert((layer, group), frame) {
                        prop_assert_eq!(old, frame);
                    }
                } else {
                    prop_assert!(!model.contains_key(&(layer, group)));
                    prop_assert_eq!(model.keys().filter(|(l, _)| *l == layer).count(), max_frames);
                }
                for layer in 0..2 {
                    let mut frames: Vec<usize> =
                        model.iter().filter(|((l, _), _)| *l == layer).map(|(_, f)| *f as usize).collect();
                    frames.sort_unstable();
                    let n = frames.len();
                    prop_assert!(frames.iter().all(|f| *f < max_frames));
                    prop_assert_eq!(residency.n_resident(layer), n);
                    prop_assert_eq!(residency.is_any_used(layer, 0, max_frames), n > 0);
                    prop_assert_eq!(residency.used_in(layer, 0, max_frames), frames);
                    let missing = residency.missing(layer, 20);
                    prop_assert_eq!(missing.len(), 20 - n);
                    prop_assert!(missing.iter().all(|g| !model.contains_key(&(layer, *g))));
                }
            }
        }
    }

    #[test]
    fn version_changes_with_every_frame_that_a_page_gets_or_loses() {
        let mut residency = Residency::new(2, 2);
        let mut versions = vec![residency.version()];
        residency.allocate(0, 0);
        versions.push(residency.version());
        residency.allocate(0, 0);
        assert_eq!(Some(&residency.version()), versions.last(), "it has its frame");
        residency.allocate(1, 0);
        versions.push(residency.version());
        residency.allocate(0, 1);
        residency.truncate(1);
        versions.push(residency.version());
        residency.set_offloaded(0, 0);
        residency.allocate(0, 1);
        residency.require(0, &[4], 3);
        versions.push(residency.version());
        assert!(versions.windows(2).all(|pair| pair[0] < pair[1]), "{versions:?}");
        let before = residency.version();
        residency.truncate(0);
        assert!(residency.version() > before);
    }

    #[test]
    fn selected_pages_evict_the_least_recently_selected_offloaded_pages() {
        let mut residency = Residency::new(1, 4);
        for group in 0..4 {
            residency.allocate(0, group);
        }
        for group in [0, 1, 2] {
            residency.set_offloaded(0, group);
        }
        assert_eq!(residency.require(0, &[0, 3], 1), MissingPages::default());
        assert_eq!(residency.n_resident(0), 4, "no eviction without need");
        // Pages 1 and 2 were never selected, 3 is not offloaded, 0 was selected in this step.
        assert_eq!(residency.require(0, &[0, 6, 7, 8], 2), MissingPages { framed: vec![6, 7], unframed: vec![8] });
        assert_eq!((residency.frame(0, 1), residency.frame(0, 2)), (None, None));
        assert_eq!((residency.frame(0, 0), residency.frame(0, 3)), (Some(0), Some(3)));
        assert_eq!(residency.allocate(0, 6), Some(1));
        assert_eq!(residency.allocate(0, 7), Some(2));
        assert_eq!(residency.allocate(0, 8), None);
        // An evicted page that returns is still offloaded; a new page is once that was recorded.
        residency.set_offloaded(0, 6);
        assert_eq!(residency.require(0, &[1], 3), MissingPages { framed: vec![1], unframed: vec![] });
        assert_eq!((residency.frame(0, 0), residency.frame(0, 6)), (None, Some(1)), "both are of step 2: the first is evicted");
    }

    #[test]
    fn compressed_pages_are_released_for_exact_attention() {
        let mut residency = Residency::new(2, 2);
        for layer in 0..2 {
            (0..2).for_each(|group| assert!(residency.allocate(layer, group).is_some()));
        }
        residency.set_compressed(1, 0);
        residency.set_compressed(1, 1);
        residency.truncate(1);
        residency.release_compressed();
        assert_eq!([0, 1].map(|layer| residency.n_resident(layer)), [1, 0]);
        // A page that returns to the frame was not compressed.
        residency.allocate(1, 0);
        residency.release_compressed();
        assert_eq!(residency.frame(1, 0), Some(0));
    }

    #[test]
    fn pages_cached_in_ram_are_evicted_first_except_after_cold_ones() {
        let mut residency = Residency::new(1, 4);
        for group in 0..4 {
            residency.allocate(0, group);
            residency.set_offloaded(0, group);
        }
        residency.set_in_ram(0, [1, 2].into_iter());
        residency.require(0, &[0, 3], 1);
        residency.require(0, &[0, 1], 5);
        residency.require(0, &[2], 6);
        assert_eq!((residency.is_in_vram_alone(0, 0), residency.is_in_vram_alone(0, 1)), (true, false));
        // Page 3 was read in step 1, page 0 in step 5; RAM caches 1 and 2.
        residency.require(0, &[7], 7);
        assert_eq!((0..4).filter(|g| residency.frame(0, *g).is_none()).collect::<Vec<u32>>(), [1]);
        residency.allocate(0, 7);
        residency.require(0, &[8], 10);
        assert_eq!(residency.frame(0, 3), None, "cold");
        residency.set_in_ram(0, std::iter::empty());
        assert!(residency.is_in_vram_alone(0, 2));
    }

    #[test]
    fn prefetched_pages_evict_only_pages_without_recent_demand() {
        let mut residency = Residency::new(1, 3);
        for group in 0..3 {
            residency.allocate(0, group);
            residency.set_offloaded(0, group);
        }
        residency.require(0, &[0, 1], 1);
        // Pages selected in the previous step stay; page 2 was never read.
        assert_eq!(residency.prefetch(0, &[5, 6], 2), MissingPages { framed: vec![5], unframed: vec![6] });
        assert_eq!((residency.frame(0, 2), residency.frame(0, 0).is_some()), (None, true));
        assert_eq!(residency.prefetch(0, &[1, 5, 6], 3), MissingPages { framed: vec![5, 6], unframed: vec![] });
        for group in [5, 6] {
            residency.allocate(0, group);
            residency.set_offloaded(0, group);
        }
        assert_eq!((0..7).filter(|g| residency.frame(0, *g).is_some()).collect::<Vec<u32>>(), [1, 5, 6]);
        // More pages are prefetched than there are frames: no page of this step is evicted for them.
        assert_eq!(residency.prefetch(0, &[2], 3), MissingPages { framed: vec![], unframed: vec![2] });
        // A page that attention reads evicts one that was only prefetched.
        assert_eq!(residency.require(0, &[1, 5, 8], 3), MissingPages { framed: vec![8], unframed: vec![] });
        assert_eq!((residency.frame(0, 6), residency.frame(0, 5).is_some()), (None, true));
    }

    #[test]
    fn frames_allocated_in_group_order_are_a_prefix() {
        let mut residency = Residency::new(1, 8);
        for group in 0..6 {
            assert_eq!(residency.allocate(0, group), Some(group));
        }
        residency.truncate(4);
        assert_eq!(residency.allocate(0, 4), Some(4));
    }
}
