use strata::gpu::kernels::arithmetic::Arithmetic;
use strata::gpu::kernels::linear::{MatrixUnits, bench};
use strata::gpu::{FeatureOverrides, Gpu, Recorder, microbenchmark};

use super::common::gpu;

#[test]
fn microbenchmark_figures_are_plausible() {
    let Some(gpu) = gpu("microbenchmark_figures_are_plausible", FeatureOverrides::default()) else { return };
    let m = microbenchmark::measure(&gpu).unwrap();
    eprintln!("{m:?}");
    for rate in [m.stream_read_bytes_per_s, m.copy_bytes_per_s, m.upload_bytes_per_s, m.readback_bytes_per_s] {
        assert!((1e7..1e14).contains(&rate), "{m:?}");
    }
    assert!((1e8..1e16).contains(&m.gemm_flops), "{m:?}");
}

#[test]
fn f16_arithmetic_is_measured_or_has_a_reason_why_not() {
    let overrides = FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() };
    let Some(gpu) = gpu("f16_arithmetic_is_measured_or_has_a_reason_why_not", overrides) else { return };
    let m = microbenchmark::measure(&gpu).unwrap();
    assert_eq!(m.f16_flops.is_ok(), gpu.has_f16(), "{m:?}");
    assert_eq!(m.matrix_flops.is_ok(), gpu.cooperative_matrices().is_ok(), "{m:?}");
    for flops in [&m.f16_flops, &m.matrix_flops] {
        match flops {
            Ok(flops) => assert!((1e8..1e16).contains(flops), "{m:?}"),
            Err(reason) => assert!(!reason.is_empty()),
        }
    }
}

#[test]
fn steps_of_f16_arithmetic_are_computed() {
    let test = "steps_of_f16_arithmetic_are_computed";
    let overrides = FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() };
    let Some(gpu) = gpu(test, overrides) else { return };
    let numbers = super::upload(&gpu, &[0.5f32, 0.125]);
    let run = |unit: Arithmetic, n_steps| {
        let sums = super::empty(&gpu, unit.sums_bytes(&gpu));
        let mut recorder = Recorder::new();
        unit.record(&gpu, &mut recorder, [&numbers, &sums], n_steps).unwrap();
        gpu.submit(&mut recorder).unwrap();
        bytemuck::pod_collect_to_vec::<u8, f32>(&gpu.download(&sums).unwrap())
    };
    if gpu.has_f16() {
        // Every chain tends to 0.125 / (1 - 0.5); 8 chains of 4 elements.
        assert!(run(Arithmetic::F16Vectors, 64).iter().all(|sum| (sum - 8.0).abs() < 0.1));
    }
    if let Ok(units) = MatrixUnits::of(&gpu) {
        // Sums of two subgroups, of products of the elements 0.5 and 0.625 with the four that follow.
        let products: f32 = [0.5, 0.625f32].iter().map(|a| a * (0.75 + 0.875 + 1.0 + 1.125)).sum();
        let want = 2.0 * 3.0 * units.size as f32 * products;
        assert!(run(Arithmetic::Matrices(units), 3).iter().all(|sum| (sum - want).abs() < 0.01 * want));
    }
}

#[test]
fn gpu_time_agrees_with_wall_time() {
    let test = "gpu_time_agrees_with_wall_time";
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
