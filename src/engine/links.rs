//! What the links between the tiers can carry at most on this machine, measured in a moment.
//!
//! Units: bytes per second. Limits: each figure is the best of a few short runs, so it is a peak and not what can be sustained.

use std::path::Path;

use super::error::EngineError;
use crate::base::Bytes;
use crate::gpu::{Gpu, microbenchmark};
use crate::kv::store::disk_benchmark as disk;

/// Copied to the device and back.
const DEVICE_BYTES: u64 = 32 << 20;
/// Written to the disk and read again.
const DISK_BYTES: Bytes = Bytes(64 << 20);

/// Peaks of all links.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkPeaks {
    /// to the device
    pub ram_to_vram: f64,
    /// from the device
    pub vram_to_ram: f64,
    /// from the disk; none where nothing can be saved, or the disk failed
    pub disk_to_ram: Option<f64>,
    /// to the disk
    pub ram_to_disk: Option<f64>,
}

/// Measures the device, and the disk of `folder`.
///
/// # Errors
/// A lost device, or no memory for the buffers.
pub(super) fn measure(gpu: &Gpu, folder: Option<&Path>) -> Result<LinkPeaks, EngineError> {
    let [ram_to_vram, vram_to_ram] = microbenchmark::measure_links(gpu, DEVICE_BYTES)?;
    let disk = folder.and_then(|folder| disk::measure_with(folder, DISK_BYTES).ok());
    Ok(LinkPeaks {
        ram_to_vram,
        vram_to_ram,
        disk_to_ram: disk.as_ref().map(|d| d.read_bytes_per_s),
        ram_to_disk: disk.as_ref().map(|d| d.write_bytes_per_s),
    })
}
