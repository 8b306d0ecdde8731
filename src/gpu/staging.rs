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
//! An upload buffer is in host memory if the device reads that (see [`Gpu::host_memory`]): then it is always mapped, and
//! "mapped" means that no copy is pending. Otherwise wgpu maps it: it may be in VRAM if the CPU can access that (resizable
//! BAR), so it counts as VRAM. A readback buffer is in RAM.
//!
//! With a transfer queue of our own, host memory has a landing buffer in VRAM:
//! ```text
//! mapped ─ write ─► send, on the thread of the transfer queue ─► source of a submitted copy in VRAM ─► map ─► mapped
//! ```

use std::sync::Arc;

use super::buffer::{Buffer, Slice};
use super::device::{Gpu, Health};
use super::error::GpuError;
use super::host_memory::{HostMemory, HostSource, LandingBuffer, TransferQueue};
use super::parallel_copy;

/// A buffer that the CPU can map, for one direction.
#[derive(Clone)]
pub struct StagingBuffer {
    buffer: Buffer,
    access: Access,
}

/// How the CPU accesses the bytes.
#[derive(Clone)]
enum Access {
    /// wgpu maps the buffer
    Mapped(wgpu::MapMode),
    /// an upload buffer that is always mapped
    Host(HostAccess),
}

#[derive(Clone)]
struct HostAccess {
    memory: Arc<HostMemory>,
    /// in VRAM; then the source of copies is this
    landing: Option<Arc<LandingBuffer>>,
    /// counts the memory
    _counted: Buffer,
    queue: wgpu::Queue,
    health: Arc<Health>,
}

impl StagingBuffer {
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.buffer.size()
    }

    /// True if it is in host memory that the device reads.
    pub fn is_in_host_memory(&self) -> bool {
        matches!(self.access, Access::Host(_))
    }

    /// A range of it, to copy from or to while it is not mapped.
    pub fn slice(&self, offset: u64, size: u64) -> Slice {
        self.buffer.slice(offset, size)
    }

    /// Writes to a mapped upload buffer. Offsets are multiples of 8, lengths of 4.
    ///
    /// # Errors
    /// The buffer is not mapped, or the range is outside it.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.check_range(offset, bytes.len() as u64)?;
        match &self.access {
            Access::Host(host) => host.memory.write(offset, bytes).map_err(refused),
            // Mapped ranges that do not overlap may be written by several threads.
            Access::Mapped(_) => parallel_copy::write_parts(bytes, |at, part| self.write_mapped(offset + at as u64, part)),
        }
    }

    /// Same for `rows` of `row_bytes` each, one after the other.
    ///
    /// # Errors
    /// As above, or a row of another length.
    pub fn write_rows(&self, offset: u64, rows: &[&[u8]], row_bytes: usize) -> Result<(), GpuError> {
        self.check_range(offset, (rows.len() * row_bytes) as u64)?;
        match &self.access {
            Access::Host(host) => host.memory.write_rows(offset, rows, row_bytes).map_err(refused),
            Access::Mapped(_) => {
                parallel_copy::write_rows(rows, |i, row| self.write_mapped(offset + (i * row_bytes) as u64, row))
            }
        }
    }

    fn write_mapped(&self, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        let range = offset..offset + bytes.len() as u64;
        let mut view = self.buffer.raw.slice(range).get_mapped_range_mut().map_err(refused)?;
        view.copy_from_slice(bytes);
        Ok(())
    }

    /// Copies the first `n_bytes` to VRAM, if the buffer is sent by a transfer queue, and waits until they are there.
    ///
    /// # Errors
    /// A lost device, or more bytes than the buffer has.
    pub fn send(&self, queue: &mut TransferQueue, n_bytes: u64) -> Result<(), GpuError> {
        self.check_range(0, n_bytes)?;
        match &self.access {
            Access::Host(HostAccess { memory, landing: Some(landing), .. }) => queue.copy(memory, landing, n_bytes),
            _ => Ok(()),
        }
    }

    /// Copies `sources` to VRAM from where they are, one after the other, and waits until they are there. False, without a copy, if
    /// the device cannot; then they must be written and sent.
    ///
    /// # Errors
    /// As [`StagingBuffer::send`].
    pub fn send_from(&self, queue: &mut TransferQueue, sources: &[HostSource]) -> Result<bool, GpuError> {
        match &self.access {
            Access::Host(HostAccess { landing: Some(landing), .. }) => queue.copy_sources(sources, landing),
            _ => Ok(false),
        }
    }

    /// Reads from a mapped readback buffer.
    ///
    /// # Errors
    /// The buffer is not mapped, or the range is outside it.
    pub fn read<R>(&self, offset: u64, size: u64, read: impl FnOnce(&[u8]) -> R) -> Result<R, GpuError> {
        self.check_range(offset, size)?;
        let view = self.buffer.raw.slice(offset..offset + size).get_mapped_range().map_err(refused)?;
        Ok(read(&view))
    }

    fn check_range(&self, offset: u64, size: u64) -> Result<(), GpuError> {
        let end = offset.checked_add(size).filter(|end| *end <= self.size());
        end.map(drop).ok_or_else(|| refused(format!("{size} bytes at {offset} of {}", self.size())))
    }

    /// Unmaps the buffer, so that the GPU may use it.
    pub fn close(&self) {
        if let Access::Mapped(_) = self.access {
            self.buffer.raw.unmap();
        }
    }

    /// Maps the buffer once all submitted work with it is done. Then calls `mapped`, with false if the device was lost.
    pub fn map(&self, mapped: impl FnOnce(bool) + Send + 'static) {
        match &self.access {
            Access::Mapped(mode) => self.buffer.raw.slice(..).map_async(*mode, move |result| mapped(result.is_ok())),
            Access::Host(host) => {
                let health = host.health.clone();
                host.queue.on_submitted_work_done(move || mapped(!health.is_lost()));
            }
        }
    }
}

fn refused(error: impl ToString) -> GpuError {
    GpuError::Rejected { what: "a transfer buffer".into(), reason: error.to_string() }
}

impl Gpu {
    /// An unmapped upload buffer.
    ///
    /// # Errors
    /// Out of memory, or a lost device.
    pub fn upload_buffer(&self, size: u64) -> Result<StagingBuffer, GpuError> {
        self.check()?;
        if self.host_memory().is_ok()
            && let Ok(buffer) = self.host_upload_buffer(size)
        {
            return Ok(buffer);
        }
        let usage = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
        Ok(StagingBuffer { buffer: self.create_buffer("upload", size, usage)?, access: Access::Mapped(wgpu::MapMode::Write) })
    }

    fn host_upload_buffer(&self, size: u64) -> Result<StagingBuffer, String> {
        let (host, buffer) = self.host_access(size, &self.queue_families())?;
        Ok(StagingBuffer { buffer, access: Access::Host(host) })
    }

    /// An unmapped upload buffer for a transfer queue, see [`StagingBuffer::send`]. Without the memory for it, one that is
    /// not sent.
    ///
    /// # Errors
    /// Out of memory, or a lost device.
    pub fn sent_upload_buffer(&self, size: u64) -> Result<StagingBuffer, GpuError> {
        self.check()?;
        self.landing_upload_buffer(size, &self.queue_families()).or_else(|_| self.upload_buffer(size))
    }

    /// Same for queues of these families, or fails.
    pub(super) fn landing_upload_buffer(&self, size: u64, families: &[u32]) -> Result<StagingBuffer, String> {
        let (mut host, counted) = self.host_access(size, families)?;
        let landing = Arc::new(LandingBuffer::new(self, counted.size(), families)?);
        let buffer = Buffer::counted(landing.buffer().clone(), counted.size(), self.allocated_bytes.clone());
        host.landing = Some(landing);
        Ok(StagingBuffer { buffer, access: Access::Host(host) })
    }

    /// Host memory of at least `size` bytes, and its buffer.
    fn host_access(&self, size: u64, families: &[u32]) -> Result<(HostAccess, Buffer), String> {
        let size = size.max(16).next_multiple_of(16);
        if size > self.limits().max_buffer_size {
            return Err("it is larger than a buffer may be".to_owned());
        }
        let memory = Arc::new(HostMemory::new(self, "upload", size, families)?);
        let buffer = Buffer::counted(memory.buffer().clone(), size, self.host_bytes.clone());
        let (queue, health) = (self.queue.clone(), self.health.clone());
        Ok((HostAccess { memory, landing: None, _counted: buffer.clone(), queue, health }, buffer))
    }

    /// An unmapped readback buffer.
    ///
    /// # Errors
    /// Out of memory, or a lost device.
    pub fn host_readback_buffer(&self, size: u64) -> Result<StagingBuffer, GpuError> {
        let buffer = self.readback_buffer("write-behind", size)?;
        Ok(StagingBuffer { buffer, access: Access::Mapped(wgpu::MapMode::Read) })
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use super::*;
    use crate::gpu::testing::gpu_with;
    use crate::gpu::{FeatureOverrides, Recorder};

    const BYTES: u64 = 3 << 20;

    fn is_mapped(gpu: &Gpu, buffer: &StagingBuffer) -> bool {
        let (sender, receiver) = channel();
        buffer.map(move |mapped| sender.send(mapped).unwrap());
        loop {
            let polled = gpu.poll();
            match receiver.recv_timeout(Duration::from_millis(1)) {
                Ok(mapped) => return mapped,
                Err(RecvTimeoutError::Timeout) if polled.is_ok() => {}
                Err(_) => return false,
            }
        }
    }

    #[test]
    fn bytes_of_an_upload_buffer_of_either_kind_arrive_each_time() {
        let test = "bytes_of_an_upload_buffer_of_either_kind_arrive_each_time";
        for no_host_memory in [false, true] {
            let Some(gpu) = gpu_with(test, FeatureOverrides { no_host_memory, ..FeatureOverrides::default() }) else { return };
            let target = gpu.buffer("target", BYTES).unwrap();
            let before = gpu.allocated_bytes();
            let upload = gpu.upload_buffer(BYTES).unwrap();
            assert_eq!(upload.is_in_host_memory(), gpu.host_memory().is_ok());
            assert!(!no_host_memory || !upload.is_in_host_memory());
            let counted = if upload.is_in_host_memory() { (before, BYTES) } else { (before + BYTES, 0) };
            assert_eq!((gpu.allocated_bytes(), gpu.host_bytes()), counted);
            for round in 0..3u32 {
                assert!(is_mapped(&gpu, &upload));
                let bytes: Vec<u8> =
                    (0..BYTES as u32 / 4).flat_map(|i| (i.wrapping_mul(2_654_435_761) ^ round).to_le_bytes()).collect();
                // In two writes: one that several threads copy, and a short one.
                let (long, short) = bytes.split_at(bytes.len() - 4096);
                upload.write(0, long).unwrap();
                upload.write(long.len() as u64, short).unwrap();
                upload.close();
                let mut recorder = Recorder::new();
                recorder.copy(&upload.slice(0, BYTES), &target.all());
                gpu.submit(&mut recorder).unwrap();
                assert!(gpu.download(&target.all()).unwrap() == bytes, "round {round}, host memory {:?}", gpu.host_memory());
            }
            assert!(is_mapped(&gpu, &upload));
            assert!(upload.write(BYTES - 8, &[0; 16]).is_err(), "outside the buffer");
            drop(upload);
            assert_eq!((gpu.allocated_bytes(), gpu.host_bytes()), (before, 0));
        }
    }

    #[test]
    fn upload_buffer_of_a_lost_device_is_never_mapped() {
        for no_host_memory in [false, true] {
            let test = "upload_buffer_of_a_lost_device_is_never_mapped";
            let Some(gpu) = gpu_with(test, FeatureOverrides { no_host_memory, ..FeatureOverrides::default() }) else { return };
            let upload = gpu.upload_buffer(BYTES).unwrap();
            gpu.lose();
            assert!(!is_mapped(&gpu, &upload));
            assert!(gpu.upload_buffer(BYTES).is_err());
        }
    }
}
