//! Queues for copies on systems without Vulkan: none.

/// Has no values.
#[derive(Debug)]
pub(in crate::gpu) enum QueueSlot {}

impl QueueSlot {
    /// Families that use buffers of both queues.
    pub fn families(&self) -> Vec<u32> {
        match *self {}
    }
}

/// A device with a queue for copies.
pub(in crate::gpu) struct OpenedDevice {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub slot: Result<QueueSlot, String>,
    pub has_host_import: bool,
}

/// Fails.
///
/// # Errors
/// Always.
pub(in crate::gpu) fn open_with_transfer_queue(
    _adapter: &wgpu::Adapter,
    _descriptor: &wgpu::DeviceDescriptor<'_>,
    _without_queue: bool,
) -> Result<OpenedDevice, String> {
    Err("the backend is not Vulkan".to_owned())
}
