//! Helpers that several test targets share.
#![allow(dead_code, reason = "each target uses some of them")]

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use strata::gpu::{FeatureOverrides, Gpu, GpuOptions};

/// Where the test data is, if it is there.
pub fn data_dir() -> Option<PathBuf> {
    let dir = std::env::var_os("STRATA_DATA")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data"), PathBuf::from);
    dir.is_dir().then_some(dir)
}

/// One device per set of overrides for the whole target, used by one test at a time: software devices share two cores.
/// Without any device the test is skipped by name, or fails where `STRATA_REQUIRE_GPU=1`.
pub fn gpu(test: &str, overrides: FeatureOverrides) -> Option<MutexGuard<'static, Gpu>> {
    static DEVICES: Mutex<Vec<(FeatureOverrides, &'static Mutex<Gpu>)>> = Mutex::new(Vec::new());
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, gpu)) = devices.iter().find(|(t, _)| *t == overrides) {
        let gpu = *gpu;
        drop(devices);
        return Some(gpu.lock().unwrap_or_else(PoisonError::into_inner));
    }
    match Gpu::open(&GpuOptions { adapter: None, overrides }) {
        Ok(gpu) => {
            static NAMED: OnceLock<()> = OnceLock::new();
            NAMED.get_or_init(|| eprintln!("device: {} ({})", gpu.info().name, gpu.info().driver_info));
            let gpu: &'static Mutex<Gpu> = Box::leak(Box::new(Mutex::new(gpu)));
            devices.push((overrides, gpu));
            drop(devices);
            Some(gpu.lock().unwrap_or_else(PoisonError::into_inner))
        }
        Err(error) => {
            assert!(std::env::var_os("STRATA_REQUIRE_GPU").is_none_or(|v| v != "1"), "{test}: {error}");
            eprintln!("skipped: {test}: {error}");
            None
        }
    }
}

/// Normalized mean squared error of `got` against `want`, and the largest absolute difference.
pub fn nmse(got: &[f32], want: &[f32]) -> (f64, f64) {
    assert_eq!(got.len(), want.len());
    let (mut error, mut power, mut worst) = (0.0f64, 0.0f64, 0.0f64);
    for (&g, &w) in got.iter().zip(want) {
        assert!(g.is_finite(), "{g} where {w} is wanted");
        let difference = f64::from(g) - f64::from(w);
        error += difference * difference;
        power += f64::from(w) * f64::from(w);
        worst = worst.max(difference.abs());
    }
    (error / power.max(1e-30), worst)
}

/// Fails unless `got` is within `max_nmse` of `want`.
pub fn assert_close(what: &str, got: &[f32], want: &[f32], max_nmse: f64) {
    let (error, worst) = nmse(got, want);
    assert!(error <= max_nmse, "{what}: NMSE {error:.3e} over {max_nmse:.1e}, worst difference {worst:.3e}");
}
