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

/// Fails.
///
/// # Errors
/// Always.
pub(in crate::gpu) fn open_with_transfer_queue(
    _adapter: &wgpu::Adapter,
    _descriptor: &wgpu::DeviceDescriptor<'_>,
) -> Result<(wgpu::Device, wgpu::Queue, QueueSlot), String> {
    Err("the backend is not Vulkan".to_owned())
}
