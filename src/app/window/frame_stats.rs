//! Frame statistics while the engine works; printed after each request if `STRATA_FRAMES` is set.
//!
//! A frame counts from layout to the end of painting, as eframe measures it, without the wait for the display (milliseconds).
//! Only frames during a request count: the engine could delay those.

/// Durations in memory; the oldest are dropped.
const CAPACITY: usize = 4096;

/// Frame durations of this session, milliseconds.
#[derive(Debug, Default)]
pub struct FrameTimes {
    millis: std::collections::VecDeque<f32>,
    was_running: bool,
}

impl FrameTimes {
    /// Records a frame; `secs` is the duration of the one before it, if known.
    pub fn record(&mut self, running: bool, secs: Option<f32>) {
        if let Some(secs) = secs.filter(|_| self.was_running) {
            self.add(secs);
        }
        if self.was_running
            && !running
            && std::env::var_os("STRATA_FRAMES").is_some()
            && let Some(line) = self.summary()
        {
            eprintln!("strata: {line}");
        }
        self.was_running = running;
    }

    /// Adds one frame.
    fn add(&mut self, secs: f32) {
        if self.millis.len() == CAPACITY {
            self.millis.pop_front();
        }
        self.millis.push_back(secs * 1e3);
    }

    /// One line: number, median, 99th percentile and maximum. None before the first frame.
    fn summary(&self) -> Option<String> {
        let mut sorted: Vec<f32> = self.millis.iter().copied().collect();
        sorted.sort_by(f32::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |share: f32| sorted.get((last as f32 * share).round() as usize).copied();
        let (median, p99, max) = (at(0.5)?, at(0.99)?, sorted.last()?);
        Some(format!("{} frames while answering: median {median:.1} ms, p99 {p99:.1} ms, max {max:.1} ms", sorted.len()))
    }
}

#[cfg(test)]
mod tests {
    use crate::app::window::frame_stats::FrameTimes;

    #[test]
    fn frames_summary_orders_what_it_was_given() {
        let mut times = FrameTimes::default();
        assert_eq!(times.summary(), None);
        for i in 0..100 {
            times.add(((i * 37) % 100) as f32 / 1e3);
        }
        let line = times.summary().unwrap();
        assert!(line.starts_with("100 frames") && line.ends_with("max 99.0 ms") && line.contains("p99 98.0"), "{line}");
    }
}
