//! Transfer queue: copies from host memory to VRAM on a queue of their own, beside the kernels on wgpu's queue.
//!
//! ```text
//! HostMemory ─ copy, wait for the fence ─► LandingBuffer (VRAM) ─ copy or read on wgpu's queue ─► kernels
//! ```
//! 1. Each queue is used by one thread at a time: wgpu has its own, and [`QueueSlot`] gives this one to one
//!    [`TransferQueue`] at a time.
//! 2. [`TransferQueue::copy`] returns when the copy is done. So a later submit to wgpu's queue needs no semaphore.
//! 3. A landing buffer is not written while wgpu's queue may still read it: the holder of its staging buffer waits for
//!    [`StagingBuffer::map`](crate::gpu::StagingBuffer::map).
//! 4. After a copy that did not end, nothing that the device may still use is freed.
//!
//! Owner: any one thread, in practice the transfer thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ash::vk;
use wgpu::hal::api::Vulkan;

use super::import::{self, HostImports};
use super::memory::HostMemory;
use super::queue_selection::{QueueSlot, SelectedQueue};
use super::raw_buffer::RawBuffer;
use super::region::{CheckedRegion, HostRegion, HostSource};
use crate::gpu::device::Gpu;
use crate::gpu::error::GpuError;

/// Longest wait for one copy. Copies take milliseconds, but a card may have to wake up.
const TIMEOUT_NS: u64 = 10_000_000_000;
/// Consecutive bytes, on average, from which copy commands out of the RAM tier are faster than copies by the CPU.
const MIN_RUN_BYTES: u64 = 64 << 10;
/// Bytes of the first copy from an import, and where they begin.
const CHECKED_LEN: usize = 16_384;
const CHECKED_OFFSET: usize = 4096;

/// A queue for copies.
pub struct TransferQueue {
    raw: Box<ash::Device>,
    queue: vk::Queue,
    pool: vk::CommandPool,
    commands: vk::CommandBuffer,
    fence: vk::Fence,
    /// a copy did not end
    is_stuck: bool,
    in_use: Arc<AtomicBool>,
    /// None if host memory is not imported
    imports: Option<Box<HostImports>>,
    /// keeps the Vulkan device
    device: wgpu::Device,
}

/// VRAM that a transfer queue writes and wgpu's queue reads.
pub(in crate::gpu) struct LandingBuffer {
    handle: vk::Buffer,
    buffer: wgpu::Buffer,
}

impl LandingBuffer {
    /// A buffer of `size` bytes for the queues of all `families`.
    ///
    /// # Errors
    /// Not Vulkan, or no more memory.
    pub fn new(gpu: &Gpu, size: u64, families: &[u32]) -> Result<LandingBuffer, String> {
        let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
        let in_vram = |flags: vk::MemoryPropertyFlags| {
            // Not the part of VRAM that the CPU sees, which may be small.
            let is_own = flags.contains(vk::MemoryPropertyFlags::DEVICE_LOCAL);
            is_own.then_some(u32::from(flags.contains(vk::MemoryPropertyFlags::HOST_VISIBLE)))
        };
        let raw = RawBuffer::new(gpu, size, usage, families, in_vram)?;
        let handle = raw.handle();
        let buffer = raw.import(gpu, "landing", size, wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST)?;
        // wgpu takes the buffer for initialized. Its first holder waits until this is done.
        let mut encoder = gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("landing") });
        encoder.clear_buffer(&buffer, 0, None);
        gpu.queue.submit([encoder.finish()]);
        Ok(LandingBuffer { handle, buffer })
    }

    /// The buffer, a source of copies.
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }
}

impl TransferQueue {
    /// The queue of `slot`, until the value is dropped.
    ///
    /// # Errors
    /// Not Vulkan, in use, or a refusal of the driver.
    pub(in crate::gpu) fn new(gpu: &Gpu, slot: &QueueSlot) -> Result<TransferQueue, String> {
        if slot.in_use.swap(true, Ordering::AcqRel) {
            return Err("it is in use".to_owned());
        }
        TransferQueue::create(gpu, slot).inspect_err(|_| slot.in_use.store(false, Ordering::Release))
    }

    fn create(gpu: &Gpu, slot: &QueueSlot) -> Result<TransferQueue, String> {
        // SAFETY: the guard is dropped at the end of this function, before the device; nothing behind it is destroyed.
        let hal = unsafe { gpu.device.as_hal::<Vulkan>() }.ok_or("the backend is not Vulkan")?;
        let raw = Box::new(hal.raw_device().clone());
        let SelectedQueue { family, index } = slot.selected;
        let info = vk::CommandPoolCreateInfo::default()
            .queue_family_index(family)
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER);
        // SAFETY: the device is valid, and was opened with this queue.
        let (queue, pool) = unsafe { (raw.get_device_queue(family, index), raw.create_command_pool(&info, None)) };
        // From here on, the value frees what exists.
        let mut transfer = TransferQueue {
            raw,
            queue,
            pool: pool.map_err(|e| format!("vkCreateCommandPool: {e}"))?,
            commands: vk::CommandBuffer::null(),
            fence: vk::Fence::null(),
            is_stuck: false,
            in_use: slot.in_use.clone(),
            imports: None,
            device: gpu.device.clone(),
        };
        if gpu.host_checks.import.get() == Some(&Ok(())) {
            transfer.imports = HostImports::new(gpu, &slot.families()).ok().map(Box::new);
        }
        let info = vk::CommandBufferAllocateInfo::default().command_pool(transfer.pool).command_buffer_count(1);
        // SAFETY: the pool was just created by this device, and is not used elsewhere.
        let commands =
            unsafe { transfer.raw.allocate_command_buffers(&info) }.map_err(|e| format!("vkAllocateCommandBuffers: {e}"))?;
        transfer.commands = commands.first().copied().ok_or("vkAllocateCommandBuffers: none")?;
        // SAFETY: the device is valid.
        let fence = unsafe { transfer.raw.create_fence(&vk::FenceCreateInfo::default(), None) };
        transfer.fence = fence.map_err(|e| format!("vkCreateFence: {e}"))?;
        Ok(transfer)
    }

    /// Copies the first `n_bytes` of `from` to the begin of `to`, and waits until they are there.
    ///
    /// # Errors
    /// A lost device, or a copy that does not end; then every later copy fails too.
    pub(in crate::gpu) fn copy(&mut self, from: &HostMemory, to: &LandingBuffer, n_bytes: u64) -> Result<(), GpuError> {
        self.check_size(n_bytes, from.buffer().size().min(to.buffer.size()))?;
        if n_bytes == 0 {
            return Ok(());
        }
        let region = vk::BufferCopy::default().size(n_bytes);
        self.submit(&[(from.handle(), region)], to.handle).map_err(lost)?;
        self.wait(|| std::mem::forget((from.buffer().clone(), to.buffer.clone())))
    }

    /// Copies `sources`, one after the other, to the begin of `to`, and waits until they are there. False, without a copy, if the
    /// device cannot read them where they are, or if they are so scattered that copies by the CPU are faster.
    ///
    /// # Errors
    /// As above, or more bytes than `to` has.
    pub(in crate::gpu) fn copy_sources(&mut self, sources: &[HostSource], to: &LandingBuffer) -> Result<bool, GpuError> {
        let (runs, n_bytes) = (import::runs(sources), sources.iter().map(|source| source.len as u64).sum());
        self.check_size(n_bytes, to.buffer.size())?;
        let Some(imports) = &mut self.imports else { return Ok(false) };
        imports.release_unused();
        if n_bytes < MIN_RUN_BYTES * runs.len().max(1) as u64 {
            return Ok(false);
        }
        let mut copies = Vec::new();
        for run in runs {
            let Some(source) = sources.iter().find(|source| source.region.id() == run.region) else { return Ok(false) };
            match imports.buffer(&source.region) {
                Ok(buffer) => {
                    copies.push((buffer, vk::BufferCopy::default().src_offset(run.from).dst_offset(run.to).size(run.len)));
                }
                Err(reason) => {
                    log::warn!("pages are copied by the CPU, because the driver does not import their memory: {reason}");
                    self.imports = None;
                    return Ok(false);
                }
            }
        }
        self.submit(&copies, to.handle).map_err(lost)?;
        self.wait(|| std::mem::forget((sources.to_vec(), to.buffer.clone())))?;
        Ok(true)
    }

    /// True if [`StagingBuffer::send_from`](crate::gpu::StagingBuffer::send_from) may copy.
    pub fn imports(&self) -> bool {
        self.imports.is_some()
    }

    /// Drops imports of memory that nothing else uses.
    pub fn release_unused(&mut self) {
        if let Some(imports) = self.imports.as_mut().filter(|_| !self.is_stuck) {
            imports.release_unused();
        }
    }

    /// Imports host memory and compares what a copy of it brings. Later queues of this device import if that worked.
    ///
    /// # Errors
    /// Why not, as a clause.
    pub(super) fn check_import(&mut self, gpu: &Gpu, slot: &QueueSlot, landing: &LandingBuffer) -> Result<(), String> {
        let region = CheckedRegion::new()?;
        let bytes = region.bytes();
        let region: Arc<dyn HostRegion> = Arc::new(region);
        let source = HostSource { region, offset: CHECKED_OFFSET, len: CHECKED_LEN };
        let region = vk::BufferCopy::default().src_offset(CHECKED_OFFSET as u64).size(CHECKED_LEN as u64);
        let buffer = self.imports.insert(Box::new(HostImports::new(gpu, &slot.families())?)).buffer(&source.region)?;
        self.submit(&[(buffer, region)], landing.handle).map_err(|e| e.to_string())?;
        self.wait(|| std::mem::forget(source.clone())).map_err(|e| e.to_string())?;
        let target = gpu.buffer("import check", CHECKED_LEN as u64).map_err(|e| e.to_string())?;
        let mut encoder = gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("import check") });
        encoder.copy_buffer_to_buffer(&landing.buffer, 0, &target.raw, 0, CHECKED_LEN as u64);
        gpu.queue.submit([encoder.finish()]);
        let arrived = gpu.download(&target.all()).map_err(|e| e.to_string())?;
        if arrived.get(..CHECKED_LEN) != bytes.get(CHECKED_OFFSET..CHECKED_OFFSET + CHECKED_LEN) {
            return Err("a first copy from it arrived with other bytes".to_owned());
        }
        Ok(())
    }

    fn check_size(&self, n_bytes: u64, most: u64) -> Result<(), GpuError> {
        if self.is_stuck || n_bytes > most {
            return Err(GpuError::Rejected { what: "a copy on the transfer queue".into(), reason: "it does not end".into() });
        }
        Ok(())
    }

    /// Waits for the submitted copy. If it does not end, `keep` makes what it uses live forever.
    fn wait(&mut self, keep: impl FnOnce()) -> Result<(), GpuError> {
        // SAFETY: the fence is of this device, and was just submitted.
        if let Err(error) = unsafe { self.raw.wait_for_fences(&[self.fence], true, TIMEOUT_NS) } {
            self.is_stuck = true;
            keep();
            std::mem::forget((self.imports.take(), self.device.clone()));
            return Err(lost(error));
        }
        // SAFETY: the fence is signaled, so no queue uses it.
        unsafe { self.raw.reset_fences(&[self.fence]) }.map_err(lost)
    }

    fn submit(&mut self, copies: &[(vk::Buffer, vk::BufferCopy)], to: vk::Buffer) -> Result<(), vk::Result> {
        let begin = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        let commands = [self.commands];
        let submit = vk::SubmitInfo::default().command_buffers(&commands);
        // SAFETY: the commands are not pending, since each copy waits. All buffers are of this device, large enough, shared
        // with the family of this queue, and alive until the copy is done, for which the caller waits. No other value has
        // this queue.
        unsafe {
            self.raw.begin_command_buffer(self.commands, &begin)?;
            for (from, region) in copies {
                self.raw.cmd_copy_buffer(self.commands, *from, to, &[*region]);
            }
            self.raw.end_command_buffer(self.commands)?;
            self.raw.queue_submit(self.queue, &[submit], self.fence)
        }
    }
}

impl Drop for TransferQueue {
    fn drop(&mut self) {
        if self.is_stuck {
            // The device may still use pool and fence; it was made to live forever. The slot stays in use.
            return;
        }
        // SAFETY: nothing is pending, since each copy waits. Null handles are allowed.
        unsafe {
            self.raw.destroy_fence(self.fence, None);
            self.raw.destroy_command_pool(self.pool, None);
        }
        self.in_use.store(false, Ordering::Release);
    }
}

fn lost(error: vk::Result) -> GpuError {
    GpuError::Lost(format!("a copy on the transfer queue: {error}"))
}

#[cfg(test)]
impl Gpu {
    /// Makes wgpu's own queue the one for copies. The caller sees to it that nothing else is submitted during a copy.
    pub(crate) fn share_queue(&mut self) {
        self.queue_slot = Ok(QueueSlot::new(SelectedQueue { family: 0, index: 0 }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::FeatureOverrides;
    use crate::gpu::testing::gpu_with;

    /// The queue of wgpu itself, which these tests may use because nothing is submitted meanwhile.
    fn shared() -> QueueSlot {
        QueueSlot::new(SelectedQueue { family: 0, index: 0 })
    }

    #[test]
    fn bytes_copied_on_the_queue_are_read_by_the_queue_of_the_kernels() {
        let test = "bytes_copied_on_the_queue_are_read_by_the_queue_of_the_kernels";
        let Some(gpu) = gpu_with(test, FeatureOverrides::default()) else { return };
        let slot = shared();
        assert_eq!(super::super::check_transfer_queue(&gpu, &slot), Ok(()));
        let mut queue = TransferQueue::new(&gpu, &slot).unwrap();
        assert!(TransferQueue::new(&gpu, &slot).is_err(), "one at a time");
        let staging = gpu.landing_upload_buffer(100_000, &slot.families()).unwrap();
        let target = gpu.buffer("target", 100_000).unwrap().all();
        gpu.wait_idle().unwrap();
        for (round, n_bytes) in [100_000, 4, 60_000].into_iter().enumerate() {
            let bytes: Vec<u8> = (0..n_bytes).map(|i| (i * (7 + round)) as u8).collect();
            staging.write(0, &bytes).unwrap();
            staging.send(&mut queue, n_bytes as u64).unwrap();
            let mut recorder = crate::gpu::Recorder::new();
            recorder.copy(&staging.slice(0, n_bytes as u64), &target);
            gpu.submit(&mut recorder).unwrap();
            assert_eq!(gpu.download(&target.buffer.slice(0, n_bytes as u64)).unwrap(), bytes);
        }
        assert!(staging.send(&mut queue, 200_000).is_err(), "more than it has");
        assert_eq!(staging.send(&mut queue, 0), Ok(()));
        let counted = gpu.host_bytes();
        assert!(counted >= 100_000 && gpu.allocated_bytes() >= 200_000, "{counted}");
        drop((queue, staging));
        assert_eq!(gpu.host_bytes(), 0);
        assert!(TransferQueue::new(&gpu, &slot).is_ok(), "free again");
    }

    /// A region of 4 MiB that begins with `first`.
    fn region(id: u64, first: u8) -> Arc<dyn HostRegion> {
        struct Region(memmap2::MmapMut, u64);
        // SAFETY: the mapping is never changed, and lasts as long as the value.
        unsafe impl HostRegion for Region {
            fn id(&self) -> u64 {
                self.1
            }
            fn span(&self) -> (*mut u8, usize) {
                (self.0.as_ptr().cast_mut(), self.0.len())
            }
        }
        let mut map = memmap2::MmapMut::map_anon(4 << 20).unwrap();
        map.iter_mut().enumerate().for_each(|(i, byte)| *byte = first ^ (i >> 10) as u8 ^ i as u8);
        Arc::new(Region(map, id))
    }

    fn bytes_of(source: &HostSource) -> Vec<u8> {
        let (start, len) = source.region.span();
        // SAFETY: the region is readable and does not change.
        let all = unsafe { std::slice::from_raw_parts(start, len) };
        all[source.offset..source.offset + source.len].to_vec()
    }

    #[test]
    fn pages_are_copied_from_where_they_are_if_the_driver_imports_their_memory() {
        let test = "pages_are_copied_from_where_they_are_if_the_driver_imports_their_memory";
        let Some(gpu) = gpu_with(test, FeatureOverrides { host_import: Some(true), ..FeatureOverrides::default() }) else {
            return;
        };
        let slot = shared();
        assert_eq!(super::super::check_transfer_queue(&gpu, &slot), Ok(()));
        let checked = gpu.host_checks.import.get().cloned().unwrap();
        let mut queue = TransferQueue::new(&gpu, &slot).unwrap();
        assert_eq!(queue.imports(), checked.is_ok());
        if let Err(reason) = checked {
            return eprintln!("skipped: {test}: {reason}");
        }
        let staging = gpu.landing_upload_buffer(1 << 20, &slot.families()).unwrap();
        gpu.wait_idle().unwrap();
        let (one, two) = (region(1, 3), region(2, 90));
        let source = |region: &Arc<dyn HostRegion>, offset, len| HostSource { region: region.clone(), offset, len };
        let page = 192 << 10;
        for sources in [
            vec![source(&one, 0, page)],
            // Two neighbors, one from elsewhere, and one before it.
            vec![source(&one, page, page), source(&one, 2 * page, page), source(&two, 5 * page, page), source(&two, 4, page)],
        ] {
            assert_eq!(staging.send_from(&mut queue, &sources), Ok(true));
            let want: Vec<u8> = sources.iter().flat_map(bytes_of).collect();
            assert!(gpu.download(&staging.slice(0, want.len() as u64)).unwrap() == want);
        }
        let scattered: Vec<HostSource> = (0..8).map(|i| source(&one, i * page, 4096)).collect();
        assert_eq!(staging.send_from(&mut queue, &scattered), Ok(false), "the CPU is faster");
        assert!(staging.send_from(&mut queue, &vec![source(&one, 0, page); 6]).is_err(), "more than it has");
        assert_eq!(staging.send_from(&mut queue, &[source(&one, 7, page)]), Ok(true), "any offset");
        // A region that nothing else holds is given up.
        let gone = Arc::downgrade(&two);
        drop(two);
        assert!(gone.upgrade().is_some());
        queue.release_unused();
        assert!(gone.upgrade().is_none());
        let odd = source(&region(3, 1), 0, page);
        assert_eq!(staging.send_from(&mut queue, &[odd]), Ok(true));
    }

    #[test]
    fn neighbors_are_copied_together() {
        let (one, two) = (region(1, 0), region(2, 0));
        let source = |region: &Arc<dyn HostRegion>, offset, len| HostSource { region: region.clone(), offset, len };
        let sources = [source(&one, 8, 8), source(&one, 16, 4), source(&two, 20, 4), source(&one, 20, 4), source(&one, 8, 8)];
        let runs: Vec<(u64, u64, u64, u64)> = import::runs(&sources).iter().map(|r| (r.region, r.from, r.to, r.len)).collect();
        assert_eq!(runs, [(1, 8, 0, 12), (2, 20, 12, 4), (1, 20, 16, 4), (1, 8, 20, 8)]);
    }

    #[test]
    fn queue_outlives_the_gpu_that_it_copies_on() {
        let Some(gpu) = gpu_with("queue_outlives_the_gpu_that_it_copies_on", FeatureOverrides::default()) else { return };
        let slot = shared();
        let mut queue = TransferQueue::new(&gpu, &slot).unwrap();
        let staging = gpu.landing_upload_buffer(4096, &[]).unwrap();
        gpu.wait_idle().unwrap();
        drop(gpu);
        staging.write(0, &[1; 4096]).unwrap();
        assert_eq!(staging.send(&mut queue, 4096), Ok(()));
    }
}
