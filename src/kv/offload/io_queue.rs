//! I/O queue: requests in flight with their subjects, and completions that a bandwidth limit delays.
//!
//! ```text
//! submit ─► requests waiting for room ─► Io ─► completions, delayed ─► completed, wait
//! ```
//! Owner: [`OffloadTiers`](crate::kv::offload::OffloadTiers).

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::kv::bandwidth_limit::BandwidthLimit;
use crate::kv::store::{Io, IoDone, IoInfo, IoRequest, PageId, PageRun};
use crate::telemetry::Cause;

/// A wait fails if the disk completes nothing for this long.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// Subject of an I/O request.
#[derive(Debug, Clone, Copy)]
pub(super) enum IoWork {
    Read(PageRun),
    Write(PageId),
}

/// An I/O request in flight.
#[derive(Debug)]
pub(super) struct PendingIo {
    pub work: IoWork,
    pub cause: Cause,
    pub began: Instant,
    /// time at which the bandwidth limit lets it complete
    arrives_at: Instant,
}

/// Requests of the offload tiers.
#[derive(Debug)]
pub(super) struct IoQueue {
    io: Io,
    pending: HashMap<u64, PendingIo>,
    next_tag: u64,
    /// requests waiting for room in the I/O queue
    to_submit: VecDeque<IoRequest>,
    /// completed, but delayed by the bandwidth limit
    delayed: Vec<IoDone>,
    link: BandwidthLimit,
}

impl IoQueue {
    /// An empty queue. `limit` is the simulated bandwidth in bytes per second.
    pub fn new(io: Io, limit: Option<u64>) -> IoQueue {
        let link = BandwidthLimit::new(limit);
        IoQueue { io, pending: HashMap::new(), next_tag: 0, to_submit: VecDeque::new(), delayed: Vec::new(), link }
    }

    /// The I/O backend in use, and the reason.
    pub fn info(&self) -> IoInfo {
        self.io.info()
    }

    /// The I/O, for reuse.
    pub fn into_io(self) -> Io {
        self.io
    }

    /// A tag for the next request.
    pub fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    /// True if a page for which `is_any` is true is being written.
    pub fn is_writing(&self, is_any: impl Fn(&PageId) -> bool) -> bool {
        self.pending.values().any(|op| matches!(&op.work, IoWork::Write(page) if is_any(page)))
    }

    /// True if the disk has completed a request, but the bandwidth limit delays it.
    pub fn is_delayed(&self, tag: u64) -> bool {
        self.delayed.iter().any(|done| done.tag == tag)
    }

    /// Submits a request to the I/O threads, and records its subject.
    pub fn submit(&mut self, request: IoRequest, work: IoWork, cause: Cause) {
        let began = Instant::now();
        let arrives_at = self.link.delay_for(began, request.len as u64);
        self.pending.insert(request.tag, PendingIo { work, cause, began, arrives_at });
        self.to_submit.push_back(request);
        self.submit_waiting();
    }

    /// Submits requests for which there is room.
    pub fn submit_waiting(&mut self) {
        while let Some(request) = self.to_submit.pop_front() {
            if let Err(back) = self.io.submit(request) {
                self.to_submit.push_front(*back);
                break;
            }
        }
    }

    /// Requests that have completed, without waiting.
    pub fn completed(&mut self) -> Vec<(PendingIo, IoDone)> {
        while let Some(done) = self.io.try_next() {
            self.delayed.push(done);
        }
        self.release(Instant::now())
    }

    /// Waits until at least one request completes. None if none is in flight, or the disk does not respond.
    pub fn wait(&mut self) -> Option<Vec<(PendingIo, IoDone)>> {
        if self.pending.is_empty() {
            return None;
        }
        self.submit_waiting();
        let n_pending = self.pending.len();
        let began = Instant::now();
        loop {
            let now = Instant::now();
            let next_arrival = self.delayed.iter().filter_map(|d| self.arrives_at(d)).min();
            let timeout = next_arrival.map_or(TIMEOUT, |at| at.saturating_duration_since(now));
            if self.delayed.len() == n_pending {
                std::thread::sleep(timeout);
            } else if let Some(done) = self.io.next(timeout) {
                self.delayed.push(done);
            } else if next_arrival.is_none() && began.elapsed() >= TIMEOUT {
                return None;
            }
            let completed = self.release(Instant::now());
            if !completed.is_empty() {
                return Some(completed);
            }
        }
    }

    /// Time at which the bandwidth limit lets a completion through.
    fn arrives_at(&self, done: &IoDone) -> Option<Instant> {
        self.pending.get(&done.tag).map(|op| op.arrives_at)
    }

    fn release(&mut self, now: Instant) -> Vec<(PendingIo, IoDone)> {
        if self.delayed.is_empty() {
            return Vec::new();
        }
        let (completed, rest): (Vec<IoDone>, Vec<IoDone>) =
            std::mem::take(&mut self.delayed).into_iter().partition(|done| self.arrives_at(done).is_none_or(|at| at <= now));
        self.delayed = rest;
        completed.into_iter().filter_map(|done| Some((self.pending.remove(&done.tag)?, done))).collect()
    }
}
