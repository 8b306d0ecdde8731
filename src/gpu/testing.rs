//! The device of unit tests.

use super::{Gpu, GpuOptions};

/// The device, or none where there is none and none is required (`STRATA_REQUIRE_GPU=1`); `test` is then named as skipped.
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
