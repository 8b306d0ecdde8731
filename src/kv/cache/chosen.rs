//! What selective attention reads: chosen blocks in VRAM through tables of each KV head, and chosen pages from below.
//!
//! ```text
//! pages that a policy chose ─► residency ─┬─ in a frame: a table per segment of the pool
//!                                         ├─ framed: batches into free frames, before the layer's attention
//!                                         └─ unframed: batches that attention reads in their slots
//! pages that the next layer may choose ─────► batches behind those, into free frames of that layer
//! ```
//! Owner: the engine thread. 1. A page that was chosen stays in VRAM until another needs its frame. 2. What was expected and is
//! not chosen has moved in vain and changes nothing. 3. A stream that is replaced loses no page that is wanted still: what was
//! read of the disk for it stays until it was handed over.

use std::ops::Range;

use super::{Batch, FilledSlot, KvCache, KvSpec, Packing, StreamCost};
use crate::gpu::kernels::attention_decode::ListedBlock;
use crate::gpu::{Gpu, Recorder, Slice};
use crate::kv::abstracts::{abstract_bytes, unknown};
use crate::kv::batches::StreamPlan;
use crate::kv::error::KvError;
use crate::kv::layout::BLOCKS_PER_PAGE;
use crate::kv::lower::{NearPages, PageBytes};
use crate::kv::near::key_scores;
use crate::kv::policy::frequency::LayerPage;
use crate::kv::policy::{ChosenBlock, Tier};
use crate::kv::residency::Missing;
use crate::kv::store::PageId;
use crate::telemetry::Cause;

/// A table `[G, n_blocks]` of lists as long as their heads want; the shorter ones end in [`ListedBlock::NOTHING`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChosenTable {
    /// `[G, n_blocks]`
    pub entries: Vec<ListedBlock>,
    /// length of the longest list
    pub n_blocks: usize,
}

/// Keys of one layer that can be scored where they lie, by any thread.
pub struct KeysInRam<'a> {
    spec: &'a KvSpec,
    /// none where nothing lies below
    near: Option<&'a NearPages>,
    layer: usize,
}

impl KeysInRam<'_> {
    /// Those of `pages` that RAM has, and the scores of all their keys for queries f32 `[H, D]`, where they lie: f32
    /// `[H, n_keys]`. None of them, and `pages` is not asked, where nothing lies below.
    pub fn scores(&self, pages: impl FnOnce() -> Vec<u32>, q: &[f32]) -> (Vec<u32>, Vec<f32>) {
        let Some(near) = self.near else { return (Vec::new(), Vec::new()) };
        let wanted = pages().into_iter().map(|page| PageId::kv(self.layer as u32, page));
        let found = near.of(wanted, self.spec.page_bytes() as usize);
        let (found, bytes): (Vec<PageId>, Vec<PageBytes>) = found.into_iter().unzip();
        (found.iter().map(|page| page.group).collect(), key_scores(self.spec, &bytes, q))
    }
}

/// What was started for a layer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChosenStream {
    /// chosen pages that were in no frame
    pub missing: Vec<u32>,
    /// batches that come into frames, first
    pub n_framed: usize,
    /// batches that stay in their slots, after them
    pub n_unframed: usize,
    /// pages that move, and how many of them as INT4
    pub n_pages: usize,
    /// see `n_pages`
    pub n_packed: usize,
}

impl ChosenTable {
    /// Bytes of one over `n_pages` of which each of `n_lists` may read everything.
    pub fn bytes(n_lists: usize, n_pages: usize) -> u64 {
        (n_lists * n_pages * BLOCKS_PER_PAGE * size_of::<ListedBlock>()) as u64
    }

    /// Lists of what is chosen of pages: `place` says where in the pages that are behind the table one is.
    fn new(spec: &KvSpec, chosen: &[Vec<ChosenBlock>], place: impl Fn(u32) -> Option<usize>) -> ChosenTable {
        let listed = |head: usize, chosen: &ChosenBlock| {
            let slot = spec.slot_of(place(chosen.page())?, chosen.block as usize % BLOCKS_PER_PAGE, head % spec.n_kv_head);
            Some(ListedBlock { slot, tokens: chosen.tokens.into() })
        };
        let list = |(head, chosen): (usize, &Vec<ChosenBlock>)| chosen.iter().filter_map(|c| listed(head, c)).collect();
        ChosenTable::padded(chosen.iter().enumerate().map(list).collect())
    }

    /// All of `n_pages` that stand in order, for every KV head.
    pub fn whole(spec: &KvSpec, n_pages: usize) -> ChosenTable {
        let pages: Vec<u32> = (0..n_pages as u32).collect();
        ChosenTable::new(spec, &vec![ChosenBlock::of_pages(&pages); spec.n_kv_head], |page| Some(page as usize))
    }

    fn padded(mut lists: Vec<Vec<ListedBlock>>) -> ChosenTable {
        let n_blocks = lists.iter().map(Vec::len).max().unwrap_or(0);
        lists.iter_mut().for_each(|list| list.resize(n_blocks, ListedBlock::NOTHING));
        ChosenTable { entries: lists.concat(), n_blocks }
    }
}

impl KvCache {
    /// Pages may leave VRAM for others, because attention may read only some of them.
    pub fn is_selective(&self) -> bool {
        !self.abstracts.is_empty()
    }

    /// Abstracts of a layer, f16 `[P, G, 2, D]`; none where attention always reads everything.
    pub fn abstracts(&self, layer: usize) -> Option<&Slice> {
        self.abstracts.get(layer)
    }

    /// Abstracts of the first groups, as a store kept them: rows of all layers, and which of them are whole. A page without
    /// one is always read.
    ///
    /// # Errors
    /// A lost device.
    pub(super) fn upload_abstracts(&self, gpu: &Gpu, n_groups: u32, rows: &[u8], is_whole: &[bool]) -> Result<(), KvError> {
        let size = abstract_bytes(&self.spec);
        let none = unknown(&self.spec);
        for (layer, target) in self.abstracts.iter().enumerate() {
            let mut bytes = Vec::with_capacity(n_groups as usize * size);
            for group in 0..n_groups as usize {
                let at = (group * self.spec.n_layer + layer) * size;
                let row = rows.get(at..at + size).filter(|_| is_whole.get(group) == Some(&true));
                bytes.extend_from_slice(row.unwrap_or(&none));
            }
            gpu.upload(target, &bytes)?;
        }
        Ok(())
    }

    /// Where the first `n_pages` of a layer are, as far as that is known without asking: what has no frame may be on the disk.
    pub fn tiers(&self, layer: usize, n_pages: usize) -> Vec<Tier> {
        let tier = |group| if self.residency.frame(layer, group).is_some() { Tier::Vram } else { Tier::Disk };
        (0..n_pages as u32).map(tier).collect()
    }

    /// Table of what is resident of `chosen` (of each KV head of one query after the other, ascending) in a segment of the pool.
    pub fn chosen_in_segment(&self, layer: usize, segment_idx: usize, chosen: &[Vec<ChosenBlock>]) -> ChosenTable {
        let shape = self.shapes[segment_idx];
        ChosenTable::new(&self.spec, chosen, |group| {
            let frame = self.residency.frame(layer, group)? as usize;
            frame.checked_sub(shape.first_frame).filter(|page| *page < shape.n_frames)
        })
    }

    /// Table of what is `chosen` of the tail, whose pages are counted from its first.
    pub fn chosen_in_tail(&self, chosen: &[Vec<ChosenBlock>]) -> ChosenTable {
        ChosenTable::new(&self.spec, chosen, |page| self.tail.order.get(page as usize).copied())
    }

    /// Table of what batches of the stream have of `chosen`, once they lie in the slots' area one after the other.
    pub fn chosen_in_batches(&self, batches: Range<usize>, chosen: &[Vec<ChosenBlock>]) -> ChosenTable {
        let batches = self.stream.get(batches).unwrap_or_default();
        let groups: Vec<u32> = batches.iter().flat_map(|b| b.groups.iter().copied()).collect();
        ChosenTable::new(&self.spec, chosen, |group| groups.binary_search(&group).ok())
    }

    /// A page lies in a frame.
    pub fn is_resident(&self, layer: usize, group: u32) -> bool {
        self.residency.frame(layer, group).is_some()
    }

    /// All of the first `n_pages` pages of a layer lie in frames: nothing of it has to come.
    pub fn is_all_resident(&self, layer: usize, n_pages: u32) -> bool {
        (0..n_pages).all(|page| self.is_resident(layer, page))
    }

    /// A page lies in a segment of the pool.
    pub fn is_in_segment(&self, layer: usize, segment_idx: usize, group: u32) -> bool {
        let shape = self.shapes[segment_idx];
        self.residency.frame(layer, group).is_some_and(|f| (shape.first_frame..shape.end_frame()).contains(&(f as usize)))
    }

    /// Starts the stream of those of `pages` that have no frame, and leaves frames as they are, unless it is on its way.
    /// Its number of batches: where all have frames, none, and another stream goes on.
    pub fn begin_streamed(&mut self, layer: usize, pages: &[u32]) -> usize {
        let missing: Vec<u32> = pages.iter().copied().filter(|p| self.residency.frame(layer, *p).is_none()).collect();
        if missing.is_empty() {
            return 0;
        }
        let batches = self.batches(layer, &missing);
        if self.next_batch > 0 || self.stream != batches {
            self.replace_stream(batches, Vec::new());
        }
        self.stream.len()
    }

    fn batches(&self, layer: usize, groups: &[u32]) -> Vec<Batch> {
        let batch = |groups: &[u32]| Batch { layer: layer as u32, groups: groups.to_vec(), is_packed: false };
        groups.chunks(self.plan.slot_pages).map(batch).collect()
    }

    fn replace_stream(&mut self, batches: Vec<Batch>, ahead: Vec<PageId>) {
        let is_nothing = batches.is_empty() && ahead.is_empty() && self.next_batch >= self.stream.len();
        self.stream = batches;
        self.next_batch = 0;
        if !self.synchronous && !is_nothing {
            self.start_stream(StreamPlan { batches: self.stream.clone(), cyclic: false, ahead });
        }
    }

    /// Attention of a layer will read these of its `n_pages` in this step, and perhaps those of `expected` of another layer:
    /// makes frames free for them and starts their stream. `theta` says what share of it travels packed: first what attention
    /// reads once and forgets.
    pub fn begin_chosen(
        &mut self,
        layer: usize,
        pages: &[u32],
        n_pages: usize,
        step: u64,
        expected: Option<(usize, &[u32])>,
        theta: impl FnOnce(u64) -> f64,
    ) -> ChosenStream {
        let Missing { framed, unframed } = self.residency.choose(layer, pages, step);
        let missing: Vec<u32> = framed.iter().chain(&unframed).copied().collect();
        self.counts.resident += (pages.len() - missing.len()) as u64;
        self.counts.skipped += (n_pages - pages.len()) as u64;
        let mut batches = self.batches(layer, &framed);
        let n_framed = batches.len();
        batches.extend(self.batches(layer, &unframed));
        let n_chosen = batches.len();
        let mut ahead = Vec::new();
        // Where nothing comes before it is asked for, nothing is expected.
        if let Some((layer, pages)) = expected.filter(|_| !self.synchronous) {
            let Missing { framed, unframed } = self.residency.expect(layer, pages, step);
            batches.extend(self.batches(layer, &framed));
            ahead.extend(unframed.into_iter().map(|group| PageId::kv(layer as u32, group)));
        }
        let n_pages: usize = batches.iter().map(|b| b.groups.len()).sum();
        let n_packed = (theta(n_pages as u64 * self.spec.page_bytes()) * batches.len() as f64).round() as usize;
        let once_first = (n_framed..batches.len()).chain(0..n_framed);
        if self.packing().is_some() {
            once_first.take(n_packed).for_each(|i| batches[i].is_packed = true);
        }
        let n_packed = batches.iter().filter(|b| b.is_packed).map(|b| b.groups.len()).sum();
        self.replace_stream(batches, ahead);
        ChosenStream { missing, n_framed, n_unframed: n_chosen - n_framed, n_pages, n_packed }
    }

    /// The next batch of those that were expected of a layer, where it is there already.
    ///
    /// # Errors
    /// What the tiers below failed with, or a lost device.
    pub fn next_expected(&mut self, gpu: &Gpu, layer: usize) -> Result<Option<FilledSlot>, KvError> {
        let is_of_layer = self.stream.get(self.next_batch).is_some_and(|batch| batch.layer as usize == layer);
        if is_of_layer && self.is_next_filled(gpu)? { self.next_filled_for(gpu, Cause::Prefetch).map(Some) } else { Ok(None) }
    }

    /// Records the way of a filled slot to free frames of its layer; the pages that found one.
    pub fn record_frames<'a>(&mut self, recorder: &mut Recorder, filled: &'a FilledSlot) -> &'a [u32] {
        // Nothing lies in the area while pages come to frames.
        let Some(from) = self.record_plain(recorder, filled, 0) else { return &[] };
        self.record_to_frames(recorder, filled, &from)
    }

    /// The keys of a layer's pages that RAM has.
    pub fn keys_in_ram(&self, layer: usize) -> KeysInRam<'_> {
        KeysInRam { spec: &self.spec, near: self.has_lower.then_some(&self.near), layer }
    }

    /// What the stream has cost so far.
    pub fn stream_cost(&self) -> StreamCost {
        self.spent
    }

    /// Speeds at which pages are packed and opened, unpacked bytes per second; none where they travel as they are.
    pub fn packing(&self) -> Option<Packing> {
        self.stage.as_ref()?.opener.as_ref().map(|opener| opener.packing)
    }

    /// Pages of which RAM has room for copies.
    pub fn n_ram_pages(&self) -> usize {
        self.report().n_kept
    }

    /// A page is in VRAM, and is not meant to be in RAM as well.
    pub fn is_in_vram_alone(&self, page: LayerPage) -> bool {
        self.residency.is_in_vram_alone(page.layer as usize, page.page)
    }

    /// Keeps copies of these pages in RAM before all others.
    pub fn prefer(&mut self, pages: &[LayerPage]) {
        for layer in 0..self.spec.n_layer {
            let groups = pages.iter().filter(|p| p.layer as usize == layer).map(|p| p.page);
            self.residency.set_in_ram(layer, groups);
        }
        self.transfer.prefer(pages.iter().map(|p| PageId::kv(p.layer, p.page)).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_lists_of_different_length_ends_in_blocks_of_no_token() {
        let (a, b, c, nothing) =
            (ListedBlock { slot: 3, tokens: 5 }, ListedBlock::whole(9), ListedBlock::whole(7), ListedBlock::NOTHING);
        let table = ChosenTable::padded(vec![vec![a, b], vec![], vec![c]]);
        assert_eq!((table.n_blocks, table.entries), (2, vec![a, b, nothing, nothing, c, nothing]));
        assert_eq!(ChosenTable::padded(vec![vec![], vec![]]), ChosenTable::default());
    }
}
