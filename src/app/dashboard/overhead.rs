//! Dashboard overhead: frame times and CPU time of the window, and the dock's share of them.
//!
//! ```text
//! frame times, /proc/self/stat ─► Cost ─► the foot of the activity panel
//! ```
//! Limits: CPU time is known on Linux only, from the second sample on.

use std::time::{Duration, Instant};

use crate::app::dashboard::rates::Known;

/// Between two samples of the CPU time.
const CPU_SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// Ticks per second of the times in `/proc`: fixed by the kernel's interface.
const TICKS_PER_S: f64 = 100.0;
/// Weight of a new frame in a running mean.
const WEIGHT: f32 = 0.1;

/// Running means of the cost of frames.
#[derive(Debug)]
pub struct Cost {
    /// layout of the dock, milliseconds per frame
    pub dock_ms: f32,
    /// the whole frame, milliseconds
    pub frame_ms: f32,
    /// frames per second
    pub frames_per_s: f32,
    /// CPU cores that this process keeps busy
    pub cpu: Known<f64>,
    last_frame: Option<Instant>,
    last_cpu_sample: Option<(Instant, f64)>,
}

impl Default for Cost {
    fn default() -> Self {
        Cost { dock_ms: 0.0, frame_ms: 0.0, frames_per_s: 0.0, cpu: Known::Missing, last_frame: None, last_cpu_sample: None }
    }
}

impl Cost {
    /// Records the start of a frame, and the duration of the one before it in seconds.
    pub fn frame(&mut self, secs: Option<f32>) {
        let now = Instant::now();
        if let Some(secs) = secs {
            mix(&mut self.frame_ms, secs * 1e3);
        }
        if let Some(last) = self.last_frame.replace(now) {
            mix(&mut self.frames_per_s, 1.0 / now.duration_since(last).as_secs_f32().max(1e-3));
        }
        if self.last_cpu_sample.is_none_or(|(at, _)| now.duration_since(at) >= CPU_SAMPLE_INTERVAL) {
            self.record_cpu(now, std::fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(cpu_secs));
        }
    }

    /// Records the layout time of the dock.
    pub fn dock(&mut self, took: Duration) {
        mix(&mut self.dock_ms, took.as_secs_f32() * 1e3);
    }

    fn record_cpu(&mut self, now: Instant, cpu_secs: Option<f64>) {
        let Some(secs) = cpu_secs else { return };
        if let Some((at, before)) = self.last_cpu_sample.replace((now, secs)) {
            self.cpu = Known::Measured((secs - before) / now.duration_since(at).as_secs_f64().max(1e-3));
        }
    }
}

fn mix(mean: &mut f32, new: f32) {
    *mean = if *mean == 0.0 { new } else { *mean * (1.0 - WEIGHT) + new * WEIGHT };
}

/// CPU time of all threads in seconds, from the text of `/proc/self/stat`.
pub fn cpu_secs(stat: &str) -> Option<f64> {
    // The name in parentheses may hold anything; the fields after it do not.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let user: f64 = fields.nth(11)?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_as_linux_writes_it() {
        let stat = "42 (a) b) c) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 8 0 9 1 2";
        assert_eq!(cpu_secs(stat), Some(3.0));
        for bad in ["", "42", "42 (x) S 1", "42 (x) S 1 2 3 4 5 6 7 8 9 10 eleven 12"] {
            assert_eq!(cpu_secs(bad), None, "{bad}");
        }
    }

    #[test]
    fn cpu_share_needs_two_samples() {
        let (mut cost, now) = (Cost::default(), Instant::now());
        cost.record_cpu(now, Some(1.0));
        assert_eq!(cost.cpu, Known::Missing);
        cost.record_cpu(now + Duration::from_secs(2), Some(4.0));
        assert_eq!(cost.cpu, Known::Measured(1.5));
    }
}
