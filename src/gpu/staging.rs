//! Staging buffers: host-visible buffers for uploads and readbacks, remapped after every use.
//!
//! ```text
//! upload:    mapped ─ write, on any thread ─► close ─► source of a submitted copy ─► map again ─► mapped
//! readback:  destination of a submitted copy ─► map ─► mapped ─ read, on any thread ─► close ─► copied into again
//! ```
//! 1. The holder of a mapped [`StagingBuffer`] may access its bytes, on any thread. Only the owner of the device
//!    records copies and maps buffers.
//! 2. A mapping is reported from a wait or a [`Gpu::poll`], once the device has finished with the buffer.
//!
//! An upload buffer may be in VRAM if the CPU can access that (resizable BAR), so it counts as VRAM. A readback buffer
//! is in RAM.

use super::buffer::{Buffer, Slice};
use super::device::Gpu;
use super::error::GpuError;

/// A buffer that the CPU can map, for one direction.
#[derive(Clone)]
pub struct StagingBuffer {
    buffer: Buffer,
    mode: wgpu::MapMode,
}

impl StagingBuffer {
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.buffer.size()
    }

    /// A range of it, to copy from or to while it is not mapped.
    pub fn slice(&self, offset: u64, size: u64) -> Slice {
        self.buffer.slice(offset, size)
    }

    /// Writes to a mapped upload buffer.
    ///
    /// # Errors
    /// The buffer is not mapped, or the range is outside it.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        let range = offset..offset + bytes.len() as u64;
        let mut view = self.buffer.raw.slice(range).get_mapped_range_mut().map_err(not_mapped)?;
        view.copy_from_slice(bytes);
        Ok(())
    }

    /// Reads from a mapped readback buffer.
    ///
    /// # Errors
    /// The buffer is not mapped, or the range is outside it.
    pub fn read<R>(&self, offset: u64, size: u64, read: impl FnOnce(&[u8]) -> R) -> Result<R, GpuError> {
        let view = self.buffer.raw.slice(offset..offset + size).get_mapped_range().map_err(not_mapped)?;
        Ok(read(&view))
    }

    /// Unmaps the buffer, so that the GPU may use it.
    pub fn close(&self) {
        self.buffer.raw.unmap();
    }

    /// Maps the buffer once all submitted work with it is done. Then calls `mapped`, with false if the device was lost.
    pub fn map(&self, mapped: impl FnOnce(bool) + Send + 'static) {
        self.buffer.raw.slice(..).map_async(self.mode, move |result| mapped(result.is_ok()));
    }
}

fn not_mapped(error: wgpu::MapRangeError) -> GpuError {
    GpuError::Rejected { what: "a transfer buffer".into(), reason: error.to_string() }
}

impl Gpu {
    /// An unmapped upload buffer.
    ///
    /// # Errors
    /// Out of memory, or a lost device.
    pub fn upload_buffer(&self, size: u64) -> Result<StagingBuffer, GpuError> {
        let usage = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
        Ok(StagingBuffer { buffer: self.create_buffer("upload", size, usage)?, mode: wgpu::MapMode::Write })
    }

    /// An unmapped readback buffer.
    ///
    /// # Errors
    /// Out of memory, or a lost device.
    pub fn host_readback_buffer(&self, size: u64) -> Result<StagingBuffer, GpuError> {
        Ok(StagingBuffer { buffer: self.readback_buffer("write-behind", size)?, mode: wgpu::MapMode::Read })
    }

    /// Reports completed mappings, without waiting.
    ///
    /// # Errors
    /// A lost device.
    pub fn poll(&self) -> Result<(), GpuError> {
        // A poll fails only by timeout, and this one does not wait.
        let _ = self.device.poll(wgpu::PollType::Poll);
        self.check()
    }
}
