//! GPU memory: total and free bytes, from Vulkan; unknown with other backends.
//!
//! ```text
//! wgpu device ─► its Vulkan handles ─► memory heaps ─► the largest device-local heap ─► total
//!                                      └ VK_EXT_memory_budget ─► budget - use ─► free
//! ```
//! Invariant: handles are only read, and only while the guard of wgpu keeps them alive. Units: bytes.

use super::device::Gpu;

/// Memory of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct DeviceMemory {
    /// total bytes
    pub total: u64,
    /// bytes available to this process now, if the driver reports them
    pub free: Option<u64>,
}

impl Gpu {
    /// Memory of the GPU. None if the backend cannot report it.
    pub fn memory(&self) -> Option<DeviceMemory> {
        vulkan_memory(self)
    }
}

#[cfg(not(any(target_os = "linux", windows)))]
fn vulkan_memory(_gpu: &Gpu) -> Option<DeviceMemory> {
    None
}

#[cfg(any(target_os = "linux", windows))]
fn vulkan_memory(gpu: &Gpu) -> Option<DeviceMemory> {
    use ash::{ext, vk};

    // SAFETY: the guard is dropped at the end of this function, before the device; nothing behind it is destroyed.
    let device = unsafe { gpu.device.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let shared = device.shared_instance();
    let (instance, physical) = (shared.raw_instance(), device.raw_physical_device());
    // SAFETY: both handles are valid while `device` is, and the calls only fill structs of this function.
    let (properties, memory) =
        unsafe { (instance.get_physical_device_properties(physical), instance.get_physical_device_memory_properties(physical)) };
    let heaps = memory.memory_heaps_as_slice().iter().enumerate();
    let own = heaps.filter(|(_, heap)| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
    let (at, heap) = own.max_by_key(|(_, heap)| heap.size)?;
    let has_core_1_1 = shared.instance_api_version().min(properties.api_version) >= vk::API_VERSION_1_1;
    let reports_free = has_core_1_1 && device.enabled_device_extensions().contains(&ext::memory_budget::NAME);
    let free = reports_free.then(|| {
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut answer = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: as above; the call is part of Vulkan 1.1, which was checked, and the extension of the chained struct
        // is enabled.
        unsafe { instance.get_physical_device_memory_properties2(physical, &mut answer) };
        let of = |list: &[vk::DeviceSize]| list.get(at).copied().unwrap_or(0);
        of(&budget.heap_budget).saturating_sub(of(&budget.heap_usage))
    });
    Some(DeviceMemory { total: heap.size, free })
}
