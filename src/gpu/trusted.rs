//! Shader modules without naga's run-time checks: the only `unsafe` call for shaders.
//!
//! Bounds checks and loop counters cost matrix products a fifth to a third of their speed and attention half of it
//! (`create_shader_module` against `create_shader_module_trusted` on a real GPU). `--checked-shaders` switches them on.

use super::device::Gpu;

impl Gpu {
    /// The module of `wgsl`, a shader of this crate after preprocessing.
    pub(super) fn shader_module(&self, label: &str, wgsl: String) -> wgpu::ShaderModule {
        let descriptor = wgpu::ShaderModuleDescriptor { label: Some(label), source: wgpu::ShaderSource::Wgsl(wgsl.into()) };
        if self.checks_shaders() {
            return self.device.create_shader_module(descriptor);
        }
        // SAFETY: the source is one of `shader_source::FILES`, never input. The kernels bound every index by the shape in
        // their parameters, which the host code derives from the sizes of the bound buffers. Every loop counts up to a
        // parameter, and no divisor is zero. `tests/linear` and `tests/engine/precision.rs` run kernels both ways and compare the bytes.
        unsafe { self.device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked()) }
    }
}
