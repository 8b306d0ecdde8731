//! Tiling of flash attention with cooperative matrices: subgroups, rows and workgroup memory of a device and head size.

use crate::gpu::kernels::KvFormat;
use crate::gpu::{CooperativeMatrices, Gpu, KernelKey};

/// Most query rows of a workgroup.
const MAX_ROWS: usize = 64;
/// Keys of a tile.
const KEYS: usize = 32;
/// Head sizes. Smaller heads waste most of the work on softmax.
const HEAD_DIMS: std::ops::RangeInclusive<usize> = 64..=256;
/// Head size up to which four subgroups hold all sums and queries in registers.
const FOUR_SUBGROUPS_HEAD_DIM: usize = 128;
/// Workgroup memory that separate tiles of keys and values may take: more leaves too few workgroups per core.
const MAX_MEMORY_BYTES: usize = 48 << 10;

/// Properties of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MatrixDevice {
    /// rows and columns of a matrix
    pub size: usize,
    /// lanes of a subgroup
    pub lanes: usize,
    /// workgroup memory, bytes
    pub memory_bytes: usize,
}

/// Tiling of one head size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MatrixTiling {
    device: MatrixDevice,
    /// subgroups by rows and by columns
    subgroups: [usize; 2],
    /// query rows of a workgroup
    pub n_rows: usize,
    /// tiles in workgroup memory: keys and values, or one for both in turn
    n_tiles: usize,
}

impl MatrixDevice {
    /// Properties of `gpu`. None without cooperative matrices that kernels can use.
    pub(super) fn of(gpu: &Gpu) -> Option<MatrixDevice> {
        let CooperativeMatrices { size, lanes } = gpu.cooperative_matrices().ok()?;
        let memory_bytes = gpu.limits().max_compute_workgroup_storage_size as usize;
        Some(MatrixDevice { size, lanes, memory_bytes })
    }
}

impl MatrixTiling {
    /// Tiling for heads of D = `head_dim`. None if the matrices or the workgroup memory do not fit.
    pub(super) fn of(device: MatrixDevice, head_dim: usize) -> Option<MatrixTiling> {
        if !HEAD_DIMS.contains(&head_dim) || !head_dim.is_multiple_of(device.size) {
            return None;
        }
        let subgroups = match (head_dim / device.size).is_multiple_of(2) {
            true if head_dim > FOUR_SUBGROUPS_HEAD_DIM && device.lanes < 64 => [4, 2],
            true => [2, 2],
            false => [4, 1],
        };
        let n_rows = MAX_ROWS.min(device.lanes * subgroups[0] * subgroups[1]);
        let tiling = |n_tiles| MatrixTiling { device, subgroups, n_rows, n_tiles };
        let fits = |t: &MatrixTiling| t.memory_bytes(head_dim) <= device.memory_bytes.min(MAX_MEMORY_BYTES);
        [tiling(2), tiling(1)].into_iter().find(fits).filter(|t| t.n_rows.is_multiple_of(subgroups[0] * device.size))
    }

    fn tile_vec4(&self, head_dim: usize) -> usize {
        self.n_tiles * KEYS * (head_dim / 4 + 2)
    }

    /// Workgroup memory: scores, weights, tiles, factors of rows, flag.
    fn memory_bytes(&self, head_dim: usize) -> usize {
        let by_row = (KEYS + 4) * 4 + (KEYS + 8) * 2 + 8;
        self.n_rows * by_row + self.tile_vec4(head_dim) * 8 + 16
    }

    /// Matrices along D of the query slices that the tiles have room for, a divisor of their number.
    fn slice_matrices(&self, head_dim: usize) -> usize {
        let n = head_dim / self.device.size;
        let fits = |m: &usize| n.is_multiple_of(*m) && self.n_rows * (m * self.device.size / 4 + 2) <= self.tile_vec4(head_dim);
        (1..=n).rev().find(fits).unwrap_or(1)
    }

    /// Key of the kernel.
    pub(super) fn key(&self, n_kv_head: usize, head_dim: usize, element: KvFormat) -> KernelKey {
        let MatrixDevice { size, lanes, .. } = self.device;
        let [by_rows, by_columns] = self.subgroups;
        let n_lanes = lanes * by_rows * by_columns;
        let row_lanes = n_lanes / self.n_rows;
        let slice = self.slice_matrices(head_dim);
        let mut defines = element.defines(n_kv_head, head_dim);
        element.halve(&mut defines);
        if self.n_tiles == 1 {
            defines.push(("ONE_TILE", String::new()));
        }
        for (name, value) in [
            ("ROWS", self.n_rows),
            ("KEYS", KEYS),
            ("SIZE", size),
            ("LANES", lanes),
            ("SGM", by_rows),
            ("SGN", by_columns),
            ("FM", self.n_rows / by_rows / size),
            ("FN", KEYS / by_columns / size),
            ("ON", head_dim / by_columns / size),
            ("ROW_LANES", row_lanes),
            ("ROW_STEPS", row_lanes.trailing_zeros() as usize),
            ("TILE", self.tile_vec4(head_dim)),
            ("VALUES_AT", self.tile_vec4(head_dim) * (self.n_tiles - 1) / 2),
            ("LOADS", (KEYS * head_dim / 8).div_ceil(n_lanes)),
            ("Q_MATRICES", slice),
            ("Q_SLICES", head_dim / size / slice),
        ] {
            defines.push((name, value.to_string()));
        }
        KernelKey::new("attention/prefill_flash_matrices", &defines)
    }
}

/// Keys of a few devices, for the checks without a GPU.
pub(super) fn variants(n_kv_head: usize, head_dim: usize, element: KvFormat) -> Vec<KernelKey> {
    [(16, 32, 48 << 10), (8, 8, 32 << 10)]
        .into_iter()
        .map(|(size, lanes, memory_bytes)| MatrixDevice { size, lanes, memory_bytes })
        // Each takes naga a second.
        .filter(|device| device.size == 16 || head_dim == *HEAD_DIMS.start())
        .filter_map(|device| Some(MatrixTiling::of(device, head_dim)?.key(n_kv_head, head_dim, element)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrix_tiling_covers_rows_keys_and_elements_of_every_head_size() {
        for (size, lanes, memory_bytes) in [(16, 32, 49152), (16, 32, 32768), (16, 64, 65536), (8, 32, 32768), (8, 8, 32768)] {
            let device = MatrixDevice { size, lanes, memory_bytes };
            for head_dim in (8..=512).step_by(8) {
                let tiling = MatrixTiling::of(device, head_dim);
                assert_eq!(
                    tiling.is_some(),
                    HEAD_DIMS.contains(&head_dim) && head_dim.is_multiple_of(size),
                    "{device:?} {head_dim}"
                );
                let Some(t) = tiling else { continue };
                let [by_rows, by_columns] = t.subgroups;
                assert!(t.memory_bytes(head_dim) <= memory_bytes);
                assert!(t.n_rows.is_multiple_of(by_rows * size) && KEYS.is_multiple_of(by_columns * size));
                assert!(head_dim.is_multiple_of(by_columns * size));
                // Lanes of a row divide its scores, and are in one subgroup. The scores have room for a matrix of each subgroup.
                let row_lanes = by_rows * by_columns * lanes / t.n_rows;
                assert!(row_lanes.is_power_of_two() && row_lanes <= (KEYS / 4).min(lanes));
                assert!(by_rows * by_columns * size * size <= t.n_rows * (KEYS + 4));
                let slice = t.slice_matrices(head_dim);
                assert!(t.n_rows * (slice * size / 4 + 2) <= t.tile_vec4(head_dim));
            }
        }
    }
}
