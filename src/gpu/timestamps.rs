//! GPU timestamps: begin and end of each pass, converted to the CPU clock, without waiting for the GPU.
//!
//! ```text
//! Recorder.mark(family, layer) ─► submit_traced: a pass per mark, timestamped ─► resolve, copy ─► staging ─► collect ─► GpuSpan
//!                                                                  (a slot of the ring)         (when mapped)
//! ```
//! 1. Only [`TimestampRing::new`] waits. With [`MAX_IN_FLIGHT`] uncollected submits, a further one is counted but not
//!    timed.
//! 2. A span is between its submit and the time at which the CPU saw its completion. The GPU clock is calibrated at the
//!    start by the tightest of a few round trips, with an error of at most half of that,
//!    [`TimestampRing::clock_error_ns`]. If it drifts out of those bounds, it is moved to the nearest value within
//!    them.
//! 3. Without GPU timestamps a whole submit is one span, as seen by the CPU: from its submit, or the end of the
//!    previous one, to its end. Such spans are marked as estimated.
//! 4. A copy runs between passes, where no timestamp can be written. Its span is the gap, and estimated.
//!
//! Owner thread: that of the [`Gpu`]. After a lost device both are dropped. Limits: [`MAX_PASSES`] of a submit are
//! timed. Memory: 32 bytes per pass and submit that was ever in flight.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::device::Gpu;
use super::error::GpuError;
use super::mark::Mark;
use super::pass_timestamps::{PassTimestamps, ticks_of};
use super::recorder::{Recorder, Submitted};
use crate::telemetry::{Event, EventKind, KernelFamily, now, ns_of};

/// Maximum submits waiting for collection.
pub const MAX_IN_FLIGHT: usize = 256;
/// Maximum timed passes of one submit.
pub const MAX_PASSES: usize = 1024;

/// Round trips to calibrate the clock; the tightest counts.
const N_ROUND_TRIPS: usize = 8;
/// Values of [`InFlight::done_ns`] before, and without, a completion.
const PENDING: u64 = 0;
const FAILED: u64 = u64::MAX;

/// GPU work between two values of [`now`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuSpan {
    /// kernel family
    pub family: KernelFamily,
    /// model layer, or [`crate::telemetry::NO_LAYER`]
    pub layer: u32,
    /// begin, nanoseconds
    pub begin_ns: u64,
    /// end, nanoseconds
    pub end_ns: u64,
    /// bounded by CPU times, not measured by the GPU
    pub estimated: bool,
}

impl GpuSpan {
    /// The span as a trace event.
    pub fn event(&self) -> Event {
        let kind = EventKind::GpuPass { family: self.family, layer: self.layer, estimated: self.estimated };
        Event::span(kind, self.begin_ns, self.end_ns)
    }
}

/// Conversion of GPU ticks to the CPU clock.
#[derive(Debug, Clone, Copy)]
struct DeviceClock {
    ns_per_tick: f64,
    at_ticks: u64,
    at_ns: i64,
    error_ns: u64,
}

impl DeviceClock {
    /// Calibrates the clock. None if the GPU has no clock, or a stopped one.
    fn set(gpu: &Gpu) -> Result<Option<DeviceClock>, GpuError> {
        if !gpu.has_timestamps() {
            return Ok(None);
        }
        let ns_per_tick = f64::from(gpu.queue.get_timestamp_period());
        let mut tightest: Option<DeviceClock> = None;
        for _ in 0..N_ROUND_TRIPS {
            let mut timestamps = PassTimestamps::new(gpu, 1)?;
            let mut encoder = gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("clock") });
            let timestamp_writes = timestamps.next_pass(Mark::default(), false);
            drop(encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes }));
            timestamps.resolve(&mut encoder);
            let commands = encoder.finish();
            let sent_ns = now();
            let index = gpu.queue.submit([commands]);
            gpu.wait_for(index.clone())?;
            let half_ns = (now() - sent_ns) / 2;
            let at_ticks = gpu.read_mapped(&timestamps.staging, index, |bytes| ticks_of(bytes).map(|(begin, _)| begin).next())?;
            let Some(at_ticks) = at_ticks.filter(|ticks| *ticks > 0) else { return Ok(None) };
            if tightest.is_none_or(|t| half_ns < t.error_ns) {
                tightest = Some(DeviceClock { ns_per_tick, at_ticks, at_ns: (sent_ns + half_ns) as i64, error_ns: half_ns });
            }
        }
        Ok(tightest)
    }

    fn ns(&self, ticks: u64) -> i64 {
        let since = i128::from(ticks) - i128::from(self.at_ticks);
        self.at_ns + (since as f64 * self.ns_per_tick) as i64
    }

    /// Adjusts the clock by the smallest change that puts the work between `submitted_ns` and `done_ns`.
    fn adjust(&mut self, (begin, end): (u64, u64), (submitted_ns, done_ns): (u64, u64)) {
        let least = submitted_ns as i64 - self.ns(begin);
        let most = done_ns as i64 - self.ns(end);
        self.at_ns += 0.max(least).min(most);
    }
}

struct InFlight {
    submitted_ns: u64,
    /// time at which the CPU saw the completion
    done_ns: Arc<AtomicU64>,
    /// label of the whole submit, if it has no timestamps
    mark: Mark,
    timestamps: Option<PassTimestamps>,
}

/// Submits whose timestamps are still to be read.
pub struct TimestampRing {
    clock: Option<DeviceClock>,
    free: Vec<PassTimestamps>,
    in_flight: VecDeque<InFlight>,
    last_done_ns: u64,
    n_dropped: u64,
}

impl TimestampRing {
    /// Creates the ring and calibrates the clock of `gpu`: a few round trips.
    ///
    /// # Errors
    /// A lost device, or no memory for the timestamps.
    pub fn new(gpu: &Gpu) -> Result<TimestampRing, GpuError> {
        let clock = DeviceClock::set(gpu)?;
        Ok(TimestampRing { clock, free: Vec::new(), in_flight: VecDeque::new(), last_done_ns: 0, n_dropped: 0 })
    }

    /// Maximum error of the clock at calibration. None if all spans are estimated.
    pub fn clock_error_ns(&self) -> Option<u64> {
        self.clock.map(|clock| clock.error_ns)
    }

    /// Submits that were not timed, or not completely.
    pub fn n_dropped(&self) -> u64 {
        self.n_dropped
    }

    /// Passes the spans of every completed submit to `each`, in order, without waiting.
    pub fn collect(&mut self, gpu: &Gpu, mut each: impl FnMut(GpuSpan)) {
        // A lost device fails every pending map; the next use of the device reports the loss.
        let _ = gpu.device.poll(wgpu::PollType::Poll);
        while let Some(first) = self.in_flight.front() {
            let done_ns = first.done_ns.load(Ordering::Acquire);
            if done_ns == PENDING {
                return;
            }
            let Some(submit) = self.in_flight.pop_front() else { return };
            if done_ns == FAILED {
                self.n_dropped += 1;
                continue;
            }
            if self.read(&submit, done_ns, &mut each).is_none() {
                self.n_dropped += 1;
            }
            if let Some(timestamps) = submit.timestamps {
                timestamps.staging.raw.unmap();
                self.free.push(timestamps);
            }
        }
    }

    /// None if the timestamps could not be read, or some passes have none.
    fn read(&mut self, submit: &InFlight, done_ns: u64, each: &mut impl FnMut(GpuSpan)) -> Option<()> {
        let began_ns = submit.submitted_ns.max(self.last_done_ns).min(done_ns);
        self.last_done_ns = done_ns;
        let Some((timestamps, clock)) = submit.timestamps.as_ref().zip(self.clock.as_mut()) else {
            let Mark { family, layer } = submit.mark;
            each(GpuSpan { family, layer, begin_ns: began_ns, end_ns: done_ns, estimated: true });
            return Some(());
        };
        let view = timestamps.staging.raw.slice(..timestamps.n_bytes()).get_mapped_range().ok()?;
        let begin = ticks_of(&view).next()?.0;
        let end = ticks_of(&view).last()?.1;
        clock.adjust((begin, end), (submit.submitted_ns, done_ns));
        let bounded = |ticks: u64| clock.ns(ticks).clamp(submit.submitted_ns as i64, done_ns as i64) as u64;
        let mut last_end_ns = None;
        for (pass, (begin, end)) in timestamps.passes().iter().zip(ticks_of(&view)) {
            let Mark { family, layer } = pass.mark;
            let begin_ns = bounded(begin).max(last_end_ns.unwrap_or(0));
            let end_ns = bounded(end).max(begin_ns);
            if let Some(last_end_ns) = last_end_ns.filter(|_| pass.after_copy) {
                each(GpuSpan { family: KernelFamily::Copy, layer, begin_ns: last_end_ns, end_ns: begin_ns, estimated: true });
            }
            each(GpuSpan { family, layer, begin_ns, end_ns, estimated: false });
            last_end_ns = Some(end_ns);
        }
        timestamps.is_complete().then_some(())
    }

    fn timestamps(&mut self, gpu: &Gpu) -> Result<PassTimestamps, GpuError> {
        let Some(mut timestamps) = self.free.pop() else { return PassTimestamps::new(gpu, MAX_PASSES) };
        timestamps.clear();
        Ok(timestamps)
    }
}

impl Gpu {
    /// [`Gpu::submit`] with timestamps for every marked part; [`TimestampRing::collect`] returns them later.
    ///
    /// # Errors
    /// A lost device, a rejected command, or no memory for the timestamps.
    pub fn submit_traced(&self, recorder: &mut Recorder, ring: &mut TimestampRing) -> Result<Submitted, GpuError> {
        if ring.in_flight.len() >= MAX_IN_FLIGHT || recorder.is_empty() {
            ring.n_dropped += u64::from(!recorder.is_empty());
            return self.submit(recorder);
        }
        let mark = recorder.common_mark();
        let can_time = ring.clock.is_some() && recorder.n_dispatches() > 0;
        let mut timestamps = if can_time { Some(ring.timestamps(self)?) } else { None };
        let submitted = self.submit_with_timestamps(recorder, timestamps.as_mut())?;
        let done_ns = Arc::new(AtomicU64::new(PENDING));
        let done = done_ns.clone();
        match &timestamps {
            Some(timestamps) => {
                timestamps.staging.raw.slice(..timestamps.n_bytes()).map_async(wgpu::MapMode::Read, move |mapped| {
                    done.store(if mapped.is_ok() { now() } else { FAILED }, Ordering::Release);
                })
            }
            None => self.queue.on_submitted_work_done(move || done.store(now(), Ordering::Release)),
        }
        ring.in_flight.push_back(InFlight { submitted_ns: ns_of(submitted.at), done_ns, mark, timestamps });
        Ok(submitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn adjusted_clock_puts_work_between_submit_and_completion(
            at_ticks in 0u64..1 << 40, at_ns in 0i64..1 << 40, begin in 0u64..1 << 40, ticks in 0u64..1 << 20,
            submitted_ns in 0u64..1 << 40, slack in 0u64..1 << 20, period in 1u32..60,
        ) {
            let mut clock = DeviceClock { ns_per_tick: f64::from(period), at_ticks, at_ns, error_ns: 0 };
            let end = begin + ticks;
            let done_ns = submitted_ns + ticks * u64::from(period) + slack;
            clock.adjust((begin, end), (submitted_ns, done_ns));
            prop_assert!(clock.ns(begin) >= submitted_ns as i64 && clock.ns(end) <= done_ns as i64);
            prop_assert_eq!(clock.ns(end) - clock.ns(begin), (ticks * u64::from(period)) as i64);
            let set = clock.at_ns;
            clock.adjust((begin, end), (submitted_ns, done_ns));
            prop_assert_eq!(clock.at_ns, set, "what fits stays");
        }
    }
}
