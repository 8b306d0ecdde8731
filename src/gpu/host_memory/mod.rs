//! Host memory that the device reads: uploads are written to cached RAM once, and the device copies them from there.
//!
//! ```text
//! bytes ─ memcpy ─► HostMemory (RAM, HOST_VISIBLE | HOST_CACHED) ─┬─ copy on wgpu's queue ──────────────────► VRAM
//!                                                                 └─ TransferQueue ─► LandingBuffer ─ copy ───┘
//! ```
//! 1. Memory is freed when wgpu is done with its buffer, thus after the last submitted copy.
//! 2. Nothing is written while a submitted copy may still read it: the holder of a staging buffer waits for
//!    [`StagingBuffer::map`](super::StagingBuffer::map).
//! 3. A device on which a first copy gives other bytes, or whose backend is not Vulkan, has none. Then uploads are written
//!    to buffers that wgpu maps: on a GPU with its own memory those are in VRAM, and writing them is seven times slower.
//! 4. The same holds for the transfer queue: without it, the device copies on wgpu's queue, between kernels.
//! 5. Pages of the RAM tier are copied from where they are, if the driver imports that memory. Otherwise the CPU copies them to
//!    host memory first.
//!
//! All `unsafe` code for uploads is in this folder.

#[cfg(any(target_os = "linux", windows))]
mod import;
#[cfg(any(target_os = "linux", windows))]
mod memory;
#[cfg(any(target_os = "linux", windows))]
mod open;
#[cfg(any(target_os = "linux", windows))]
mod queue_selection;
#[cfg(any(target_os = "linux", windows))]
mod raw_buffer;
mod region;
#[cfg(any(target_os = "linux", windows))]
mod transfer_queue;
#[cfg(not(any(target_os = "linux", windows)))]
mod unavailable;
#[cfg(not(any(target_os = "linux", windows)))]
mod unavailable_queue;
#[cfg(not(any(target_os = "linux", windows)))]
mod unavailable_region;

use super::device::Gpu;
use super::error::GpuError;
pub use region::{HostRegion, HostSource};
#[cfg(any(target_os = "linux", windows))]
pub use {import::ReadableRegion, transfer_queue::TransferQueue};
#[cfg(any(target_os = "linux", windows))]
pub(super) use {
    memory::HostMemory,
    open::{OpenedDevice, open_with_transfer_queue},
    queue_selection::QueueSlot,
    transfer_queue::LandingBuffer,
};
#[cfg(not(any(target_os = "linux", windows)))]
pub use {unavailable::TransferQueue, unavailable_region::ReadableRegion};
#[cfg(not(any(target_os = "linux", windows)))]
pub(super) use {
    unavailable::{HostMemory, LandingBuffer},
    unavailable_queue::{OpenedDevice, QueueSlot, open_with_transfer_queue},
};

/// Bytes of the first copy: more than a page, and no multiple of one.
const CHECKED_BYTES: u64 = 20_000;

impl Gpu {
    /// Whether uploads go through host memory that the device reads, checked by a copy on the first call.
    ///
    /// # Errors
    /// Why not, as a clause.
    pub fn host_memory(&self) -> Result<(), &str> {
        let checked = self.host_checks.memory.get_or_init(|| match self.overrides().no_host_memory {
            true => Err("it is switched off".to_owned()),
            false => check_host_memory(self),
        });
        checked.as_ref().copied().map_err(String::as_str)
    }

    /// Whether there is a queue for copies, checked by a copy on the first call.
    ///
    /// # Errors
    /// Why there is none, as a clause.
    pub fn has_transfer_queue(&self) -> Result<(), &str> {
        self.host_memory()?;
        let slot = self.queue_slot.as_ref().map_err(String::as_str)?;
        let checked = self.host_checks.queue.get_or_init(|| check_transfer_queue(self, slot));
        checked.as_ref().copied().map_err(String::as_str)
    }

    /// Whether the queue for copies reads pages where they are in RAM, checked by a copy on the first call of
    /// [`Gpu::has_transfer_queue`].
    ///
    /// # Errors
    /// Why not, as a clause.
    pub fn imports_host_memory(&self) -> Result<(), &str> {
        self.has_transfer_queue()?;
        self.host_checks.import.get().map_or(Err("it was not tried"), |checked| checked.as_ref().copied().map_err(String::as_str))
    }

    /// The queue for copies, for one owner at a time.
    ///
    /// # Errors
    /// Why there is none, as a clause.
    pub fn transfer_queue(&self) -> Result<TransferQueue, String> {
        self.has_transfer_queue()?;
        TransferQueue::new(self, self.queue_slot.as_ref().map_err(String::clone)?)
    }

    /// Families of the queues that use host memory; empty if there is only one.
    pub(super) fn queue_families(&self) -> Vec<u32> {
        self.queue_slot.as_ref().map(QueueSlot::families).unwrap_or_default()
    }

    /// The way of uploads, for `doctor`: one or two sentences.
    pub fn upload_explanation(&self) -> String {
        let uploads = self.upload_way();
        match self.reads_host_memory() {
            Ok(()) => format!("{uploads} Kernels read pages of the RAM tier where they are."),
            Err(_) => uploads,
        }
    }

    fn upload_way(&self) -> String {
        if let Err(reason) = self.host_memory() {
            return format!(
                "Uploads are written to buffers that the driver maps: there is no host memory to copy from, because {reason}."
            );
        }
        match self.has_transfer_queue() {
            Ok(()) => {
                let source = match self.imports_host_memory() {
                    Ok(()) => "straight from the RAM tier".to_owned(),
                    Err(reason) => format!("after a copy by the CPU, because {reason}"),
                };
                format!(
                    "Uploads are copied from host memory; those of KV pages on a queue of their own, beside the kernels, {source}."
                )
            }
            Err(reason) => format!("Uploads are copied from host memory on the queue of the kernels: {reason}."),
        }
    }
}

/// Copies two patterns to the device, one after the other, and compares what arrives.
fn check_host_memory(gpu: &Gpu) -> Result<(), String> {
    let memory = HostMemory::new(gpu, "upload check", CHECKED_BYTES, &gpu.queue_families())?;
    check_copies(gpu, &memory, memory.buffer(), || Ok(()))
}

/// The same through the transfer queue of `slot`.
fn check_transfer_queue(gpu: &Gpu, slot: &QueueSlot) -> Result<(), String> {
    let families = slot.families();
    let memory = HostMemory::new(gpu, "upload check", CHECKED_BYTES, &families)?;
    let landing = LandingBuffer::new(gpu, CHECKED_BYTES, &families)?;
    // The landing buffer is cleared before it is written.
    gpu.wait_idle().map_err(|e| e.to_string())?;
    let mut queue = TransferQueue::new(gpu, slot)?;
    check_copies(gpu, &memory, landing.buffer(), || queue.copy(&memory, &landing, CHECKED_BYTES).map_err(|e| e.to_string()))?;
    gpu.host_checks.import.get_or_init(|| queue.check_import(gpu, slot, &landing));
    Ok(())
}

/// Writes patterns to `memory`, calls `send`, and compares them with what `arrived` has for wgpu's queue.
fn check_copies(
    gpu: &Gpu,
    memory: &HostMemory,
    arrived: &wgpu::Buffer,
    mut send: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let of_gpu = |e: GpuError| e.to_string();
    let target = gpu.buffer("upload check", CHECKED_BYTES).map_err(of_gpu)?;
    for pattern in 0..2u32 {
        let bytes: Vec<u8> = (0..CHECKED_BYTES as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> (8 + pattern)) as u8).collect();
        memory.write(0, &bytes)?;
        send()?;
        let mut encoder = gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("upload check") });
        encoder.copy_buffer_to_buffer(arrived, 0, &target.raw, 0, CHECKED_BYTES);
        gpu.queue.submit([encoder.finish()]);
        if gpu.download(&target.slice(0, CHECKED_BYTES)).map_err(of_gpu)? != bytes {
            return Err("a first copy from it arrived with other bytes".to_owned());
        }
    }
    Ok(())
}
