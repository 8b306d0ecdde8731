//! What the command line asks the device layer: which adapters there are, and how fast one really is.
//!
//! ```text
//! gpu ─► adapters ─┬► Survey ─► doctor           gpu::microbenchmark ─► DeviceBandwidth ─► bench --peak, doctor
//!                  └► opened device: features, limits ─► Survey
//! ```
//! Units: bytes, bytes per second, floating-point operations per second.

use std::path::Path;

use serde::Serialize;

use super::storage::StorageReport;
use crate::cli::error::CliError;
use crate::gpu::microbenchmark::{self, DeviceBandwidth};
use crate::gpu::{Adapters, Gpu, GpuError, GpuOptions};

/// One adapter of this machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AdapterLine {
    /// what `--gpu` takes
    pub index: usize,
    /// as the driver has it
    pub name: String,
    /// `Vulkan`, `Metal`, `Dx12`
    pub backend: String,
    /// `discrete`, `integrated`, `virtual`, `other`, `software`
    pub kind: &'static str,
    /// the driver and its version
    pub driver: String,
}

/// The device that would be used, opened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceReport {
    /// as the driver has it
    pub name: String,
    /// `Vulkan`, `Metal`, `Dx12`
    pub backend: String,
    /// runs on the CPU
    pub software: bool,
    /// optional abilities that Strata uses where they are there
    pub features: Vec<(&'static str, bool)>,
    /// largest buffer
    pub max_buffer_bytes: u64,
    /// largest part of a buffer that a kernel sees at once
    pub max_binding_bytes: u64,
    /// buffers that a kernel sees at once
    pub max_storage_buffers: u32,
    /// memory that a workgroup shares
    pub workgroup_bytes: u32,
    /// invocations in a workgroup
    pub workgroup_invocations: u32,
    /// as measured now
    pub measured: DeviceBandwidth,
}

/// Everything that `strata doctor` knows about devices and what they share.
#[derive(Debug, Serialize)]
pub struct Survey {
    /// all of them, best first
    pub adapters: Vec<AdapterLine>,
    /// the one that would be used
    pub device: DeviceReport,
    /// memory and disk beside it
    #[serde(flatten)]
    pub storage: StorageReport,
}

/// Lists the adapters, opens the one that `gpu` names (or the best), and measures it and the disk of the library.
///
/// # Errors
/// [`CliError::Failed`] where there is none, [`CliError::Input`] where `gpu` names none.
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
    // Before the measurements have buffers on the device.
    let storage = StorageReport::look(&gpu, kv_dir);
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

/// Measures the device that `gpu` names, or the best.
///
/// # Errors
/// [`CliError::Failed`] where there is none, [`CliError::Input`] where `gpu` names none.
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

/// The kind of a device, in the words of the help.
fn kind_of(device_type: &str) -> &'static str {
    match device_type {
        "DiscreteGpu" => "discrete",
        "IntegratedGpu" => "integrated",
        "VirtualGpu" => "virtual",
        "Cpu" => "software",
        _ => "other",
    }
}

/// A bandwidth, for people.
pub fn rate(bytes_per_s: f64) -> String {
    format!("{:.1} GB/s", bytes_per_s / 1e9)
}
