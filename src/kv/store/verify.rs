//! The check of a whole store: every page read, and compared with its checksum.

use crate::kv::store::error::StoreError;
use crate::kv::store::format::{PageId, PageKind};
use crate::kv::store::page_store::PageStore;

/// What a check of every page found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// pages that were there
    pub n_pages: u64,
    /// pages read
    pub n_checked: u64,
    /// of them not whole
    pub n_bad: u64,
}

impl PageStore {
    /// Reads every page that is there, and notes those that are not whole as missing. `on` hears pages done and pages in all,
    /// and stops the check by returning false.
    ///
    /// # Errors
    /// Nothing that one page could be blamed for; those count as bad.
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
