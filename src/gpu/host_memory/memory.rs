//! A buffer of cached RAM that the device reads, mapped for as long as it lives.

use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use ash::vk;

use super::raw_buffer::{Flush, RawBuffer};
use crate::gpu::device::Gpu;
use crate::gpu::parallel_copy;

/// Host memory with a buffer over it.
pub(in crate::gpu) struct HostMemory {
    mapped: Mutex<Mapped>,
    size: u64,
    handle: vk::Buffer,
    /// keeps the memory alive
    buffer: wgpu::Buffer,
}

struct Mapped {
    start: NonNull<u8>,
    flush: Option<Flush>,
}

// SAFETY: the memory belongs to the buffer of the same `HostMemory`, not to a thread.
unsafe impl Send for Mapped {}

impl HostMemory {
    /// Allocates `size` bytes of zeros, for the queues of all `families`.
    ///
    /// # Errors
    /// Not Vulkan, no such memory, or no more of it.
    pub fn new(gpu: &Gpu, what: &str, size: u64, families: &[u32]) -> Result<HostMemory, String> {
        let raw = RawBuffer::new(gpu, size, vk::BufferUsageFlags::TRANSFER_SRC, families, rank)?;
        let mut mapped = Mapped { start: raw.map()?, flush: raw.flush() };
        mapped.flush()?;
        let handle = raw.handle();
        let buffer = raw.import(gpu, what, size, wgpu::BufferUsages::COPY_SRC)?;
        Ok(HostMemory { mapped: Mutex::new(mapped), size, handle, buffer })
    }

    /// The buffer, a source of copies.
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// Its Vulkan handle.
    pub(super) fn handle(&self) -> vk::Buffer {
        self.handle
    }

    /// Writes `bytes` at `offset`. No submitted copy may still read them.
    ///
    /// # Errors
    /// The range is outside the buffer, or the driver refuses to flush it.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), String> {
        self.access(offset, bytes.len(), |target| parallel_copy::copy(bytes, target))
    }

    /// Same for `rows` of `row_bytes` each, one after the other.
    ///
    /// # Errors
    /// As above, or a row of another length.
    pub fn write_rows(&self, offset: u64, rows: &[&[u8]], row_bytes: usize) -> Result<(), String> {
        if row_bytes == 0 || rows.iter().any(|row| row.len() != row_bytes) {
            return Err(format!("rows that do not have {row_bytes} bytes"));
        }
        self.access(offset, rows.len() * row_bytes, |target| parallel_copy::copy_rows(rows, row_bytes, target))
    }

    fn access(&self, offset: u64, n_bytes: usize, write: impl FnOnce(&mut [u8])) -> Result<(), String> {
        let end = offset.checked_add(n_bytes as u64).filter(|end| *end <= self.size);
        end.ok_or_else(|| format!("{n_bytes} bytes at {offset} of {}", self.size))?;
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the range is within the mapped memory, which was filled when it was mapped and lives as long as `buffer`.
        // The lock makes this the only reference to it.
        write(unsafe { std::slice::from_raw_parts_mut(mapped.start.as_ptr().add(offset as usize), n_bytes) });
        mapped.flush()
    }
}

impl Mapped {
    fn flush(&mut self) -> Result<(), String> {
        self.flush.as_ref().map_or(Ok(()), Flush::flush)
    }
}

/// Rank of a type of memory: cached RAM, coherent if possible. Memory of the device itself is taken only if there is no
/// other, as on devices that share the RAM.
fn rank(flags: vk::MemoryPropertyFlags) -> Option<u32> {
    use vk::MemoryPropertyFlags as Flags;
    let is_cached = flags.contains(Flags::HOST_VISIBLE | Flags::HOST_CACHED);
    let is_own = u32::from(flags.contains(Flags::DEVICE_LOCAL));
    is_cached.then_some(2 * is_own + u32::from(!flags.contains(Flags::HOST_COHERENT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_uploads_is_cached_ram_and_coherent_if_possible() {
        use vk::MemoryPropertyFlags as Flags;
        let (visible, coherent, cached) = (Flags::HOST_VISIBLE, Flags::HOST_COHERENT, Flags::HOST_CACHED);
        let best = |types: &[Flags]| (0..types.len()).filter_map(|i| Some((rank(types[i])?, i))).min().map(|(_, i)| i);
        let nvidia = [Flags::empty(), Flags::DEVICE_LOCAL, visible | coherent, visible | coherent | cached];
        let bar = Flags::DEVICE_LOCAL | visible | coherent;
        assert_eq!(best(&[&nvidia[..], &[bar]].concat()), Some(3));
        let amd = [Flags::DEVICE_LOCAL, visible | coherent, bar, visible | coherent | cached];
        assert_eq!(best(&amd), Some(3));
        let mali = [bar, Flags::DEVICE_LOCAL | visible | cached, Flags::DEVICE_LOCAL | visible | coherent | cached];
        assert_eq!(best(&mali), Some(2));
        assert_eq!(best(&mali[..2]), Some(1), "flushed if it is not coherent");
        assert_eq!(best(&[Flags::DEVICE_LOCAL, bar, visible | coherent]), None);
    }
}
