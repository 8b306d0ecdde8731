//! Configuration of the offload tiers, and the division of the RAM budget. Pure.
//!
//! ```text
//! RAM budget ─► read-ahead pool: runs of pages being read │ resident pool: cached copies, and unwritten pages
//! ```
//! Two pools, because slabs of two sizes in one small pool would block each other's regions. Their budgets add up to
//! the RAM budget.

use crate::base::Bytes;
use crate::kv::offload::error::OffloadError;

/// Maximum memory of the read-ahead pool. It is several times the I/O depth of a disk, because runs complete out of
/// order but are used in order, and a waiting run must not idle the disk. It also exceeds a CPU cache: a virtual disk
/// reads a fifth slower into memory that is still cached.
const MAX_READ_AHEAD_BYTES: u64 = 32 << 20;
/// Target number of runs, before a run is made larger than necessary.
const TARGET_RUNS: u64 = 32;
/// Minimum number of runs, before a run is made large enough for the disk.
const MIN_RUNS: u64 = 8;
/// Run size that is large enough for a disk.
const TARGET_RUN_BYTES: u64 = 128 << 10;
/// Bytes of read-ahead that keep a disk busy.
const TARGET_READ_AHEAD_BYTES: u64 = TARGET_RUNS * TARGET_RUN_BYTES;
/// Minimum pages of read-ahead: one in use, one in flight.
const MIN_READ_AHEAD_PAGES: u64 = 2;
const ALIGN_BYTES: u64 = crate::kv::store::format::ALIGN_BYTES;

/// Configuration of the offload tiers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffloadConfig {
    /// maximum memory of the RAM tier: cached copies, unwritten pages, reads
    pub ram_budget: Bytes,
    /// maximum size of the store, all files
    pub disk_budget: Bytes,
    /// simulated disk bandwidth, bytes per second
    pub nvme_limit: Option<u64>,
    /// payload bytes of a KV page
    pub page_bytes: u64,
    /// L
    pub n_layer: u32,
    /// false: a page is read only when it is fetched (`--pipeline off`)
    pub read_ahead: bool,
}

impl OffloadConfig {
    /// True if RAM can hold `n_pages` copies of pages on disk at once, beside reads and unwritten pages.
    pub fn has_room_for(&self, n_pages: u64) -> bool {
        RamSplit::new(self, Some(1)).is_ok_and(|split| split.n_resident as u64 >= n_pages)
    }
}

/// The RAM budget in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RamSplit {
    /// bytes of a slab of one page
    pub slot_bytes: usize,
    /// number of one-page slabs
    pub n_slots: u64,
    /// slabs for cached copies of pages on disk; the remaining ones are for unwritten pages
    pub n_resident: usize,
    /// number of run slabs
    pub n_runs: u64,
    /// pages per run
    pub run_pages: u32,
}

impl RamSplit {
    /// Divides the budget. `extent_groups` is the maximum of pages per read; none: there is no store to read.
    pub fn new(config: &OffloadConfig, extent_groups: Option<u32>) -> Result<RamSplit, OffloadError> {
        let slot = config.page_bytes.max(1).next_multiple_of(ALIGN_BYTES);
        let n_pages = config.ram_budget.0 / slot;
        let least = if extent_groups.is_some() { MIN_READ_AHEAD_PAGES + 1 } else { 1 };
        if n_pages < least {
            let (budget, page) = (config.ram_budget, Bytes(config.page_bytes));
            return Err(OffloadError::TooSmall { budget, page, least: Bytes(least * slot) });
        }
        let slot_bytes = usize::try_from(slot).unwrap_or(usize::MAX);
        let Some(extent) = extent_groups.map(|e| u64::from(e.max(1))) else {
            return Ok(RamSplit { slot_bytes, n_slots: n_pages, n_resident: 0, n_runs: 0, run_pages: 1 });
        };
        // A cached copy saves its share of the reads, but too few concurrent reads cost more. So reads get half of the
        // budget until that is enough for any disk, and an eighth of the rest.
        let enough = TARGET_READ_AHEAD_BYTES / slot;
        let more = n_pages.saturating_sub(2 * enough) / 8;
        let read_ahead = ((n_pages / 2).min(enough) + more).min(MAX_READ_AHEAD_BYTES / slot).max(MIN_READ_AHEAD_PAGES);
        let run_pages = (read_ahead / TARGET_RUNS).max(TARGET_RUN_BYTES / slot).min(read_ahead / MIN_RUNS).clamp(1, extent);
        let n_runs = read_ahead / run_pages;
        let n_slots = n_pages - n_runs * run_pages;
        let n_reserved = (n_slots / 8).clamp(1, 2 * u64::from(config.n_layer.max(1)));
        Ok(RamSplit { slot_bytes, n_slots, n_resident: (n_slots - n_reserved) as usize, n_runs, run_pages: run_pages as u32 })
    }

    /// Bytes of a run slab.
    pub fn run_bytes(&self) -> usize {
        self.slot_bytes * self.run_pages as usize
    }

    /// Budget of the resident pool.
    pub fn resident_budget(&self) -> Bytes {
        Bytes(self.n_slots * self.slot_bytes as u64)
    }

    /// Budget of the read-ahead pool after a failed write: just enough to read the pages on disk.
    pub fn min_read_ahead_budget(&self) -> Bytes {
        Bytes(self.n_runs.min(MIN_READ_AHEAD_PAGES) * self.run_bytes() as u64)
    }

    /// Budget of the read-ahead pool.
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
    fn split_of_a_large_budget_has_many_large_reads() {
        let split = RamSplit::new(&config(1 << 30), Some(8)).unwrap();
        assert_eq!((split.run_bytes(), split.n_runs), (256 << 10, 128));
        assert_eq!(split.resident_budget().0 + split.read_ahead_budget().0, 1 << 30, "nothing is left over");
        let split = RamSplit::new(&config(4 << 20), Some(8)).unwrap();
        assert_eq!((split.run_bytes(), split.n_runs), (128 << 10, 16));
    }

    #[test]
    fn layer_fits_beside_reads_and_unwritten_pages() {
        // Of 3,840 pages 576 are for reads and 12 unwritten.
        assert!(config(120 << 20).has_room_for(3252) && !config(120 << 20).has_room_for(3253));
        assert!(!config(0).has_room_for(1));
    }

    #[test]
    fn budget_below_the_minimum_is_refused_with_the_minimum() {
        let error = RamSplit::new(&config(95 << 10), Some(8)).unwrap_err();
        assert!(error.to_string().contains("at least 96.0 KiB is needed"), "{error}");
        assert!(RamSplit::new(&config(40 << 10), None).is_ok(), "one page, if nothing has to be read");
        assert!(RamSplit::new(&config(0), None).is_err());
    }
}
