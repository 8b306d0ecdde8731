//! Import of host memory: RAM of this process that the device reads in place, so that pages are transferred without a copy by the CPU.
//!
//! ```text
//! region of the RAM tier ─ VK_EXT_external_memory_host, once ─┬► HostImport ─ copies of its pages ─► LandingBuffer (VRAM)
//!                                                            └► ReadableRegion ─ kernels read it in place
//! ```
//! 1. An import keeps its region mapped. One that nothing else holds is dropped by [`HostImports::release_unused`].
//! 2. Nothing is imported that the driver refuses; then the CPU copies the pages.
//! 3. A [`ReadableRegion`] keeps its region mapped until everything that was submitted before its end is done.

use std::collections::HashMap;
use std::sync::Arc;

use ash::vk;
use wgpu::hal::api::Vulkan;

use super::region::{CheckedRegion, HostRegion, HostSource};
use crate::gpu::buffer::Buffer;
use crate::gpu::device::Gpu;

/// Copy of consecutive bytes of one region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CopyRun {
    pub region: u64,
    pub from: u64,
    pub to: u64,
    pub len: u64,
}

/// Imported regions, by id.
pub(super) struct HostImports {
    device: ash::Device,
    functions: ash::ext::external_memory_host::Device,
    types: vk::PhysicalDeviceMemoryProperties,
    /// of addresses and lengths
    alignment: usize,
    families: Vec<u32>,
    imports: HashMap<u64, HostImport>,
}

/// A buffer over a region.
struct HostImport {
    device: ash::Device,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    region: Arc<dyn HostRegion>,
}

impl HostImports {
    /// No imports yet, for queues of these families.
    ///
    /// # Errors
    /// Not Vulkan, or a device that was opened without the extension.
    pub fn new(gpu: &Gpu, families: &[u32]) -> Result<HostImports, String> {
        if !gpu.has_host_import {
            return Err("the driver does not import host memory".to_owned());
        }
        // SAFETY: the guard is dropped at the end of this function, before the device; nothing behind it is destroyed.
        let hal = unsafe { gpu.device.as_hal::<Vulkan>() }.ok_or("the backend is not Vulkan")?;
        let (device, instance) = (hal.raw_device().clone(), hal.shared_instance().raw_instance());
        let mut host = vk::PhysicalDeviceExternalMemoryHostPropertiesEXT::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut host);
        // SAFETY: both calls only read; the chain has a structure of an extension that the device lists.
        let types = unsafe {
            instance.get_physical_device_properties2(hal.raw_physical_device(), &mut properties);
            instance.get_physical_device_memory_properties(hal.raw_physical_device())
        };
        let alignment = (host.min_imported_host_pointer_alignment as usize).max(1);
        let functions = ash::ext::external_memory_host::Device::new(instance, &device);
        Ok(HostImports { device, functions, types, alignment, families: families.to_vec(), imports: HashMap::new() })
    }

    /// The buffer over a region, which is imported the first time.
    ///
    /// # Errors
    /// A refusal of the driver, as a clause.
    pub fn buffer(&mut self, region: &Arc<dyn HostRegion>) -> Result<vk::Buffer, String> {
        if let Some(import) = self.imports.get(&region.id()) {
            return Ok(import.buffer);
        }
        let import = self.import(region.clone(), vk::BufferUsageFlags::TRANSFER_SRC)?;
        let buffer = import.buffer;
        self.imports.insert(region.id(), import);
        Ok(buffer)
    }

    /// Drops imports of regions that nothing else uses. No copy may be pending.
    pub fn release_unused(&mut self) {
        self.imports.retain(|_, import| Arc::strong_count(&import.region) > 1);
    }

    fn import(&self, region: Arc<dyn HostRegion>, usage: vk::BufferUsageFlags) -> Result<HostImport, String> {
        let (start, len) = region.span();
        if !(start as usize).is_multiple_of(self.alignment) || !len.is_multiple_of(self.alignment) || len == 0 {
            return Err(format!("{len} bytes at {start:p} are not aligned to {}", self.alignment));
        }
        let kind = vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;
        let mut found = vk::MemoryHostPointerPropertiesEXT::default();
        // SAFETY: the pointer is that of mapped memory, which `region` keeps. The call only reads.
        unsafe {
            let get = self.functions.fp().get_memory_host_pointer_properties_ext;
            get(self.device.handle(), kind, start.cast(), &mut found).result()
        }
        .map_err(|e| format!("vkGetMemoryHostPointerPropertiesEXT: {e}"))?;
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(kind);
        let info = vk::BufferCreateInfo::default().size(len as u64).usage(usage).push_next(&mut external);
        let info = match self.families.as_slice() {
            [] | [_] => info.sharing_mode(vk::SharingMode::EXCLUSIVE),
            several => info.sharing_mode(vk::SharingMode::CONCURRENT).queue_family_indices(several),
        };
        // SAFETY: the device is valid as long as its queue is in use, and the families are those with which it was opened.
        let buffer = unsafe { self.device.create_buffer(&info, None) }.map_err(|e| format!("vkCreateBuffer: {e}"))?;
        // From here on, the value frees what exists.
        let memory = vk::DeviceMemory::null();
        let mut import = HostImport { device: self.device.clone(), buffer, memory, region };
        // SAFETY: the buffer was just created by this device; the call only reads.
        let needs = unsafe { self.device.get_buffer_memory_requirements(buffer) };
        let usable = found.memory_type_bits & needs.memory_type_bits;
        let is_coherent = |i: &usize| self.types.memory_types[*i].property_flags.contains(vk::MemoryPropertyFlags::HOST_COHERENT);
        let index = (0..self.types.memory_type_count as usize).filter(|i| usable >> i & 1 == 1).find(is_coherent);
        let index = index.ok_or("no coherent type of memory")?;
        if needs.size > len as u64 {
            return Err(format!("the driver needs {} bytes for {len}", needs.size));
        }
        let mut pointer = vk::ImportMemoryHostPointerInfoEXT::default().handle_type(kind).host_pointer(start.cast());
        let info = vk::MemoryAllocateInfo::default().allocation_size(len as u64).memory_type_index(index as u32);
        // SAFETY: pointer and length are aligned as the driver asks, and `region` keeps them mapped. The memory is bound once.
        unsafe {
            import.memory =
                self.device.allocate_memory(&info.push_next(&mut pointer), None).map_err(|e| format!("vkAllocateMemory: {e}"))?;
            self.device.bind_buffer_memory(buffer, import.memory, 0).map_err(|e| format!("vkBindBufferMemory: {e}"))?;
        }
        Ok(import)
    }
}

impl Drop for HostImport {
    fn drop(&mut self) {
        // SAFETY: both are of this device, and no copy is pending, since each one waits. Null handles are allowed.
        unsafe {
            self.device.destroy_buffer(self.buffer, None);
            self.device.free_memory(self.memory, None);
        }
    }
}

/// A region that kernels read where it is. No write to the bytes that they read may follow the submit.
pub struct ReadableRegion {
    buffer: Buffer,
    region: Arc<dyn HostRegion>,
    queue: wgpu::Queue,
}

impl ReadableRegion {
    /// Imports a region for kernels.
    ///
    /// # Errors
    /// Not Vulkan, or a refusal of the driver, as a clause.
    fn new(gpu: &Gpu, region: Arc<dyn HostRegion>) -> Result<ReadableRegion, String> {
        let imports = HostImports::new(gpu, &gpu.queue_families())?;
        let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::STORAGE_BUFFER;
        let mut import = imports.import(region.clone(), usage)?;
        let size = region.span().1 as u64;
        let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::STORAGE;
        let descriptor = wgpu::BufferDescriptor { label: Some("RAM tier"), size, usage, mapped_at_creation: false };
        let (handle, memory) = (std::mem::take(&mut import.buffer), std::mem::take(&mut import.memory));
        // SAFETY: the buffer is of this device, has this size and usage, and host memory is initialized. It and its memory are
        // wgpu's alone from here on: `import` no longer has them. `region` stays mapped as long as wgpu may use them, see `Drop`.
        let buffer = unsafe {
            let hal = wgpu::hal::vulkan::Buffer::from_raw_managed(handle, memory, 0, size);
            gpu.device.create_buffer_from_hal::<Vulkan>(hal, &descriptor)
        };
        gpu.check().map_err(|e| e.to_string())?;
        // The RAM tier counts its bytes.
        let buffer = Buffer::counted(buffer, size, Arc::default());
        Ok(ReadableRegion { buffer, region, queue: gpu.queue.clone() })
    }

    /// The buffer over the region.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Its region.
    pub fn region(&self) -> &Arc<dyn HostRegion> {
        &self.region
    }
}

impl Drop for ReadableRegion {
    fn drop(&mut self) {
        let kept = (self.buffer.clone(), self.region.clone());
        self.queue.on_submitted_work_done(move || drop(kept));
    }
}

impl Gpu {
    /// Whether kernels can read host memory where it is, checked by a first copy from it on the first call.
    ///
    /// # Errors
    /// Why not, as a clause.
    pub fn reads_host_memory(&self) -> Result<(), &str> {
        let checked = self.host_checks.region.get_or_init(|| {
            let region = CheckedRegion::new()?;
            let bytes = region.bytes();
            let readable = ReadableRegion::new(self, Arc::new(region))?;
            match self.download(&readable.buffer().all()).map_err(|e| e.to_string())? == bytes {
                true => Ok(()),
                false => Err("a first copy from it arrived with other bytes".to_owned()),
            }
        });
        checked.as_ref().copied().map_err(String::as_str)
    }

    /// A region that kernels read where it is.
    ///
    /// # Errors
    /// As for [`Gpu::reads_host_memory`], or a refusal of the driver, as a clause.
    pub fn readable_region(&self, region: Arc<dyn HostRegion>) -> Result<ReadableRegion, String> {
        self.reads_host_memory()?;
        ReadableRegion::new(self, region)
    }
}

/// The sources one after the other, neighbors merged.
pub(super) fn runs(sources: &[HostSource]) -> Vec<CopyRun> {
    let (mut runs, mut to) = (Vec::<CopyRun>::new(), 0);
    for source in sources {
        let next = CopyRun { region: source.region.id(), from: source.offset as u64, to, len: source.len as u64 };
        to += next.len;
        match runs.last_mut() {
            Some(last) if last.region == next.region && last.from + last.len == next.from => last.len += next.len,
            _ => runs.push(next),
        }
    }
    runs
}
