//! GPUs of this machine: adapters, features, limits and measured speed.
//!
//! ```text
//! adapters ─► AdapterLine      opened GPU ─┬─► features, limits ──► DeviceReport
//!                                          └─► microbenchmark ─► DeviceBandwidth ─► DeviceReport, bench --peak
//! ```
//! Units: bytes, bytes per second, floating-point operations per second.

use serde::Serialize;

use crate::cli::error::CliError;
use crate::gpu::kernels::linear::LinearVariant;
use crate::gpu::microbenchmark::{self, DeviceBandwidth};
use crate::gpu::tuner::{self, DeviceTuning};
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
    /// sentences about the kernels; in JSON they are in `will_use`
    #[serde(skip)]
    pub kernels: Vec<String>,
    /// parts of the tuning, with what was selected, the times and why; in JSON they are in `will_use`
    #[serde(skip)]
    pub tuning: Vec<(&'static str, String)>,
    /// a sentence about uploads; in JSON it is in `will_use`
    #[serde(skip)]
    pub uploads: String,
}

impl AdapterLine {
    /// All adapters, best first.
    pub fn find_all() -> Vec<AdapterLine> {
        let infos = Adapters::find().infos().into_iter().enumerate();
        let lines = infos.map(|(index, info)| AdapterLine {
            index,
            name: info.name,
            backend: format!("{:?}", info.backend),
            kind: kind_of(&format!("{:?}", info.device_type)),
            driver: [info.driver.as_str(), info.driver_info.as_str()].join(" ").trim().to_owned(),
        });
        lines.collect()
    }
}

impl DeviceReport {
    /// Queries and measures an open GPU.
    ///
    /// # Errors
    /// A failure of the GPU.
    pub fn measure(gpu: &Gpu, tuning: &DeviceTuning) -> Result<DeviceReport, CliError> {
        let limits = gpu.limits();
        Ok(DeviceReport {
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
            measured: measure_open(gpu)?,
            kernels: LinearVariant::explanation(gpu),
            tuning: tuning.explanation(),
            uploads: gpu.upload_explanation(),
        })
    }
}

/// Measures the GPU that matches `gpu`, or the best one.
///
/// # Errors
/// [`CliError::Failed`] if there is no GPU, [`CliError::Input`] if none matches `gpu`.
pub fn measure(gpu: Option<&str>) -> Result<DeviceBandwidth, CliError> {
    measure_open(&open(gpu)?)
}

/// Opens the GPU that matches `gpu`, or the best one.
///
/// # Errors
/// [`CliError::Failed`] if there is no GPU, [`CliError::Input`] if none matches `gpu`.
pub(super) fn open(gpu: Option<&str>) -> Result<Gpu, CliError> {
    Ok(Gpu::open(&GpuOptions { adapter: gpu.map(str::to_owned), ..GpuOptions::default() })?)
}

/// Opens the same and selects its kernels: by their stored times, or by measuring them.
///
/// # Errors
/// Those of [`open`].
pub(super) fn open_tuned(gpu: Option<&str>) -> Result<(Gpu, DeviceTuning), CliError> {
    let options = GpuOptions { adapter: gpu.map(str::to_owned), ..GpuOptions::default() };
    Ok(tuner::open_tuned(|| Gpu::open(&options), tuner::default_folder().as_deref())?)
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

/// Text of a rate of arithmetic.
pub fn flop_rate(flops: f64) -> String {
    if flops < 1e12 { format!("{:.1} GFLOP/s", flops / 1e9) } else { format!("{:.1} TFLOP/s", flops / 1e12) }
}

/// The same, or why it was not measured.
pub fn flop_rate_or_reason(flops: &Result<f64, String>) -> String {
    flops.as_ref().map_or_else(|reason| format!("N/A ({reason})"), |flops| flop_rate(*flops))
}

/// Text of a bandwidth.
pub fn rate(bytes_per_s: f64) -> String {
    format!("{:.1} GB/s", bytes_per_s / 1e9)
}
