//! Submit pacing: splits recorded work into submits of bounded duration, by the measured speed of the device.
//!
//! ```text
//! op, op, op ─► cost so far / measured rate > target? ─► submit ─► at most two in flight ─► wait ─► rate
//! ```
//! 1. A submit holds whole ops. 2. At most [`MAX_IN_FLIGHT`] submits are in flight, so stop takes effect within two.
//! 3. A decode step is one submit; on a real GPU its first layers are submitted early, and run while the rest is encoded.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::base::limits::SUBMIT_TARGET_MILLIS;
use crate::gpu::{Buffer, Gpu, GpuError, Recorder, Submitted, TimestampRing};
use crate::telemetry::{self, EventKind, EventLane, Hub, KernelFamily, WaitCause};

/// Maximum submits in flight: one running, one ready.
const MAX_IN_FLIGHT: usize = 2;
/// The same for the parts of decode steps.
const MAX_PARTS_IN_FLIGHT: usize = 16;
/// Minimum recording time for an event.
const LEAST_ENCODE_NS: u64 = 2_000;

/// Recorder that submits by cost.
pub struct SubmitPacer {
    /// commands of the next submit
    pub recorder: Recorder,
    in_flight: VecDeque<Submitted>,
    /// submits so far
    n_submits: u64,
    /// measured prefill speed, floating-point operations per second
    flops_per_s: f64,
    /// true before the first measurement on a real GPU
    is_unknown: bool,
    /// no splitting: one submit for all (decode)
    whole: bool,
    last_done: Option<Instant>,
    /// CPU time spent encoding and submitting
    pub encode: Duration,
    /// dispatches submitted
    pub n_dispatches: usize,
    /// device times of every submit, if requested
    pub timestamps: Option<TimestampRing>,
    /// device times of every marked part, not only of the submit; each part takes its own compute pass
    by_part: bool,
    /// begin of the current recording, if any
    recording_ns: Option<u64>,
    gpu_lane: EventLane,
    engine_lane: EventLane,
}

impl SubmitPacer {
    /// A pacer with an initial estimate of the device speed.
    pub fn new(gpu: &Gpu, hub: &Hub) -> SubmitPacer {
        SubmitPacer {
            recorder: Recorder::new(),
            in_flight: VecDeque::new(),
            n_submits: 0,
            flops_per_s: if gpu.is_software() { 6e9 } else { 2e12 },
            is_unknown: !gpu.is_software(),
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

    /// If `whole`, only [`SubmitPacer::flush`] submits.
    pub fn set_whole(&mut self, whole: bool) {
        self.whole = whole;
    }

    /// If `by_part`, every marked part gets its own device time.
    pub fn set_by_part(&mut self, by_part: bool) {
        if !by_part {
            self.recorder.mark(KernelFamily::Other, telemetry::NO_LAYER);
        }
        self.by_part = by_part;
    }

    /// Marks the family and layer of the following commands. `layer` may be [`telemetry::NO_LAYER`].
    pub fn mark(&mut self, family: KernelFamily, layer: u32) {
        self.recording_ns.get_or_insert_with(telemetry::now);
        if self.by_part {
            self.recorder.mark(family, layer);
        }
    }

    /// Ends the recording span, until the next mark.
    pub fn pause(&mut self) {
        let Some(began) = self.recording_ns.take() else { return };
        if telemetry::now() - began >= LEAST_ENCODE_NS {
            self.engine_lane.span(EventKind::Encode, began);
        }
    }

    /// Runs `work` outside the recording span.
    pub fn aside<R>(&mut self, work: impl FnOnce() -> R) -> R {
        self.pause();
        let result = work();
        self.recording_ns = Some(telemetry::now());
        result
    }

    /// Records a span of the engine thread since `began`.
    pub fn did(&mut self, kind: EventKind, began: Instant) {
        self.engine_lane.span(kind, telemetry::ns_of(began));
    }

    /// Measured speed, floating-point operations per second. Infinite before the first measurement on a real GPU: a first guess
    /// that is too low would cost more than a first submit that takes longer.
    pub fn flops_per_s(&self) -> f64 {
        if self.is_unknown { f64::INFINITY } else { self.flops_per_s }
    }

    /// Adds the cost of the commands just recorded, and submits if the target is reached.
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

    /// Submits the first layers of a decode step, after 1, 2, 4, ... of them: the GPU takes longer for a layer than the CPU for
    /// its encoding, so it need not wait for the CPU again.
    ///
    /// # Errors
    /// A lost device.
    pub fn layer_recorded(&mut self, gpu: &Gpu, n_layers: usize) -> Result<(), GpuError> {
        if self.whole && n_layers.is_power_of_two() && !gpu.uses_software_kernels() {
            self.flush(gpu)?;
        }
        Ok(())
    }

    /// Submits the recorded commands. None if there are none.
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
        self.n_submits += 1;
        while self.in_flight.len() > if self.whole { MAX_PARTS_IN_FLIGHT } else { MAX_IN_FLIGHT } {
            self.wait_oldest(gpu)?;
        }
        self.recording_ns = Some(telemetry::now());
        Ok(Some(submitted))
    }

    /// Submits the recorded commands. Returns the submit to wait for: the last one, if nothing was recorded since.
    ///
    /// # Errors
    /// A lost device, or no submit to wait for.
    pub fn submit(&mut self, gpu: &Gpu) -> Result<Submitted, GpuError> {
        let last = self.flush(gpu)?.or_else(|| self.in_flight.back().cloned());
        last.ok_or_else(|| GpuError::Lost("nothing was submitted".into()))
    }

    /// Waits for `submitted`, then passes the bytes of a readback buffer to `read`.
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

    /// Submits the recorded commands and waits for all submits.
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

    /// Number of submits so far.
    pub fn n_submits(&self) -> u64 {
        self.n_submits
    }

    /// Waits for the first `n_submits` submits. Later ones may run on.
    ///
    /// # Errors
    /// A lost device.
    pub fn wait_for(&mut self, gpu: &Gpu, n_submits: u64) -> Result<(), GpuError> {
        self.pause();
        while !self.in_flight.is_empty() && self.n_submits - (self.in_flight.len() as u64) < n_submits {
            self.wait_oldest(gpu)?;
        }
        Ok(())
    }

    /// Records the device times available so far.
    pub fn collect(&mut self, gpu: &Gpu) {
        if let Some(timestamps) = &mut self.timestamps {
            timestamps.collect(gpu, |span| self.gpu_lane.record(span.event()));
        }
    }

    /// Drops recorded commands and submits in flight (after a lost device).
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
        // It ran from its submission or, if another submit ran before it, from the end of that one.
        let began = self.last_done.map_or(oldest.at, |d| d.max(oldest.at));
        let secs = done.duration_since(began).as_secs_f64();
        self.last_done = Some(done);
        // Decode steps are bound by memory, so they say nothing about the speed of prefill.
        if secs > 1e-4 && oldest.cost > 0.0 && !self.whole {
            self.is_unknown = false;
            let seen = oldest.cost / secs;
            self.flops_per_s = 0.7 * self.flops_per_s + 0.3 * seen;
        }
        Ok(())
    }
}
