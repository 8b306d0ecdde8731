//! Merge of decode attention: any number of splits, of which some have no key.

use strata::base::Rng;
use strata::gpu::kernels::KvFormat;
use strata::gpu::kernels::attention_decode::{AttentionDecode, DecodeKernel, DecodeVariant};
use strata::gpu::kernels::linear::{ActivationForm, ConvertActivations, ConvertedSlices};
use strata::gpu::{FeatureOverrides, Recorder};

use super::common::{assert_close, gpu};
use super::norm::dequantized;
use super::{decode_kernels, download_f32, random, upload};

const N_ROWS: usize = 2;

/// Log-sum-exp of the splits of one head: acc `[n_splits, D]`, state `[n_splits, 2]` (maximum, sum).
fn merged(acc: &[f32], state: &[f32], d: usize) -> Vec<f32> {
    let top = state.chunks(2).map(|split| split[0]).fold(f32::MIN, f32::max);
    let factors: Vec<f64> = state.chunks(2).map(|split| f64::from(split[0] - top).exp()).collect();
    let sum: f64 = factors.iter().zip(state.chunks(2)).map(|(factor, split)| factor * f64::from(split[1])).sum();
    let total = |i: usize| -> f64 { factors.iter().zip(acc.chunks(d)).map(|(factor, split)| factor * f64::from(split[i])).sum() };
    (0..d).map(|i| if sum == 0.0 { 0.0 } else { (total(i) / sum) as f32 }).collect()
}

#[test]
fn merge_of_any_number_of_splits_matches_log_sum_exp() {
    let Some(gpu) = gpu("merge_of_any_number_of_splits_matches_log_sum_exp", FeatureOverrides::default()) else { return };
    let mut rng = Rng::new(51);
    // Around the 32 splits and the 256 lanes of a workgroup, and the 32 elements of another one. Some maxima are so far
    // apart that exp overflows unless the largest is subtracted.
    for (h, d, n_splits, spread) in [
        (3, 8, 1, 20.0),
        (2, 64, 31, 20.0),
        (4, 80, 33, 20.0),
        (2, 256, 64, 2000.0),
        (1, 128, 255, 20.0),
        (2, 32, 257, 2000.0),
        (1, 40, 700, 20.0),
    ] {
        let n_all = N_ROWS * h * n_splits;
        let mut acc = random(&mut rng, n_all * d, 3.0);
        let mut state: Vec<f32> = (0..n_all).flat_map(|_| [spread * rng.next_signed(), 1.0 + rng.next_signed()]).collect();
        // Splits without a key, as each kernel writes them, and a head without any.
        for i in (0..n_all).filter(|i| i % 5 == 3 || *i >= n_all - n_splits) {
            acc[i * d..(i + 1) * d].fill(0.0);
            state[2 * i..2 * i + 2].copy_from_slice(&[if i % 2 == 0 { -3.0e38 } else { -6.9e29 }, 0.0]);
        }
        let heads = acc.chunks(n_splits * d).zip(state.chunks(2 * n_splits));
        let want: Vec<f32> = heads.flat_map(|(acc, state)| merged(acc, state, d)).collect();
        for kernel in decode_kernels(&gpu) {
            let variant = DecodeVariant { kernel, selective: false };
            let op = AttentionDecode::with_variant(&gpu, h, h, d, KvFormat::F16, variant).unwrap();
            let out = upload(&gpu, &vec![f32::NAN; N_ROWS * h * d]);
            let binding = op.bind_merge(&gpu, [&upload(&gpu, &acc), &upload(&gpu, &state), &out], None).unwrap();
            let mut recorder = Recorder::new();
            op.record_merge_rows(&mut recorder, &binding, n_splits, N_ROWS, ActivationForm::F32);
            gpu.submit(&mut recorder).unwrap();
            let what = format!("{h} heads of {d}, {n_splits} splits, {kernel:?}");
            assert_close(&what, &download_f32(&gpu, &out, N_ROWS * h * d), &want, 1e-11);
        }
    }
}

/// The bytes are those of the merge in f32 followed by the conversion.
#[test]
fn merge_to_bytes_equals_merge_and_conversion() {
    let overrides = FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() };
    let Some(gpu) = gpu("merge_to_bytes_equals_merge_and_conversion", overrides) else { return };
    if !DecodeKernel::Subgroup.runs_on(&gpu) {
        eprintln!("skipped: merge_to_bytes_equals_merge_and_conversion: no subgroups");
        return;
    }
    let variant = DecodeVariant { kernel: DecodeKernel::Subgroup, selective: false };
    let mut rng = Rng::new(52);
    for (h, d, n_splits) in [(2, 32, 1), (4, 64, 9), (2, 96, 40), (3, 128, 70)] {
        let n_all = N_ROWS * h * n_splits;
        let acc = random(&mut rng, n_all * d, 3.0);
        let state: Vec<f32> = (0..n_all).flat_map(|_| [20.0 * rng.next_signed(), 1.5 + rng.next_signed()]).collect();
        let (acc, state) = (upload(&gpu, &acc), upload(&gpu, &state));
        let op = AttentionDecode::with_variant(&gpu, h, h, d, KvFormat::F16, variant).unwrap();
        for even_odd in [false, true] {
            let form = ActivationForm::Bytes { even_odd };
            let (value_bytes, scale_bytes) = form.bytes(h * d, N_ROWS);
            let nan = |bytes: u64| upload(&gpu, &vec![f32::NAN; bytes as usize / 4]);
            let outputs = [0, 1].map(|_| (nan(value_bytes), nan(scale_bytes)));
            let [fused, apart] = [0, 1].map(|i: usize| ConvertedSlices { values: &outputs[i].0, scales: &outputs[i].1 });
            let out = nan((N_ROWS * h * d * 4) as u64);
            let bindings = op.bind_merge(&gpu, [&acc, &state, &out], Some(fused)).unwrap();
            let convert = ConvertActivations::new(&gpu, form, h * d).unwrap().unwrap();
            let mut recorder = Recorder::new();
            assert_eq!(op.record_merge_rows(&mut recorder, &bindings, n_splits, N_ROWS, form), form);
            let plain = op.record_merge_rows(&mut recorder, &bindings, n_splits, N_ROWS, ActivationForm::F32);
            assert_eq!(plain, ActivationForm::F32);
            convert.record(&mut recorder, &convert.bind(&gpu, &out, apart).unwrap(), N_ROWS, h * d);
            gpu.submit(&mut recorder).unwrap();
            let [got, want] = [0, 1].map(|i| dequantized(&gpu, form, &outputs[i], h * d, N_ROWS));
            assert_eq!(got, want, "{h} heads of {d}, {n_splits} splits, {form:?}");
        }
    }
}
