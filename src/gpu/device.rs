//! Compute device: opens an adapter and monitors its health.
//!
//! Owner thread: the one that opened it (the engine). Uncaptured errors are recorded, not panicked on; [`Gpu::check`]
//! reports them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::cooperative::{self, CooperativeMatrices};
use super::error::GpuError;
use super::host_memory::{OpenedDevice, QueueSlot, open_with_transfer_queue};
use super::kernel::{Kernel, ParamsRing};
use super::selection_costs::SelectionCosts;
use super::shader_source::KernelKey;
use super::tuning::Tuning;

/// Optional features to disable, so that their fallbacks are tested on every machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FeatureOverrides {
    /// parameters in a uniform buffer
    pub no_immediates: bool,
    /// no subgroup operations
    pub no_subgroups: bool,
    /// no cooperative matrices
    pub no_cooperative_matrices: bool,
    /// durations by the CPU clock
    pub no_timestamps: bool,
    /// kernels for real GPUs, even on a software device
    pub hardware_kernels: bool,
    /// run-time checks in every shader: bounds, loop counters, divisors
    pub checked_shaders: bool,
    /// uploads through buffers that wgpu maps
    pub no_host_memory: bool,
    /// uploads on the queue of the kernels
    pub no_transfer_queue: bool,
    /// Some(true): import of host memory and a queue for copies even on a device without memory of its own, or without a further
    /// queue. Some(false): no import on such a device
    pub host_import: Option<bool>,
}

/// Options for opening a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuOptions {
    /// part of the adapter name (any case) or its index; none: the best adapter
    pub adapter: Option<String>,
    /// features to disable
    pub overrides: FeatureOverrides,
}

/// The adapters of this machine, best first: discrete, integrated, other, software.
pub struct Adapters(Vec<wgpu::Adapter>);

impl Adapters {
    /// Lists Vulkan, Metal and DX12 adapters (never GL).
    pub fn find() -> Adapters {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::PRIMARY;
        let instance = wgpu::Instance::new(descriptor);
        let mut adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
        adapters.retain(|a| a.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS));
        adapters.sort_by_key(|a| rank(a.get_info().device_type));
        Adapters(adapters)
    }

    /// Properties of each adapter, in order of preference.
    pub fn infos(&self) -> Vec<wgpu::AdapterInfo> {
        self.0.iter().map(wgpu::Adapter::get_info).collect()
    }

    fn select(&self, requested: Option<&str>) -> Result<&wgpu::Adapter, GpuError> {
        let first = self.0.first().ok_or(GpuError::NoAdapter)?;
        let Some(requested) = requested else { return Ok(first) };
        let by_index = requested.parse::<usize>().ok().and_then(|i| self.0.get(i));
        let lowercase = requested.to_lowercase();
        let by_name = || self.0.iter().find(|a| a.get_info().name.to_lowercase().contains(&lowercase));
        by_index.or_else(by_name).ok_or_else(|| {
            let names: Vec<String> = self.infos().iter().enumerate().map(|(i, a)| format!("{i}: {}", a.name)).collect();
            GpuError::NoSuchAdapter { wanted: requested.to_owned(), found: names.join(", ") }
        })
    }
}

fn rank(kind: wgpu::DeviceType) -> u8 {
    match kind {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

/// Errors outside every error scope.
#[derive(Default)]
pub(super) struct Health {
    lost: Mutex<Option<String>>,
    rejected: Mutex<Option<String>>,
}

impl Health {
    /// True if the device was lost.
    pub fn is_lost(&self) -> bool {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// Opens an adapter: with the import of host memory, and with one more queue for copies if it is a card that has one.
fn open_device(
    adapter: &wgpu::Adapter,
    descriptor: &wgpu::DeviceDescriptor<'_>,
    overrides: FeatureOverrides,
) -> Result<OpenedDevice, wgpu::RequestDeviceError> {
    let info = adapter.get_info();
    let no_queue = || "the device has no memory of its own".to_owned();
    let opened = match info.device_type {
        _ if overrides.no_transfer_queue || overrides.no_host_memory => Err("a second queue is switched off".to_owned()),
        _ if has_own_memory(&info) || overrides.host_import == Some(true) => {
            open_with_transfer_queue(adapter, descriptor, overrides.host_import == Some(true))
        }
        // A queue would copy pages once more in the same memory, but kernels may read the RAM tier.
        wgpu::DeviceType::IntegratedGpu | wgpu::DeviceType::Cpu if overrides.host_import.is_none() => {
            open_with_transfer_queue(adapter, descriptor, true).map(|opened| OpenedDevice { slot: Err(no_queue()), ..opened })
        }
        _ => Err(no_queue()),
    };
    opened.or_else(|reason| {
        let opened = pollster::block_on(adapter.request_device(descriptor));
        opened.map(|(device, queue)| OpenedDevice { device, queue, slot: Err(reason), has_host_import: false })
    })
}

fn has_own_memory(info: &wgpu::AdapterInfo) -> bool {
    matches!(info.device_type, wgpu::DeviceType::DiscreteGpu | wgpu::DeviceType::VirtualGpu)
}

/// First copies by which the ways to host memory are checked, each once: why one does not work.
#[derive(Default)]
pub(super) struct HostChecks {
    /// uploads from host memory
    pub memory: OnceLock<Result<(), String>>,
    /// the queue for copies
    pub queue: OnceLock<Result<(), String>>,
    /// copies of that queue from imported memory
    pub import: OnceLock<Result<(), String>>,
    /// kernels that read imported memory
    pub region: OnceLock<Result<(), String>>,
}

/// An open compute device.
pub struct Gpu {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    info: wgpu::AdapterInfo,
    overrides: FeatureOverrides,
    limits: wgpu::Limits,
    features: wgpu::Features,
    cooperative_matrix_size: Option<u32>,
    /// matrices that kernels can use, or why there are none
    pub(super) matrices: OnceLock<Result<CooperativeMatrices, String>>,
    tuning: Mutex<Tuning>,
    /// None if they are not measured
    selection_costs: Mutex<Option<SelectionCosts>>,
    pub(super) health: Arc<Health>,
    pub(super) kernels: Mutex<HashMap<KernelKey, Arc<Kernel>>>,
    pub(super) allocated_bytes: Arc<AtomicU64>,
    /// bytes of host memory, see [`Gpu::host_memory`]
    pub(super) host_bytes: Arc<AtomicU64>,
    pub(super) host_checks: HostChecks,
    /// the queue for copies, or why there is none
    pub(super) queue_slot: Result<QueueSlot, String>,
    /// opened with the import of host memory
    pub(super) has_host_import: bool,
    pub(super) params_ring: Mutex<Option<Arc<ParamsRing>>>,
}

impl Gpu {
    /// Opens the selected adapter with all of its limits, and the features that Strata can use.
    ///
    /// # Errors
    /// No adapter, no match for `options.adapter`, or a driver that refuses.
    pub fn open(options: &GpuOptions) -> Result<Gpu, GpuError> {
        let adapters = Adapters::find();
        let adapter = adapters.select(options.adapter.as_deref())?;
        let info = adapter.get_info();
        let mut requested = wgpu::Features::SUBGROUP
            | wgpu::Features::TIMESTAMP_QUERY
            | wgpu::Features::SHADER_INT64
            | wgpu::Features::SHADER_F16
            | wgpu::Features::IMMEDIATES;
        let overrides = options.overrides;
        for (disabled, feature) in [
            (overrides.no_immediates, wgpu::Features::IMMEDIATES),
            (overrides.no_subgroups, wgpu::Features::SUBGROUP),
            (overrides.no_timestamps, wgpu::Features::TIMESTAMP_QUERY),
        ] {
            if disabled {
                requested.remove(feature);
            }
        }
        let mut features = requested & adapter.features();
        let mut limits = adapter.limits();
        if !features.contains(wgpu::Features::IMMEDIATES) {
            limits.max_immediate_size = 0;
        }
        let request = |required_features, experimental_features| {
            let descriptor = wgpu::DeviceDescriptor {
                label: Some("strata compute"),
                required_features,
                required_limits: limits.clone(),
                experimental_features,
                memory_hints: wgpu::MemoryHints::MemoryUsage,
                trace: wgpu::Trace::Off,
            };
            open_device(adapter, &descriptor, overrides)
        };
        // Kernels for software devices have no use for cooperative matrices. A driver that lists them may refuse them.
        let is_wanted = overrides.hardware_kernels || info.device_type != wgpu::DeviceType::Cpu;
        let mut cooperative_matrix_size =
            if is_wanted && !overrides.no_cooperative_matrices { cooperative::matrix_size(adapter) } else { None };
        let with_matrices = cooperative_matrix_size.and_then(|_| {
            let features = features | cooperative::FEATURES;
            request(features, cooperative::experimental_features()).ok().map(|opened| (opened, features))
        });
        let opened = if let Some((opened, with_matrices)) = with_matrices {
            features = with_matrices;
            opened
        } else {
            cooperative_matrix_size = None;
            request(features, wgpu::ExperimentalFeatures::disabled())
                .map_err(|e| GpuError::Open { adapter: info.name.clone(), reason: e.to_string() })?
        };
        let OpenedDevice { device, queue, slot: queue_slot, has_host_import } = opened;
        let health = Arc::new(Health::default());
        let on_lost = health.clone();
        device.set_device_lost_callback(move |reason, message| {
            set_first(&on_lost.lost, if message.is_empty() { format!("{reason:?}") } else { message });
        });
        let on_error = health.clone();
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| set_first(&on_error.rejected, error.to_string())));
        Ok(Gpu {
            device,
            queue,
            info,
            overrides,
            limits,
            features,
            cooperative_matrix_size,
            matrices: OnceLock::new(),
            tuning: Mutex::default(),
            selection_costs: Mutex::default(),
            health,
            kernels: Mutex::new(HashMap::new()),
            allocated_bytes: Arc::new(AtomicU64::new(0)),
            host_bytes: Arc::new(AtomicU64::new(0)),
            host_checks: HostChecks::default(),
            queue_slot,
            has_host_import,
            params_ring: Mutex::new(None),
        })
    }

    /// Adapter name, driver and kind.
    pub fn info(&self) -> &wgpu::AdapterInfo {
        &self.info
    }

    /// True if the device runs on the CPU (lavapipe, WARP).
    pub fn is_software(&self) -> bool {
        self.info.device_type == wgpu::DeviceType::Cpu
    }

    /// Variants that its kernels use. Kernels that are compiled already keep theirs.
    pub fn tuning(&self) -> Tuning {
        *self.tuning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the variants of kernels that are compiled from now on.
    pub fn set_tuning(&self, tuning: Tuning) {
        *self.tuning.lock().unwrap_or_else(PoisonError::into_inner) = tuning;
    }

    /// Measured costs of reading and selecting KV. None on a software device, or if the measurement failed.
    pub fn selection_costs(&self) -> Option<SelectionCosts> {
        *self.selection_costs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the measured costs.
    pub fn set_selection_costs(&self, costs: Option<SelectionCosts>) {
        *self.selection_costs.lock().unwrap_or_else(PoisonError::into_inner) = costs;
    }

    /// True if the GPU has its own memory (a discrete GPU).
    pub fn has_own_memory(&self) -> bool {
        has_own_memory(&self.info)
    }

    /// True if kernels for software devices should be used.
    pub fn uses_software_kernels(&self) -> bool {
        self.is_software() && !self.overrides.hardware_kernels
    }

    /// Features that are switched off.
    pub(super) fn overrides(&self) -> FeatureOverrides {
        self.overrides
    }

    /// True if shaders are compiled with run-time checks.
    pub fn checks_shaders(&self) -> bool {
        self.overrides.checked_shaders
    }

    /// True if subgroup operations are available.
    pub fn has_subgroups(&self) -> bool {
        self.features.contains(wgpu::Features::SUBGROUP)
    }

    /// Rows and columns (16 or 8) of cooperative matrices of f16 with f32 sums; None if the device has none.
    pub fn cooperative_matrix_size(&self) -> Option<u32> {
        self.cooperative_matrix_size
    }

    /// Least and greatest number of lanes of a subgroup.
    pub fn subgroup_sizes(&self) -> (u32, u32) {
        (self.info.subgroup_min_size, self.info.subgroup_max_size)
    }

    /// True if subgroups have exactly `n_lanes` lanes in every kernel.
    pub fn has_subgroups_of(&self, n_lanes: u32) -> bool {
        self.has_subgroups() && self.info.subgroup_min_size == n_lanes && self.info.subgroup_max_size == n_lanes
    }

    /// True if subgroups have exactly 8 lanes in every kernel, and 64-bit integers exist: the load width of a software
    /// device.
    pub fn has_subgroup8(&self) -> bool {
        self.has_subgroups_of(8) && self.has_int64()
    }

    /// True if the [`Gpu::has_subgroup8`] kernels for software devices should be used.
    pub fn uses_subgroup8(&self) -> bool {
        self.uses_software_kernels() && self.has_subgroup8()
    }

    /// True if shaders may use 64-bit integers.
    pub fn has_int64(&self) -> bool {
        self.features.contains(wgpu::Features::SHADER_INT64)
    }

    /// True if shaders may compute in f16.
    pub fn has_f16(&self) -> bool {
        self.features.contains(wgpu::Features::SHADER_F16)
    }

    /// True if parameters are passed as immediates.
    pub fn has_immediates(&self) -> bool {
        self.features.contains(wgpu::Features::IMMEDIATES)
    }

    /// True if the GPU can timestamp passes.
    pub fn has_timestamps(&self) -> bool {
        self.features.contains(wgpu::Features::TIMESTAMP_QUERY)
    }

    /// Enabled features, for `doctor`.
    pub fn features(&self) -> wgpu::Features {
        self.features
    }

    /// Limits in force, for `doctor`.
    pub fn limits(&self) -> &wgpu::Limits {
        &self.limits
    }

    /// Maximum size of a binding, bytes, rounded down to the arena alignment.
    pub fn max_binding_bytes(&self) -> u64 {
        let bytes = self.limits.max_storage_buffer_binding_size.min(self.limits.max_buffer_size);
        bytes / crate::base::limits::ARENA_ALIGN_BYTES * crate::base::limits::ARENA_ALIGN_BYTES
    }

    /// Bytes of all live buffers, without host memory.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of host memory that the device reads.
    pub fn host_bytes(&self) -> u64 {
        self.host_bytes.load(Ordering::Relaxed)
    }

    /// Fails if the device was lost, or rejected a command since the last check.
    ///
    /// # Errors
    /// [`GpuError::Lost`] on every call after a loss; [`GpuError::Rejected`] once.
    pub fn check(&self) -> Result<(), GpuError> {
        if let Some(reason) = self.health.lost.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            return Err(GpuError::Lost(reason));
        }
        match self.health.rejected.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(reason) => Err(GpuError::Rejected { what: "a command".into(), reason }),
            None => Ok(()),
        }
    }

    /// Loses the device deliberately (fault injection).
    pub fn lose(&self) {
        self.device.destroy();
        set_first(&self.health.lost, "destroyed on purpose".into());
    }
}

fn set_first(slot: &Mutex<Option<String>>, reason: String) {
    slot.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
}
