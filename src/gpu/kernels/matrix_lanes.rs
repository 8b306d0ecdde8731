//! Lanes that multiply a cooperative matrix, where a driver picks the subgroup size of each pipeline (AMD: 32 or 64).
//!
//! ```text
//! subgroup sizes ─► candidates ─► a small kernel built for each ─► the first one whose lanes the driver gives
//! ```
//! Kernels with cooperative matrices are built for a number of lanes. A kernel that gets another one writes NaN, which the
//! checks on load refuse.

use crate::gpu::{CooperativeMatrices, Gpu, GpuError, KernelKey, Recorder};

/// Numbers of lanes for which kernels can be built.
const LANES: [usize; 4] = [8, 16, 32, 64];
/// Subgroups of a workgroup, and its most lanes, in kernels with cooperative matrices.
const SUBGROUPS: [usize; 2] = [4, 8];
const MAX_LANES: usize = 256;

/// Report of one lane: lanes of its subgroup, subgroups, bits of a sum of the product.
type LaneReport = [u32; 4];

impl Gpu {
    /// Matrices that kernels can use: the number of lanes that multiply one must be known before a dispatch.
    ///
    /// # Errors
    /// Why there are none, as a clause about the device.
    pub fn cooperative_matrices(&self) -> Result<CooperativeMatrices, String> {
        self.matrices.get_or_init(|| find(self)).clone()
    }
}

fn find(gpu: &Gpu) -> Result<CooperativeMatrices, String> {
    let Some(size) = gpu.cooperative_matrix_size() else {
        return Err("it lists no cooperative matrices of f16 with f32 sums".to_owned());
    };
    let size = size as usize;
    let lanes = select_lanes(gpu.subgroup_sizes(), |lanes| gives(gpu, size, lanes).unwrap_or(false))?;
    Ok(CooperativeMatrices { size, lanes })
}

/// Lanes for which kernels are built on a device with subgroups of `least` to `most` lanes. `is_given` tries a candidate.
fn select_lanes((least, most): (u32, u32), mut is_given: impl FnMut(usize) -> bool) -> Result<usize, String> {
    let sizes = [most as usize, least as usize];
    let usable = |lanes: &usize| LANES.contains(lanes);
    let found = match least == most {
        true => Some(sizes[0]).filter(usable),
        false => sizes.into_iter().filter(usable).find(|lanes| is_given(*lanes)),
    };
    found.ok_or_else(|| match least == most {
        true => format!("its subgroups have {most} lanes"),
        false => format!("its subgroups have {least} to {most} lanes, and no kernel gets the number that it is built for"),
    })
}

/// True if kernels built for `lanes` get subgroups of that many, and multiply matrices correctly.
fn gives(gpu: &Gpu, size: usize, lanes: usize) -> Result<bool, GpuError> {
    for n_subgroups in SUBGROUPS.into_iter().filter(|n| n * lanes <= MAX_LANES) {
        let kernel = gpu.kernel(&key(size, lanes, n_subgroups))?;
        let reports = gpu.buffer("lanes of subgroups", (n_subgroups * lanes * size_of::<LaneReport>()) as u64)?.all();
        let binding = gpu.bind(&kernel, &[&reports])?;
        let mut recorder = Recorder::new();
        recorder.dispatch(&kernel, &binding, &0u32, [1, 1, 1]);
        gpu.submit(&mut recorder)?;
        let expected: LaneReport = [lanes as u32, n_subgroups as u32, (size as f32).to_bits(), 0];
        let reports: Vec<LaneReport> = bytemuck::pod_collect_to_vec(&gpu.download(&reports)?);
        if reports.into_iter().any(|lane| lane != expected) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn key(size: usize, lanes: usize, n_subgroups: usize) -> KernelKey {
    let numbers = [("SIZE", size), ("LANES", lanes), ("SUBGROUPS", n_subgroups)];
    KernelKey::new("bench/matrix_lanes", &numbers.map(|(name, n)| (name, n.to_string())))
}

/// Every variant of this kernel, for the checks without a GPU.
pub(super) fn variants() -> Vec<KernelKey> {
    [(16, 64, 4), (16, 32, 4), (16, 32, 8), (8, 8, 4), (8, 8, 8)].map(|(size, lanes, n)| key(size, lanes, n)).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::FeatureOverrides;
    use crate::gpu::testing::gpu_with;

    #[test]
    fn lanes_are_the_largest_size_that_the_driver_gives() {
        let lanes = |sizes, given: &'static [usize]| {
            let mut tried = Vec::new();
            let selected = select_lanes(sizes, |lanes| {
                tried.push(lanes);
                given.contains(&lanes)
            });
            (selected, tried)
        };
        assert_eq!(lanes((32, 32), &[]), (Ok(32), vec![]), "one size: nothing to try");
        assert_eq!(lanes((32, 64), &[64]), (Ok(64), vec![64]));
        assert_eq!(lanes((32, 64), &[32, 64]), (Ok(64), vec![64]));
        assert_eq!(lanes((32, 64), &[32]), (Ok(32), vec![64, 32]));
        assert_eq!(lanes((32, 128), &[32, 128]), (Ok(32), vec![32]), "no kernel for 128");
        let (refused, tried) = lanes((32, 64), &[16]);
        assert_eq!(tried, [64, 32]);
        assert!(refused.is_err_and(|reason| reason.contains("32 to 64 lanes")));
        assert_eq!(lanes((4, 4), &[]), (Err("its subgroups have 4 lanes".into()), vec![]));
    }

    #[test]
    fn driver_gives_the_lanes_of_its_only_subgroup_size_and_no_others() {
        let overrides = FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() };
        let Some(gpu) = gpu_with("driver_gives_the_lanes_of_its_only_subgroup_size_and_no_others", overrides) else { return };
        let (least, most) = gpu.subgroup_sizes();
        let Some(size) = gpu.cooperative_matrix_size().filter(|_| least == most) else {
            return eprintln!("skipped: no cooperative matrices, or subgroups of several sizes");
        };
        for lanes in LANES {
            assert_eq!(gives(&gpu, size as usize, lanes), Ok(lanes == most as usize), "{lanes}");
        }
    }
}
