//! GPU survey of `strata doctor`: adapters, features, limits and measured speed.
//!
//! ```text
//! gpu ─► adapters ─┬► Survey ─► doctor           gpu::microbenchmark ─► DeviceBandwidth ─► bench --peak, doctor
//!                  └► opened GPU: features, limits ─► Survey
//! ```
//! Units: bytes, bytes per second, floating-point operations per second.

use std::path::Path;

use serde::Serialize;

use super::storage::StorageReport;
use crate::cli::error::CliError;
use crate::gpu::microbenchmark::{self, DeviceBandwidth};
use crate::gpu::{Adapters, Gpu, GpuError, GpuOptions};

/// An adapter of this machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AdapterLine {
    /// index for `--gpu`
    pub index: usize,
    /// name from the driver
    pub name: String,
    /// `Vulkan`, `Metal`, `Dx12`
    pub backend: String,
    /// `discrete`, `integrated`, `virtual`, `other`, `software`
    pub kind: &'static str,
    /// driver with version
    pub driver: String,
}

/// The GPU that would be used.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceReport {
    /// name from the driver
    pub name: String,
    /// `Vulkan`, `Metal`, `Dx12`
    pub backend: String,
    /// true if it runs on the CPU
    pub software: bool,
    /// optional features that Strata uses if available
    pub features: Vec<(&'static str, bool)>,
    /// largest buffer, bytes
    pub max_buffer_bytes: u64,
    /// largest binding, bytes
    pub max_binding_bytes: u64,
    /// storage buffers per kernel
    pub max_storage_buffers: u32,
    /// memory of a workgroup, bytes
    pub workgroup_bytes: u32,
    /// largest number of invocations of a workgroup
    pub workgroup_invocations: u32,
    /// measured speed
    pub measured: DeviceBandwidth,
}

/// Complete survey of `strata doctor`.
#[derive(Debug, Serialize)]
pub struct Survey {
    /// all adapters, best first
    pub adapters: Vec<AdapterLine>,
    /// the GPU that would be used
    pub device: DeviceReport,
    /// memory and disk
    #[serde(flatten)]
    pub storage: StorageReport,
}

/// Lists the adapters, opens the one that matches `gpu` (or the best), and measures it and the disk of the library.
///
/// # Errors
/// [`CliError::Failed`] if there is no GPU, [`CliError::Input`] if none matches `gpu`.
pub fn survey(gpu: Option<&str>, kv_dir: Option<&Path>) -> Result<Survey, CliError> {
    let adapters = Adapters::find().infos().into_iter().enumerate().map(|(index, info)| AdapterLine {
        index,
        name: info.name,
        backend: format!("{:?}", info.backend),
        kind: kind_of(&format!("{:?}", info.device_type)),
        driver: [info.driver.as_str(), info.driver_info.as_str()].join(" ").trim().to_owned(),
    });
    let adapters = adapters.collect();
    let gpu = open(gpu)?;
    // Queried before the measurements allocate buffers on the GPU.
    let storage = StorageReport::measure(&gpu, kv_dir);
    let limits = gpu.limits();
    let device = DeviceReport {
        name: gpu.info().name.clone(),
        backend: format!("{:?}", gpu.info().backend),
        software: gpu.is_software(),
        features: vec![
            ("subgroups", gpu.has_subgroups()),
            ("immediates", gpu.has_immediates()),
            ("timestamps", gpu.has_timestamps()),
            ("64-bit integers", gpu.has_int64()),
        ],
        max_buffer_bytes: limits.max_buffer_size,
        max_binding_bytes: gpu.max_binding_bytes(),
        max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
        workgroup_bytes: limits.max_compute_workgroup_storage_size,
        workgroup_invocations: limits.max_compute_invocations_per_workgroup,
        measured: measure_open(&gpu)?,
    };
    Ok(Survey { adapters, device, storage })
}

/// Measures the GPU that matches `gpu`, or the best one.
///
/// # Errors
/// [`CliError::Failed`] if there is no GPU, [`CliError::Input`] if none matches `gpu`.
pub fn measure(gpu: Option<&str>) -> Result<DeviceBandwidth, CliError> {
    measure_open(&open(gpu)?)
}

fn open(gpu: Option<&str>) -> Result<Gpu, CliError> {
    Ok(Gpu::open(&GpuOptions { adapter: gpu.map(str::to_owned), ..GpuOptions::default() })?)
}

fn measure_open(gpu: &Gpu) -> Result<DeviceBandwidth, CliError> {
    Ok(microbenchmark::measure(gpu)?)
}

impl From<GpuError> for CliError {
    fn from(error: GpuError) -> Self {
        match error {
            GpuError::NoSuchAdapter { .. } => CliError::Input(error.to_string()),
            other => CliError::Failed(other.to_string()),
        }
    }
}

/// Name of a device type.
fn kind_of(device_type: &str) -> &'static str {
    match device_type {
        "DiscreteGpu" => "discrete",
        "IntegratedGpu" => "integrated",
        "VirtualGpu" => "virtual",
        "Cpu" => "software",
        _ => "other",
    }
}

/// Text of a bandwidth.
pub fn rate(bytes_per_s: f64) -> String {
    format!("{:.1} GB/s", bytes_per_s / 1e9)
}
