//! Command recorder: a list of dispatches and copies that becomes one submit.
//!
//! ```text
//! dispatch, dispatch, copy, dispatch ─► compute pass │ copy │ compute pass ─► submit ─► Submitted
//! ```
//! 1. Operations run in recorded order; wgpu inserts the barriers.
//! 2. After a submit the recorder is empty again; its mark remains.
//! 3. Marks split passes only in a traced submit; otherwise they cost only a store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::buffer::{Buffer, Slice};
use super::device::Gpu;
use super::error::GpuError;
use super::kernel::{Binding, Kernel};
use super::mark::Mark;
use super::pass_timestamps::{PassTimestamps, ticks_of};
use super::pipeline::{MAX_PARAMS_BYTES, PARAMS_RING_SLOTS, PARAMS_STRIDE_BYTES};
use crate::telemetry::{KernelFamily, NO_LAYER};

enum Op {
    Dispatch {
        kernel: Arc<Kernel>,
        binding: Binding,
        params: [u8; MAX_PARAMS_BYTES as usize],
        n_params: usize,
        grid: [u32; 3],
        mark: Mark,
    },
    Copy {
        from: Slice,
        to: Slice,
    },
}

/// Commands that will be submitted together.
#[derive(Default)]
pub struct Recorder {
    ops: Vec<Op>,
    mark: Mark,
    n_dispatches: usize,
    cost: f64,
}

/// A completed submit call.
#[derive(Clone)]
pub struct Submitted {
    index: wgpu::SubmissionIndex,
    /// time of the submit
    pub at: Instant,
    /// estimated cost of the recorder, in the unit of the caller
    pub cost: f64,
    /// number of dispatches
    pub n_dispatches: usize,
    /// CPU time for encoding, and for the submit unless a software device computes inside it
    pub encode: Duration,
}

impl Recorder {
    /// An empty recorder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one dispatch of `grid` workgroups. `params` is the parameter struct of the kernel (repr(C), at most 64
    /// bytes).
    pub fn dispatch(&mut self, kernel: &Arc<Kernel>, binding: &Binding, params: &impl bytemuck::NoUninit, grid: [u32; 3]) {
        let bytes = bytemuck::bytes_of(params);
        debug_assert!(bytes.len() <= MAX_PARAMS_BYTES as usize && bytes.len().is_multiple_of(4));
        let mut padded = [0u8; MAX_PARAMS_BYTES as usize];
        padded[..bytes.len()].copy_from_slice(bytes);
        if grid.contains(&0) {
            return;
        }
        self.n_dispatches += 1;
        self.ops.push(Op::Dispatch {
            kernel: kernel.clone(),
            binding: binding.clone(),
            params: padded,
            n_params: bytes.len(),
            grid,
            mark: self.mark,
        });
    }

    /// Labels the following dispatches; `layer` may be [`NO_LAYER`].
    pub fn mark(&mut self, family: KernelFamily, layer: u32) {
        self.mark = Mark { family, layer };
    }

    /// Common label of all dispatches.
    pub(super) fn common_mark(&self) -> Mark {
        let mut marks = self.ops.iter().filter_map(|op| match op {
            Op::Dispatch { mark, .. } => Some(*mark),
            Op::Copy { .. } => None,
        });
        let Some(first) = marks.next() else { return Mark { family: KernelFamily::Copy, ..Mark::default() } };
        marks.fold(first, |common, mark| Mark {
            family: if mark.family == common.family { common.family } else { KernelFamily::Other },
            layer: if mark.layer == common.layer { common.layer } else { NO_LAYER },
        })
    }

    /// Adds a copy of `from.size` bytes.
    pub fn copy(&mut self, from: &Slice, to: &Slice) {
        self.ops.push(Op::Copy { from: from.clone(), to: to.clone() });
    }

    /// Adds to the estimated cost of this submit, in the unit of the caller.
    pub fn add_cost(&mut self, cost: f64) {
        self.cost += cost;
    }

    /// Estimated cost so far.
    pub fn cost(&self) -> f64 {
        self.cost
    }

    /// Number of dispatches so far.
    pub fn n_dispatches(&self) -> usize {
        self.n_dispatches
    }

    /// True if nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

impl Gpu {
    /// Encodes and submits the commands of `recorder`, which is then empty.
    ///
    /// # Errors
    /// A lost device, or a rejected command.
    pub fn submit(&self, recorder: &mut Recorder) -> Result<Submitted, GpuError> {
        self.submit_with_timestamps(recorder, None)
    }

    /// Submits, waits, and returns the seconds that the dispatches took: by the GPU clock if it has one, otherwise by
    /// the CPU clock (including submit and wait).
    ///
    /// # Errors
    /// A lost device, or a rejected command.
    pub fn time(&self, recorder: &mut Recorder) -> Result<f64, GpuError> {
        // With copies in between there is more than one pass to time.
        let one_pass = recorder.n_dispatches > 0 && recorder.n_dispatches == recorder.ops.len();
        if !self.has_timestamps() || !one_pass {
            let submitted = self.submit(recorder)?;
            return Ok(self.wait(&submitted)?.as_secs_f64());
        }
        let mut timestamps = PassTimestamps::new(self, 1)?;
        let submitted = self.submit_with_timestamps(recorder, Some(&mut timestamps))?;
        let index = submitted.index.clone();
        let ticks =
            self.read_mapped(&timestamps.staging, index, |bytes| ticks_of(bytes).map(|(b, e)| e.saturating_sub(b)).sum())?;
        match ticks {
            // A clock that reports zero time is not usable.
            0u64 => Ok(submitted.at.elapsed().as_secs_f64()),
            ticks => Ok(ticks as f64 * f64::from(self.queue.get_timestamp_period()) * 1e-9),
        }
    }

    /// Records the GPU time at the begin and end of each pass in `timestamps`. Marks split the work into passes if
    /// `timestamps` has room for more than one.
    pub(super) fn submit_with_timestamps(
        &self,
        recorder: &mut Recorder,
        mut timestamps: Option<&mut PassTimestamps>,
    ) -> Result<Submitted, GpuError> {
        self.check()?;
        let started = Instant::now();
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("strata") });
        let ring = if self.has_immediates() { None } else { Some(self.params_ring()?) };
        if let Some(ring) = &ring {
            self.write_params(&ring.buffer, &recorder.ops)?;
        }
        let mut slot = 0u32;
        let splits_passes = timestamps.as_ref().is_some_and(|s| s.max_passes > 1);
        let mut after_copy = false;
        let mut ops = recorder.ops.drain(..).peekable();
        while let Some(op) = ops.peek() {
            let mark = match op {
                Op::Copy { from, to } => {
                    encoder.copy_buffer_to_buffer(&from.buffer.raw, from.offset, &to.buffer.raw, to.offset, from.size);
                    after_copy = true;
                    ops.next();
                    continue;
                }
                Op::Dispatch { mark, .. } => *mark,
            };
            let timestamp_writes = timestamps.as_mut().and_then(|s| s.next_pass(mark, std::mem::take(&mut after_copy)));
            let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
            let mut pass = encoder.begin_compute_pass(&descriptor);
            let is_same_pass = |op: &Op| matches!(op, Op::Dispatch { mark: own, .. } if !splits_passes || *own == mark);
            while let Some(Op::Dispatch { kernel, binding, params, n_params, grid, .. }) = ops.next_if(is_same_pass) {
                pass.set_pipeline(&kernel.pipeline);
                pass.set_bind_group(0, &*binding.0, &[]);
                match &ring {
                    _ if !kernel.has_params => {}
                    Some(ring) => pass.set_bind_group(1, &ring.group, &[slot * PARAMS_STRIDE_BYTES as u32]),
                    None => pass.set_immediates(0, &params[..n_params]),
                }
                slot += 1;
                pass.dispatch_workgroups(grid[0], grid[1], grid[2]);
            }
        }
        drop(ops);
        if let Some(timestamps) = timestamps {
            timestamps.resolve(&mut encoder);
        }
        let commands = encoder.finish();
        // A software device computes inside the submit, so only the submit of a real GPU counts as encoding.
        let encoded = started.elapsed();
        let index = self.queue.submit([commands]);
        let submitted = Submitted {
            index,
            at: started,
            cost: std::mem::take(&mut recorder.cost),
            n_dispatches: std::mem::take(&mut recorder.n_dispatches),
            encode: if self.is_software() { encoded } else { started.elapsed() },
        };
        self.check()?;
        Ok(submitted)
    }

    fn write_params(&self, target: &Buffer, ops: &[Op]) -> Result<(), GpuError> {
        let dispatches = ops.iter().filter_map(|op| match op {
            Op::Dispatch { params, .. } => Some(params),
            Op::Copy { .. } => None,
        });
        let mut bytes = Vec::new();
        for params in dispatches {
            bytes.extend_from_slice(params);
            bytes.resize(bytes.len().next_multiple_of(PARAMS_STRIDE_BYTES as usize), 0);
        }
        if bytes.len() as u64 > PARAMS_STRIDE_BYTES * PARAMS_RING_SLOTS {
            let reason = format!("more than {PARAMS_RING_SLOTS} dispatches in one submit");
            return Err(GpuError::Rejected { what: "a submit".into(), reason });
        }
        if !bytes.is_empty() {
            self.queue.write_buffer(&target.raw, 0, &bytes);
        }
        Ok(())
    }

    /// Blocks until `submitted` is done. Returns the time since the submit.
    ///
    /// # Errors
    /// A lost device, or a rejected command.
    pub fn wait(&self, submitted: &Submitted) -> Result<Duration, GpuError> {
        self.wait_for(submitted.index.clone())?;
        Ok(submitted.at.elapsed())
    }

    /// A buffer that recorders can copy into and [`Gpu::read_after`] can read.
    ///
    /// # Errors
    /// Out of memory, or a lost device.
    pub fn readback_buffer(&self, what: &str, size: u64) -> Result<Buffer, GpuError> {
        self.create_buffer(what, size, wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ)
    }

    /// Waits for `submitted`, then passes the bytes of a readback buffer to `read`.
    ///
    /// # Errors
    /// A lost device, or a buffer that cannot be mapped.
    pub fn read_after<R>(&self, submitted: &Submitted, staging: &Buffer, read: impl FnOnce(&[u8]) -> R) -> Result<R, GpuError> {
        self.read_mapped(staging, submitted.index.clone(), read)
    }
}
