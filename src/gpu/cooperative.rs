//! Cooperative matrices: products of small matrices by all lanes of a subgroup (tensor cores and their like).
//!
//! Shaders that use them say `enable f16; enable wgpu_cooperative_matrix;`. wgpu calls the feature experimental.

/// Cooperative matrices of an open device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CooperativeMatrices {
    /// rows and columns of a matrix: 16 or 8
    pub size: usize,
    /// lanes of a subgroup
    pub lanes: usize,
}

/// Features that shaders with cooperative matrices of f16 need.
pub(super) const FEATURES: wgpu::Features =
    wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX.union(wgpu::Features::SHADER_F16).union(wgpu::Features::SUBGROUP);

/// Size (rows and columns, 16 or 8) of the square matrices of f16 with f32 sums that `adapter` multiplies; None if it does not.
pub(super) fn matrix_size(adapter: &wgpu::Adapter) -> Option<u32> {
    if !adapter.features().contains(FEATURES) {
        return None;
    }
    let all = adapter.cooperative_matrix_properties();
    [16, 8].into_iter().find(|&size| {
        all.iter().any(|m| {
            [m.m_size, m.n_size, m.k_size] == [size; 3]
                && (m.ab_type, m.cr_type) == (wgpu::CooperativeScalarType::F16, wgpu::CooperativeScalarType::F32)
        })
    })
}

/// The token that wgpu asks for before it enables an experimental feature.
pub(super) fn experimental_features() -> wgpu::ExperimentalFeatures {
    // SAFETY: cooperative matrices are the only experimental feature that is requested. wgpu asks for `unsafe` as the
    // implementation may have undefined behavior; each kernel that uses them is compared with an f32 kernel on this device
    // before it is chosen.
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}
