use strata::gpu::kernels::linear::bench;
use strata::gpu::{FeatureOverrides, Gpu, Recorder, microbenchmark};

use super::common::gpu;

#[test]
fn probe_figures_are_of_this_world() {
    let Some(gpu) = gpu("probe_figures_are_of_this_world", FeatureOverrides::default()) else { return };
    let m = microbenchmark::measure(&gpu).unwrap();
    eprintln!("{m:?}");
    for rate in [m.stream_read_bytes_per_s, m.copy_bytes_per_s, m.upload_bytes_per_s, m.readback_bytes_per_s] {
        assert!((1e7..1e14).contains(&rate), "{m:?}");
    }
    assert!((1e8..1e16).contains(&m.gemm_flops), "{m:?}");
}

#[test]
fn timed_run_by_the_device_agrees_with_the_clock_on_the_wall() {
    let test = "timed_run_by_the_device_agrees_with_the_clock_on_the_wall";
    for overrides in [FeatureOverrides::default(), FeatureOverrides { no_timestamps: true, ..FeatureOverrides::default() }] {
        let Some(gpu) = gpu(test, overrides) else { return };
        assert!(!(overrides.no_timestamps && gpu.has_timestamps()));
        let n = 256;
        let [a, b, c] = [0; 3].map(|_| super::empty(&gpu, n * n * 4));
        let mut recorder = Recorder::new();
        let mut run = |gpu: &Gpu| {
            for _ in 0..8 {
                bench::record_gemm(gpu, &mut recorder, [&a, &b, &c], n as usize).unwrap();
            }
            let began = std::time::Instant::now();
            (gpu.time(&mut recorder).unwrap(), began.elapsed().as_secs_f64())
        };
        run(&gpu);
        let (device, wall) = run(&gpu);
        assert!(device > 0.2 * wall && device <= 1.05 * wall, "{overrides:?}: device {device} s, wall {wall} s");
    }
}
