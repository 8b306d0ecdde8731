//! Offload statistics: bytes, pages, busy time, waits by cause, and notices for the user.

use std::time::{Duration, Instant};

use crate::base::Bytes;
use crate::telemetry::{FaultKind, WaitCause};

/// Waits for one cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitTotal {
    /// number of waits
    pub n_waits: u64,
    /// total time
    pub time: Duration,
}

/// Totals since the tiers were created. A snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OffloadStats {
    /// bytes read from disk
    pub disk_to_ram: u64,
    /// bytes written to disk
    pub ram_to_disk: u64,
    /// pages read
    pub n_pages_read: u64,
    /// read requests
    pub n_reads: u64,
    /// pages written
    pub n_pages_written: u64,
    /// pages found corrupt
    pub n_bad_pages: u64,
    /// pages fetched without a wait: cached or read ahead
    pub n_fetched_at_once: u64,
    /// pages fetched after a wait
    pub n_fetched_after_wait: u64,
    /// commits completed
    pub n_commits: u64,
    /// time with at least one read in flight
    pub reading: Duration,
    /// indexed by position in [`WaitCause::ALL`]
    pub(super) waits: [WaitTotal; WaitCause::ALL.len()],
}

impl OffloadStats {
    /// Waits for `cause`.
    pub fn wait(&self, cause: WaitCause) -> WaitTotal {
        self.waits.get(cause as usize).copied().unwrap_or_default()
    }

    pub(super) fn add_wait(&mut self, cause: WaitCause, time: Duration) {
        if let Some(total) = self.waits.get_mut(cause as usize) {
            total.n_waits += 1;
            total.time += time;
        }
    }
}

/// Adds up the time with at least one operation in flight.
#[derive(Debug, Default)]
pub(super) struct BusyClock {
    n_in_flight: usize,
    since: Option<Instant>,
    total: Duration,
}

impl BusyClock {
    pub fn begin(&mut self, now: Instant) {
        self.n_in_flight += 1;
        self.since.get_or_insert(now);
    }

    pub fn end(&mut self, now: Instant) {
        self.n_in_flight = self.n_in_flight.saturating_sub(1);
        if self.n_in_flight == 0 {
            self.total += self.since.take().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        }
    }

    pub fn total(&self, now: Instant) -> Duration {
        self.total + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// Use of one tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierUse {
    /// bytes in use
    pub now: Bytes,
    /// most bytes ever in use at once
    pub peak: Bytes,
    /// maximum
    pub budget: Bytes,
}

/// Use of both tiers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OffloadUsage {
    /// memory
    pub ram: TierUse,
    /// files of the store
    pub disk: TierUse,
}

/// A handled fault, for the user. Each kind is reported once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// kind of fault
    pub kind: FaultKind,
    /// message: what happened, and its consequence
    pub text: String,
}

#[derive(Debug, Default)]
pub(super) struct Notices {
    reported: Vec<FaultKind>,
    pending: Vec<Notice>,
}

impl Notices {
    pub fn report(&mut self, kind: FaultKind, text: impl FnOnce() -> String) {
        if !self.reported.contains(&kind) {
            self.reported.push(kind);
            self.pending.push(Notice { kind, text: text() });
        }
    }

    /// Lets the next fault of these kinds be reported again.
    pub fn reset(&mut self, kinds: &[FaultKind]) {
        self.reported.retain(|k| !kinds.contains(k));
    }

    pub fn drain(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_clock_counts_overlapping_work_once() {
        let t = Instant::now();
        let at = |ms| t + Duration::from_millis(ms);
        let mut clock = BusyClock::default();
        clock.begin(at(0));
        clock.begin(at(10));
        clock.end(at(20));
        assert_eq!(clock.total(at(25)), Duration::from_millis(25));
        clock.end(at(30));
        clock.begin(at(100));
        clock.end(at(105));
        assert_eq!(clock.total(at(500)), Duration::from_millis(35));
    }

    #[test]
    fn notice_of_one_kind_is_reported_once_until_reset() {
        let mut notices = Notices::default();
        (0..3).for_each(|i| notices.report(FaultKind::Read, || format!("{i}")));
        assert_eq!(notices.drain(), [Notice { kind: FaultKind::Read, text: "0".into() }]);
        notices.report(FaultKind::Read, || "again".into());
        assert!(notices.drain().is_empty());
        notices.reset(&[FaultKind::Read]);
        notices.report(FaultKind::Read, || "again".into());
        assert_eq!(notices.drain().len(), 1);
    }
}
