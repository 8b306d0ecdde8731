//! The settings of the two tiers, and how the RAM budget is divided. Pure.
//!
//! ```text
//! RAM budget ─► transit: runs of pages on their way from the disk │ kept: copies of pages, and pages not yet written
//! ```
//! Two pools, because slabs of two sizes in one small pool would keep each other's regions; their budgets add up to the cap.

use crate::base::Bytes;
use crate::kv::offload::error::OffloadError;

/// Memory for transit, at most: several times what a disk works on at once, because runs are used in order and do not arrive in
/// order, and what waits for an earlier one must not keep the disk idle. And more than a CPU's cache holds of what was just
/// used: a virtual disk is a fifth slower where it has to take memory back from there.
const MAX_TRANSIT_BYTES: u64 = 32 << 20;
/// Runs in transit, before a single one is made larger than it must be.
const WANTED_RUNS: u64 = 32;
/// Runs in transit, before a single one is made large enough for the disk.
const LEAST_RUNS: u64 = 8;
/// Large enough for the disk.
const WANTED_RUN_BYTES: u64 = 128 << 10;
/// Keeps a disk busy.
const ENOUGH_TRANSIT_BYTES: u64 = WANTED_RUNS * WANTED_RUN_BYTES;
/// Least pages in transit: one in use, one on its way.
const MIN_TRANSIT_PAGES: u64 = 2;
const ALIGN_BYTES: u64 = crate::kv::store::format::ALIGN_BYTES;

/// How the tiers below VRAM are set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffloadConfig {
    /// cap on all memory of the RAM tier: copies, pages not yet written, reads
    pub ram_budget: Bytes,
    /// cap on the store's size, all files
    pub disk_budget: Bytes,
    /// bytes per second that the disk pretends to have
    pub nvme_limit: Option<u64>,
    /// payload of a KV page
    pub page_bytes: u64,
    /// L
    pub n_layer: u32,
    /// false: nothing is read before it is asked for (`--pipeline off`)
    pub read_ahead: bool,
}

/// The RAM budget in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RamSplit {
    /// bytes of a slab of one page
    pub slot_bytes: usize,
    /// slabs of one page
    pub n_slots: u64,
    /// of them for copies of pages that the disk has as well; the others are for pages on their way there
    pub n_resident: usize,
    /// slabs of a run
    pub n_runs: u64,
    /// pages of a run
    pub run_pages: u32,
}

impl RamSplit {
    /// Divides the budget; `extent_groups` pages at most are one read, none: there is no store, and nothing to read.
    pub fn new(config: &OffloadConfig, extent_groups: Option<u32>) -> Result<RamSplit, OffloadError> {
        let slot = config.page_bytes.max(1).next_multiple_of(ALIGN_BYTES);
        let n_pages = config.ram_budget.0 / slot;
        let least = if extent_groups.is_some() { MIN_TRANSIT_PAGES + 1 } else { 1 };
        if n_pages < least {
            let (budget, page) = (config.ram_budget, Bytes(config.page_bytes));
            return Err(OffloadError::TooSmall { budget, page, least: Bytes(least * slot) });
        }
        let slot_bytes = usize::try_from(slot).unwrap_or(usize::MAX);
        let Some(extent) = extent_groups.map(|e| u64::from(e.max(1))) else {
            return Ok(RamSplit { slot_bytes, n_slots: n_pages, n_resident: 0, n_runs: 0, run_pages: 1 });
        };
        // A copy saves its share of the reads; too few reads at once cost more than that. So reads have half until they are
        // enough for any disk, and an eighth of the rest.
        let enough = ENOUGH_TRANSIT_BYTES / slot;
        let more = n_pages.saturating_sub(2 * enough) / 8;
        let transit = ((n_pages / 2).min(enough) + more).min(MAX_TRANSIT_BYTES / slot).max(MIN_TRANSIT_PAGES);
        let run_pages = (transit / WANTED_RUNS).max(WANTED_RUN_BYTES / slot).min(transit / LEAST_RUNS).clamp(1, extent);
        let n_runs = transit / run_pages;
        let n_slots = n_pages - n_runs * run_pages;
        let n_reserved = (n_slots / 8).clamp(1, 2 * u64::from(config.n_layer.max(1)));
        Ok(RamSplit { slot_bytes, n_slots, n_resident: (n_slots - n_reserved) as usize, n_runs, run_pages: run_pages as u32 })
    }

    /// Bytes of a slab of a run.
    pub fn run_bytes(&self) -> usize {
        self.slot_bytes * self.run_pages as usize
    }

    /// Budget of the pool of pages.
    pub fn resident_budget(&self) -> Bytes {
        Bytes(self.n_slots * self.slot_bytes as u64)
    }

    /// Budget of the pool of runs where RAM is all there is: enough to read what the disk has.
    pub fn least_transit_budget(&self) -> Bytes {
        Bytes(self.n_runs.min(MIN_TRANSIT_PAGES) * self.run_bytes() as u64)
    }

    /// Budget of the pool of runs.
    pub fn read_ahead_budget(&self) -> Bytes {
        Bytes(self.n_runs * self.run_bytes() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(ram: u64) -> OffloadConfig {
        OffloadConfig {
            ram_budget: Bytes(ram),
            disk_budget: Bytes(u64::MAX),
            nvme_limit: None,
            page_bytes: 32 << 10,
            n_layer: 6,
            read_ahead: true,
        }
    }

    #[test]
    fn split_of_any_budget_stays_within_it() {
        for kib in [96, 100, 128, 300, 512, 1000, 4096, 65_536, 1 << 22] {
            for extent in [None, Some(1), Some(8)] {
                let split = RamSplit::new(&config(kib << 10), extent).unwrap();
                assert!(split.resident_budget().0 + split.read_ahead_budget().0 <= kib << 10, "{kib} KiB: {split:?}");
                assert!(split.n_slots >= 1 && (split.n_resident as u64) < split.n_slots, "{split:?}");
                assert!(extent.is_none() || split.n_runs >= 2, "{split:?}");
            }
        }
    }

    #[test]
    fn split_of_a_large_budget_has_large_reads_and_many() {
        let split = RamSplit::new(&config(1 << 30), Some(8)).unwrap();
        assert_eq!((split.run_bytes(), split.n_runs), (256 << 10, 128));
        assert_eq!(split.resident_budget().0 + split.read_ahead_budget().0, 1 << 30, "nothing is left over");
        let split = RamSplit::new(&config(4 << 20), Some(8)).unwrap();
        assert_eq!((split.run_bytes(), split.n_runs), (128 << 10, 16));
    }

    #[test]
    fn budget_below_the_least_is_refused_with_the_least() {
        let error = RamSplit::new(&config(95 << 10), Some(8)).unwrap_err();
        assert!(error.to_string().contains("96.0 KiB is the least"), "{error}");
        assert!(RamSplit::new(&config(40 << 10), None).is_ok(), "one page, where nothing has to be read");
        assert!(RamSplit::new(&config(0), None).is_err());
    }
}
