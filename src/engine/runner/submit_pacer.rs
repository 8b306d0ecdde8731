//! Cuts recorded work into submits of a bounded duration, and learns how fast the device is.
//!
//! ```text
//! op, op, op ─► cost so far / learned rate > target? ─► submit ─► at most two in flight ─► wait ─► rate
//! ```
//! 1. A submit holds whole ops. 2. At most [`MAX_IN_FLIGHT`] submits wait on the device, so stop is obeyed within two.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::base::limits::SUBMIT_TARGET_MILLIS;
use crate::gpu::{Buffer, Gpu, GpuError, Recorder, Submitted, TimestampRing};
use crate::telemetry::{self, EventKind, EventLane, Hub, KernelFamily, WaitCause};

/// Submits on the device at once: one runs, one is ready.
const MAX_IN_FLIGHT: usize = 2;
/// Recording for a shorter time is not worth an event.
const LEAST_ENCODE_NS: u64 = 2_000;

/// Records, submits and measures.
pub struct SubmitPacer {
    /// what comes next
    pub recorder: Recorder,
    in_flight: VecDeque<Submitted>,
    /// floating-point operations per second that prefill reaches here
    flops_per_s: f64,
    /// nothing is cut: one submit holds it all (decode)
    whole: bool,
    last_done: Option<Instant>,
    /// CPU time spent encoding and submitting
    pub encode: Duration,
    /// dispatches submitted
    pub n_dispatches: usize,
    /// device times of every submit, where they are wanted
    pub timestamps: Option<TimestampRing>,
    /// device times of every part that is marked, not only of the submit: each takes a pass of its own
    by_part: bool,
    /// commands are being recorded, since when
    recording_ns: Option<u64>,
    gpu_lane: EventLane,
    engine_lane: EventLane,
}

impl SubmitPacer {
    /// A pace with a first guess of the device's speed.
    pub fn new(gpu: &Gpu, hub: &Hub) -> SubmitPacer {
        SubmitPacer {
            recorder: Recorder::new(),
            in_flight: VecDeque::new(),
            flops_per_s: if gpu.is_software() { 6e9 } else { 2e12 },
            whole: false,
            last_done: None,
            encode: Duration::ZERO,
            n_dispatches: 0,
            timestamps: None,
            by_part: false,
            recording_ns: None,
            gpu_lane: hub.lane("gpu"),
            engine_lane: hub.lane(telemetry::ENGINE_LANE),
        }
    }

    /// With `whole`, work is submitted only by [`SubmitPacer::flush`].
    pub fn set_whole(&mut self, whole: bool) {
        self.whole = whole;
    }

    /// With `by_part`, every part that is marked has a device time of its own.
    pub fn set_by_part(&mut self, by_part: bool) {
        if !by_part {
            self.recorder.mark(KernelFamily::Other, telemetry::NO_LAYER);
        }
        self.by_part = by_part;
    }

    /// Says what is recorded from here on; `layer` may be [`telemetry::NO_LAYER`].
    pub fn mark(&mut self, family: KernelFamily, layer: u32) {
        self.recording_ns.get_or_insert_with(telemetry::now);
        if self.by_part {
            self.recorder.mark(family, layer);
        }
    }

    /// What follows is not recording, until the next mark.
    pub fn pause(&mut self) {
        let Some(began) = self.recording_ns.take() else { return };
        if telemetry::now() - began >= LEAST_ENCODE_NS {
            self.engine_lane.span(EventKind::Encode, began);
        }
    }

    /// Does what is not recording, in the middle of it.
    pub fn aside<R>(&mut self, work: impl FnOnce() -> R) -> R {
        self.pause();
        let result = work();
        self.recording_ns = Some(telemetry::now());
        result
    }

    /// The engine did this since `began`, and recorded nothing.
    pub fn did(&mut self, kind: EventKind, began: Instant) {
        self.engine_lane.span(kind, telemetry::ns_of(began));
    }

    /// Speed learned so far, floating-point operations per second.
    pub fn flops_per_s(&self) -> f64 {
        self.flops_per_s
    }

    /// Adds the cost of what was just recorded, and submits when it is enough.
    ///
    /// # Errors
    /// A lost device.
    pub fn add(&mut self, gpu: &Gpu, flops: f64) -> Result<(), GpuError> {
        self.recorder.add_cost(flops);
        if !self.whole && self.recorder.cost() / self.flops_per_s * 1e3 >= SUBMIT_TARGET_MILLIS {
            self.flush(gpu)?;
        }
        Ok(())
    }

    /// Submits what was recorded.
    ///
    /// # Errors
    /// A lost device.
    pub fn flush(&mut self, gpu: &Gpu) -> Result<Option<Submitted>, GpuError> {
        if self.recorder.is_empty() {
            return Ok(None);
        }
        self.recording_ns.get_or_insert_with(telemetry::now);
        let submitted = match &mut self.timestamps {
            Some(timestamps) => gpu.submit_traced(&mut self.recorder, timestamps)?,
            None => gpu.submit(&mut self.recorder)?,
        };
        self.pause();
        self.encode += submitted.encode;
        self.n_dispatches += submitted.n_dispatches;
        self.in_flight.push_back(submitted.clone());
        while self.in_flight.len() > MAX_IN_FLIGHT {
            self.wait_oldest(gpu)?;
        }
        self.recording_ns = Some(telemetry::now());
        Ok(Some(submitted))
    }

    /// Submits what was recorded, and gives what to wait for: the last submit, where that took everything with it.
    ///
    /// # Errors
    /// A lost device, or nothing that was ever submitted.
    pub fn submit(&mut self, gpu: &Gpu) -> Result<Submitted, GpuError> {
        let last = self.flush(gpu)?.or_else(|| self.in_flight.back().cloned());
        last.ok_or_else(|| GpuError::Lost("nothing was submitted".into()))
    }

    /// Waits for `submitted`, then hands the bytes of a readback buffer to `read`.
    ///
    /// # Errors
    /// A lost device, or a buffer that cannot be mapped.
    pub fn read_after<R>(
        &mut self,
        gpu: &Gpu,
        submitted: &Submitted,
        staging: &Buffer,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, GpuError> {
        self.pause();
        let began = telemetry::now();
        let result = gpu.read_after(submitted, staging, read);
        self.engine_lane.span(EventKind::Wait { cause: WaitCause::Readback }, began);
        result
    }

    /// Submits what was recorded and waits for everything.
    ///
    /// # Errors
    /// A lost device.
    pub fn finish(&mut self, gpu: &Gpu) -> Result<(), GpuError> {
        self.flush(gpu)?;
        self.pause();
        while !self.in_flight.is_empty() {
            self.wait_oldest(gpu)?;
        }
        Ok(())
    }

    /// Records the device times that are known by now.
    pub fn collect(&mut self, gpu: &Gpu) {
        if let Some(timestamps) = &mut self.timestamps {
            timestamps.collect(gpu, |span| self.gpu_lane.record(span.event()));
        }
    }

    /// Drops what was recorded and forgets what is in flight (after a lost device).
    pub fn reset(&mut self) {
        self.recorder = Recorder::new();
        self.in_flight.clear();
        self.last_done = None;
        self.recording_ns = None;
    }

    fn wait_oldest(&mut self, gpu: &Gpu) -> Result<(), GpuError> {
        let Some(oldest) = self.in_flight.pop_front() else { return Ok(()) };
        let began = telemetry::now();
        gpu.wait(&oldest)?;
        self.engine_lane.span(EventKind::Wait { cause: WaitCause::Gpu }, began);
        let done = Instant::now();
        // It ran from when it was submitted or, if something ran before it, from when that was done.
        let began = self.last_done.map_or(oldest.at, |d| d.max(oldest.at));
        let secs = done.duration_since(began).as_secs_f64();
        self.last_done = Some(done);
        if secs > 1e-4 && oldest.cost > 0.0 {
            let seen = oldest.cost / secs;
            self.flops_per_s = 0.7 * self.flops_per_s + 0.3 * seen;
        }
        Ok(())
    }
}
