//! A disk that pretends to be slower than it is. Pure: the time is an argument.
//!
//! One link for both directions, first come first served: what is put on it has been carried when everything before has, and
//! its own bytes have taken their time.

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

    /// Puts `bytes` on the link at `now`; when they have been carried.
    pub fn delay_for(&mut self, now: Instant, bytes: u64) -> Instant {
        let Some(speed) = self.bytes_per_second else { return now };
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(speed.max(1));
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
    fn link_carries_one_thing_after_the_other_at_its_speed() {
        let now = Instant::now();
        let mut link = BandwidthLimit::new(Some(1 << 20));
        assert_eq!(link.delay_for(now, 1 << 19) - now, Duration::from_millis(500));
        assert_eq!(link.delay_for(now, 1 << 20) - now, Duration::from_millis(1500));
        let later = now + Duration::from_secs(10);
        assert_eq!(link.delay_for(later, 1 << 20) - now, Duration::from_secs(11), "it does not save up while idle");
        assert_eq!(BandwidthLimit::new(None).delay_for(now, u64::MAX), now);
    }
}
