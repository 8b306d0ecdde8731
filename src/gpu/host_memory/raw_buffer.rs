//! Vulkan buffers with memory of a given type, which wgpu then owns.
//!
//! ```text
//! vkCreateBuffer ─► memory type of the least rank ─► vkAllocateMemory ─► bind ─► (map) ─► import: a wgpu buffer
//! ```
//! Invariant: buffer and memory are freed once, by [`RawBuffer`] or, after the import, by wgpu when the last submission
//! with them is done.

use std::ptr::NonNull;

use ash::vk;
use wgpu::hal::api::Vulkan;

use crate::gpu::device::Gpu;

/// A buffer bound to memory of its own.
pub(super) struct RawBuffer {
    device: ash::Device,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    allocated: u64,
    flags: vk::MemoryPropertyFlags,
}

impl RawBuffer {
    /// A buffer of `size` bytes in the memory type to which `rank` gives the least number. Queues of all `families` may use
    /// it at once.
    ///
    /// # Errors
    /// Not Vulkan, no memory type with a rank, or out of memory.
    pub fn new(
        gpu: &Gpu,
        size: u64,
        usage: vk::BufferUsageFlags,
        families: &[u32],
        rank: impl Fn(vk::MemoryPropertyFlags) -> Option<u32>,
    ) -> Result<RawBuffer, String> {
        // SAFETY: the guard is dropped at the end of this function, before the device; nothing behind it is destroyed.
        let hal = unsafe { gpu.device.as_hal::<Vulkan>() }.ok_or("the backend is not Vulkan")?;
        let device = hal.raw_device().clone();
        let info = vk::BufferCreateInfo::default().size(size).usage(usage);
        let info = match families {
            [] | [_] => info.sharing_mode(vk::SharingMode::EXCLUSIVE),
            several => info.sharing_mode(vk::SharingMode::CONCURRENT).queue_family_indices(several),
        };
        // SAFETY: the device is valid while the guard is, and the families are those with which it was opened.
        let buffer = unsafe { device.create_buffer(&info, None) }.map_err(|e| format!("vkCreateBuffer: {e}"))?;
        // From here on, the value frees what exists.
        let flags = vk::MemoryPropertyFlags::empty();
        let mut raw = RawBuffer { device, buffer, memory: vk::DeviceMemory::null(), allocated: 0, flags };
        // SAFETY: the buffer was just created by this device; both calls only read.
        let (needs, types) = unsafe {
            let instance = hal.shared_instance().raw_instance();
            (
                raw.device.get_buffer_memory_requirements(buffer),
                instance.get_physical_device_memory_properties(hal.raw_physical_device()),
            )
        };
        let usable = types.memory_types_as_slice().iter().enumerate().filter(|(i, _)| needs.memory_type_bits >> i & 1 == 1);
        let ranked = usable.filter_map(|(i, kind)| Some((rank(kind.property_flags)?, i, kind.property_flags)));
        let (_, index, flags) = ranked.min_by_key(|(rank, i, _)| (*rank, *i)).ok_or("no suitable type of memory")?;
        let info = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(index as u32);
        // SAFETY: the memory is new, large enough, of a type that the buffer accepts, and is bound once.
        unsafe {
            raw.memory = raw.device.allocate_memory(&info, None).map_err(|e| format!("vkAllocateMemory: {e}"))?;
            raw.device.bind_buffer_memory(buffer, raw.memory, 0).map_err(|e| format!("vkBindBufferMemory: {e}"))?;
        }
        (raw.allocated, raw.flags) = (needs.size, flags);
        Ok(raw)
    }

    /// Maps all of the memory for as long as it exists, and fills it with zeros.
    ///
    /// # Errors
    /// A refusal of the driver.
    pub fn map(&self) -> Result<NonNull<u8>, String> {
        // SAFETY: the memory is of a type that the host sees, is not mapped yet, and has `allocated` bytes, which no other
        // thread or queue uses before this value is imported.
        unsafe {
            let start = self.device.map_memory(self.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty());
            let start = NonNull::new(start.map_err(|e| format!("vkMapMemory: {e}"))?.cast::<u8>()).ok_or("vkMapMemory: null")?;
            start.write_bytes(0, self.allocated as usize);
            Ok(start)
        }
    }

    /// How writes of the host become visible to the device: None if they are at once.
    pub fn flush(&self) -> Option<Flush> {
        let is_coherent = self.flags.contains(vk::MemoryPropertyFlags::HOST_COHERENT);
        (!is_coherent).then(|| Flush { device: Box::new(self.device.clone()), memory: self.memory })
    }

    /// The Vulkan handle.
    pub fn handle(&self) -> vk::Buffer {
        self.buffer
    }

    /// Gives the buffer, of `size` bytes, to wgpu.
    ///
    /// # Errors
    /// A refusal of wgpu.
    pub fn import(self, gpu: &Gpu, what: &str, size: u64, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer, String> {
        let raw = std::mem::ManuallyDrop::new(self);
        let descriptor = wgpu::BufferDescriptor { label: Some(what), size, usage, mapped_at_creation: false };
        // SAFETY: the buffer is of this device, has this size and usage, and was initialized by its creator. It and its
        // memory are wgpu's alone from here on: the value that would free them is never dropped.
        let buffer = unsafe {
            let hal = wgpu::hal::vulkan::Buffer::from_raw_managed(raw.buffer, raw.memory, 0, raw.allocated);
            gpu.device.create_buffer_from_hal::<Vulkan>(hal, &descriptor)
        };
        gpu.check().map_err(|e| e.to_string())?;
        Ok(buffer)
    }
}

impl Drop for RawBuffer {
    fn drop(&mut self) {
        // SAFETY: both are of this device, were never submitted, and are not used elsewhere. Null handles are allowed.
        unsafe {
            self.device.destroy_buffer(self.buffer, None);
            self.device.free_memory(self.memory, None);
        }
    }
}

/// Makes writes to memory that is not coherent visible to the device.
pub(super) struct Flush {
    device: Box<ash::Device>,
    memory: vk::DeviceMemory,
}

impl Flush {
    /// Flushes all of the memory.
    ///
    /// # Errors
    /// A refusal of the driver.
    pub fn flush(&self) -> Result<(), String> {
        // The whole of it, because ranges must be multiples of a size that differs between devices.
        let range = vk::MappedMemoryRange::default().memory(self.memory).offset(0).size(vk::WHOLE_SIZE);
        // SAFETY: the owner of this value keeps the mapped memory alive.
        unsafe { self.device.flush_mapped_memory_ranges(&[range]) }.map_err(|e| format!("vkFlushMappedMemoryRanges: {e}"))
    }
}
