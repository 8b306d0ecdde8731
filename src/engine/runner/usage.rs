//! Usage counters: bytes moved, pages read and disk time since the model was loaded.

use std::time::Duration;

use crate::base::{MovedBytes, PageCounts};

/// Totals of the cache; the difference of two is the usage of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::engine) struct UsageCounters {
    pub(in crate::engine) moved: MovedBytes,
    pub(in crate::engine) pages: PageCounts,
    pub(in crate::engine) reading: Duration,
}

impl UsageCounters {
    /// Usage since `earlier`. Counts of tiers opened since then begin at 0.
    pub(in crate::engine) fn since(&self, earlier: &UsageCounters) -> UsageCounters {
        let less = |now: u64, then: u64| if now >= then { now - then } else { now };
        let (m, e) = (&self.moved, &earlier.moved);
        let (p, q) = (&self.pages, &earlier.pages);
        UsageCounters {
            moved: MovedBytes {
                disk_to_ram: less(m.disk_to_ram, e.disk_to_ram),
                ram_to_vram: less(m.ram_to_vram, e.ram_to_vram),
                vram_to_ram: less(m.vram_to_ram, e.vram_to_ram),
                ram_to_disk: less(m.ram_to_disk, e.ram_to_disk),
            },
            pages: PageCounts {
                resident: less(p.resident, q.resident),
                fetched: less(p.fetched, q.fetched),
                recomputed: less(p.recomputed, q.recomputed),
                skipped: less(p.skipped, q.skipped),
            },
            reading: self.reading.saturating_sub(earlier.reading),
        }
    }
}
