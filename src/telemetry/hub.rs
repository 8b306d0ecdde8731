//! Event hub: lanes that threads record into, drained in one place.
//!
//! ```text
//! EventLane "engine" ─► ring ─┐
//! EventLane "io"     ─► ring ─┼─► drain_into ─► Snapshot: new events by lane, in order of time, and counts of lost ones
//! EventLane ...      ─► ring ─┘
//! ```
//! 1. A ring is a bounded channel, allocated when its lane is created. A full ring drops its oldest event.
//! 2. Recording into a disabled hub costs one relaxed load and counts nothing.
//! 3. A snapshot holds the events since the last one. There is one drainer; it keeps the past, if needed.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::clock::now;
use super::counters::{AtomicCounters, Counters};
use super::event::{Event, EventKind};

/// All lanes and counters of one engine.
#[derive(Debug)]
pub struct Hub {
    shared: Arc<Shared>,
    events_per_lane: usize,
    rings: Mutex<Vec<Arc<Ring>>>,
}

#[derive(Debug)]
struct Shared {
    enabled: AtomicBool,
    counters: AtomicCounters,
}

#[derive(Debug)]
struct Ring {
    name: &'static str,
    into: Sender<Event>,
    out: Receiver<Event>,
    n_dropped: AtomicU64,
}

/// Recording end of one thread. A second lane of the same name writes to the same ring.
#[derive(Debug)]
pub struct EventLane {
    shared: Arc<Shared>,
    ring: Arc<Ring>,
}

/// Events since the last snapshot.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// time of the snapshot
    pub taken_ns: u64,
    /// all lanes, in order of creation
    pub lanes: Vec<LaneSnapshot>,
    /// totals since the hub was created
    pub counters: Counters,
}

/// New events of one lane.
#[derive(Debug, Clone)]
pub struct LaneSnapshot {
    /// name of the lane
    pub name: Cow<'static, str>,
    /// in order of begin; if several begin together, the longest first
    pub events: Vec<Event>,
    /// events that this lane has lost since it was created
    pub n_dropped: u64,
}

impl Hub {
    /// A hub that records, with room for `events_per_lane` events in each lane.
    pub fn new(events_per_lane: usize) -> Arc<Hub> {
        let shared = Shared { enabled: AtomicBool::new(true), counters: AtomicCounters::default() };
        Arc::new(Hub { shared: Arc::new(shared), events_per_lane: events_per_lane.max(1), rings: Mutex::default() })
    }

    /// The lane of that name, created on first use.
    pub fn lane(&self, name: &'static str) -> EventLane {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        let known = rings.iter().find(|ring| ring.name == name).cloned();
        let ring = known.unwrap_or_else(|| {
            let (into, out) = bounded(self.events_per_lane);
            let ring = Arc::new(Ring { name, into, out, n_dropped: AtomicU64::new(0) });
            rings.push(ring.clone());
            ring
        });
        EventLane { shared: self.shared.clone(), ring }
    }

    /// Turns recording on or off, for all lanes.
    pub fn set_enabled(&self, enabled: bool) {
        self.shared.enabled.store(enabled, Ordering::Relaxed);
    }

    /// True if recording is on.
    pub fn is_enabled(&self) -> bool {
        self.shared.enabled.load(Ordering::Relaxed)
    }

    /// Totals since the hub was created.
    pub fn counters(&self) -> Counters {
        self.shared.counters.load()
    }

    /// Moves the events of all rings into `snapshot`, replacing its content and reusing its memory.
    pub fn drain_into(&self, snapshot: &mut Snapshot) {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (i, ring) in rings.iter().enumerate() {
            if snapshot.lanes.len() == i {
                snapshot.lanes.push(LaneSnapshot { name: Cow::Borrowed(ring.name), events: Vec::new(), n_dropped: 0 });
            }
            let lane = &mut snapshot.lanes[i];
            lane.name = Cow::Borrowed(ring.name);
            lane.events.clear();
            // The limit ends the drain even if a thread records as fast as this loop drains.
            lane.events.extend(ring.out.try_iter().take(self.events_per_lane));
            lane.sort();
            lane.n_dropped = ring.n_dropped.load(Ordering::Relaxed);
        }
        snapshot.lanes.truncate(rings.len());
        snapshot.taken_ns = now();
        snapshot.counters = self.counters();
    }

    /// [`Hub::drain_into`] a new snapshot.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        self.drain_into(&mut snapshot);
        snapshot
    }
}

impl LaneSnapshot {
    /// Sorts the events by begin, the longest first.
    pub(super) fn sort(&mut self) {
        self.events.sort_by_key(|e| (e.begin_ns, std::cmp::Reverse(e.duration_ns)));
    }
}

impl EventLane {
    /// True if recording is on; callers skip costly measurements if it is off.
    pub fn is_enabled(&self) -> bool {
        self.shared.enabled.load(Ordering::Relaxed)
    }

    /// Records `event`.
    pub fn record(&self, event: Event) {
        if !self.is_enabled() {
            return;
        }
        self.shared.counters.count(&event.kind, event.duration_ns);
        let mut event = event;
        while let Err(TrySendError::Full(back)) = self.ring.into.try_send(event) {
            event = back;
            if self.ring.out.try_recv().is_ok() {
                self.ring.n_dropped.fetch_add(1, Ordering::Relaxed);
                self.shared.counters.count_dropped();
            }
        }
    }

    /// Records a span from `begin_ns` to now.
    pub fn span(&self, kind: EventKind, begin_ns: u64) {
        if self.is_enabled() {
            self.record(Event::span(kind, begin_ns, now()));
        }
    }

    /// Records an event of this moment, without extent.
    pub fn instant(&self, kind: EventKind) {
        if self.is_enabled() {
            self.record(Event { begin_ns: now(), duration_ns: 0, kind });
        }
    }
}
