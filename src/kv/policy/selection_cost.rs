//! Selection cost: whether attention of a layer is faster if it selects tokens first than if it reads all of them.
//!
//! ```text
//! measured costs of the device, sizes of the selection ─► seconds of both ─► select, or read everything
//! ```
//! Only for layers whose pages are all in VRAM: otherwise the link decides, and selecting always pays. Pure.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::gpu::SelectionCosts;
use crate::gpu::kernels::selection::SelectionSizes;
use crate::kv::KvSpec;

/// Time to read listed tokens, in that of as many consecutive ones.
const LISTED_FACTOR: f64 = 1.5;
/// A selection must be faster than reading everything by this factor: it is not exact.
const LEAST_GAIN: f64 = 1.05;

/// True if attention of a layer should select. `costs` are those of the device; without any, reading is taken to be faster, as it
/// is on software devices.
pub fn selection_pays(costs: Option<&SelectionCosts>, spec: &KvSpec, sizes: &SelectionSizes) -> bool {
    let Some(costs) = costs else { return false };
    let page_bytes = spec.page_bytes() as f64;
    let read_secs = costs.read.secs(sizes.n_pages as f64 * page_bytes);
    let selected_bytes = sizes.n_table() as f64 / KV_PAGE_TOKENS as f64 * page_bytes;
    // Between the fewest and the most pages that may be scored.
    let n_scored = sizes.n_always() as f64 + sizes.n_candidates.map(|n| n as f64).iter().sum::<f64>() / 2.0;
    let select_secs = costs.select.secs(n_scored * page_bytes / 2.0);
    read_secs > LEAST_GAIN * (select_secs + costs.read.secs(LISTED_FACTOR * selected_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::LinearCost;
    use crate::gpu::kernels::KvFormat;

    /// About those of the probe on a real card: 4 TB/s, 16 us and 30 us fixed.
    const COSTS: SelectionCosts = SelectionCosts {
        read: LinearCost { fixed_ns: 6_000, ns_per_mib: 260 },
        select: LinearCost { fixed_ns: 30_000, ns_per_mib: 350 },
    };
    const SPEC: KvSpec = KvSpec { n_layer: 32, n_kv_head: 8, head_dim: 128, work: KvFormat::F16, sealed: KvFormat::F16 };

    fn sizes(n_pages: usize, share: f64) -> SelectionSizes {
        let n_wanted = (n_pages as f64 * share) as usize * KV_PAGE_TOKENS;
        let n_read = n_wanted / KV_PAGE_TOKENS;
        let n_candidates = [n_read, (10 * n_read).min(n_pages)];
        SelectionSizes { n_pages, n_sink: 1, n_recent: 1, n_candidates, n_best: n_read, n_wanted, least: 0.0 }
    }

    #[test]
    fn long_contexts_are_selected_from_and_short_ones_are_read() {
        let pays = |n_pages, share| selection_pays(Some(&COSTS), &SPEC, &sizes(n_pages, share));
        assert_eq!([64, 256, 2048, 8192].map(|n_pages| pays(n_pages, 0.1)), [false, false, true, true]);
        assert!(!pays(2048, 0.5), "half of everything is scored and half is read");
    }

    #[test]
    fn device_without_measured_costs_reads_everything() {
        assert!(!selection_pays(None, &SPEC, &sizes(8192, 0.01)));
    }
}
