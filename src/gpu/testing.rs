//! GPU of the unit tests.

use super::{FeatureOverrides, Gpu, GpuOptions};

/// Opens the GPU. Without one, prints `test` as skipped and returns None, unless `STRATA_REQUIRE_GPU=1` requires it.
pub fn gpu(test: &str) -> Option<Gpu> {
    gpu_with(test, FeatureOverrides::default())
}

/// Same with overrides.
pub fn gpu_with(test: &str, overrides: FeatureOverrides) -> Option<Gpu> {
    match Gpu::open(&GpuOptions { adapter: None, overrides }) {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            assert!(std::env::var_os("STRATA_REQUIRE_GPU").is_none_or(|v| v != "1"), "{error}");
            eprintln!("skipped: {test}: {error}");
            None
        }
    }
}
