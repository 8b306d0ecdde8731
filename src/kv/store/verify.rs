//! Verification of a whole store: reads every page and compares its checksum.

use crate::kv::store::error::StoreError;
use crate::kv::store::format::{PageId, PageKind};
use crate::kv::store::page_store::PageStore;

/// Result of a verification.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// pages in the store
    pub n_pages: u64,
    /// pages read
    pub n_checked: u64,
    /// pages that were corrupt
    pub n_bad: u64,
}

impl PageStore {
    /// Reads every page in the store, and marks corrupt pages as missing. Calls `on` with the pages done and the total;
    /// it returns false to stop.
    ///
    /// # Errors
    /// No error of a single page; such a page counts as bad.
    pub fn verify(&mut self, mut on: impl FnMut(u64, u64) -> bool) -> Result<VerifyReport, StoreError> {
        let n_layer = self.geometry.n_layer;
        let kinds = PageKind::ALL;
        let all = kinds.into_iter().flat_map(|k| (0..n_layer).map(move |l| (k, l)));
        let groups = 0..self.n_groups();
        let pages: Vec<PageId> = all
            .flat_map(|(kind, layer)| groups.clone().map(move |group| PageId { kind, layer, group }))
            .filter(|p| self.is_present(*p))
            .collect();
        let mut report = VerifyReport { n_pages: pages.len() as u64, ..VerifyReport::default() };
        for (page, n_done) in pages.into_iter().zip(1..) {
            if !matches!(self.get(page), Ok(Some(_))) {
                report.n_bad += 1;
            }
            report.n_checked += 1;
            if !on(n_done, report.n_pages) {
                break;
            }
        }
        Ok(report)
    }
}
