//! What selective attention reads: chosen blocks in VRAM through tables of each KV head, and chosen pages from below.
//!
//! ```text
//! pages that a policy chose ─► residency ─┬─ in a frame: a table per segment of the pool
//!                                         └─ not:  batches of the stream, a table per slot, and a frame on arrival
//! ```
//! Owner: the engine thread. A page that was chosen stays in VRAM until another needs its frame.

use super::{Batch, KvCache};
use crate::gpu::kernels::attention_decode::NO_BLOCK;
use crate::gpu::{Gpu, Slice};
use crate::kv::abstracts::{abstract_bytes, unknown};
use crate::kv::batches::StreamPlan;
use crate::kv::error::KvError;
use crate::kv::layout::BLOCKS_PER_PAGE;
use crate::kv::policy::Tier;
use crate::kv::policy::frequency::LayerPage;
use crate::kv::store::PageId;

/// A block table u32 `[G, n_blocks]` of lists as long as their heads want; the shorter ones end in [`NO_BLOCK`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChosenTable {
    /// `[G, n_blocks]`
    pub slots: Vec<u32>,
    /// length of the longest list
    pub n_blocks: usize,
}

impl ChosenTable {
    fn new(lists: &[Vec<u32>]) -> ChosenTable {
        let n_blocks = lists.iter().map(Vec::len).max().unwrap_or(0);
        let padded = |list: &Vec<u32>| list.iter().copied().chain(std::iter::repeat_n(NO_BLOCK, n_blocks - list.len())).collect();
        ChosenTable { slots: lists.iter().flat_map(|list| -> Vec<u32> { padded(list) }).collect(), n_blocks }
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

    /// Table of what is resident of `blocks` (of each KV head of one query after the other, ascending) in a segment of the pool.
    pub fn chosen_in_segment(&self, layer: usize, segment_idx: usize, blocks: &[Vec<u32>]) -> ChosenTable {
        let shape = self.shapes[segment_idx];
        let slot = |block: u32, head: usize| {
            let frame = self.residency.frame(layer, block / BLOCKS_PER_PAGE as u32)? as usize;
            let page = frame.checked_sub(shape.first_frame).filter(|page| *page < shape.n_frames)?;
            Some(self.spec.slot_of(page, block as usize % BLOCKS_PER_PAGE, head % self.spec.n_kv_head))
        };
        let lists: Vec<Vec<u32>> =
            blocks.iter().enumerate().map(|(head, blocks)| blocks.iter().filter_map(|b| slot(*b, head)).collect()).collect();
        ChosenTable::new(&lists)
    }

    /// Table of what a batch of the stream has of `blocks`, once it lies in a slot.
    pub fn chosen_in_batch(&self, batch_idx: usize, blocks: &[Vec<u32>]) -> ChosenTable {
        let groups = self.stream.get(batch_idx).map(|b| b.groups.as_slice()).unwrap_or_default();
        let slot = |block: u32, head: usize| {
            let page = groups.binary_search(&(block / BLOCKS_PER_PAGE as u32)).ok()?;
            Some(self.spec.slot_of(page, block as usize % BLOCKS_PER_PAGE, head % self.spec.n_kv_head))
        };
        let lists: Vec<Vec<u32>> =
            blocks.iter().enumerate().map(|(head, blocks)| blocks.iter().filter_map(|b| slot(*b, head)).collect()).collect();
        ChosenTable::new(&lists)
    }

    /// A page lies in a frame.
    pub fn is_resident(&self, layer: usize, group: u32) -> bool {
        self.residency.frame(layer, group).is_some()
    }

    /// A page lies in a segment of the pool.
    pub fn is_in_segment(&self, layer: usize, segment_idx: usize, group: u32) -> bool {
        let shape = self.shapes[segment_idx];
        self.residency.frame(layer, group).is_some_and(|f| (shape.first_frame..shape.end_frame()).contains(&(f as usize)))
    }

    /// Starts the stream of those of `pages` that have no frame, and leaves frames as they are. The groups of each batch.
    pub fn begin_streamed(&mut self, layer: usize, pages: &[u32]) -> Vec<Vec<u32>> {
        let missing: Vec<u32> = pages.iter().copied().filter(|p| self.residency.frame(layer, *p).is_none()).collect();
        self.begin_batches(layer, &missing);
        self.stream.iter().map(|batch| batch.groups.clone()).collect()
    }

    fn begin_batches(&mut self, layer: usize, groups: &[u32]) {
        let batch = |groups: &[u32]| Batch { layer: layer as u32, groups: groups.to_vec() };
        self.stream = groups.chunks(self.plan.slot_pages).map(batch).collect();
        self.next_batch = 0;
        if !self.stream.is_empty() && !self.synchronous {
            self.start_stream(StreamPlan { batches: self.stream.clone(), cyclic: false });
        }
    }

    /// Attention of a layer will read these of its `n_pages` in this step: makes frames free for those that have none, and
    /// starts their stream. The number of such pages.
    pub fn begin_chosen(&mut self, layer: usize, pages: &[u32], n_pages: usize, step: u64) -> usize {
        let missing = self.residency.choose(layer, pages, step);
        self.counts.resident += (pages.len() - missing.len()) as u64;
        self.counts.skipped += (n_pages - pages.len()) as u64;
        self.begin_batches(layer, &missing);
        missing.len()
    }

    /// Pages that RAM has room for.
    pub fn n_ram_pages(&self) -> usize {
        (self.report().usage.ram.budget.0 / self.spec.page_bytes()) as usize
    }

    /// Keeps copies of these pages in RAM before all others.
    pub fn prefer(&self, pages: impl Iterator<Item = LayerPage>) {
        self.transfer.prefer(pages.map(|p| PageId::kv(p.layer, p.page)).collect());
    }

    /// Batches of the stream.
    pub fn n_batches(&self) -> usize {
        self.stream.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_lists_of_different_length_ends_in_no_block() {
        let table = ChosenTable::new(&[vec![3, 9], vec![], vec![7]]);
        assert_eq!((table.n_blocks, table.slots), (2, vec![3, 9, NO_BLOCK, NO_BLOCK, 7, NO_BLOCK]));
        assert_eq!(ChosenTable::new(&[vec![], vec![]]), ChosenTable::default());
    }
}
