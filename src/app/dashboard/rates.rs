//! Rates: bandwidth, utilization, overlap and page counts of a window of time, from events alone. Pure.
//!
//! ```text
//! History, window ─► links: bytes per second, columns │ device: busy share │ overlap │ pages of the newest step ─► Figures
//! ```
//! 1. A figure records whether it is measured or estimated. Without events it is missing; a link that was idle while others
//!    moved pages has 0.
//!
//! Units: nanoseconds of [`crate::telemetry::now`], bytes per second, shares 0 to 1.
//! Limits: overlap is computed over [`MAX_OVERLAP_EVENTS`] at most.

use crate::app::dashboard::step_kernels::StepKernels;
use crate::telemetry::overlap::{Interval, is_compute, is_io, overlap};
use crate::telemetry::{EventKind, History, KernelFamily, Link, Track};

/// Columns of a sparkline.
pub const N_COLUMNS: usize = 64;
/// Events in a window, for the overlap, at most.
const MAX_OVERLAP_EVENTS: usize = 1 << 16;
/// Window of the figures while a request runs, nanoseconds.
const NOW_NS: u64 = 1_000_000_000;
/// Window of the sparklines while a request runs, nanoseconds.
const RECENT_NS: u64 = 20 * NOW_NS;

/// A figure with its origin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Known<T> {
    /// counted, or timed by the clock of its own device
    Measured(T),
    /// timed by another clock, or by a rule of thumb
    Estimated(T),
    /// no event has it
    Missing,
}

impl<T> Known<T> {
    /// The value. None if it is missing.
    pub fn get(self) -> Option<T> {
        match self {
            Known::Measured(value) | Known::Estimated(value) => Some(value),
            Known::Missing => None,
        }
    }

    /// `71 %`, `~71 %` or `N/A`
    pub fn text(self, write: impl Fn(T) -> String) -> String {
        match self {
            Known::Measured(value) => write(value),
            Known::Estimated(value) => format!("~{}", write(value)),
            Known::Missing => "N/A".to_owned(),
        }
    }
}

/// Windows of time for figures and sparklines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// figures
    pub of: Interval,
    /// sparklines
    pub spark: Interval,
}

/// Figures of one link.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkFigures {
    /// which
    pub link: Link,
    /// bytes per second
    pub rate: Known<f64>,
    /// bytes per second, [`N_COLUMNS`] of the sparkline's window
    pub columns: Vec<f32>,
    /// bytes in all since the engine was started
    pub total_bytes: u64,
    /// latency that half and 99 % of all transfers stay below, nanoseconds
    pub latency_ns: Option<[u64; 2]>,
}

/// Pages that a step read, by their origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepPages {
    /// in VRAM already
    pub resident: u32,
    /// fetched to VRAM
    pub fetched: u32,
    /// recomputed
    pub recomputed: u32,
    /// skipped by the policy
    pub skipped: u32,
}

/// All figures of a window.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// in the order of [`Link::ALL`]
    pub links: Vec<LinkFigures>,
    /// share of the time that the device computed
    pub gpu: Known<f64>,
    /// the same, by column
    pub gpu_columns: Vec<f32>,
    /// share of the shorter of computing and moving that the other hid
    pub overlap: Known<f64>,
    /// of the newest step in the window
    pub pages: Option<StepPages>,
    /// of the newest decode step that was timed by part; of a prefill step if there is none
    pub kernels: Option<StepKernels>,
}

impl Window {
    /// The last second of the history while a request runs, else the `last` request.
    pub fn of(history: &History, runs: bool, last: Option<Interval>) -> Option<Window> {
        let (begin, end) = history.range_ns()?;
        Some(match (runs, last) {
            (false, Some(last)) => Window { of: last, spark: last },
            (false, None) => Window { of: (begin, end), spark: (begin, end) },
            (true, _) => {
                let since = |ns: u64| (end.saturating_sub(ns).max(begin), end);
                Window { of: since(NOW_NS), spark: since(RECENT_NS) }
            }
        })
    }
}

impl Figures {
    /// Computes the figures of `window`.
    pub fn of(history: &History, window: Window) -> Figures {
        Figures {
            links: Link::ALL.iter().map(|link| link_figures(history, *link, window)).collect(),
            gpu: gpu_share(history, window.of),
            gpu_columns: gpu_columns(history, window.spark),
            overlap: overlap_of(history, window.of),
            pages: newest_pages(history, window.of),
            kernels: StepKernels::newest(history, window.spark),
        }
    }
}

fn secs((from, to): Interval) -> f64 {
    (to.saturating_sub(from) as f64 / 1e9).max(1e-9)
}

/// True if the history covers the window. Events before it were dropped, so their sums would be too small.
fn is_known(history: &History, window: Interval) -> bool {
    window.0 < window.1 && window.0 >= history.known_since_ns()
}

fn link_figures(history: &History, link: Link, window: Window) -> LinkFigures {
    let bytes: u64 = history.of(Track::Link(link)).map(|series| series.sum(window.of.0, window.of.1).bytes).sum();
    let rate = bytes as f64 / secs(window.of);
    let mut columns = vec![0.0; N_COLUMNS];
    let column_secs = secs(window.spark) / N_COLUMNS as f64;
    for series in history.of(Track::Link(link)) {
        let (from, to) = window.spark;
        for (sum, column) in columns.iter_mut().zip(series.envelope(from, to, N_COLUMNS)) {
            *sum += (column.sum.bytes as f64 / column_secs) as f32;
        }
    }
    let (counters, latency) = (history.counters(), history.counters().latency(link));
    LinkFigures {
        link,
        rate: if is_known(history, window.of) { Known::Measured(rate) } else { Known::Missing },
        columns,
        total_bytes: counters.link(link).bytes,
        latency_ns: latency.quantile(0.5).zip(latency.quantile(0.99)).map(|(half, most)| [half, most]),
    }
}

/// Passes by the clock of the CPU are estimates.
fn gpu_share(history: &History, window: Interval) -> Known<f64> {
    let (mut busy_ns, mut n_passes, mut is_estimated) = (0, 0, false);
    for series in KernelFamily::ALL.iter().flat_map(|family| history.of(Track::Gpu(*family))) {
        let sum = series.sum(window.0, window.1);
        busy_ns += sum.busy_ns;
        n_passes += sum.n_events;
        let newest = series.last().map(|event| event.kind);
        is_estimated |= matches!(newest, Some(EventKind::GpuPass { estimated: true, .. }));
    }
    let share = (busy_ns as f64 / 1e9 / secs(window)).min(1.0);
    match (n_passes > 0 && is_known(history, window), is_estimated) {
        (false, _) => Known::Missing,
        (true, true) => Known::Estimated(share),
        (true, false) => Known::Measured(share),
    }
}

fn gpu_columns(history: &History, (from, to): Interval) -> Vec<f32> {
    let mut columns = vec![0.0f32; N_COLUMNS];
    let column_secs = secs((from, to)) / N_COLUMNS as f64;
    for series in KernelFamily::ALL.iter().flat_map(|family| history.of(Track::Gpu(*family))) {
        for (share, column) in columns.iter_mut().zip(series.envelope(from, to, N_COLUMNS)) {
            *share = (*share + (column.sum.busy_ns as f64 / 1e9 / column_secs) as f32).min(1.0);
        }
    }
    columns
}

fn overlap_of(history: &History, window: Interval) -> Known<f64> {
    let (mut compute, mut io, mut n_events, mut is_estimated) = (Vec::new(), Vec::new(), 0, false);
    let wanted = history.series().iter().filter(|series| matches!(series.track, Track::Gpu(_) | Track::Link(_)));
    for event in wanted.flat_map(|series| series.within(window.0, window.1)) {
        n_events += 1;
        if n_events > MAX_OVERLAP_EVENTS {
            return Known::Missing;
        }
        let interval = (event.begin_ns.max(window.0), event.end_ns().min(window.1));
        is_estimated |= matches!(event.kind, EventKind::GpuPass { estimated: true, .. });
        if is_compute(&event.kind) {
            compute.push(interval);
        } else if is_io(&event.kind) {
            io.push(interval);
        }
    }
    let wall_ns = window.1.saturating_sub(window.0);
    match overlap(&compute, &io, wall_ns) {
        None => Known::Missing,
        Some(share) if is_estimated => Known::Estimated(share),
        Some(share) => Known::Measured(share),
    }
}

fn newest_pages(history: &History, window: Interval) -> Option<StepPages> {
    let events = history.of(Track::Pages).filter_map(|series| series.within(window.0, window.1 + 1).last());
    match events.max_by_key(|event| event.begin_ns)?.kind {
        EventKind::Pages { resident, fetched, recomputed, skipped } => Some(StepPages { resident, fetched, recomputed, skipped }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::telemetry::{Cause, Event, NO_LAYER};

    const MIB: u64 = 1 << 20;
    const MS: u64 = 1_000_000;

    fn moved(link: Link, bytes: u64) -> EventKind {
        EventKind::PageMove { link, layer: 0, group: 0, n_pages: 1, bytes, cause: Cause::Attention }
    }

    fn pass(estimated: bool) -> EventKind {
        EventKind::GpuPass { family: KernelFamily::Linear, layer: NO_LAYER, estimated }
    }

    /// A second with 100 MiB from the disk in ten transfers, and the device busy for half of it.
    fn history(estimated: bool) -> History {
        let mut history = History::default();
        let moves = (0..10).map(|i| Event::span(moved(Link::DiskToRam, 10 * MIB), 100 * MS * i, 100 * MS * i + 50 * MS));
        history.add_events(&Cow::Borrowed("disk"), &moves.collect::<Vec<_>>());
        let passes = (0..10).map(|i| Event::span(pass(estimated), 100 * MS * i, 100 * MS * i + 50 * MS));
        history.add_events(&Cow::Borrowed("gpu"), &passes.collect::<Vec<_>>());
        history
    }

    fn whole() -> Window {
        Window { of: (0, 1000 * MS), spark: (0, 1000 * MS) }
    }

    #[test]
    fn figures_of_a_known_second_are_those_of_its_events() {
        let figures = Figures::of(&history(false), whole());
        let rates: Vec<Option<f64>> = figures.links.iter().map(|l| l.rate.get().map(|r| r / MIB as f64)).collect();
        assert_eq!(rates, [Some(100.0), Some(0.0), Some(0.0), Some(0.0)], "others stood still, which is known");
        assert_eq!(figures.gpu, Known::Measured(0.5));
        assert_eq!(figures.overlap, Known::Measured(0.0), "half of the time nothing went on");
        let sum: f32 = figures.links[0].columns.iter().sum();
        assert!((f64::from(sum) / N_COLUMNS as f64 / MIB as f64 - 100.0).abs() < 1e-3);
        assert_eq!(figures.pages, None);
    }

    #[test]
    fn passes_by_the_clock_of_the_cpu_make_estimates() {
        let figures = Figures::of(&history(true), whole());
        assert_eq!(figures.gpu, Known::Estimated(0.5));
        assert_eq!(figures.gpu.text(|share| format!("{:.0} %", share * 100.0)), "~50 %");
    }

    #[test]
    fn device_without_passes_is_missing_and_not_idle() {
        let mut history = History::default();
        history.add_events(&Cow::Borrowed("disk"), &[Event::span(moved(Link::DiskToRam, 1), 0, MS)]);
        let figures = Figures::of(&history, whole());
        assert_eq!((figures.gpu, figures.overlap), (Known::Missing, Known::Missing));
        assert_eq!(figures.gpu.text(|_| String::new()), "N/A");
    }

    #[test]
    fn window_is_the_last_second_of_a_turn_and_the_last_turn_after_it() {
        let history = history(false);
        let running = Window::of(&history, true, Some((5, 6))).unwrap();
        assert_eq!((running.of, running.spark), ((0, 950 * MS), (0, 950 * MS)));
        assert_eq!(Window::of(&history, false, Some((5, 6))).unwrap().of, (5, 6));
        assert_eq!(Window::of(&History::default(), true, None), None);
    }

    #[test]
    fn pages_are_those_of_the_newest_step() {
        let mut history = history(false);
        let pages = |resident| EventKind::Pages { resident, fetched: 2, recomputed: 0, skipped: 4 };
        let at = |ns, resident| Event { begin_ns: ns, duration_ns: 0, kind: pages(resident) };
        history.add_events(&Cow::Borrowed("engine"), &[at(MS, 1), at(2 * MS, 7)]);
        let newest = Figures::of(&history, whole()).pages.unwrap();
        assert_eq!((newest.resident, newest.fetched, newest.skipped), (7, 2, 4));
    }
}
