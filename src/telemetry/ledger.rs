//! Ledger of steps: pages that each step read, how they got to VRAM, and the cost.
//!
//! ```text
//! Step, Pages, PageMove, Recompute, Hiding, waits of one step ─► LedgerEntry: resident │ fetched │ recomputed │ skipped, forecast
//! ```
//! 1. Pages and bytes of all entries add up to those of the events. 2. A step without a prediction has no forecast, not 0.
//!
//! Units: pages of one layer, bytes, nanoseconds.

use super::event::{Event, EventKind, Link, StepKind};
use super::history::History;
use super::overlap::{Interval, union_ns};
use super::track::Track;

/// Pages of a step that got to VRAM in one way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// pages
    pub n_pages: u64,
    /// bytes; None if the size of a page is unknown
    pub bytes: Option<u64>,
    /// time taken, overlapped or not
    pub ns: u64,
}

/// Predicted and measured transfer of a step's pages: sums over the layers with a prediction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forecast {
    /// layers
    pub n_layers: u32,
    /// predicted time of transfers
    pub expected_io_ns: u64,
    /// measured time of transfers
    pub io_ns: u64,
    /// predicted time of compute
    pub expected_compute_ns: u64,
    /// measured time of compute
    pub compute_ns: u64,
    /// by how much layers exceeded the prediction, of the longer of transfer and compute
    pub regret_ns: u64,
}

/// One step with its costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerEntry {
    /// the step
    pub step: Event,
    /// kind of step
    pub kind: StepKind,
    /// position of its first token
    pub first_token: u32,
    /// in VRAM already
    pub resident: Share,
    /// fetched to VRAM
    pub fetched: Share,
    /// recomputed
    pub recomputed: Share,
    /// skipped by the policy
    pub skipped: Share,
    /// time that the answer waited for pages
    pub waited_ns: u64,
    /// None if no layer had a prediction
    pub forecast: Option<Forecast>,
}

/// The newest `n_most` steps that began in `window`, oldest first.
pub fn entries(history: &History, window: Interval, n_most: usize) -> Vec<LedgerEntry> {
    let page_bytes = page_bytes(history);
    let steps = history.of(Track::Step).flat_map(|series| series.within(window.0, window.1));
    let mut steps: Vec<Event> = steps.filter(|step| step.begin_ns >= window.0).copied().collect();
    steps.sort_by_key(|step| step.begin_ns);
    steps.drain(..steps.len().saturating_sub(n_most));
    steps.into_iter().filter_map(|step| entry(history, step, page_bytes)).collect()
}

/// The step that began at `begin_ns`.
pub fn entry_at(history: &History, begin_ns: u64) -> Option<LedgerEntry> {
    let step = history.of(Track::Step).flat_map(|s| s.within(begin_ns, begin_ns + 1)).find(|e| e.begin_ns == begin_ns)?;
    entry(history, *step, page_bytes(history))
}

/// Bytes of a page in VRAM: the largest recent transfer per page, because compressed pages are smaller.
fn page_bytes(history: &History) -> Option<u64> {
    [Link::VramToRam, Link::RamToVram].into_iter().find_map(|link| {
        let newest = history.of(Track::Link(link)).filter_map(|series| series.last());
        let each = newest.filter_map(|event| match event.kind {
            EventKind::PageMove { n_pages, bytes, .. } => bytes.checked_div(u64::from(n_pages)),
            _ => None,
        });
        each.max()
    })
}

fn entry(history: &History, step: Event, page_bytes: Option<u64>) -> Option<LedgerEntry> {
    let EventKind::Step { kind, first_token, .. } = step.kind else { return None };
    let (from, to) = (step.begin_ns, step.end_ns());
    // The page counts of a step are recorded just after its end, before the next step begins.
    let next = history.of(Track::Step).flat_map(|s| s.within(to, u64::MAX).find(|e| e.begin_ns >= to)).map(|e| e.begin_ns).min();
    let pages = sampled(history, Track::Pages, (to, next.unwrap_or(u64::MAX)));
    let [resident, fetched, recomputed, skipped] = pages.map_or([0; 4], |event| match event.kind {
        EventKind::Pages { resident, fetched, recomputed, skipped } => [resident, fetched, recomputed, skipped].map(u64::from),
        _ => [0; 4],
    });
    let share = |n_pages: u64| Share { n_pages, bytes: page_bytes.map(|bytes| n_pages * bytes), ns: 0 };
    let carried = history.of(Track::Link(Link::RamToVram)).map(|series| series.sum(from, to));
    let (bytes, ns) = carried.fold((0, 0), |(bytes, ns), sum| (bytes + sum.bytes, ns + sum.busy_ns));
    let busy = |track| history.of(track).map(|series| series.sum(from, to).busy_ns).sum::<u64>();
    Some(LedgerEntry {
        step,
        kind,
        first_token,
        resident: share(resident),
        fetched: Share { n_pages: fetched, bytes: Some(bytes), ns },
        recomputed: Share { ns: busy(Track::Recompute), ..share(recomputed) },
        skipped: share(skipped),
        waited_ns: waited_ns(history, (from, to)),
        forecast: forecast(history, (from, to)),
    })
}

/// First sample of `track` between `window.0` and `window.1`, both included.
fn sampled(history: &History, track: Track, window: Interval) -> Option<Event> {
    let first = history.of(track).filter_map(|series| series.within(window.0, window.1.saturating_add(1)).next());
    first.min_by_key(|event| event.begin_ns).copied()
}

fn waited_ns(history: &History, (from, to): Interval) -> u64 {
    use super::event::WaitCause;
    let waits = history.of(Track::Wait(WaitCause::Pages)).flat_map(|series| series.within(from, to));
    let cut: Vec<Interval> = waits.map(|wait| (wait.begin_ns.max(from), wait.end_ns().min(to))).collect();
    union_ns(&cut)
}

/// Forecast over the layers whose stream ended in the step. A layer with a prediction of (0, 0) had none.
fn forecast(history: &History, (from, to): Interval) -> Option<Forecast> {
    let mut sum = Forecast::default();
    for event in history.of(Track::Hiding).flat_map(|series| series.within(from, to)) {
        let EventKind::Hiding { expected_io_us, io_us, expected_compute_us, compute_us, .. } = event.kind else { continue };
        if (expected_io_us, expected_compute_us) == (0, 0) {
            continue;
        }
        let ns = |us: u32| u64::from(us) * 1000;
        sum.n_layers += 1;
        sum.expected_io_ns += ns(expected_io_us);
        sum.io_ns += ns(io_us);
        sum.expected_compute_ns += ns(expected_compute_us);
        sum.compute_ns += ns(compute_us);
        sum.regret_ns += ns(io_us.max(compute_us)).saturating_sub(ns(expected_io_us.max(expected_compute_us)));
    }
    (sum.n_layers > 0).then_some(sum)
}
