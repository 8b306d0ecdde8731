//! A link that is held to a speed, so that any machine can show how a pipeline behaves with another machine's links.
//!
//! Bytes are carried one after the other: what is asked for while the link is busy begins when it is free. Without a limit
//! everything has arrived at once.

use std::time::{Duration, Instant};

/// One direction of one link.
#[derive(Debug, Clone)]
pub struct Link {
    bytes_per_s: Option<u64>,
    free_at: Option<Instant>,
}

impl Link {
    /// A link of this speed; of any speed where there is none.
    pub fn new(bytes_per_s: Option<u64>) -> Link {
        Link { bytes_per_s: bytes_per_s.filter(|speed| *speed > 0), free_at: None }
    }

    /// When `bytes` that are asked for at `now` have arrived.
    pub fn carry(&mut self, bytes: u64, now: Instant) -> Instant {
        let Some(speed) = self.bytes_per_s else { return now };
        let begins = self.free_at.map_or(now, |free_at| free_at.max(now));
        let arrived = begins + Duration::from_secs_f64(bytes as f64 / speed as f64);
        self.free_at = Some(arrived);
        arrived
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_carries_one_after_the_other_at_its_speed() {
        let now = Instant::now();
        let mut link = Link::new(Some(1000));
        assert_eq!(link.carry(500, now), now + Duration::from_millis(500));
        assert_eq!(link.carry(250, now), now + Duration::from_millis(750));
        let later = now + Duration::from_secs(2);
        assert_eq!(link.carry(1000, later), later + Duration::from_secs(1));
    }

    #[test]
    fn link_without_a_limit_takes_no_time() {
        let now = Instant::now();
        assert_eq!(Link::new(None).carry(u64::MAX, now), now);
    }
}
