//! Simulated bandwidth limit of a disk or link. Pure: the time is an argument.
//!
//! One link for both directions, first come, first served. A transfer ends when all earlier ones have ended and its own
//! bytes have taken their time.

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
