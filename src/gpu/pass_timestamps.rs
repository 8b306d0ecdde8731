//! Pass timestamps: the query set of one submit, with the begin and end of each of its passes.

use super::buffer::Buffer;
use super::device::Gpu;
use super::error::GpuError;
use super::mark::Mark;

/// Begin and end, u64 each.
const BYTES_PER_PASS: u64 = 16;

/// Timestamps of one submit: the query set and the marks of its passes.
pub(super) struct PassTimestamps {
    query_set: wgpu::QuerySet,
    resolved: Buffer,
    pub staging: Buffer,
    pub max_passes: usize,
    passes: Vec<Pass>,
    n_untimed: u64,
}

/// A timed pass.
pub(super) struct Pass {
    pub mark: Mark,
    /// a copy ran before it, without timestamps of its own
    pub after_copy: bool,
}

impl PassTimestamps {
    pub fn new(gpu: &Gpu, max_passes: usize) -> Result<PassTimestamps, GpuError> {
        let size = max_passes as u64 * BYTES_PER_PASS;
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        let resolved = gpu.create_buffer("stamps", size, usage)?;
        let staging = gpu.readback_buffer("stamps", size)?;
        let query_set = gpu.device.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("stamps"),
            ty: wgpu::QueryType::Timestamp,
            count: 2 * max_passes as u32,
        });
        Ok(PassTimestamps { query_set, resolved, staging, max_passes, passes: Vec::with_capacity(max_passes), n_untimed: 0 })
    }

    /// Timestamp queries of the next pass. None if all are used.
    pub fn next_pass(&mut self, mark: Mark, after_copy: bool) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        if self.passes.len() == self.max_passes {
            self.n_untimed += 1;
            return None;
        }
        let query = 2 * self.passes.len() as u32;
        self.passes.push(Pass { mark, after_copy });
        Some(wgpu::ComputePassTimestampWrites {
            query_set: &self.query_set,
            beginning_of_pass_write_index: Some(query),
            end_of_pass_write_index: Some(query + 1),
        })
    }

    /// Copies the times of all passes to the staging buffer.
    pub fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        let n_passes = self.passes.len();
        if n_passes > 0 {
            encoder.resolve_query_set(&self.query_set, 0..2 * n_passes as u32, &self.resolved.raw, 0);
            encoder.copy_buffer_to_buffer(&self.resolved.raw, 0, &self.staging.raw, 0, self.n_bytes());
        }
    }

    /// Timed passes, in order.
    pub fn passes(&self) -> &[Pass] {
        &self.passes
    }

    /// True if every pass was timed.
    pub fn is_complete(&self) -> bool {
        self.n_untimed == 0
    }

    /// Empties it for the next submit.
    pub fn clear(&mut self) {
        self.passes.clear();
        self.n_untimed = 0;
    }

    /// Bytes of the times of all passes.
    pub fn n_bytes(&self) -> u64 {
        self.passes.len() as u64 * BYTES_PER_PASS
    }
}

/// Raw begin and end ticks of each pass.
pub(super) fn ticks_of(bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    bytes.chunks_exact(BYTES_PER_PASS as usize).map(|pass| {
        let [begin, end] = bytemuck::pod_read_unaligned::<[u64; 2]>(pass);
        (begin, end)
    })
}
