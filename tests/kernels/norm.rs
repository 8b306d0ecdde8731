use strata::base::Rng;
use strata::gpu::kernels::norm::Norm;
use strata::gpu::{FeatureOverrides, Recorder};
use strata::reference;

use super::common::{assert_close, gpu};
use super::{download_f32, empty, random, upload};

#[test]
fn norm_rows_match_reference() {
    for overrides in [FeatureOverrides::default(), FeatureOverrides { no_immediates: true, ..FeatureOverrides::default() }] {
        let Some(gpu) = gpu("norm_rows_match_reference", overrides) else { return };
        let mut rng = Rng::new(1);
        for (n_rows, n_cols) in [(1, 4), (3, 64), (2, 252), (5, 256), (1, 260), (2, 4096)] {
            for layer_norm in [false, true] {
                let x = random(&mut rng, (n_rows + 1) * n_cols, 3.0);
                let (w, b) = (random(&mut rng, n_cols, 1.0), random(&mut rng, n_cols, 1.0));
                let op = Norm::new(&gpu, layer_norm, 1e-5).unwrap();
                let y = empty(&gpu, (n_rows * n_cols * 4) as u64);
                let (xs, ws, bs) = (upload(&gpu, &x), upload(&gpu, &w), upload(&gpu, &b));
                let binding = op.bind(&gpu, &xs, &ws, layer_norm.then_some(&bs), &y).unwrap();
                let mut recorder = Recorder::new();
                // Row 0 of x is skipped, so that the row offset is tested too.
                op.record(&mut recorder, &binding, n_cols, 1, n_rows);
                gpu.submit(&mut recorder).unwrap();
                let want = reference::norm(&x[n_cols..], &w, layer_norm.then_some(&b[..]), 1e-5);
                let what = format!("norm [{n_rows}, {n_cols}] layer_norm {layer_norm} {overrides:?}");
                assert_close(&what, &download_f32(&gpu, &y, n_rows * n_cols), &want, 1e-12);
            }
        }
    }
}
