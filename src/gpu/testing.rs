//! GPU of the unit tests.

use super::{Gpu, GpuOptions};

/// Opens the GPU. Without one, prints `test` as skipped and returns None, unless `STRATA_REQUIRE_GPU=1` requires it.
pub fn gpu(test: &str) -> Option<Gpu> {
    match Gpu::open(&GpuOptions::default()) {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            assert!(std::env::var_os("STRATA_REQUIRE_GPU").is_none_or(|v| v != "1"), "{error}");
            eprintln!("skipped: {test}: {error}");
            None
        }
    }
}
