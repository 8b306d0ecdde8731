//! Memory of the device: allocates buffers, uploads to them, and reads them back.

use super::buffer::{Buffer, Slice};
use super::device::Gpu;
use super::error::GpuError;
use crate::base::Bytes;

/// Maximum size of one upload piece, bytes; it bounds the staging memory.
const UPLOAD_PIECE_BYTES: usize = 16 << 20;

impl Gpu {
    /// Creates a buffer inside an error scope.
    pub(super) fn create_buffer(&self, what: &str, size: u64, usage: wgpu::BufferUsages) -> Result<Buffer, GpuError> {
        self.check()?;
        let size = size.max(16).next_multiple_of(16);
        let failed = || GpuError::OutOfMemory { what: what.to_owned(), size: Bytes(size) };
        if size > self.limits().max_buffer_size {
            return Err(failed());
        }
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let raw =
            self.device.create_buffer(&wgpu::BufferDescriptor { label: Some(what), size, usage, mapped_at_creation: false });
        let rejected = pollster::block_on(validation.pop());
        if pollster::block_on(memory.pop()).is_some() {
            return Err(failed());
        }
        if let Some(error) = rejected {
            self.check()?;
            return Err(GpuError::Rejected { what: what.to_owned(), reason: error.to_string() });
        }
        Ok(Buffer::counted(raw, size, self.allocated_bytes.clone()))
    }

    /// Creates a zeroed buffer for kernels (storage, copy source and destination).
    ///
    /// # Errors
    /// Out of memory, with the size; or a lost device.
    pub fn buffer(&self, what: &str, size: u64) -> Result<Buffer, GpuError> {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
        self.create_buffer(what, size, usage)
    }

    /// Writes `bytes` to `target` before the next submit. For small data; [`Gpu::upload`] is for large data.
    pub fn write(&self, target: &Slice, bytes: &[u8]) {
        self.queue.write_buffer(&target.buffer.raw, target.offset, bytes);
    }

    /// Copies `bytes` to `target` through bounded staging memory and submits. Large data is uploaded in pieces.
    ///
    /// # Errors
    /// A lost device, or no staging memory.
    pub fn upload(&self, target: &Slice, bytes: &[u8]) -> Result<(), GpuError> {
        for (i, piece) in bytes.chunks(UPLOAD_PIECE_BYTES).enumerate() {
            self.check()?;
            let offset = target.offset + (i * UPLOAD_PIECE_BYTES) as u64;
            self.queue.write_buffer(&target.buffer.raw, offset, piece);
            let submitted = self.queue.submit([]);
            if bytes.len() > UPLOAD_PIECE_BYTES {
                self.wait_for(submitted)?;
            }
        }
        self.check()
    }

    /// Reads `source` back. Waits for all earlier work.
    ///
    /// # Errors
    /// A lost device, or a buffer that cannot be mapped.
    pub fn download(&self, source: &Slice) -> Result<Vec<u8>, GpuError> {
        let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ;
        let staging = self.create_buffer("readback", source.size, usage)?;
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("readback") });
        encoder.copy_buffer_to_buffer(&source.buffer.raw, source.offset, &staging.raw, 0, source.size.next_multiple_of(4));
        let submitted = self.queue.submit([encoder.finish()]);
        self.read_mapped(&staging, submitted, |bytes| bytes[..source.size as usize].to_vec())
    }

    /// Maps a readback buffer after `submitted` completes, passes its bytes to `read`, and unmaps it.
    pub(super) fn read_mapped<R>(
        &self,
        staging: &Buffer,
        submitted: wgpu::SubmissionIndex,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, GpuError> {
        let (sender, receiver) = std::sync::mpsc::channel();
        staging.raw.slice(..).map_async(wgpu::MapMode::Read, move |result| {
            // The receiver lives until the end of this function, so a send fails only after an early return.
            let _ = sender.send(result);
        });
        self.wait_for(submitted)?;
        let rejected = |reason: String| GpuError::Rejected { what: "a readback".into(), reason };
        match receiver.try_recv() {
            Ok(Ok(())) => {}
            Ok(Err(e)) => {
                self.check()?;
                return Err(rejected(e.to_string()));
            }
            Err(e) => {
                self.check()?;
                return Err(rejected(e.to_string()));
            }
        }
        let view = staging.raw.slice(..).get_mapped_range().map_err(|e| rejected(e.to_string()))?;
        let out = read(&view);
        drop(view);
        staging.raw.unmap();
        Ok(out)
    }

    /// Blocks until all submitted work is done.
    ///
    /// # Errors
    /// A lost device.
    pub fn wait_idle(&self) -> Result<(), GpuError> {
        let submitted = self.queue.submit([]);
        self.wait_for(submitted)
    }

    /// Blocks until `submitted` and all earlier work is done.
    pub(super) fn wait_for(&self, submitted: wgpu::SubmissionIndex) -> Result<(), GpuError> {
        let poll = self.device.poll(wgpu::PollType::Wait { submission_index: Some(submitted), timeout: None });
        self.check()?;
        match poll {
            Ok(_) => Ok(()),
            Err(e) => Err(GpuError::Rejected { what: "waiting for the device".into(), reason: e.to_string() }),
        }
    }
}
