//! The clock of all events: nanoseconds since the first call in this process.

use std::sync::OnceLock;
use std::time::Instant;

static START: OnceLock<Instant> = OnceLock::new();

/// Nanoseconds since the clock started; monotonic.
pub fn now() -> u64 {
    ns_of(Instant::now())
}

/// `instant` on this clock; 0 for one before it started.
pub fn ns_of(instant: Instant) -> u64 {
    let start = *START.get_or_init(|| instant);
    instant.saturating_duration_since(start).as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_of_an_instant_agrees_with_now() {
        let before = now();
        let between = ns_of(Instant::now());
        assert!(before <= between && between <= now());
    }
}
