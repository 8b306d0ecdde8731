//! Timeline lanes: their fixed order, names, colors and summaries.
//!
//! A lane of a kernel family or a wait cause is present only if a run has such events. All other lanes are always present.

use egui::Color32;

use crate::app::dashboard::timeline::labels;
use crate::app::ui::theme::Tokens;
use crate::base::Bytes;
use crate::telemetry::history::{Column, Series};
use crate::telemetry::{Event, History, KernelFamily, Link, Track, WaitCause};

/// Lane name of the thread that converts files to text.
pub const INGEST_LANE: &str = "ingest";

/// Contents of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// events of one track
    Of(Track),
    /// file ingest
    Ingest,
    /// time of steps that no event covers
    Unattributed,
}

/// Fill of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneStyle {
    /// its color
    pub color: Color32,
    /// waiting or unattributed time: distinct without color
    pub hatched: bool,
}

impl Lane {
    /// The lanes for `runs`.
    pub fn of(runs: &[&History]) -> Vec<Lane> {
        let has = |track: &Track| runs.iter().any(|run| run.of(*track).any(|s| !s.is_empty()));
        let families = KernelFamily::ALL.map(Track::Gpu).into_iter().filter(has);
        let waits = WaitCause::ALL.map(Track::Wait).into_iter().filter(has);
        let links = [Link::RamToVram, Link::VramToRam, Link::DiskToRam, Link::RamToDisk].map(Track::Link);
        let tracks = [Track::Phase, Track::Step].into_iter().chain(families).chain(links);
        let tracks = tracks.chain([Track::Recompute, Track::Select, Track::Encode]).chain(waits);
        tracks.map(Lane::Of).chain([Lane::Ingest, Lane::Unattributed]).collect()
    }

    /// Name at the left of the lane.
    pub fn name(self) -> &'static str {
        match self {
            Lane::Of(Track::Gpu(KernelFamily::Other)) => "GPU other",
            Lane::Of(Track::Gpu(family)) => match family {
                KernelFamily::Norm => "GPU norm",
                KernelFamily::Linear => "GPU linear",
                KernelFamily::Attention => "GPU attention",
                KernelFamily::Rope => "GPU rope",
                KernelFamily::Seal => "GPU seal",
                KernelFamily::Evaluation => "GPU evaluation",
                KernelFamily::Sample => "GPU sample",
                KernelFamily::Copy => "GPU copy",
                KernelFamily::Other => "GPU other",
            },
            Lane::Of(Track::Link(link)) => match link {
                Link::DiskToRam => "NVMe read",
                Link::RamToDisk => "NVMe write",
                Link::RamToVram => "RAM to VRAM",
                Link::VramToRam => "VRAM to RAM",
            },
            Lane::Of(Track::Wait(cause)) => match cause {
                WaitCause::Gpu => "wait: GPU",
                WaitCause::Disk => "wait: disk",
                WaitCause::RamFull => "wait: RAM full",
                WaitCause::UploadSlot => "wait: slot",
                WaitCause::LinkLimit => "wait: limit",
                WaitCause::Commit => "wait: commit",
                WaitCause::Readback => "wait: results",
                WaitCause::Pages => "wait: pages",
            },
            Lane::Of(Track::Encode) => "CPU encode",
            Lane::Of(Track::Select) => "CPU choose",
            Lane::Of(track) => track.name(),
            Lane::Ingest => "ingest",
            Lane::Unattributed => "unattributed",
        }
    }

    /// Fill of the lane.
    pub fn style(self, t: &Tokens) -> LaneStyle {
        let (color, hatched) = match self {
            Lane::Of(Track::Link(Link::DiskToRam | Link::RamToDisk)) => (t.disk, false),
            Lane::Of(Track::Link(_)) => (t.ram, false),
            Lane::Of(Track::Gpu(_)) => (t.vram, false),
            Lane::Of(Track::Recompute) => (t.recomputed, false),
            Lane::Of(Track::Wait(_)) | Lane::Unattributed => (t.weak, true),
            Lane::Of(Track::Fault) => (t.error, false),
            Lane::Of(Track::Phase | Track::Step) => (t.idle, false),
            Lane::Of(_) | Lane::Ingest => (t.weak, false),
        };
        LaneStyle { color, hatched }
    }

    /// Columns between two moments of a run, summed over threads.
    pub fn columns(self, run: &History, (from_ns, to_ns): (u64, u64), n_columns: usize) -> Vec<Column> {
        let mut columns = vec![Column::default(); n_columns];
        match self {
            Lane::Unattributed => {
                let span = u128::from(to_ns.saturating_sub(from_ns));
                let edge = |i: usize| from_ns + (span * i as u128 / n_columns.max(1) as u128) as u64;
                for (i, column) in columns.iter_mut().enumerate() {
                    column.sum.busy_ns = run.account(edge(i), edge(i + 1)).unattributed_ns;
                }
            }
            Lane::Of(_) | Lane::Ingest => {
                for series in self.series(run) {
                    for (column, more) in columns.iter_mut().zip(series.envelope(from_ns, to_ns, n_columns)) {
                        column.sum.n_events += more.sum.n_events;
                        column.sum.bytes += more.sum.bytes;
                        column.sum.busy_ns += more.sum.busy_ns;
                        column.longest_ns = column.longest_ns.max(more.longest_ns);
                    }
                }
            }
        }
        columns
    }

    /// Events of the lane that overlap a window.
    pub fn within(self, run: &History, (from_ns, to_ns): (u64, u64)) -> impl Iterator<Item = &Event> {
        self.series(run).flat_map(move |s| s.within(from_ns, to_ns))
    }

    /// Events of the lane that begin in a window.
    pub fn n_events(self, run: &History, (from_ns, to_ns): (u64, u64)) -> usize {
        self.series(run).map(|s| s.sum(from_ns, to_ns).n_events).sum()
    }

    fn series(self, run: &History) -> impl Iterator<Item = &Series> {
        run.series().iter().filter(move |s| match self {
            Lane::Ingest => s.track == Track::Phase && s.lane == INGEST_LANE,
            Lane::Of(track) => s.track == track && s.lane != INGEST_LANE,
            Lane::Unattributed => false,
        })
    }

    /// Summary of the lane between two moments, for screen readers.
    pub fn sentence(self, run: &History, (from_ns, to_ns): (u64, u64)) -> String {
        if self == Lane::Unattributed {
            let account = run.account(from_ns, to_ns);
            return format!("unattributed: {}", labels::share_of(account.unattributed_ns, to_ns - from_ns));
        }
        let sums = self.series(run).map(|s| s.sum(from_ns, to_ns));
        let (n, bytes, busy_ns) = sums.fold((0, 0, 0), |(n, b, t), s| (n + s.n_events, b + s.bytes, t + s.busy_ns));
        let busy = labels::share_of(busy_ns, to_ns - from_ns);
        match self {
            Lane::Of(Track::Link(_)) => format!("{}: {} in {n} moves, busy {busy}", self.name(), Bytes(bytes)),
            _ => format!("{}: {n} events, {busy}", self.name()),
        }
    }
}
