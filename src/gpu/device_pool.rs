//! Open devices that wait for their next engine, with the pipelines they have compiled.
//!
//! A program with one engine needs none of this. Tests start an engine each, and lend it the device of one that has ended.

use std::sync::{Mutex, PoisonError};

use super::device::{FeatureOverrides, Gpu, GpuOptions};
use super::error::GpuError;

/// Devices that no engine uses at the moment, by how they were opened.
#[derive(Default)]
pub struct DevicePool {
    waiting: Mutex<Vec<(GpuOptions, Gpu)>>,
    overrides: FeatureOverrides,
}

impl DevicePool {
    /// An empty pool of devices without some features, so that tests reach the fallbacks.
    pub fn with_overrides(overrides: FeatureOverrides) -> DevicePool {
        DevicePool { overrides, ..DevicePool::default() }
    }

    /// Features that an engine disables on devices of this pool.
    pub fn overrides(&self) -> FeatureOverrides {
        self.overrides
    }

    /// A waiting device that was opened with these options, or a new one.
    ///
    /// # Errors
    /// Those of [`Gpu::open`].
    pub fn take_or_open(&self, options: &GpuOptions) -> Result<Gpu, GpuError> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let found = waiting.iter().position(|(opened_with, _)| opened_with == options);
        let device = found.map(|i| waiting.swap_remove(i).1);
        drop(waiting);
        device.map_or_else(|| Gpu::open(options), Ok)
    }

    /// Keeps a device for the next engine. A lost device, or one with buffers still alive, is closed instead.
    pub fn put_back(&self, options: GpuOptions, device: Gpu) {
        if device.check().is_ok() && device.allocated_bytes() + device.host_bytes() == 0 {
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((options, device));
        }
    }
}
