//! Abstract rows: collects the page abstracts of a group until every layer has one, then writes them to the store.
//!
//! ```text
//! put_abstract(layer, group) ─► row of the group: layer 0 │ layer 1 │ ... ─ complete ─► store, with the commit of the group
//! ```
//! Owner: [`OffloadTiers`](crate::kv::offload::OffloadTiers). A row that cannot be written is reported and dropped; its
//! pages are then always read. A context that is not saved has no rows.

use std::collections::BTreeMap;

use crate::kv::store::PageId;

/// Rows that are not on disk yet.
#[derive(Debug, Default)]
pub(super) struct AbstractRows {
    /// by group: the row, and which of its layers are present
    rows: BTreeMap<u32, (Vec<u8>, Vec<bool>)>,
}

impl AbstractRows {
    /// Adds the abstract of a page of one of `n_layer` layers.
    pub fn add(&mut self, page: PageId, bytes: &[u8], n_layer: usize) {
        let (row, present) =
            self.rows.entry(page.group).or_insert_with(|| (vec![0; bytes.len() * n_layer], vec![false; n_layer]));
        let at = page.layer as usize * bytes.len();
        if let (Some(place), Some(present)) = (row.get_mut(at..at + bytes.len()), present.get_mut(page.layer as usize)) {
            place.copy_from_slice(bytes);
            *present = true;
        }
    }

    /// Removes and returns the complete rows of groups before `n_groups`.
    pub fn take_complete(&mut self, n_groups: u32) -> Vec<(u32, Vec<u8>)> {
        let is_complete = |group: &u32, (_, present): &(Vec<u8>, Vec<bool>)| *group < n_groups && present.iter().all(|h| *h);
        let complete: Vec<u32> = self.rows.iter().filter(|(g, row)| is_complete(g, row)).map(|(g, _)| *g).collect();
        complete.into_iter().filter_map(|group| Some((group, self.rows.remove(&group)?.0))).collect()
    }

    /// Drops the rows of groups from `n_groups` on.
    pub fn truncate(&mut self, n_groups: u32) {
        self.rows.retain(|group, _| *group < n_groups);
    }
}
