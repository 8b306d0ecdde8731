//! What the tiers have done: bytes, pages, time of the link, waits by cause, and what the user should be told.

use std::time::{Duration, Instant};

use crate::base::Bytes;
use crate::telemetry::{FaultKind, WaitCause};

/// Waits for one cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitTotal {
    /// how many
    pub n_waits: u64,
    /// how long together
    pub time: Duration,
}

/// Totals since the tiers were set up. A snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OffloadStats {
    /// bytes read, as they traveled
    pub disk_to_ram: u64,
    /// bytes written, as they traveled
    pub ram_to_disk: u64,
    /// pages read
    pub n_pages_read: u64,
    /// requests that brought them
    pub n_reads: u64,
    /// pages written
    pub n_pages_written: u64,
    /// pages that were found not whole
    pub n_bad_pages: u64,
    /// pages handed out that were in RAM already, copies and read ahead
    pub n_taken_at_once: u64,
    /// pages handed out after a wait
    pub n_taken_late: u64,
    /// commits that made pages safe
    pub n_commits: u64,
    /// time during which at least one read was on its way
    pub reading: Duration,
    /// by position in [`WaitCause::ALL`]
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

/// Adds up the time during which something is on its way.
#[derive(Debug, Default)]
pub(super) struct BusyClock {
    n_on_way: usize,
    since: Option<Instant>,
    total: Duration,
}

impl BusyClock {
    pub fn begin(&mut self, now: Instant) {
        self.n_on_way += 1;
        self.since.get_or_insert(now);
    }

    pub fn end(&mut self, now: Instant) {
        self.n_on_way = self.n_on_way.saturating_sub(1);
        if self.n_on_way == 0 {
            self.total += self.since.take().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        }
    }

    pub fn total(&self, now: Instant) -> Duration {
        self.total + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// What one tier holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierUse {
    /// bytes in use now
    pub now: Bytes,
    /// most bytes ever taken at once
    pub peak: Bytes,
    /// the cap
    pub budget: Bytes,
}

/// What both tiers hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OffloadUsage {
    /// memory
    pub ram: TierUse,
    /// the store's files
    pub disk: TierUse,
}

/// A fault that was dealt with, for the user to know of. Each kind is told once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// of which kind
    pub kind: FaultKind,
    /// a sentence: what happened, and what it means
    pub text: String,
}

#[derive(Debug, Default)]
pub(super) struct Notices {
    told: Vec<FaultKind>,
    waiting: Vec<Notice>,
}

impl Notices {
    pub fn tell(&mut self, kind: FaultKind, text: impl FnOnce() -> String) {
        if !self.told.contains(&kind) {
            self.told.push(kind);
            self.waiting.push(Notice { kind, text: text() });
        }
    }

    /// A later fault of these kinds is news again.
    pub fn forget(&mut self, kinds: &[FaultKind]) {
        self.told.retain(|k| !kinds.contains(k));
    }

    pub fn drain(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.waiting)
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
    fn notice_of_one_kind_is_told_once_until_forgotten() {
        let mut notices = Notices::default();
        (0..3).for_each(|i| notices.tell(FaultKind::Read, || format!("{i}")));
        assert_eq!(notices.drain(), [Notice { kind: FaultKind::Read, text: "0".into() }]);
        notices.tell(FaultKind::Read, || "again".into());
        assert!(notices.drain().is_empty());
        notices.forget(&[FaultKind::Read]);
        notices.tell(FaultKind::Read, || "again".into());
        assert_eq!(notices.drain().len(), 1);
    }
}
