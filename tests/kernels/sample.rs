use strata::base::Rng;
use strata::gpu::kernels::sample::{ARGMAX_BYTES, Sample, TOP_K_BYTES, parse_argmax, parse_top_k};
use strata::gpu::{FeatureOverrides, Gpu, Recorder};
use strata::reference;

use super::common::gpu;
use super::{empty, random, upload};

/// By one workgroup, and in slices as on a real GPU.
const BOTH_WAYS: [FeatureOverrides; 2] = {
    let plain = FeatureOverrides {
        no_immediates: false,
        no_subgroups: false,
        no_cooperative_matrices: false,
        no_timestamps: false,
        hardware_kernels: false,
        checked_shaders: false,
        no_host_memory: false,
        no_transfer_queue: false,
        host_import: None,
    };
    [plain, FeatureOverrides { hardware_kernels: true, ..plain }]
};

#[test]
fn sample_argmax_and_top_k_match_reference() {
    for overrides in BOTH_WAYS {
        let Some(gpu) = gpu("sample_argmax_and_top_k_match_reference", overrides) else { return };
        matches_reference(&gpu);
    }
}

fn matches_reference(gpu: &Gpu) {
    let op = Sample::new(gpu).unwrap();
    let mut rng = Rng::new(2);
    for vocab_size in [1usize, 5, 63, 64, 255, 256, 257, 4096, 50_257] {
        let mut logits = random(&mut rng, vocab_size, 8.0);
        if vocab_size > 60 {
            // Ties at the top and around the k-th entry, negative zero, and all negative.
            logits[40] = 9.5;
            logits[17] = 9.5;
            logits[3] = -0.0;
        }
        if vocab_size == 257 {
            logits.iter_mut().for_each(|v| *v -= 20.0);
        }
        let (input, out) = (upload(gpu, &logits), empty(gpu, TOP_K_BYTES));
        let bindings = op.bind(gpu, &input, &out).unwrap();
        let mut recorder = Recorder::new();
        op.record_argmax(&mut recorder, &bindings, vocab_size);
        gpu.submit(&mut recorder).unwrap();
        let (token, logit) = parse_argmax(&gpu.download(&out.buffer.slice(0, ARGMAX_BYTES)).unwrap());
        assert_eq!((token, logit), (reference::argmax(&logits), logits[token as usize]), "V = {vocab_size}");
        for k in [1, 40, 64] {
            op.record_top_k(&mut recorder, &bindings, vocab_size, k);
            gpu.submit(&mut recorder).unwrap();
            let found = parse_top_k(&gpu.download(&out).unwrap(), k);
            assert!(!found.overflowed);
            assert_eq!(found.entries, reference::top_k(&logits, k), "V = {vocab_size}, k = {k}");
            let max = logits.iter().copied().fold(f32::MIN, f32::max);
            let sum: f64 = logits.iter().map(|l| f64::from(l - max).exp()).sum();
            assert_eq!(found.max, max);
            assert!((f64::from(found.sum) / sum - 1.0).abs() < 1e-5, "{} {sum}", found.sum);
        }
    }
}

#[test]
fn sample_top_k_with_equal_logits_reports_the_overflow() {
    for overrides in BOTH_WAYS {
        let Some(gpu) = gpu("sample_top_k_with_equal_logits_reports_the_overflow", overrides) else { return };
        let op = Sample::new(&gpu).unwrap();
        // Equal logits everywhere; and equal low ones that fill slices, below 64 others.
        let low = (0..5000).map(|i| if i % 75 == 3 { i as f32 } else { -9.0 }).collect::<Vec<f32>>();
        for (logits, overflows) in [(vec![1.5f32; 1000], true), (vec![1.5; 6000], true), (low, false)] {
            let (input, out) = (upload(&gpu, &logits), empty(&gpu, TOP_K_BYTES));
            let bindings = op.bind(&gpu, &input, &out).unwrap();
            let mut recorder = Recorder::new();
            op.record_top_k(&mut recorder, &bindings, logits.len(), 40);
            gpu.submit(&mut recorder).unwrap();
            let found = parse_top_k(&gpu.download(&out).unwrap(), 40);
            assert_eq!(found.overflowed, overflows, "{} {overrides:?}", logits.len());
            assert!(overflows || found.entries == reference::top_k(&logits, 40));
        }
    }
}
