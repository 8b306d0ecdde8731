use strata::base::Rng;
use strata::gpu::kernels::linear::{ActivationForm, ConvertActivations, ConvertedSlices};
use strata::gpu::kernels::norm::Norm;
use strata::gpu::{FeatureOverrides, Gpu, Recorder, Slice};
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
                let op = Norm::new(&gpu, layer_norm, 1e-5, ActivationForm::F32).unwrap();
                let y = empty(&gpu, (n_rows * n_cols * 4) as u64);
                let (xs, ws, bs) = (upload(&gpu, &x), upload(&gpu, &w), upload(&gpu, &b));
                let binding = op.bind(&gpu, &xs, &ws, layer_norm.then_some(&bs), &[&y]).unwrap();
                let mut recorder = Recorder::new();
                // Row 0 of x is skipped, to test the row offset.
                op.record(&mut recorder, &binding, n_cols, 1, n_rows);
                gpu.submit(&mut recorder).unwrap();
                let want = reference::norm(&x[n_cols..], &w, layer_norm.then_some(&b[..]), 1e-5);
                let what = format!("norm [{n_rows}, {n_cols}] layer_norm {layer_norm} {overrides:?}");
                assert_close(&what, &download_f32(&gpu, &y, n_rows * n_cols), &want, 1e-12);
            }
        }
    }
}

/// The bytes are those of the norm in f32 followed by the conversion, up to the last place of the norm.
#[test]
fn norm_in_other_forms_equals_norm_and_conversion() {
    let overrides = FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() };
    let Some(gpu) = gpu("norm_in_other_forms_equals_norm_and_conversion", overrides) else { return };
    if !gpu.has_subgroups() {
        eprintln!("skipped: norm_in_other_forms_equals_norm_and_conversion: no subgroups");
        return;
    }
    let mut rng = Rng::new(2);
    for (n_rows, n_cols) in [(1, 8), (3, 64), (2, 256), (5, 328), (1, 2048), (2, 4160)] {
        for (layer_norm, form) in ActivationForm::ALL[1..].iter().flat_map(|form| [(false, *form), (true, *form)]) {
            let x = random(&mut rng, (n_rows + 1) * n_cols, 3.0);
            let (w, b) = (random(&mut rng, n_cols, 1.0), random(&mut rng, n_cols, 1.0));
            let (xs, ws, bs) = (upload(&gpu, &x), upload(&gpu, &w), upload(&gpu, &b));
            let bias = layer_norm.then_some(&bs);
            let (value_bytes, scale_bytes) = form.bytes(n_cols, n_rows);
            let nan = |bytes: u64| upload(&gpu, &vec![f32::NAN; bytes as usize / 4]);
            let outputs = [0, 1].map(|_| (nan(value_bytes), nan(scale_bytes)));
            let y = empty(&gpu, (n_rows * n_cols * 4) as u64);
            let (plain, fused) = (ActivationForm::F32, &outputs[0]);
            let norm = |form| Norm::new(&gpu, layer_norm, 1e-5, form).unwrap();
            let (in_f32, converted) = (norm(plain), norm(form));
            let convert = ConvertActivations::new(&gpu, form, n_cols).unwrap().unwrap();
            let mut recorder = Recorder::new();
            converted.record(
                &mut recorder,
                &converted.bind(&gpu, &xs, &ws, bias, &[&fused.0, &fused.1]).unwrap(),
                n_cols,
                1,
                n_rows,
            );
            in_f32.record(&mut recorder, &in_f32.bind(&gpu, &xs, &ws, bias, &[&y]).unwrap(), n_cols, 1, n_rows);
            let apart = ConvertedSlices { values: &outputs[1].0, scales: &outputs[1].1 };
            convert.record(&mut recorder, &convert.bind(&gpu, &y, apart).unwrap(), n_rows, n_cols);
            gpu.submit(&mut recorder).unwrap();
            let what = format!("norm [{n_rows}, {n_cols}] layer_norm {layer_norm} {form:?}");
            let [got, want] = [0, 1].map(|i| dequantized(&gpu, form, &outputs[i], n_cols, n_rows));
            assert_close(&what, &got, &want, if form == ActivationForm::Halves { 1e-7 } else { 1e-9 });
        }
    }
}

/// f32 `[T, Kp]` of converted activations, in the order of their bytes.
pub fn dequantized(gpu: &Gpu, form: ActivationForm, (values, scales): &(Slice, Slice), n_cols: usize, n_rows: usize) -> Vec<f32> {
    let padded = n_cols.next_multiple_of(64);
    let (values, scales) = (gpu.download(values).unwrap(), gpu.download(scales).unwrap());
    let scales: Vec<f32> = bytemuck::pod_collect_to_vec(&scales);
    if form == ActivationForm::Halves {
        let halves: Vec<half::f16> = values.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]])).collect();
        return halves.iter().enumerate().map(|(i, v)| v.to_f32() * scales[i / padded]).collect();
    }
    let planes: Vec<i8> = bytemuck::pod_collect_to_vec(&values);
    let mut all = Vec::new();
    for (block, scale) in planes.chunks_exact(64).zip(scales.chunks_exact(4)).take(n_rows * padded / 32) {
        let codes: Vec<i32> = (0..32).map(|i| 128 * i32::from(block[i]) + i32::from(block[32 + i])).collect();
        let sum = scale[0] * codes.iter().sum::<i32>() as f32;
        assert!((sum - scale[1]).abs() <= 1e-5 * scale[0] * 16256.0, "{sum} {}", scale[1]);
        all.extend(codes.iter().map(|c| scale[0] * *c as f32));
    }
    all
}
