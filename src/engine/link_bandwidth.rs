//! Link bandwidth: peak rates of the links between the tiers, and of kernels, on this machine, measured quickly.
//!
//! Units: bytes per second, operations per second. Limits: each figure is the best of a few short runs, so it is a peak, not a sustained rate.

use std::path::Path;

use crate::base::Bytes;
use crate::engine::api::{KernelPeaks, LinkBandwidth};
use crate::engine::error::EngineError;
use crate::gpu::{Gpu, microbenchmark};
use crate::kv::store::disk_benchmark as disk;

/// Bytes copied to the device and back.
const DEVICE_BYTES: u64 = 32 << 20;
/// Bytes written to the disk and read again.
const DISK_BYTES: Bytes = Bytes(64 << 20);

/// Measures the links of the device, and the disk of `folder`.
///
/// # Errors
/// A lost device, or no memory for the buffers.
pub(super) fn measure(gpu: &Gpu, folder: Option<&Path>) -> Result<LinkBandwidth, EngineError> {
    let [ram_to_vram, vram_to_ram] = microbenchmark::measure_links(gpu, DEVICE_BYTES)?;
    let disk = folder.and_then(|folder| disk::measure_with(folder, DISK_BYTES).ok());
    Ok(LinkBandwidth {
        ram_to_vram,
        vram_to_ram,
        disk_to_ram: disk.as_ref().map(|d| d.read_bytes_per_s),
        ram_to_disk: disk.as_ref().map(|d| d.write_bytes_per_s),
    })
}

/// Measures the peaks of the device for kernels.
///
/// # Errors
/// A lost device, or no memory for the buffers.
pub(super) fn measure_kernels(gpu: &Gpu) -> Result<KernelPeaks, EngineError> {
    let (read_bytes_per_s, f32_flops, matrix_flops) = microbenchmark::measure_kernels(gpu)?;
    Ok(KernelPeaks { read_bytes_per_s, f32_flops, matrix_flops })
}
