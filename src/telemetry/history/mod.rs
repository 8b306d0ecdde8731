//! Event history of a run: the events of every drained snapshot, under a memory cap, indexed for fast drawing.
//!
//! ```text
//! Snapshot ─► add ─► Series (one per track and thread) ─► within · sum · envelope ─► panels
//!                └─► interval sets: accounted time, working time ─► unattributed, idle
//! ```
//! 1. Memory is at most the cap: the oldest events are discarded first, and counted.
//! 2. Over any window, accounted + unattributed + idle = its length, exactly.
//! 3. The caller drains the hub and adds each snapshot once.
//!
//! Owner thread: the one that adds. Units: nanoseconds of [`super::now`], bytes.
//! Limits: [`DEFAULT_CAP`] by default, and never less than one chunk of each series.

mod chunked_queue;
mod interval_set;
mod series;

use std::borrow::Cow;
use std::collections::HashMap;

pub use series::{Column, Series, Sum};

use super::counters::Counters;
use super::event::{Event, EventKind, Phase};
use super::hub::{LaneSnapshot, Snapshot};
use super::track::Track;
use crate::base::Bytes;
use interval_set::IntervalSet;

/// Default memory of a history.
pub const DEFAULT_CAP: Bytes = Bytes(64 << 20);

/// The thread whose waits delay an answer; other threads wait in the background.
pub const ENGINE_LANE: &str = "engine";

/// Events of a run.
#[derive(Debug)]
pub struct History {
    series: Vec<Series>,
    /// spans of events that explain where the time went
    accounted: IntervalSet,
    /// these, and steps and phases: all time in which an answer is in progress
    work: IntervalSet,
    counters: Counters,
    cap: Bytes,
    n_forgotten: u64,
    known_since_ns: u64,
    version: u64,
}

/// Accounting of a window; the three times add up to its length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// time that some event explains
    pub accounted_ns: u64,
    /// time of steps and phases without an event that explains it
    pub unattributed_ns: u64,
    /// time without a step or a phase
    pub idle_ns: u64,
}

impl Default for History {
    fn default() -> Self {
        History::new(DEFAULT_CAP)
    }
}

impl History {
    /// An empty history of at most `cap`.
    pub fn new(cap: Bytes) -> History {
        History {
            series: Vec::new(),
            accounted: IntervalSet::default(),
            work: IntervalSet::default(),
            counters: Counters::default(),
            cap,
            n_forgotten: 0,
            known_since_ns: 0,
            version: 0,
        }
    }

    /// Adds the events of a snapshot.
    pub fn add(&mut self, snapshot: &Snapshot) {
        for lane in &snapshot.lanes {
            self.add_events(&lane.name, &lane.events);
        }
        self.counters = snapshot.counters;
    }

    /// Adds events of one thread, in order of begin.
    pub fn add_events(&mut self, lane: &str, events: &[Event]) {
        let mut by_track: HashMap<Track, Vec<Event>> = HashMap::new();
        for event in events {
            by_track.entry(Track::of(&event.kind)).or_default().push(*event);
            let is_work = matches!(event.kind, EventKind::Step { .. } | EventKind::Phase(_)) && lane == ENGINE_LANE;
            let is_accounted = is_accounted(&event.kind, lane);
            if is_accounted {
                self.accounted.add(event.begin_ns, event.end_ns());
            }
            if is_accounted || is_work {
                self.work.add(event.begin_ns, event.end_ns());
            }
        }
        for (track, batch) in by_track {
            self.series_mut(lane, track).add(&batch);
        }
        self.version += u64::from(!events.is_empty());
        self.make_room();
    }

    /// All retained events as one snapshot, for the writer of traces.
    pub fn snapshot(&self) -> Snapshot {
        let mut lanes: Vec<LaneSnapshot> = Vec::new();
        for series in &self.series {
            let place = lanes.iter().position(|lane| lane.name == series.lane).unwrap_or(lanes.len());
            if place == lanes.len() {
                lanes.push(LaneSnapshot { name: Cow::Owned(series.lane.clone()), events: Vec::new(), n_dropped: 0 });
            }
            lanes[place].events.extend(series.iter());
        }
        lanes.iter_mut().for_each(LaneSnapshot::sort);
        Snapshot { taken_ns: self.range_ns().map_or(0, |(_, end)| end), lanes, counters: self.counters }
    }

    /// All series, in the order in which they appeared.
    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// The series of `track`, one for each thread that recorded it.
    pub fn of(&self, track: Track) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(move |series| series.track == track)
    }

    /// From the first begin to the last end.
    pub fn range_ns(&self) -> Option<(u64, u64)> {
        let ranges = self.series.iter().filter_map(Series::range_ns);
        ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Accounting of the window.
    pub fn account(&self, from_ns: u64, to_ns: u64) -> Account {
        let wall_ns = to_ns.saturating_sub(from_ns);
        let accounted_ns = self.accounted.covered_ns(from_ns, to_ns);
        // The two sets may have discarded different spans.
        let work_ns = self.work.covered_ns(from_ns, to_ns).max(accounted_ns);
        Account { accounted_ns, unattributed_ns: work_ns - accounted_ns, idle_ns: wall_ns - work_ns }
    }

    /// Totals of the newest snapshot, including lost and discarded events.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Number of retained events.
    pub fn n_events(&self) -> usize {
        self.series.iter().map(Series::len).sum()
    }

    /// Number of events lost to full rings.
    pub fn n_lost(&self) -> u64 {
        self.counters.n_dropped
    }

    /// Number of events discarded to stay under the cap.
    pub fn n_forgotten(&self) -> u64 {
        self.n_forgotten
    }

    /// Events before this time may have been discarded; 0 if none were.
    pub fn known_since_ns(&self) -> u64 {
        self.known_since_ns
    }

    /// Memory of the events, bytes.
    pub fn bytes(&self) -> Bytes {
        let series: usize = self.series.iter().map(Series::bytes).sum();
        Bytes((series + self.accounted.bytes() + self.work.bytes()) as u64)
    }

    /// Limit on [`History::bytes`].
    pub fn cap(&self) -> Bytes {
        self.cap
    }

    /// Version, which changes with every addition; results computed from another version are stale.
    pub fn version(&self) -> u64 {
        self.version
    }

    fn series_mut(&mut self, lane: &str, track: Track) -> &mut Series {
        let known = self.series.iter().position(|series| series.track == track && series.lane == lane);
        let place = known.unwrap_or(self.series.len());
        if known.is_none() {
            self.series.push(Series::new(lane.to_owned(), track));
        }
        &mut self.series[place]
    }

    fn make_room(&mut self) {
        while self.bytes() > self.cap {
            let oldest = self.series.iter_mut().filter(|s| s.n_chunks() > 1).min_by_key(|s| s.range_ns());
            let Some((n, begin_ns)) = oldest.and_then(Series::forget_chunk) else { return };
            self.n_forgotten += n as u64;
            self.known_since_ns = self.known_since_ns.max(begin_ns);
            self.accounted.forget_before(begin_ns);
            self.work.forget_before(begin_ns);
        }
    }
}

/// True if the event explains where the time of an answer went.
fn is_accounted(kind: &EventKind, lane: &str) -> bool {
    match kind {
        EventKind::GpuPass { .. } | EventKind::Recompute { .. } => true,
        EventKind::Wait { .. } | EventKind::Encode | EventKind::Choose { .. } => lane == ENGINE_LANE,
        // These phases explain themselves; the other phases consist of steps.
        EventKind::Phase(Phase::Tokenize | Phase::Restore) => lane == ENGINE_LANE,
        _ => false,
    }
}
