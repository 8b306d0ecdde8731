//! Selected pages and tokens: block tables for those in VRAM, and batches for the offloaded ones.
//!
//! ```text
//! pages that a policy selected ─► residency ─┬─ in a frame: a table per pool segment
//!                                            ├─ framed: batches into free frames, before the attention of the layer
//!                                            └─ unframed: batches that attention reads in their staging buffers
//! pages that the next layer may select ───────► batches after those, into free frames of that layer
//! ```
//! Owner: the engine thread.
//! 1. A selected page stays in VRAM until another page needs its frame.
//! 2. A prefetched page that is not selected was transferred in vain, without any other effect.
//! 3. Replacing a stream loses no page that is still needed: pages read from disk for it stay in RAM until they are
//!    transferred.

use std::collections::HashSet;
use std::ops::Range;

use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::gpu::kernels::attention_decode::{PAD, TokenSlot};
use crate::gpu::{Gpu, Recorder, Slice};
use crate::kv::cpu_scores::score_keys;
use crate::kv::error::KvError;
use crate::kv::offload::{PageBytes, RamPagesView};
use crate::kv::policy::access_frequency::LayerPage;
use crate::kv::policy::leoam::abstracts::{abstract_bytes, unbounded_abstract};
use crate::kv::policy::{SelectedBlock, Tier};
use crate::kv::residency::MissingPages;
use crate::kv::spec::BLOCKS_PER_PAGE;
use crate::kv::store::PageId;
use crate::kv::transfer::plan::TransferPlan;
use crate::kv::vram::{CodecRates, KvSpec, StagedBatch, StreamCost, TransferBatch, VramCache};
use crate::telemetry::Cause;

/// Table of lists of tokens or blocks, one list per KV head of each query. Shorter lists are padded with [`PAD`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockTable {
    /// u32 `[R * G, n_listed]`: [`TokenSlot`]s, or slots of blocks
    pub entries: Vec<u32>,
    /// length of the longest list
    pub n_listed: usize,
}

/// Keys of one layer in RAM, which any thread can score.
#[derive(Clone, Copy)]
pub struct RamKeys<'a> {
    spec: &'a KvSpec,
    /// none without offload tiers
    ram_pages: Option<&'a RamPagesView>,
    layer: usize,
}

impl RamKeys<'_> {
    /// Those of `pages` that are in RAM, and those that are not. Both are empty without offload tiers.
    pub fn partition(&self, pages: Vec<u32>) -> (Vec<u32>, Vec<u32>) {
        let Some(ram_pages) = self.ram_pages else { return (Vec::new(), Vec::new()) };
        let ids = pages.iter().map(|page| PageId::kv(self.layer as u32, *page));
        let in_ram: HashSet<u32> =
            ram_pages.of(ids, self.spec.page_bytes() as usize).into_iter().map(|(id, _)| id.group).collect();
        pages.into_iter().partition(|page| in_ram.contains(page))
    }

    /// Those of `pages` that are in RAM, and the scores of all their keys for queries f32 `[H, D]`: f32 `[H, n_keys]`.
    /// Without offload tiers both are empty.
    pub fn scores(&self, pages: &[u32], q: &[f32]) -> (Vec<u32>, Vec<f32>) {
        let Some(ram_pages) = self.ram_pages else { return (Vec::new(), Vec::new()) };
        let ids = pages.iter().map(|page| PageId::kv(self.layer as u32, *page));
        let resident = ram_pages.of(ids, self.spec.page_bytes() as usize);
        let (resident, bytes): (Vec<PageId>, Vec<PageBytes>) = resident.into_iter().unzip();
        (resident.iter().map(|page| page.group).collect(), score_keys(self.spec, &bytes, q))
    }
}

/// The stream started for the selected pages of a layer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectedStream {
    /// selected pages without a frame
    pub missing: Vec<u32>,
    /// number of batches copied to frames; they are first
    pub n_framed: usize,
    /// number of batches that attention reads in their staging buffers; they follow
    pub n_unframed: usize,
    /// pages in the stream
    pub n_pages: usize,
    /// pages in the stream that are compressed
    pub n_compressed: usize,
}

impl BlockTable {
    /// Bytes of a table of `n_lists` lists of all tokens of `n_pages`.
    pub fn token_bytes(n_lists: usize, n_pages: usize) -> u64 {
        (n_lists * n_pages * KV_PAGE_TOKENS * size_of::<u32>()) as u64
    }

    /// Bytes of a table of `n_lists` lists of all blocks of `n_pages`.
    pub fn block_bytes(n_lists: usize, n_pages: usize) -> u64 {
        (n_lists * n_pages * BLOCKS_PER_PAGE * size_of::<u32>()) as u64
    }

    /// Lists of the `selected` tokens, one list per KV head, query by query. `place` returns the index of a page in the
    /// buffer behind the table.
    fn of_tokens(spec: &KvSpec, selected: &[Vec<SelectedBlock>], place: impl Fn(u32) -> Option<usize>) -> BlockTable {
        let list = |(head, selected): (usize, &Vec<SelectedBlock>)| {
            let mut entries = Vec::with_capacity(selected.len() * KV_BLOCK_TOKENS);
            for block in selected {
                let Some(page) = place(block.page()) else { continue };
                let slot = spec.slot_of(page, block.block as usize % BLOCKS_PER_PAGE, head % spec.n_kv_head);
                let is_read = |token: &usize| block.tokens >> token & 1 == 1;
                entries.extend((0..KV_BLOCK_TOKENS).filter(is_read).map(|token| TokenSlot::new(slot, token).entry()));
            }
            entries
        };
        BlockTable::padded(selected.iter().enumerate().map(list).collect())
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

    /// Lists of all blocks of `n_pages` contiguous pages, for every KV head.
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
    /// True if pages may be evicted from VRAM, because attention may read only some of them.
    pub fn is_selective(&self) -> bool {
        !self.abstracts.is_empty()
    }

    /// Page abstracts of a layer, f16 `[P, G, 2, D]`. None if attention always reads every page.
    pub fn abstracts(&self, layer: usize) -> Option<&Slice> {
        self.abstracts.get(layer)
    }

    /// Uploads the abstracts of the first groups from a store: rows of all layers, and which of them are intact. A page
    /// without an abstract is always read.
    ///
    /// # Errors
    /// A lost GPU.
    pub(super) fn upload_abstracts(&self, gpu: &Gpu, n_groups: u32, rows: &[u8], is_intact: &[bool]) -> Result<(), KvError> {
        let size = abstract_bytes(&self.spec);
        let padding = unbounded_abstract(&self.spec);
        for (layer, target) in self.abstracts.iter().enumerate() {
            let mut bytes = Vec::with_capacity(n_groups as usize * size);
            for group in 0..n_groups as usize {
                let at = (group * self.spec.n_layer + layer) * size;
                let row = rows.get(at..at + size).filter(|_| is_intact.get(group) == Some(&true));
                bytes.extend_from_slice(row.unwrap_or(&padding));
            }
            gpu.upload(target, &bytes)?;
        }
        Ok(())
    }

    /// Tiers of the first `n_pages` of a layer, without a query to the transfer thread: a page without a frame counts
    /// as on disk.
    pub fn tiers(&self, layer: usize, n_pages: usize) -> Vec<Tier> {
        let tier = |group| if self.residency.frame(layer, group).is_some() { Tier::Vram } else { Tier::Disk };
        (0..n_pages as u32).map(tier).collect()
    }

    /// Table of the `selected` tokens (ascending, per KV head of each query) that are resident in a pool segment.
    pub fn selected_in_segment(&self, layer: usize, segment_idx: usize, selected: &[Vec<SelectedBlock>]) -> BlockTable {
        BlockTable::of_tokens(&self.spec, selected, |group| self.place_in_segment(layer, segment_idx, group))
    }

    /// Table of the `selected` tokens in batches of the stream, once those are contiguous in the staging pool.
    pub fn selected_in_batches(&self, batches: Range<usize>, selected: &[Vec<SelectedBlock>]) -> BlockTable {
        let groups = self.groups_of(batches);
        BlockTable::of_tokens(&self.spec, selected, |group| groups.binary_search(&group).ok())
    }

    /// Table of all blocks of the pages of each of `rows` that are in a pool segment.
    pub fn blocks_in_segment(&self, layer: usize, segment_idx: usize, rows: &[Vec<u32>]) -> BlockTable {
        BlockTable::of_pages(&self.spec, rows, |group| self.place_in_segment(layer, segment_idx, group))
    }

    /// Same for batches of the stream, once they are contiguous in the staging pool.
    pub fn blocks_in_batches(&self, batches: Range<usize>, rows: &[Vec<u32>]) -> BlockTable {
        let groups = self.groups_of(batches);
        BlockTable::of_pages(&self.spec, rows, |group| groups.binary_search(&group).ok())
    }

    /// Table of all blocks of these tail pages, counted from the first page of the tail.
    pub fn blocks_in_tail(&self, pages: &[u32]) -> BlockTable {
        BlockTable::of_pages(&self.spec, &[pages.to_vec()], |page| self.tail.order.get(page as usize).copied())
    }

    fn place_in_segment(&self, layer: usize, segment_idx: usize, group: u32) -> Option<usize> {
        let shape = self.shapes()[segment_idx];
        let frame = self.residency.frame(layer, group)? as usize;
        frame.checked_sub(shape.first_frame).filter(|page| *page < shape.n_frames)
    }

    fn groups_of(&self, batches: Range<usize>) -> Vec<u32> {
        let batches = self.stream.batches.get(batches).unwrap_or_default();
        batches.iter().flat_map(|batch| batch.groups.iter().copied()).collect()
    }

    /// True if a page has a frame.
    pub fn is_resident(&self, layer: usize, group: u32) -> bool {
        self.residency.frame(layer, group).is_some()
    }

    /// True if the first `n_pages` of a layer all have frames.
    pub fn is_all_resident(&self, layer: usize, n_pages: u32) -> bool {
        (0..n_pages).all(|page| self.is_resident(layer, page))
    }

    /// True if a pool segment has pages of a layer.
    pub fn is_used(&self, layer: usize, segment_idx: usize) -> bool {
        let shape = self.shapes()[segment_idx];
        self.residency.is_any_used(layer, shape.first_frame, shape.n_frames)
    }

    /// Counts tokens that attention read of `n_pages` in VRAM: as many as are in `n_read` pages.
    pub fn count_selected(&mut self, n_read: usize, n_pages: usize) {
        self.counts.resident += n_read as u64;
        self.counts.skipped += n_pages.saturating_sub(n_read) as u64;
    }

    /// True if a page is in a pool segment.
    pub fn is_in_segment(&self, layer: usize, segment_idx: usize, group: u32) -> bool {
        self.place_in_segment(layer, segment_idx, group).is_some()
    }

    /// Starts a stream of those of `pages` without a frame, unless it is already running. Frames do not change. Returns
    /// the number of batches. If all pages have frames, it is 0, and the current stream continues.
    pub fn begin_streamed(&mut self, layer: usize, pages: &[u32]) -> usize {
        let missing: Vec<u32> = pages.iter().copied().filter(|p| self.residency.frame(layer, *p).is_none()).collect();
        if missing.is_empty() {
            return 0;
        }
        let batches = self.batches(layer, &missing);
        if self.stream.next > 0 || self.stream.batches != batches {
            self.replace_stream(batches, Vec::new());
        }
        self.stream.batches.len()
    }

    pub(super) fn batches(&self, layer: usize, groups: &[u32]) -> Vec<TransferBatch> {
        let batch = |groups: &[u32]| TransferBatch { layer: layer as u32, groups: groups.to_vec(), is_compressed: false };
        groups.chunks(self.plan.slot_pages).map(batch).collect()
    }

    pub(super) fn replace_stream(&mut self, batches: Vec<TransferBatch>, read_ahead: Vec<PageId>) {
        let is_empty = batches.is_empty() && read_ahead.is_empty() && self.stream.next >= self.stream.batches.len();
        self.stream.batches = batches;
        self.stream.next = 0;
        if !self.stream.is_synchronous && !is_empty {
            self.start_stream(TransferPlan { batches: self.stream.batches.clone(), cyclic: false, read_ahead });
        }
    }

    /// Allocates frames for the pages that attention of a layer reads in this step, and for the `lookahead` pages of
    /// another layer, and starts their stream. `theta` is the fraction to compress. Pages that are read once, without a
    /// frame, are compressed first.
    pub fn begin_selected(
        &mut self,
        layer: usize,
        pages: &[u32],
        n_pages: usize,
        step: u64,
        lookahead: Option<(usize, &[u32])>,
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
        let mut read_ahead = Vec::new();
        // Without overlap there is no prefetch.
        if let Some((layer, pages)) = lookahead.filter(|_| !self.stream.is_synchronous) {
            let MissingPages { framed, unframed } = self.residency.prefetch(layer, pages, step);
            batches.extend(self.batches(layer, &framed));
            read_ahead.extend(unframed.into_iter().map(|group| PageId::kv(layer as u32, group)));
        }
        let n_pages: usize = batches.iter().map(|b| b.groups.len()).sum();
        let n_compressed = (theta(n_pages as u64 * self.spec.page_bytes()) * batches.len() as f64).round() as usize;
        let unframed_first = (n_framed..batches.len()).chain(0..n_framed);
        if self.codec_rates().is_some() {
            unframed_first.take(n_compressed).for_each(|i| batches[i].is_compressed = true);
        }
        let n_compressed = batches.iter().filter(|b| b.is_compressed).map(|b| b.groups.len()).sum();
        self.replace_stream(batches, read_ahead);
        SelectedStream { missing, n_framed, n_unframed: n_selected - n_framed, n_pages, n_compressed }
    }

    /// The next batch prefetched for a layer, if it has arrived.
    ///
    /// # Errors
    /// An error of the offload tiers, or a lost GPU.
    pub fn next_prefetched(&mut self, gpu: &Gpu, layer: usize) -> Result<Option<StagedBatch>, KvError> {
        let is_of_layer = self.stream.next_batch().is_some_and(|batch| batch.layer as usize == layer);
        if is_of_layer && self.is_next_filled(gpu)? { self.next_filled_for(gpu, Cause::Prefetch).map(Some) } else { Ok(None) }
    }

    /// Records the copies of a filled staging buffer to free frames of its layer. Returns the pages that got a frame.
    pub fn record_frames<'a>(&mut self, recorder: &mut Recorder, filled: &'a StagedBatch) -> &'a [u32] {
        // The staging pool is unused while pages are copied to frames.
        let Some(from) = self.record_uncompressed(recorder, filled, 0) else { return &[] };
        self.record_to_frames(recorder, filled, &from)
    }

    /// Keys of the RAM-resident pages of a layer.
    pub fn keys_in_ram(&self, layer: usize) -> RamKeys<'_> {
        RamKeys { spec: &self.spec, ram_pages: self.offload.ram_pages(), layer }
    }

    /// Total cost of streams.
    pub fn stream_cost(&self) -> StreamCost {
        self.stream.cost
    }

    /// Rates of compression and decompression, in uncompressed bytes per second. None if pages are transferred
    /// uncompressed.
    pub fn codec_rates(&self) -> Option<CodecRates> {
        self.staging.as_ref()?.dequantizer.as_ref().map(|dequantizer| dequantizer.codec_rates)
    }

    /// Maximum number of pages cached in RAM.
    pub fn n_ram_pages(&self) -> usize {
        self.report().n_resident
    }

    /// True if a page is in VRAM, and RAM does not cache it.
    pub fn is_in_vram_alone(&self, page: LayerPage) -> bool {
        self.residency.is_in_vram_alone(page.layer as usize, page.page)
    }

    /// Caches copies of these pages in RAM before all others.
    pub fn pin(&mut self, pages: &[LayerPage]) {
        for layer in 0..self.spec.n_layer {
            let groups = pages.iter().filter(|p| p.layer as usize == layer).map(|p| p.page);
            self.residency.set_in_ram(layer, groups);
        }
        self.offload.transfer.pin(pages.iter().map(|p| PageId::kv(p.layer, p.page)).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::kernels::KvFormat;

    const SPEC: KvSpec = KvSpec { n_layer: 1, n_kv_head: 2, head_dim: 8, work: KvFormat::F16, sealed: KvFormat::F16 };

    #[test]
    fn list_of_tokens_has_those_of_pages_that_are_there() {
        // Pages 5 and 6 are at index 1 and 0, page 7 is absent. A page has 8 slots; block b of head g is at slot 2 b +
        // g.
        let place = |page| [6, 5].iter().position(|candidate| *candidate == page);
        let block_of = |block, tokens| SelectedBlock { block, tokens };
        let first = vec![block_of(20, 0b101), block_of(27, 1 << 15), block_of(28, 0xffff)];
        let second = vec![block_of(23, 0b10)];
        let table = BlockTable::of_tokens(&SPEC, &[first, second, vec![]], place);
        let token = |slot, token| TokenSlot::new(slot, token).entry();
        let [a, b, c] = [token(8, 0), token(8, 2), token(6, 15)];
        let d = token(8 + 6 + 1, 1);
        let padding = PAD;
        assert_eq!((table.n_listed, table.entries), (3, vec![a, b, c, d, padding, padding, padding, padding, padding]));
        assert_eq!(BlockTable::of_tokens(&SPEC, &[vec![], vec![]], place), BlockTable::default());
    }

    #[test]
    fn list_of_blocks_has_all_of_the_pages_of_each_row() {
        let place = |page: u32| page.checked_sub(5).map(|at| at as usize);
        let table = BlockTable::of_pages(&SPEC, &[vec![4, 6], vec![]], place);
        let head_blocks = |head: u32| [8, 10, 12, 14].map(|slot: u32| slot + head);
        assert_eq!((table.n_listed, table.entries), (4, [head_blocks(0), head_blocks(1), [PAD; 4], [PAD; 4]].concat()));
        assert_eq!(BlockTable::whole(&SPEC, 1).entries, [0, 2, 4, 6, 1, 3, 5, 7]);
    }
}
