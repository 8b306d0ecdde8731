//! Host-visible buffers that are kept and mapped again after every use: the ends of both directions of a transfer.
//!
//! ```text
//! upload:    mapped ─ write, on any thread ─► close ─► copied from by a submit ─► map again ─► mapped
//! readback:  copied into by a submit ─► map ─► mapped ─ read, on any thread ─► close ─► copied into again
//! ```
//! 1. Whoever holds a [`StagingBuffer`] that is mapped may touch its bytes, on any thread; recording copies and mapping is for
//!    the owner of the device. 2. A mapping is reported from within a wait or a [`Gpu::poll`], once the device is done
//!    with the buffer.
//!
//! The memory of an upload buffer may be the device's own where the CPU can reach that (resizable BAR), so it counts as
//! VRAM; that of a readback buffer is the machine's.

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
    /// Number of bytes.
    pub fn size(&self) -> u64 {
        self.buffer.size()
    }

    /// A part of it, to copy from or to while it is not mapped.
    pub fn slice(&self, offset: u64, size: u64) -> Slice {
        self.buffer.slice(offset, size)
    }

    /// Writes to a mapped upload buffer.
    ///
    /// # Errors
    /// Where it is not mapped or the range is not in it.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        let range = offset..offset + bytes.len() as u64;
        let mut view = self.buffer.raw.slice(range).get_mapped_range_mut().map_err(not_mapped)?;
        view.copy_from_slice(bytes);
        Ok(())
    }

    /// Reads from a mapped readback buffer.
    ///
    /// # Errors
    /// Where it is not mapped or the range is not in it.
    pub fn read<R>(&self, offset: u64, size: u64, read: impl FnOnce(&[u8]) -> R) -> Result<R, GpuError> {
        let view = self.buffer.raw.slice(offset..offset + size).get_mapped_range().map_err(not_mapped)?;
        Ok(read(&view))
    }

    /// Ends the mapping: the device may use it.
    pub fn close(&self) {
        self.buffer.raw.unmap();
    }

    /// Asks for a mapping as soon as everything that was submitted with it is done; `mapped` hears of it, with false where
    /// the device was lost.
    pub fn map(&self, mapped: impl FnOnce(bool) + Send + 'static) {
        self.buffer.raw.slice(..).map_async(self.mode, move |result| mapped(result.is_ok()));
    }
}

fn not_mapped(error: wgpu::MapRangeError) -> GpuError {
    GpuError::Rejected { what: "a transfer buffer".into(), reason: error.to_string() }
}

impl Gpu {
    /// An upload buffer, not mapped.
    ///
    /// # Errors
    /// Out of memory, or a lost device.
    pub fn upload_buffer(&self, size: u64) -> Result<StagingBuffer, GpuError> {
        let usage = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
        Ok(StagingBuffer { buffer: Buffer::create(self, "upload", size, usage)?, mode: wgpu::MapMode::Write })
    }

    /// A readback buffer, not mapped.
    ///
    /// # Errors
    /// Out of memory, or a lost device.
    pub fn host_readback_buffer(&self, size: u64) -> Result<StagingBuffer, GpuError> {
        Ok(StagingBuffer { buffer: self.readback_buffer("write-behind", size)?, mode: wgpu::MapMode::Read })
    }

    /// Lets finished mappings be reported, without waiting.
    ///
    /// # Errors
    /// A lost device.
    pub fn poll(&self) -> Result<(), GpuError> {
        // What a poll can fail with is that time ran out, and this one does not wait.
        let _ = self.device.poll(wgpu::PollType::Poll);
        self.check()
    }
}
