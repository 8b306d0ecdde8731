//! Simulated bandwidth limit of a disk or link. Pure but for [`SharedLimit`]: the time is an argument.
//!
//! One link for both directions, first come, first served. A transfer ends when all earlier ones have ended and its own
//! bytes have taken their time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct BandwidthLimit {
    bytes_per_second: Option<u64>,
    free_at: Option<Instant>,
}

impl BandwidthLimit {
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        BandwidthLimit { bytes_per_second, free_at: None }
    }

    /// Adds a transfer of `bytes` at `now`. Returns the time at which it ends.
    pub fn delay_for(&mut self, now: Instant, bytes: u64) -> Instant {
        let Some(rate) = self.bytes_per_second else { return now };
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        let begin = self.free_at.map_or(now, |free| free.max(now));
        let end = begin.checked_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))).unwrap_or(begin);
        self.free_at = Some(end);
        end
    }
}

/// Limit of a link that several threads use.
#[derive(Debug, Clone)]
pub(super) struct SharedLimit(Arc<Mutex<BandwidthLimit>>);

impl SharedLimit {
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        SharedLimit(Arc::new(Mutex::new(BandwidthLimit::new(bytes_per_second))))
    }

    /// True if there is a limit.
    pub fn is_limited(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).bytes_per_second.is_some()
    }

    /// Adds a transfer of `bytes`, and sleeps until it ends. Returns the time slept, if any.
    pub fn wait_for(&self, bytes: u64) -> Option<Duration> {
        let now = Instant::now();
        let end = self.0.lock().unwrap_or_else(PoisonError::into_inner).delay_for(now, bytes);
        let left = end.checked_duration_since(now).filter(|left| !left.is_zero())?;
        std::thread::sleep(left);
        Some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_serializes_transfers_at_its_bandwidth() {
        let now = Instant::now();
        let mut limit = BandwidthLimit::new(Some(1 << 20));
        assert_eq!(limit.delay_for(now, 1 << 19) - now, Duration::from_millis(500));
        assert_eq!(limit.delay_for(now, 1 << 20) - now, Duration::from_millis(1500));
        let later = now + Duration::from_secs(10);
        assert_eq!(limit.delay_for(later, 1 << 20) - now, Duration::from_secs(11), "idle time is not saved up");
        assert_eq!(BandwidthLimit::new(None).delay_for(now, u64::MAX), now);
    }
}
