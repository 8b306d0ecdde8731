//! Host memory and transfer queues on systems without Vulkan: never available.

use super::region::HostSource;
use super::unavailable_queue::QueueSlot;
use crate::gpu::device::Gpu;
use crate::gpu::error::GpuError;

const REASON: &str = "the backend is not Vulkan";

/// Has no values.
pub(in crate::gpu) enum HostMemory {}

/// Has no values.
pub(in crate::gpu) enum LandingBuffer {}

/// Has no values.
pub enum TransferQueue {}

impl HostMemory {
    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn new(_gpu: &Gpu, _what: &str, _size: u64, _families: &[u32]) -> Result<HostMemory, String> {
        Err(REASON.to_owned())
    }

    /// The buffer, a source of copies.
    pub fn buffer(&self) -> &wgpu::Buffer {
        match *self {}
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// None.
    pub fn write(&self, _offset: u64, _bytes: &[u8]) -> Result<(), String> {
        match *self {}
    }

    /// Writes rows.
    ///
    /// # Errors
    /// None.
    pub fn write_rows(&self, _offset: u64, _rows: &[&[u8]], _row_bytes: usize) -> Result<(), String> {
        match *self {}
    }
}

impl LandingBuffer {
    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn new(_gpu: &Gpu, _size: u64, _families: &[u32]) -> Result<LandingBuffer, String> {
        Err(REASON.to_owned())
    }

    /// The buffer, a source of copies.
    pub fn buffer(&self) -> &wgpu::Buffer {
        match *self {}
    }
}

impl TransferQueue {
    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub(in crate::gpu) fn new(_gpu: &Gpu, slot: &QueueSlot) -> Result<TransferQueue, String> {
        match *slot {}
    }

    /// Drops what is imported.
    pub fn release_unused(&mut self) {
        match *self {}
    }

    /// Copies sources.
    ///
    /// # Errors
    /// None.
    pub(in crate::gpu) fn copy_sources(&mut self, _sources: &[HostSource], _to: &LandingBuffer) -> Result<bool, GpuError> {
        match *self {}
    }

    /// Copies bytes.
    ///
    /// # Errors
    /// None.
    pub(in crate::gpu) fn copy(&mut self, _from: &HostMemory, _to: &LandingBuffer, _n_bytes: u64) -> Result<(), GpuError> {
        match *self {}
    }
}
