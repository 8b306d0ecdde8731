//! Tiles of a matmul by cooperative matrices.

use crate::gpu::{CooperativeMatrices, Gpu, MatmulKernel};

/// Matrix units of a device, and the largest tile that its workgroup memory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MatrixUnits {
    /// rows and columns of a matrix: 16 or 8
    pub size: usize,
    /// lanes of a subgroup
    pub lanes: usize,
    /// tokens, and rows of weights, of the largest tile: 128 or 64
    pub largest_tile: usize,
}

/// A tile: subgroups and their matrices of sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct MatrixTile {
    /// tokens
    pub tokens: usize,
    /// rows of weights
    pub rows: usize,
    subgroups: [usize; 2],
}

/// Workgroup memory of the tile of 128 x 128: two stages, and a matrix of f32 per subgroup.
const LARGE_TILE_BYTES: u32 = 48 << 10;
/// Lanes of a workgroup.
const LANES: usize = 256;

impl MatrixUnits {
    /// The matrix units of `gpu`.
    ///
    /// # Errors
    /// Why it has none that the kernels can use.
    pub fn of(gpu: &Gpu) -> Result<MatrixUnits, String> {
        let CooperativeMatrices { size, lanes } = gpu.cooperative_matrices()?;
        let limits = gpu.limits();
        if limits.max_compute_invocations_per_workgroup < LANES as u32 {
            return Err(format!("its workgroups have at most {} lanes", limits.max_compute_invocations_per_workgroup));
        }
        let has_room = limits.max_compute_workgroup_storage_size >= LARGE_TILE_BYTES;
        let largest_tile = if has_room && gpu.tuning().matmul != MatmulKernel::Matrices64 { 128 } else { 64 };
        Ok(MatrixUnits { size, lanes, largest_tile })
    }

    /// The tiles, by tokens, ascending.
    pub(super) fn tiles(self) -> [MatrixTile; 2] {
        let n = (LANES / self.lanes).clamp(4, 8);
        let half = n / 2;
        [
            MatrixTile { tokens: 32, rows: self.largest_tile, subgroups: [1, n.min(self.largest_tile / 16)] },
            MatrixTile { tokens: self.largest_tile, rows: self.largest_tile, subgroups: [2, half] },
        ]
    }
}

impl MatrixTile {
    /// Defines of `linear/matmul_cooperative`.
    pub(super) fn defines(self, units: MatrixUnits) -> Vec<(&'static str, String)> {
        let [m, n] = self.subgroups;
        let lanes = m * n * units.lanes;
        let numbers = [
            ("SIZE", units.size),
            ("LANES", units.lanes),
            ("SGM", m),
            ("SGN", n),
            ("FM", self.tokens / m / units.size),
            ("FN", self.rows / n / units.size),
            ("X_LOADS", (self.tokens * 4).div_ceil(lanes)),
            ("W_LOADS", (self.rows * 2).div_ceil(lanes)),
        ];
        let mut defines = numbers.map(|(name, number)| (name, number.to_string())).to_vec();
        // More lanes than loads.
        if self.tokens * 4 < lanes {
            defines.push(("SOME_LOAD_X", String::new()));
        }
        if self.rows * 2 < lanes {
            defines.push(("SOME_LOAD_W", String::new()));
        }
        defines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::kernels::linear::{LinearActivation, LinearOp, LinearSpec, LinearVariant, OpKernels, WeightFormat};
    use crate::gpu::testing::gpu_with;
    use crate::gpu::{FeatureOverrides, Recorder};

    #[test]
    fn kernel_that_gets_other_subgroups_gives_no_numbers() {
        let overrides = FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() };
        let Some(gpu) = gpu_with("kernel_that_gets_other_subgroups_gives_no_numbers", overrides) else { return };
        let Ok(units) = MatrixUnits::of(&gpu) else { return eprintln!("skipped: no cooperative matrices") };
        let spec =
            LinearSpec { format: WeightFormat::F16, cols: 32, activation: LinearActivation::None, bias: false, residual: false };
        let (n_tokens, n_rows) = (32, 64);
        let is_number = |lanes| {
            let variant = LinearVariant::GpuCooperative(MatrixUnits { lanes, ..units });
            let kernels = OpKernels::compile(&gpu, LinearOp::Matmul, &spec, variant, gpu.tuning().matvec).unwrap();
            let zeros = |size| gpu.buffer("test", size as u64).unwrap().all();
            let slices = [zeros(n_rows * 32 * 2), zeros(16), zeros(n_tokens * 32 * 2), zeros(n_tokens * 4)];
            let y = zeros(n_tokens * n_rows * 4);
            let bound: Vec<_> = slices.iter().chain([&y]).collect();
            let binding = gpu.bind(&kernels.kernels[0], &bound).unwrap();
            let params = crate::gpu::kernels::linear::shape::Params {
                n_cols: 32,
                n_rows: n_rows as u32,
                n_tokens: n_tokens as u32,
                x_stride: 32,
                y_offset: 0,
                y_stride: n_rows as u32,
                bias_offset: 0,
            };
            let mut recorder = Recorder::new();
            recorder.dispatch(&kernels.kernels[0], &binding, &params, [1, 1, 1]);
            gpu.submit(&mut recorder).unwrap();
            let y: Vec<f32> = bytemuck::pod_collect_to_vec(&gpu.download(&y).unwrap());
            y.iter().all(|v| v.is_finite())
        };
        assert!(is_number(units.lanes));
        // Half the lanes, or twice as many, of what the kernel is built for.
        for other in [units.lanes / 2, units.lanes * 2].into_iter().filter(|lanes| (8..=64).contains(lanes)) {
            assert!(!is_number(other), "{other} lanes");
        }
    }
}
