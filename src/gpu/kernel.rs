//! Compiled kernels, their bind groups, and the ring of their parameters.

use std::sync::Arc;

use super::buffer::Buffer;

/// A compiled pipeline.
pub struct Kernel {
    /// name for traces and errors
    pub label: String,
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) layout: wgpu::BindGroupLayout,
    pub(super) n_bindings: usize,
    pub(super) has_params: bool,
}

/// Buffers bound to group 0 of a kernel.
#[derive(Clone)]
pub struct Binding(pub(super) Arc<wgpu::BindGroup>);

/// Parameters in the uniform fallback: one dynamic-offset slot per dispatch of a submit.
pub struct ParamsRing {
    pub(super) buffer: Buffer,
    pub(super) layout: wgpu::BindGroupLayout,
    pub(super) group: wgpu::BindGroup,
}
