//! Lanes that threads record into, and the one place where their events are drained.
//!
//! ```text
//! EventLane "engine" ─► ring ─┐
//! EventLane "io"     ─► ring ─┼─► drain_into ─► Snapshot: new events by lane, in order of time, with what was lost
//! EventLane ...      ─► ring ─┘
//! ```
//! 1. A ring is a bounded channel whose memory is taken when its lane is made. Where it is full the oldest event goes.
//! 2. Recording into a hub that is off costs one relaxed load; it counts nothing.
//! 3. A snapshot holds what came since the last one, so a long run needs no long memory. There is one drainer: whoever
//!    wants the past keeps it.

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

/// Where one thread records. A second lane of the same name writes into the same ring.
#[derive(Debug)]
pub struct EventLane {
    shared: Arc<Shared>,
    ring: Arc<Ring>,
}

/// What came since the last snapshot.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// when it was taken
    pub taken_ns: u64,
    /// every lane, in the order they were made
    pub lanes: Vec<LaneSnapshot>,
    /// totals since the hub was made
    pub counters: Counters,
}

/// New events of one lane.
#[derive(Debug, Clone)]
pub struct LaneSnapshot {
    /// of the lane
    pub name: Cow<'static, str>,
    /// by when they began; of those that began together the longest first
    pub events: Vec<Event>,
    /// events this lane has lost since it was made
    pub n_dropped: u64,
}

impl Hub {
    /// A hub that records, with room for `events_per_lane` events in each lane.
    pub fn new(events_per_lane: usize) -> Arc<Hub> {
        let shared = Shared { enabled: AtomicBool::new(true), counters: AtomicCounters::default() };
        Arc::new(Hub { shared: Arc::new(shared), events_per_lane: events_per_lane.max(1), rings: Mutex::default() })
    }

    /// The lane of that name, made where there is none.
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

    /// Recording is on.
    pub fn is_enabled(&self) -> bool {
        self.shared.enabled.load(Ordering::Relaxed)
    }

    /// Totals since the hub was made.
    pub fn counters(&self) -> Counters {
        self.shared.counters.load()
    }

    /// Moves what is in the rings into `snapshot`, in place of what it held; its memory is used again.
    pub fn drain_into(&self, snapshot: &mut Snapshot) {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (i, ring) in rings.iter().enumerate() {
            if snapshot.lanes.len() == i {
                snapshot.lanes.push(LaneSnapshot { name: Cow::Borrowed(ring.name), events: Vec::new(), n_dropped: 0 });
            }
            let lane = &mut snapshot.lanes[i];
            lane.name = Cow::Borrowed(ring.name);
            lane.events.clear();
            // A thread that records as fast as this drains must not keep it here for ever.
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
    /// Puts the events in order.
    pub(super) fn sort(&mut self) {
        self.events.sort_by_key(|e| (e.begin_ns, std::cmp::Reverse(e.duration_ns)));
    }
}

impl EventLane {
    /// Recording is on: what costs something to find out is worth finding out.
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

    /// Records what began at `begin_ns` and ends now.
    pub fn span(&self, kind: EventKind, begin_ns: u64) {
        if self.is_enabled() {
            self.record(Event::span(kind, begin_ns, now()));
        }
    }

    /// Records what happens now and has no extent.
    pub fn instant(&self, kind: EventKind) {
        if self.is_enabled() {
            self.record(Event { begin_ns: now(), duration_ns: 0, kind });
        }
    }
}
