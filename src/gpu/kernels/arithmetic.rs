//! Microbenchmarks of arithmetic in registers: f16 vectors, and products of cooperative matrices.
//!
//! Units: floating-point operations.

use super::linear::MatrixUnits;
use crate::gpu::{Gpu, GpuError, KernelKey, Recorder, Slice};

/// Workgroups of a dispatch on a real GPU, enough to fill it; a software device needs one per core.
const GROUPS: usize = 2048;
const SOFTWARE_GROUPS: usize = 16;
/// Lanes of a workgroup, chains of a lane and elements of a chain in `bench/f16_vectors`.
const VECTOR_LANES: usize = 64;
const CHAINS: usize = 8;
const ELEMENTS: usize = 4;
/// Subgroups of a workgroup, and products of a step, in `bench/matrix_products`.
const SUBGROUPS: usize = 4;
const PRODUCTS: usize = 8;

/// Unit whose peak is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// fused multiply-adds of f16 vectors
    F16Vectors,
    /// products of f16 matrices with f32 sums
    Matrices(MatrixUnits),
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    n_steps: u32,
}

impl Arithmetic {
    fn key(self) -> KernelKey {
        match self {
            Arithmetic::F16Vectors => KernelKey::new("bench/f16_vectors", &[]),
            Arithmetic::Matrices(MatrixUnits { size, lanes, .. }) => {
                KernelKey::new("bench/matrix_products", &[("SIZE", size.to_string()), ("LANES", lanes.to_string())])
            }
        }
    }

    fn n_groups(gpu: &Gpu) -> usize {
        if gpu.is_software() { SOFTWARE_GROUPS } else { GROUPS }
    }

    /// Bytes of the sums that [`Arithmetic::record`] writes.
    pub fn sums_bytes(self, gpu: &Gpu) -> u64 {
        let per_group = match self {
            Arithmetic::F16Vectors => VECTOR_LANES,
            Arithmetic::Matrices(units) => units.size * units.size,
        };
        (Arithmetic::n_groups(gpu) * per_group * 4) as u64
    }

    /// Records `n_steps` steps. `numbers` has two f32. Returns the operations.
    ///
    /// # Errors
    /// A kernel that does not compile, or buffers that cannot be bound.
    pub fn record(self, gpu: &Gpu, recorder: &mut Recorder, [numbers, sums]: [&Slice; 2], n_steps: u32) -> Result<f64, GpuError> {
        let kernel = gpu.kernel(&self.key())?;
        let binding = gpu.bind(&kernel, &[numbers, sums])?;
        let n_groups = Arithmetic::n_groups(gpu);
        recorder.dispatch(&kernel, &binding, &Params { n_steps }, [n_groups as u32, 1, 1]);
        let per_step = match self {
            Arithmetic::F16Vectors => VECTOR_LANES * CHAINS * ELEMENTS * 2,
            Arithmetic::Matrices(units) => SUBGROUPS * PRODUCTS * 2 * units.size.pow(3),
        };
        Ok(n_groups as f64 * f64::from(n_steps) * per_step as f64)
    }
}

/// Every variant of these kernels, for the checks without a GPU.
pub(super) fn variants() -> Vec<KernelKey> {
    let matrices = [(16, 32), (16, 64), (8, 8)].map(|(size, lanes)| MatrixUnits { size, lanes, largest_tile: 64 });
    matrices.map(Arithmetic::Matrices).into_iter().chain([Arithmetic::F16Vectors]).map(Arithmetic::key).collect()
}
