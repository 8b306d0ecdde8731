//! Abstracts on their way to the store: collected per group until every layer has given its own.
//!
//! ```text
//! put_abstract(layer, group) ─► row of the group: layer 0 │ layer 1 │ ... ─ whole ─► store, with the commit of the group
//! ```
//! Owner: [`OffloadTiers`]. A row that cannot be written is told and forgotten: its pages are then always read. A context that is
//! not saved keeps no rows.

use std::collections::BTreeMap;

use crate::kv::offload::OffloadTiers;
use crate::kv::store::{PageId, PageStore};
use crate::telemetry::FaultKind;

/// Rows that are not on the disk yet.
#[derive(Debug, Default)]
pub(super) struct AbstractRows {
    /// by group: the row, and which layers of it are there
    open: BTreeMap<u32, (Vec<u8>, Vec<bool>)>,
}

impl AbstractRows {
    fn add(&mut self, page: PageId, bytes: &[u8], n_layer: usize) {
        let (row, has) = self.open.entry(page.group).or_insert_with(|| (vec![0; bytes.len() * n_layer], vec![false; n_layer]));
        let at = page.layer as usize * bytes.len();
        if let (Some(place), Some(has)) = (row.get_mut(at..at + bytes.len()), has.get_mut(page.layer as usize)) {
            place.copy_from_slice(bytes);
            *has = true;
        }
    }

    /// The whole rows of groups below `n_groups`.
    fn take_whole(&mut self, n_groups: u32) -> Vec<(u32, Vec<u8>)> {
        let is_whole = |group: &u32, (_, has): &(Vec<u8>, Vec<bool>)| *group < n_groups && has.iter().all(|h| *h);
        let whole: Vec<u32> = self.open.iter().filter(|(g, row)| is_whole(g, row)).map(|(g, _)| *g).collect();
        whole.into_iter().filter_map(|group| Some((group, self.open.remove(&group)?.0))).collect()
    }

    pub fn truncate(&mut self, n_groups: u32) {
        self.open.retain(|group, _| *group < n_groups);
    }
}

impl OffloadTiers {
    /// Takes the abstract of a page that was put, to be saved with its group.
    pub fn put_abstract(&mut self, page: PageId, bytes: &[u8]) {
        if self.keeps_abstracts() {
            self.rows.add(page, bytes, self.config.n_layer as usize);
        }
    }

    /// Abstracts are saved: the context is that of a document, and its store has room for them.
    pub fn keeps_abstracts(&self) -> bool {
        self.scratch.is_none() && self.store.as_ref().is_some_and(|s| s.geometry().abstract_row_bytes > 0)
    }

    /// Gives the store every row that is whole.
    pub(super) fn write_rows(&mut self) {
        let n_groups = self.store.as_ref().map_or(0, PageStore::n_groups);
        for (group, row) in self.rows.take_whole(n_groups) {
            let Some(store) = &mut self.store else { return };
            if let Err(error) = store.put_abstracts(group, &row) {
                self.fault(FaultKind::Write, || format!("{error}; these pages will always be read"));
            }
        }
    }
}
