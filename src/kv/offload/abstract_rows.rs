//! Abstract rows: collects the page abstracts of a group until every layer has one, then writes them to the store.
//!
//! ```text
//! put_abstract(layer, group) ─► row of the group: layer 0 │ layer 1 │ ... ─ complete ─► store, with the commit of the group
//! ```
//! Owner: [`OffloadTiers`]. A row that cannot be written is reported and dropped; its pages are then always read. A
//! context that is not saved has no rows.

use std::collections::BTreeMap;

use crate::kv::offload::OffloadTiers;
use crate::kv::store::{PageId, StoreChain};
use crate::telemetry::FaultKind;

/// Rows that are not on disk yet.
#[derive(Debug, Default)]
pub(super) struct AbstractRows {
    /// by group: the row, and which of its layers are present
    rows: BTreeMap<u32, (Vec<u8>, Vec<bool>)>,
}

impl AbstractRows {
    fn add(&mut self, page: PageId, bytes: &[u8], n_layer: usize) {
        let (row, present) =
            self.rows.entry(page.group).or_insert_with(|| (vec![0; bytes.len() * n_layer], vec![false; n_layer]));
        let at = page.layer as usize * bytes.len();
        if let (Some(place), Some(present)) = (row.get_mut(at..at + bytes.len()), present.get_mut(page.layer as usize)) {
            place.copy_from_slice(bytes);
            *present = true;
        }
    }

    /// Removes and returns the complete rows of groups before `n_groups`.
    fn take_complete(&mut self, n_groups: u32) -> Vec<(u32, Vec<u8>)> {
        let is_complete = |group: &u32, (_, present): &(Vec<u8>, Vec<bool>)| *group < n_groups && present.iter().all(|h| *h);
        let complete: Vec<u32> = self.rows.iter().filter(|(g, row)| is_complete(g, row)).map(|(g, _)| *g).collect();
        complete.into_iter().filter_map(|group| Some((group, self.rows.remove(&group)?.0))).collect()
    }

    pub fn truncate(&mut self, n_groups: u32) {
        self.rows.retain(|group, _| *group < n_groups);
    }
}

impl OffloadTiers {
    /// Adds the abstract of a page that was put; it is saved with its group.
    pub fn put_abstract(&mut self, page: PageId, bytes: &[u8]) {
        if self.saves_abstracts() {
            self.rows.add(page, bytes, self.config.n_layer as usize);
        }
    }

    /// True if abstracts are saved: the context belongs to a saved document whose store has abstracts.
    pub fn saves_abstracts(&self) -> bool {
        self.scratch.is_none() && self.store.as_ref().is_some_and(|s| s.geometry().abstract_row_bytes > 0)
    }

    /// Writes every complete row to the store.
    pub(super) fn write_rows(&mut self) {
        let n_groups = self.store.as_ref().map_or(0, StoreChain::n_groups);
        for (group, row) in self.rows.take_complete(n_groups) {
            let Some(store) = &mut self.store else { return };
            if let Err(error) = store.put_abstracts(group, &row) {
                self.fault(FaultKind::Write, || format!("{error}; its pages will always be read"));
            }
        }
    }
}
