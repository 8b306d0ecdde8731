//! Opens a device with one more queue than wgpu asks for, and with the import of host memory.

use ash::vk;
use wgpu::hal::api::Vulkan;

use super::queue_selection::{QueueSlot, SelectedQueue};

/// The extension that imports host memory.
const HOST_IMPORT: &std::ffi::CStr = ash::ext::external_memory_host::NAME;
/// Priorities of one or two queues: equal.
static PRIORITIES: [f32; 2] = [1.0; 2];

/// A device with what wgpu does not ask for.
pub(in crate::gpu) struct OpenedDevice {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    /// one more queue, for copies; or why there is none
    pub slot: Result<QueueSlot, String>,
    /// it may import host memory
    pub has_host_import: bool,
}

/// Opens `adapter` as wgpu would, with one more queue, for copies, and with the import of host memory if it has that.
///
/// # Errors
/// Not Vulkan, no further queue unless `without_queue`, or a refusal of the driver, as a clause.
pub(in crate::gpu) fn open_with_transfer_queue(
    adapter: &wgpu::Adapter,
    descriptor: &wgpu::DeviceDescriptor<'_>,
    without_queue: bool,
) -> Result<OpenedDevice, String> {
    // SAFETY: the guard is dropped at the end of this function, before the adapter; nothing behind it is destroyed.
    let hal = unsafe { adapter.as_hal::<Vulkan>() }.ok_or("the backend is not Vulkan")?;
    let (instance, card) = (hal.shared_instance().raw_instance(), hal.raw_physical_device());
    // SAFETY: both handles are valid while the guard is; the calls only read.
    let (families, extensions) = unsafe {
        (instance.get_physical_device_queue_family_properties(card), instance.enumerate_device_extension_properties(card))
    };
    let selected = SelectedQueue::of(families.iter().map(|family| (family.queue_flags, family.queue_count)));
    let slot = selected.ok_or_else(|| "it has no further queue for copies".to_owned());
    if !without_queue {
        slot.clone()?;
    }
    let is_import = |extension: &vk::ExtensionProperties| extension.extension_name_as_c_str() == Ok(HOST_IMPORT);
    let has_host_import = extensions.unwrap_or_default().iter().any(is_import);
    let callback: Box<wgpu::hal::vulkan::CreateDeviceCallback<'_>> = Box::new(move |args| {
        if let Some(selected) = selected {
            add_queue(args.queue_create_infos, selected);
        }
        if has_host_import && !args.extensions.contains(&HOST_IMPORT) {
            args.extensions.push(HOST_IMPORT);
        }
    });
    let (features, limits, hints) = (descriptor.required_features, &descriptor.required_limits, &descriptor.memory_hints);
    // SAFETY: features and limits are those that wgpu lists for this adapter. The callback adds a queue that the device has and
    // an extension that it lists, and changes nothing else. The device is used with the descriptor of its features.
    let (device, queue) = unsafe {
        let open = hal.open_with_callback(features, limits, hints, Some(callback)).map_err(|e| e.to_string())?;
        adapter.create_device_from_hal::<Vulkan>(open, descriptor).map_err(|e| e.to_string())?
    };
    Ok(OpenedDevice { device, queue, slot: slot.map(QueueSlot::new), has_host_import })
}

/// Adds the queue to the list of those to create.
fn add_queue(infos: &mut Vec<vk::DeviceQueueCreateInfo<'_>>, selected: SelectedQueue) {
    let own = infos.iter_mut().find(|info| info.queue_family_index == selected.family);
    match own {
        Some(info) => *info = info.queue_priorities(&PRIORITIES),
        None => infos
            .push(vk::DeviceQueueCreateInfo::default().queue_family_index(selected.family).queue_priorities(&PRIORITIES[..1])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::host_memory::queue_selection::WGPU_FAMILY;

    #[test]
    fn queue_is_added_to_its_family_or_in_a_new_one() {
        for (selected, want) in
            [(SelectedQueue { family: 0, index: 1 }, vec![(0, 2)]), (SelectedQueue { family: 3, index: 0 }, vec![(0, 1), (3, 1)])]
        {
            let mut infos = vec![vk::DeviceQueueCreateInfo::default().queue_family_index(WGPU_FAMILY).queue_priorities(&[1.0])];
            add_queue(&mut infos, selected);
            let got: Vec<(u32, u32)> = infos.iter().map(|info| (info.queue_family_index, info.queue_count)).collect();
            assert_eq!(got, want);
        }
    }
}
