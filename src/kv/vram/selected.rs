//! What selective attention reads: chosen tokens in VRAM through tables of each KV head, and chosen pages from below.
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

use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::gpu::kernels::attention_decode::{PAD, TokenSlot};
use crate::gpu::{Gpu, Recorder, Slice};
use crate::kv::cpu_scores::score_keys;
use crate::kv::error::KvError;
use crate::kv::layout::BLOCKS_PER_PAGE;
use crate::kv::offload::{PageBytes, RamPagesView};
use crate::kv::policy::access_frequency::LayerPage;
use crate::kv::policy::leoam::abstracts::{abstract_bytes, unknown};
use crate::kv::policy::{SelectedBlock, Tier};
use crate::kv::residency::MissingPages;
use crate::kv::store::PageId;
use crate::kv::transfer::plan::TransferPlan;
use crate::kv::vram::{CodecRates, KvSpec, StagedBatch, StreamCost, TransferBatch, VramCache};
use crate::telemetry::Cause;

/// A table of lists, of tokens or of blocks, as long as the KV heads of each query want; the shorter ones end in [`PAD`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockTable {
    /// u32 `[R * G, n_listed]`: [`TokenSlot`]s, or slots of blocks
    pub entries: Vec<u32>,
    /// length of the longest list
    pub n_listed: usize,
}

/// Keys of one layer that can be scored where they lie, by any thread.
#[derive(Clone, Copy)]
pub struct RamKeys<'a> {
    spec: &'a KvSpec,
    /// none where nothing lies below
    ram_pages: Option<&'a RamPagesView>,
    layer: usize,
}

impl RamKeys<'_> {
    /// Those of `pages` that RAM has not; none where nothing lies below.
    pub fn missing_of(&self, pages: &[u32]) -> Vec<u32> {
        let Some(near) = self.ram_pages else { return Vec::new() };
        let wanted = pages.iter().map(|page| PageId::kv(self.layer as u32, *page));
        let found = near.of(wanted, self.spec.page_bytes() as usize);
        pages.iter().copied().filter(|page| !found.iter().any(|(here, _)| here.group == *page)).collect()
    }

    /// Those of `pages` that RAM has, and the scores of all their keys for queries f32 `[H, D]`, where they lie: f32
    /// `[H, n_keys]`. None of them, and `pages` is not asked, where nothing lies below.
    pub fn scores(&self, pages: impl FnOnce() -> Vec<u32>, q: &[f32]) -> (Vec<u32>, Vec<f32>) {
        let Some(near) = self.ram_pages else { return (Vec::new(), Vec::new()) };
        let wanted = pages().into_iter().map(|page| PageId::kv(self.layer as u32, page));
        let found = near.of(wanted, self.spec.page_bytes() as usize);
        let (found, bytes): (Vec<PageId>, Vec<PageBytes>) = found.into_iter().unzip();
        (found.iter().map(|page| page.group).collect(), score_keys(self.spec, &bytes, q))
    }
}

/// What was started for a layer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectedStream {
    /// chosen pages that were in no frame
    pub missing: Vec<u32>,
    /// batches that come into frames, first
    pub n_framed: usize,
    /// batches that stay in their slots, after them
    pub n_unframed: usize,
    /// pages that move, and how many of them as INT4
    pub n_pages: usize,
    /// see `n_pages`
    pub n_compressed: usize,
}

impl BlockTable {
    /// Bytes of one over `n_pages` of which each of `n_lists` may list all tokens.
    pub fn token_bytes(n_lists: usize, n_pages: usize) -> u64 {
        (n_lists * n_pages * KV_PAGE_TOKENS * size_of::<u32>()) as u64
    }

    /// Bytes of one over `n_pages` of which each of `n_lists` may list all blocks.
    pub fn block_bytes(n_lists: usize, n_pages: usize) -> u64 {
        (n_lists * n_pages * BLOCKS_PER_PAGE * size_of::<u32>()) as u64
    }

    /// Lists of the tokens that are `chosen` by the KV heads of one query after the other: `place` says where in the pages that are
    /// behind the table one is.
    fn of_tokens(spec: &KvSpec, chosen: &[Vec<SelectedBlock>], place: impl Fn(u32) -> Option<usize>) -> BlockTable {
        let list = |(head, chosen): (usize, &Vec<SelectedBlock>)| {
            let mut entries = Vec::with_capacity(chosen.len() * KV_BLOCK_TOKENS);
            for block in chosen {
                let Some(page) = place(block.page()) else { continue };
                let slot = spec.slot_of(page, block.block as usize % BLOCKS_PER_PAGE, head % spec.n_kv_head);
                let is_read = |token: &usize| block.tokens >> token & 1 == 1;
                entries.extend((0..KV_BLOCK_TOKENS).filter(is_read).map(|token| TokenSlot::new(slot, token).entry()));
            }
            entries
        };
        BlockTable::padded(chosen.iter().enumerate().map(list).collect())
    }

    /// Lists of all blocks of the pages of each of `rows`, for every KV head.
    fn of_pages(spec: &KvSpec, rows: &[Vec<u32>], place: impl Fn(u32) -> Option<usize>) -> BlockTable {
        let list = |pages: &[usize], head| -> Vec<u32> {
            let of_page = |page: &usize| (0..BLOCKS_PER_PAGE).map(|block| spec.slot_of(*page, block, head)).collect::<Vec<_>>();
            pages.iter().flat_map(of_page).collect()
        };
        let of_row = |pages: &Vec<u32>| -> Vec<Vec<u32>> {
            let places: Vec<usize> = pages.iter().filter_map(|page| place(*page)).collect();
            (0..spec.n_kv_head).map(|head| list(&places, head)).collect()
        };
        BlockTable::padded(rows.iter().flat_map(of_row).collect())
    }

    /// All blocks of `n_pages` that stand in order, for every KV head.
    pub fn whole(spec: &KvSpec, n_pages: usize) -> BlockTable {
        BlockTable::of_pages(spec, &[(0..n_pages as u32).collect()], |page| Some(page as usize))
    }

    fn padded(mut lists: Vec<Vec<u32>>) -> BlockTable {
        let n_listed = lists.iter().map(Vec::len).max().unwrap_or(0);
        lists.iter_mut().for_each(|list| list.resize(n_listed, PAD));
        BlockTable { entries: lists.concat(), n_listed }
    }
}

impl VramCache {
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

    /// What is resident of the tokens that are `chosen` (by each KV head of one query after the other, ascending) in a segment of the
    /// pool.
    pub fn selected_in_segment(&self, layer: usize, segment_idx: usize, chosen: &[Vec<SelectedBlock>]) -> BlockTable {
        BlockTable::of_tokens(&self.spec, chosen, |group| self.place_in_segment(layer, segment_idx, group))
    }

    /// What batches of the stream have of the tokens that are `chosen`, once they lie in the slots' area one after the other.
    pub fn selected_in_batches(&self, batches: Range<usize>, chosen: &[Vec<SelectedBlock>]) -> BlockTable {
        let groups = self.groups_of(batches);
        BlockTable::of_tokens(&self.spec, chosen, |group| groups.binary_search(&group).ok())
    }

    /// All blocks of the pages of each of `rows` that are in a segment of the pool.
    pub fn blocks_in_segment(&self, layer: usize, segment_idx: usize, rows: &[Vec<u32>]) -> BlockTable {
        BlockTable::of_pages(&self.spec, rows, |group| self.place_in_segment(layer, segment_idx, group))
    }

    /// The same of batches of the stream, once they lie in the slots' area one after the other.
    pub fn blocks_in_batches(&self, batches: Range<usize>, rows: &[Vec<u32>]) -> BlockTable {
        let groups = self.groups_of(batches);
        BlockTable::of_pages(&self.spec, rows, |group| groups.binary_search(&group).ok())
    }

    /// All blocks of these pages of the tail, counted from its first.
    pub fn blocks_in_tail(&self, pages: &[u32]) -> BlockTable {
        BlockTable::of_pages(&self.spec, &[pages.to_vec()], |page| self.tail.order.get(page as usize).copied())
    }

    fn place_in_segment(&self, layer: usize, segment_idx: usize, group: u32) -> Option<usize> {
        let shape = self.shapes[segment_idx];
        let frame = self.residency.frame(layer, group)? as usize;
        frame.checked_sub(shape.first_frame).filter(|page| *page < shape.n_frames)
    }

    fn groups_of(&self, batches: Range<usize>) -> Vec<u32> {
        let batches = self.stream.get(batches).unwrap_or_default();
        batches.iter().flat_map(|batch| batch.groups.iter().copied()).collect()
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
        self.place_in_segment(layer, segment_idx, group).is_some()
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

    fn batches(&self, layer: usize, groups: &[u32]) -> Vec<TransferBatch> {
        let batch = |groups: &[u32]| TransferBatch { layer: layer as u32, groups: groups.to_vec(), is_compressed: false };
        groups.chunks(self.plan.slot_pages).map(batch).collect()
    }

    fn replace_stream(&mut self, batches: Vec<TransferBatch>, ahead: Vec<PageId>) {
        let is_nothing = batches.is_empty() && ahead.is_empty() && self.next_batch >= self.stream.len();
        self.stream = batches;
        self.next_batch = 0;
        if !self.synchronous && !is_nothing {
            self.start_stream(TransferPlan { batches: self.stream.clone(), cyclic: false, ahead });
        }
    }

    /// Attention of a layer will read these of its `n_pages` in this step, and perhaps those of `expected` of another layer:
    /// makes frames free for them and starts their stream. `theta` says what share of it travels packed: first what attention
    /// reads once and forgets.
    pub fn begin_selected(
        &mut self,
        layer: usize,
        pages: &[u32],
        n_pages: usize,
        step: u64,
        expected: Option<(usize, &[u32])>,
        theta: impl FnOnce(u64) -> f64,
    ) -> SelectedStream {
        let MissingPages { framed, unframed } = self.residency.require(layer, pages, step);
        let missing: Vec<u32> = framed.iter().chain(&unframed).copied().collect();
        self.counts.resident += (pages.len() - missing.len()) as u64;
        self.counts.skipped += (n_pages - pages.len()) as u64;
        let mut batches = self.batches(layer, &framed);
        let n_framed = batches.len();
        batches.extend(self.batches(layer, &unframed));
        let n_selected = batches.len();
        let mut ahead = Vec::new();
        // Where nothing comes before it is asked for, nothing is expected.
        if let Some((layer, pages)) = expected.filter(|_| !self.synchronous) {
            let MissingPages { framed, unframed } = self.residency.prefetch(layer, pages, step);
            batches.extend(self.batches(layer, &framed));
            ahead.extend(unframed.into_iter().map(|group| PageId::kv(layer as u32, group)));
        }
        let n_pages: usize = batches.iter().map(|b| b.groups.len()).sum();
        let n_compressed = (theta(n_pages as u64 * self.spec.page_bytes()) * batches.len() as f64).round() as usize;
        let once_first = (n_framed..batches.len()).chain(0..n_framed);
        if self.codec_rates().is_some() {
            once_first.take(n_compressed).for_each(|i| batches[i].is_compressed = true);
        }
        let n_compressed = batches.iter().filter(|b| b.is_compressed).map(|b| b.groups.len()).sum();
        self.replace_stream(batches, ahead);
        SelectedStream { missing, n_framed, n_unframed: n_selected - n_framed, n_pages, n_compressed }
    }

    /// The next batch of those that were expected of a layer, where it is there already.
    ///
    /// # Errors
    /// What the tiers below failed with, or a lost device.
    pub fn next_prefetched(&mut self, gpu: &Gpu, layer: usize) -> Result<Option<StagedBatch>, KvError> {
        let is_of_layer = self.stream.get(self.next_batch).is_some_and(|batch| batch.layer as usize == layer);
        if is_of_layer && self.is_next_filled(gpu)? { self.next_filled_for(gpu, Cause::Prefetch).map(Some) } else { Ok(None) }
    }

    /// Records the way of a filled slot to free frames of its layer; the pages that found one.
    pub fn record_frames<'a>(&mut self, recorder: &mut Recorder, filled: &'a StagedBatch) -> &'a [u32] {
        // Nothing lies in the area while pages come to frames.
        let Some(from) = self.record_plain(recorder, filled, 0) else { return &[] };
        self.record_to_frames(recorder, filled, &from)
    }

    /// The keys of a layer's pages that RAM has.
    pub fn keys_in_ram(&self, layer: usize) -> RamKeys<'_> {
        RamKeys { spec: &self.spec, ram_pages: self.has_offload.then_some(&self.ram_pages), layer }
    }

    /// What the stream has cost so far.
    pub fn stream_cost(&self) -> StreamCost {
        self.spent
    }

    /// Speeds at which pages are packed and opened, unpacked bytes per second; none where they travel as they are.
    pub fn codec_rates(&self) -> Option<CodecRates> {
        self.stage.as_ref()?.dequantizer.as_ref().map(|dequantizer| dequantizer.codec_rates)
    }

    /// Pages of which RAM has room for copies.
    pub fn n_ram_pages(&self) -> usize {
        self.report().n_resident
    }

    /// A page is in VRAM, and is not meant to be in RAM as well.
    pub fn is_in_vram_alone(&self, page: LayerPage) -> bool {
        self.residency.is_in_vram_alone(page.layer as usize, page.page)
    }

    /// Keeps copies of these pages in RAM before all others.
    pub fn pin(&mut self, pages: &[LayerPage]) {
        for layer in 0..self.spec.n_layer {
            let groups = pages.iter().filter(|p| p.layer as usize == layer).map(|p| p.page);
            self.residency.set_in_ram(layer, groups);
        }
        self.transfer.pin(pages.iter().map(|p| PageId::kv(p.layer, p.page)).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::kernels::KvFormat;

    const SPEC: KvSpec = KvSpec { n_layer: 1, n_kv_head: 2, head_dim: 8, work: KvFormat::F16, sealed: KvFormat::F16 };

    #[test]
    fn list_of_tokens_has_those_of_pages_that_are_there() {
        // Pages 5 and 6 lie at 1 and 0, page 7 elsewhere. A page has 8 slots, block b of head g at 2 b + g.
        let place = |page| [6, 5].iter().position(|here| *here == page);
        let part = |block, tokens| SelectedBlock { block, tokens };
        let first = vec![part(20, 0b101), part(27, 1 << 15), part(28, 0xffff)];
        let second = vec![part(23, 0b10)];
        let table = BlockTable::of_tokens(&SPEC, &[first, second, vec![]], place);
        let token = |slot, token| TokenSlot::new(slot, token).entry();
        let [a, b, c] = [token(8, 0), token(8, 2), token(6, 15)];
        let d = token(8 + 6 + 1, 1);
        let none = PAD;
        assert_eq!((table.n_listed, table.entries), (3, vec![a, b, c, d, none, none, none, none, none]));
        assert_eq!(BlockTable::of_tokens(&SPEC, &[vec![], vec![]], place), BlockTable::default());
    }

    #[test]
    fn list_of_blocks_has_all_of_the_pages_of_each_row() {
        let place = |page: u32| page.checked_sub(5).map(|at| at as usize);
        let table = BlockTable::of_pages(&SPEC, &[vec![4, 6], vec![]], place);
        let of_head = |head: u32| [8, 10, 12, 14].map(|slot: u32| slot + head);
        assert_eq!((table.n_listed, table.entries), (4, [of_head(0), of_head(1), [PAD; 4], [PAD; 4]].concat()));
        assert_eq!(BlockTable::whole(&SPEC, 1).entries, [0, 2, 4, 6, 1, 3, 5, 7]);
    }
}
