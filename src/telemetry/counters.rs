//! Event counters: exact totals, even if rings lose events.
//!
//! Units: bytes, pages of one layer, tokens, nanoseconds.

use std::sync::atomic::{AtomicU64, Ordering};

use super::event::{EventKind, Link, WaitCause};
use super::histogram::{AtomicHistogram, Histogram};

/// Traffic of one link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct LinkCounter {
    /// transfers
    pub n_moves: u64,
    /// pages
    pub n_pages: u64,
    /// bytes transferred, compressed if they were
    pub bytes: u64,
}

/// Time lost to one cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct WaitCounter {
    /// waits
    pub n_waits: u64,
    /// time
    pub ns: u64,
}

/// Pages that steps needed, by how they got to VRAM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct PageCounter {
    /// in VRAM already
    pub resident: u64,
    /// fetched to VRAM
    pub fetched: u64,
    /// recomputed
    pub recomputed: u64,
    /// skipped by the policy
    pub skipped: u64,
}

/// All totals at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    links: [LinkCounter; Link::ALL.len()],
    latencies: [Histogram; Link::ALL.len()],
    waits: [WaitCounter; WaitCause::ALL.len()],
    /// pages of all steps
    pub pages: PageCounter,
    /// tokens whose K and V were recomputed, summed over layers
    pub recomputed_tokens: u64,
    /// time of GPU passes
    pub gpu_ns: u64,
    /// faults that were handled
    pub n_faults: u64,
    /// events recorded, including lost ones
    pub n_events: u64,
    /// events lost to full rings
    pub n_dropped: u64,
}

impl Counters {
    /// Traffic of `link`.
    pub fn link(&self, link: Link) -> LinkCounter {
        self.links[link as usize]
    }

    /// Durations of transfers over `link`, nanoseconds.
    pub fn latency(&self, link: Link) -> &Histogram {
        &self.latencies[link as usize]
    }

    /// Time lost to `cause`.
    pub fn wait(&self, cause: WaitCause) -> WaitCounter {
        self.waits[cause as usize]
    }

    /// Bytes over all links.
    pub fn moved_bytes(&self) -> u64 {
        self.links.iter().map(|l| l.bytes).sum()
    }

    /// Difference from `earlier`.
    pub fn since(&self, earlier: &Counters) -> Counters {
        let (links, waits) = (|i: usize| (self.links[i], earlier.links[i]), |i: usize| (self.waits[i], earlier.waits[i]));
        Counters {
            links: std::array::from_fn(|i| {
                let (now, then) = links(i);
                LinkCounter {
                    n_moves: now.n_moves.saturating_sub(then.n_moves),
                    n_pages: now.n_pages.saturating_sub(then.n_pages),
                    bytes: now.bytes.saturating_sub(then.bytes),
                }
            }),
            latencies: std::array::from_fn(|i| self.latencies[i].since(&earlier.latencies[i])),
            waits: std::array::from_fn(|i| {
                let (now, then) = waits(i);
                WaitCounter { n_waits: now.n_waits.saturating_sub(then.n_waits), ns: now.ns.saturating_sub(then.ns) }
            }),
            pages: PageCounter {
                resident: self.pages.resident.saturating_sub(earlier.pages.resident),
                fetched: self.pages.fetched.saturating_sub(earlier.pages.fetched),
                recomputed: self.pages.recomputed.saturating_sub(earlier.pages.recomputed),
                skipped: self.pages.skipped.saturating_sub(earlier.pages.skipped),
            },
            recomputed_tokens: self.recomputed_tokens.saturating_sub(earlier.recomputed_tokens),
            gpu_ns: self.gpu_ns.saturating_sub(earlier.gpu_ns),
            n_faults: self.n_faults.saturating_sub(earlier.n_faults),
            n_events: self.n_events.saturating_sub(earlier.n_events),
            n_dropped: self.n_dropped.saturating_sub(earlier.n_dropped),
        }
    }
}

/// The live totals. Every addition is relaxed: a reader may see one event's bytes a moment before its pages, but no
/// addition is lost.
#[derive(Debug, Default)]
pub(super) struct AtomicCounters {
    links: [[AtomicU64; 3]; Link::ALL.len()],
    latencies: [AtomicHistogram; Link::ALL.len()],
    waits: [[AtomicU64; 2]; WaitCause::ALL.len()],
    pages: [AtomicU64; 4],
    recomputed_tokens: AtomicU64,
    gpu_ns: AtomicU64,
    n_faults: AtomicU64,
    n_events: AtomicU64,
    n_dropped: AtomicU64,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

fn load<const N: usize>(counters: &[AtomicU64; N]) -> [u64; N] {
    std::array::from_fn(|i| counters[i].load(Ordering::Relaxed))
}

impl AtomicCounters {
    pub fn count(&self, kind: &EventKind, duration_ns: u64) {
        add(&self.n_events, 1);
        match *kind {
            EventKind::PageMove { link, n_pages, bytes, .. } => {
                let [moves, pages, moved] = &self.links[link as usize];
                add(moves, 1);
                add(pages, u64::from(n_pages));
                add(moved, bytes);
                self.latencies[link as usize].add(duration_ns);
            }
            EventKind::Wait { cause } => {
                let [waits, ns] = &self.waits[cause as usize];
                add(waits, 1);
                add(ns, duration_ns);
            }
            EventKind::Pages { resident, fetched, recomputed, skipped } => {
                for (counter, n) in self.pages.iter().zip([resident, fetched, recomputed, skipped]) {
                    add(counter, u64::from(n));
                }
            }
            EventKind::Recompute { n_tokens, .. } => add(&self.recomputed_tokens, u64::from(n_tokens)),
            EventKind::GpuPass { .. } => add(&self.gpu_ns, duration_ns),
            EventKind::Fault { .. } => add(&self.n_faults, 1),
            EventKind::Encode
            | EventKind::Choose { .. }
            | EventKind::Step { .. }
            | EventKind::Tier { .. }
            | EventKind::Hiding { .. }
            | EventKind::Mass { .. }
            | EventKind::Phase(_) => {}
        }
    }

    pub fn count_dropped(&self) {
        add(&self.n_dropped, 1);
    }

    pub fn load(&self) -> Counters {
        let [resident, fetched, recomputed, skipped] = load(&self.pages);
        let [recomputed_tokens, gpu_ns, n_faults, n_events, n_dropped] =
            [&self.recomputed_tokens, &self.gpu_ns, &self.n_faults, &self.n_events, &self.n_dropped]
                .map(|counter| counter.load(Ordering::Relaxed));
        Counters {
            links: std::array::from_fn(|i| {
                let [n_moves, n_pages, bytes] = load(&self.links[i]);
                LinkCounter { n_moves, n_pages, bytes }
            }),
            latencies: std::array::from_fn(|i| self.latencies[i].load()),
            waits: std::array::from_fn(|i| {
                let [n_waits, ns] = load(&self.waits[i]);
                WaitCounter { n_waits, ns }
            }),
            pages: PageCounter { resident, fetched, recomputed, skipped },
            recomputed_tokens,
            gpu_ns,
            n_faults,
            n_events,
            n_dropped,
        }
    }
}
