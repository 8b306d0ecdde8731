//! Compute pipelines, one per [`KernelKey`], compiled on first use and cached; and their bind groups.

use std::num::NonZeroU64;
use std::sync::{Arc, PoisonError};

use super::buffer::Slice;
use super::device::Gpu;
use super::error::GpuError;
use super::kernel::{Binding, Kernel, ParamsRing};
use super::shader_source::{self, KernelKey};

/// Maximum size of a parameter struct, bytes.
pub const MAX_PARAMS_BYTES: u32 = 64;
/// Stride of parameter structs in the uniform fallback, bytes (a multiple of the alignment of every device).
pub(super) const PARAMS_STRIDE_BYTES: u64 = 256;
/// Parameter structs per submit in the uniform fallback.
pub(super) const PARAMS_RING_SLOTS: u64 = 4096;

impl Gpu {
    /// The kernel of `key`, compiled on first use.
    ///
    /// # Errors
    /// A shader that fails to preprocess or validate, or a lost device.
    pub fn kernel(&self, key: &KernelKey) -> Result<Arc<Kernel>, GpuError> {
        if let Some(kernel) = self.kernels.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
            return Ok(kernel.clone());
        }
        let kernel = Arc::new(self.compile(key)?);
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), kernel.clone());
        Ok(kernel)
    }

    fn compile(&self, key: &KernelKey) -> Result<Kernel, GpuError> {
        self.check()?;
        let label = key.label();
        let text = shader_source::expand(key, self.has_immediates())?;
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let module = self.shader_module(&label, text.wgsl);
        let entries: Vec<wgpu::BindGroupLayoutEntry> =
            text.bindings.iter().map(|b| storage_entry(b.binding, b.read_only)).collect();
        let layout =
            self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some(&label), entries: &entries });
        let ring = if text.has_params && !self.has_immediates() { Some(self.params_ring()?) } else { None };
        let mut groups = vec![Some(&layout)];
        groups.extend(ring.as_ref().map(|r| Some(&r.layout)));
        let pipeline_layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(&label),
            bind_group_layouts: &groups,
            immediate_size: if text.has_params && self.has_immediates() { MAX_PARAMS_BYTES } else { 0 },
        });
        let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(&label),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions { constants: &[], zero_initialize_workgroup_memory: false },
            cache: None,
        });
        if let Some(error) = pollster::block_on(scope.pop()) {
            self.check()?;
            return Err(GpuError::Shader { shader: label, reason: error.to_string() });
        }
        Ok(Kernel { label, pipeline, layout, n_bindings: entries.len(), has_params: text.has_params })
    }

    /// Binds `slices`, in order, to group 0 of `kernel`.
    ///
    /// # Errors
    /// A wrong number of slices, one larger than the maximum binding, or a misaligned one.
    pub fn bind(&self, kernel: &Kernel, slices: &[&Slice]) -> Result<Binding, GpuError> {
        let rejected = |reason: String| GpuError::Rejected { what: kernel.label.clone(), reason };
        if slices.len() != kernel.n_bindings {
            return Err(rejected(format!("{} bindings, {} slices", kernel.n_bindings, slices.len())));
        }
        let entries: Vec<wgpu::BindGroupEntry> = slices
            .iter()
            .enumerate()
            .map(|(i, s)| wgpu::BindGroupEntry {
                binding: i as u32,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &s.buffer.raw,
                    offset: s.offset,
                    size: NonZeroU64::new(s.size),
                }),
            })
            .collect();
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(&kernel.label),
            layout: &kernel.layout,
            entries: &entries,
        });
        match pollster::block_on(scope.pop()) {
            Some(error) => Err(rejected(error.to_string())),
            None => Ok(Binding(Arc::new(group))),
        }
    }

    pub(super) fn params_ring(&self) -> Result<Arc<ParamsRing>, GpuError> {
        let mut slot = self.params_ring.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ring) = slot.as_ref() {
            return Ok(ring.clone());
        }
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let buffer = self.create_buffer("parameters", PARAMS_STRIDE_BYTES * PARAMS_RING_SLOTS, usage)?;
        let layout = self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some("parameters"),
            entries: &[wgpu::BindGroupLayoutEntry {
                binding: 0,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Uniform,
                    has_dynamic_offset: true,
                    min_binding_size: None,
                },
                count: None,
            }],
        });
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("parameters"),
            layout: &layout,
            entries: &[wgpu::BindGroupEntry {
                binding: 0,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &buffer.raw,
                    offset: 0,
                    size: NonZeroU64::new(u64::from(MAX_PARAMS_BYTES)),
                }),
            }],
        });
        let ring = Arc::new(ParamsRing { buffer, layout, group });
        *slot = Some(ring.clone());
        Ok(ring)
    }
}

fn storage_entry(binding: u32, read_only: bool) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    }
}
