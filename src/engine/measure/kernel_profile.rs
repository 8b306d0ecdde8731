//! Kernel profile of a benchmark: device times by kernel family over a few more tokens, and the work of those steps.
//!
//! Each marked part takes a compute pass of its own, which costs time: the timed repetitions run without.

use std::time::Instant;

use crate::engine::api::{FamilyWork, KernelProfile};
use crate::engine::runner::ModelRunner;
use crate::gpu::{Gpu, GpuError, TimestampRing};
use crate::telemetry::KernelFamily;

/// Times of passes by family, while a benchmark is profiled.
pub(super) struct Profiler {
    /// the ring of the pacer before
    outer: Option<TimestampRing>,
    ns: [u64; KernelFamily::ALL.len()],
    work: FamilyWork,
    is_estimated: bool,
    began: Instant,
}

impl Profiler {
    /// Begins to time every part. None if the device has no timestamps.
    pub(super) fn begin(gpu: &Gpu, runner: &mut ModelRunner) -> Result<Option<Profiler>, GpuError> {
        let ring = TimestampRing::new(gpu)?;
        if ring.clock_error_ns().is_none() {
            return Ok(None);
        }
        runner.pacer.finish(gpu)?;
        runner.pacer.collect(gpu);
        let outer = runner.pacer.timestamps.replace(ring);
        runner.pacer.set_by_part(true);
        let (ns, work) = ([0; KernelFamily::ALL.len()], FamilyWork::default());
        Ok(Some(Profiler { outer, ns, work, is_estimated: false, began: Instant::now() }))
    }

    /// Adds the work of a step, and the times of the passes that are done.
    pub(super) fn add(&mut self, gpu: &Gpu, runner: &mut ModelRunner, work: &FamilyWork) {
        self.work.add(work);
        self.collect(gpu, runner);
    }

    fn collect(&mut self, gpu: &Gpu, runner: &mut ModelRunner) {
        if let Some(ring) = &mut runner.pacer.timestamps {
            ring.collect(gpu, |span| {
                self.ns[span.family as usize] += span.end_ns - span.begin_ns;
                self.is_estimated |= span.estimated && span.family != KernelFamily::Copy;
            });
        }
    }

    /// The profile of the steps since the begin, of `n_tokens` in all. None if some parts were not timed.
    pub(super) fn end(
        mut self,
        gpu: &Gpu,
        runner: &mut ModelRunner,
        (is_prefill, n_tokens): (bool, usize),
    ) -> Result<Option<KernelProfile>, GpuError> {
        runner.pacer.finish(gpu)?;
        let wall_ns = self.began.elapsed().as_nanos() as u64;
        self.collect(gpu, runner);
        let ring = std::mem::replace(&mut runner.pacer.timestamps, self.outer.take());
        runner.pacer.set_by_part(false);
        if self.is_estimated || ring.is_none_or(|ring| ring.n_dropped() > 0) {
            return Ok(None);
        }
        let times: Vec<(KernelFamily, u64)> = KernelFamily::ALL.into_iter().zip(self.ns).collect();
        Ok(Some(KernelProfile::new(&runner.work_shape(), is_prefill, (wall_ns, n_tokens), &times, &self.work)))
    }
}
