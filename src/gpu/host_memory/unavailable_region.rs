//! Host memory that kernels read, on systems without Vulkan: none.

use std::sync::Arc;

use super::region::HostRegion;
use crate::gpu::buffer::Buffer;
use crate::gpu::device::Gpu;

const REASON: &str = "the backend is not Vulkan";

/// Has no values.
pub enum ReadableRegion {}

impl ReadableRegion {
    /// The buffer over the region.
    pub fn buffer(&self) -> &Buffer {
        match *self {}
    }

    /// Its region.
    pub fn region(&self) -> &Arc<dyn HostRegion> {
        match *self {}
    }
}

impl Gpu {
    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn reads_host_memory(&self) -> Result<(), &str> {
        let checked = self.host_checks.region.get_or_init(|| Err(REASON.to_owned()));
        checked.as_ref().copied().map_err(String::as_str)
    }

    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn readable_region(&self, _region: Arc<dyn HostRegion>) -> Result<ReadableRegion, String> {
        Err(REASON.to_owned())
    }
}
