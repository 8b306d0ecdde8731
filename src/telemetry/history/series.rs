//! Series: events of one track of one thread, indexed so that any window costs one search.
//!
//! ```text
//! events by begin ─► + prefix sums (busy time, bytes) + latest end so far ─► within, sums, envelope
//! ```
//! 1. Events are in order of begin; late ones are inserted at their place.
//! 2. Busy time counts overlaps once.
//! 3. The cost of an envelope grows with its columns, not its events, and its longest durations are exact.

use super::chunked_queue::{CHUNK_LEN, ChunkedQueue};
use crate::telemetry::event::{Event, EventKind};
use crate::telemetry::track::Track;

/// Events per stored maximum.
const BLOCK_LEN: usize = 16;
const _: () = assert!(CHUNK_LEN.is_multiple_of(BLOCK_LEN), "a discarded chunk must be whole blocks");

/// Events of one track of one thread.
#[derive(Debug, Clone)]
pub struct Series {
    /// thread that recorded them
    pub lane: String,
    /// their track
    pub track: Track,
    entries: ChunkedQueue<Entry>,
    forgotten: Sums,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    event: Event,
    /// prefix sums, this entry included
    sums: Sums,
    /// longest duration so far in its block
    longest_ns: u64,
}

/// Sums over all events up to one.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    /// latest end
    reach_ns: u64,
    /// time covered
    busy_ns: u64,
    /// bytes moved
    bytes: u64,
}

/// A moment, with the sums before it.
#[derive(Debug, Clone, Copy)]
struct Edge {
    at_ns: u64,
    n_begun: usize,
    bytes: u64,
    busy_ns: u64,
}

/// Sums over a part of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// events that begin in it
    pub n_events: usize,
    /// bytes that they moved
    pub bytes: u64,
    /// time that events cover, also those that began earlier
    pub busy_ns: u64,
}

/// One column of a plot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Column {
    /// sums over its events
    pub sum: Sum,
    /// duration of the longest event that touches it
    pub longest_ns: u64,
}

impl Column {
    /// True if no event touches it.
    pub fn is_empty(&self) -> bool {
        self.sum.n_events == 0 && self.sum.busy_ns == 0
    }
}

impl Series {
    pub(super) fn new(lane: String, track: Track) -> Series {
        Series { lane, track, entries: ChunkedQueue::default(), forgotten: Sums::default() }
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no events.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// From the first begin to the latest end, nanoseconds.
    pub fn range_ns(&self) -> Option<(u64, u64)> {
        Some((self.entries.first()?.event.begin_ns, self.entries.last()?.sums.reach_ns))
    }

    /// The newest event by begin.
    pub fn last(&self) -> Option<&Event> {
        self.entries.last().map(|entry| &entry.event)
    }

    /// The newest event that began before `ns`.
    pub fn last_before(&self, ns: u64) -> Option<&Event> {
        self.entries.get(self.edge(ns).n_begun.checked_sub(1)?).map(|entry| &entry.event)
    }

    /// Every event, in order of begin.
    pub fn iter(&self) -> impl Iterator<Item = &Event> {
        self.entries.iter_from(0).map(|entry| &entry.event)
    }

    /// Events that touch the window, in order of begin; one without extent touches its own moment.
    pub fn within(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Event> {
        let first = self.entries.partition_point(|entry| entry.sums.reach_ns < from_ns);
        let events = self.entries.iter_from(first).map(|entry| &entry.event);
        events.take_while(move |event| event.begin_ns < to_ns).filter(move |event| touches(event, from_ns))
    }

    /// Sums over the window.
    pub fn sum(&self, from_ns: u64, to_ns: u64) -> Sum {
        self.sum_between(self.edge(from_ns), self.edge(to_ns))
    }

    /// The window in `n_columns` equal parts.
    pub fn envelope(&self, from_ns: u64, to_ns: u64, n_columns: usize) -> impl Iterator<Item = Column> {
        let width_ns = u128::from(to_ns.saturating_sub(from_ns));
        let mut left = self.edge(from_ns);
        (1..=n_columns).map(move |i| {
            let right = self.edge(from_ns + (width_ns * i as u128 / n_columns as u128) as u64);
            let first = self.entries.partition_point(|entry| entry.sums.reach_ns <= left.at_ns);
            let longest_ns = self.longest_ns(first.min(left.n_begun), right.n_begun);
            let column = Column { sum: self.sum_between(left, right), longest_ns };
            left = right;
            column
        })
    }

    /// Inserts `batch`, which is in order of begin.
    pub(super) fn add(&mut self, batch: &[Event]) {
        let Some(first) = batch.first() else { return };
        let mut later = Vec::new();
        while let Some(entry) = self.entries.last().filter(|entry| entry.event.begin_ns > first.begin_ns) {
            later.push(entry.event);
            self.entries.pop();
        }
        let mut batch = batch.iter().copied().peekable();
        while let Some(event) = later.pop() {
            while let Some(new) = batch.next_if(|new| new.begin_ns <= event.begin_ns) {
                self.push(new);
            }
            self.push(event);
        }
        batch.for_each(|event| self.push(event));
    }

    /// Memory, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.entries.bytes()
    }

    pub(super) fn n_chunks(&self) -> usize {
        self.entries.n_chunks()
    }

    /// Discards the oldest chunk. Returns the number of its events and the begin of its last one.
    pub(super) fn forget_chunk(&mut self) -> Option<(usize, u64)> {
        let chunk = self.entries.drop_chunk()?;
        let last = chunk.last()?;
        self.forgotten = last.sums;
        Some((chunk.len(), last.event.begin_ns))
    }

    fn push(&mut self, event: Event) {
        let (begin_ns, end_ns) = (event.begin_ns, event.end_ns());
        let last = self.entries.last();
        let before = last.map_or(self.forgotten, |last| last.sums);
        let sums = Sums {
            reach_ns: before.reach_ns.max(end_ns),
            busy_ns: before.busy_ns + end_ns.saturating_sub(begin_ns.max(before.reach_ns)),
            bytes: before.bytes.saturating_add(bytes_of(&event.kind)),
        };
        let same_block = last.filter(|_| !self.len().is_multiple_of(BLOCK_LEN));
        let longest_ns = same_block.map_or(0, |last| last.longest_ns).max(event.duration_ns);
        self.entries.push(Entry { event, sums, longest_ns });
    }

    fn edge(&self, at_ns: u64) -> Edge {
        let n_begun = self.entries.partition_point(|entry| entry.event.begin_ns < at_ns);
        let last = n_begun.checked_sub(1).and_then(|i| self.entries.get(i));
        let before = last.map_or(self.forgotten, |last| last.sums);
        // Spans that reach past this moment began before it, so everything in between is covered.
        let busy_ns = before.busy_ns.saturating_sub(before.reach_ns.saturating_sub(at_ns));
        Edge { at_ns, n_begun, bytes: before.bytes, busy_ns }
    }

    fn sum_between(&self, left: Edge, right: Edge) -> Sum {
        Sum {
            n_events: right.n_begun.saturating_sub(left.n_begun),
            bytes: right.bytes.saturating_sub(left.bytes),
            busy_ns: right.busy_ns.saturating_sub(left.busy_ns),
        }
    }

    /// Longest duration of the events `first .. end`. Events from `first` on that ended before the window are shorter than
    /// `first` itself, which contains them.
    fn longest_ns(&self, first: usize, end: usize) -> u64 {
        let (mut i, mut longest_ns) = (first, 0);
        while i < end {
            let whole_block = i.is_multiple_of(BLOCK_LEN) && i + BLOCK_LEN <= end;
            let step = if whole_block { BLOCK_LEN } else { 1 };
            let entry = self.entries.get(i + step - 1);
            let of_step = entry.map_or(0, |e| if whole_block { e.longest_ns } else { e.event.duration_ns });
            longest_ns = longest_ns.max(of_step);
            i += step;
        }
        longest_ns
    }
}

fn touches(event: &Event, from_ns: u64) -> bool {
    event.end_ns() > from_ns || (event.duration_ns == 0 && event.begin_ns == from_ns)
}

fn bytes_of(kind: &EventKind) -> u64 {
    match *kind {
        EventKind::PageMove { bytes, .. } => bytes,
        _ => 0,
    }
}
