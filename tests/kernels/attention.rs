use strata::base::Rng;
use strata::gpu::kernels::KvFormat;
use strata::gpu::kernels::attention_decode::{AttentionDecode, DecodeVariant, SegmentEntries, SegmentKeys};
use strata::gpu::kernels::attention_prefill::{AttentionPrefill, KeyTile, PrefillVariant};
use strata::gpu::kernels::rope_append::{AppendRange, RopeAppend, RopeAppendSpec};
use strata::gpu::{FeatureOverrides, Gpu, Recorder, Slice, Tuning, TuningPart};
use strata::reference::{self, RopeSpec};

use super::common::{assert_close, gpu};
use super::{MATRICES_LIMIT, decode_kernels, download_f32, empty, prefill_variants, random, upload};

/// (H, G, D, rotated pairs, half style, per-head norm)
const SHAPES: &[(usize, usize, usize, usize, bool, bool)] = &[
    (1, 1, 8, 4, false, false),
    (4, 4, 32, 16, true, false),
    (6, 2, 32, 16, false, false),
    (4, 2, 64, 32, false, true),
    (7, 1, 64, 32, true, true),
    (14, 2, 64, 0, false, false),
    (3, 3, 80, 40, true, false),
    (4, 2, 96, 36, true, false),
    (2, 1, 128, 64, true, true),
    (2, 2, 256, 128, false, false),
];

struct Case {
    shape: (usize, usize, usize, usize, bool, bool),
    element: KvFormat,
    /// tokens before the new ones, and new tokens
    n_past: usize,
    n_new: usize,
    /// keys in the first of two segments; the rest in the second
    first_segment: usize,
    /// keys per prefill tile
    tile: usize,
}

struct Segment {
    kv: Slice,
    table: Slice,
    n_blocks: usize,
    first_token: usize,
    n_tokens: usize,
}

fn segment(gpu: &Gpu, rng: &mut Rng, case: &Case, first_token: usize, n_tokens: usize) -> Segment {
    let (_, g, d, ..) = case.shape;
    let n_blocks = n_tokens.div_ceil(16);
    // A shuffled table, so that only a kernel that uses it finds its blocks.
    let mut table: Vec<u32> = (0..(g * n_blocks) as u32).collect();
    for i in (1..table.len()).rev() {
        table.swap(i, rng.uniform(i as u32 + 1) as usize);
    }
    let bytes = (g * n_blocks) as u64 * case.element.block_bytes(d);
    // Garbage in unwritten memory reveals a kernel that reads past the end.
    let garbage = vec![0x7fc0_7e00u32; (bytes / 4) as usize];
    Segment { kv: upload(gpu, &garbage), table: upload(gpu, &table), n_blocks, first_token, n_tokens }
}

/// Appends everything, then compares prefill (all new tokens) and decode (the last one) with the references.
fn run(gpu: &Gpu, rng: &mut Rng, case: &Case) {
    let (h, g, d, n_pairs, half_style, qk_norm) = case.shape;
    let n_all = case.n_past + case.n_new;
    let width = (h + 2 * g) * d;
    let qkv = random(rng, n_all * width, 1.5);
    let weights = [random(rng, d, 1.0), random(rng, d, 1.0)];
    let angles = random(rng, n_all * n_pairs, 3.0);
    let rope: Vec<[f32; 2]> = angles.iter().map(|a| [a.cos(), a.sin()]).collect();
    let scale = 1.0 / (d as f32).sqrt();

    let segments: Vec<Segment> =
        [(0, case.first_segment.min(n_all)), (case.first_segment, n_all.saturating_sub(case.first_segment))]
            .into_iter()
            .filter(|(_, n)| *n > 0)
            .map(|(first, n)| segment(gpu, rng, case, first, n))
            .collect();
    let spec = RopeAppendSpec {
        n_head: h,
        n_kv_head: g,
        head_dim: d,
        n_pairs,
        half_style,
        qk_norm,
        eps: 1e-6,
        scale,
        element: case.element,
    };
    let append = RopeAppend::new(gpu, spec).unwrap();
    let qkv_slice = upload(gpu, &qkv);
    let rope_slice = if n_pairs == 0 { empty(gpu, 16) } else { upload(gpu, &rope) };
    let norm_slices = weights.each_ref().map(|w| upload(gpu, w));
    let q_all = empty(gpu, (n_all * h * d * 4) as u64);
    let mut recorder = Recorder::new();
    for s in &segments {
        let main = [&qkv_slice, &rope_slice, &s.table, &s.kv, &q_all];
        let binding = append.bind(gpu, main, qk_norm.then_some([&norm_slices[0], &norm_slices[1]])).unwrap();
        let range = AppendRange { first_token: s.first_token, n_tokens: s.n_tokens, first_slot: 0, n_blocks: s.n_blocks };
        append.record(&mut recorder, &binding, range);
    }
    gpu.submit(&mut recorder).unwrap();

    // References: queries, keys and values of every token.
    let head = |t: usize, i: usize| &qkv[t * width + i * d..t * width + (i + 1) * d];
    let round = |v: f32| if case.element == KvFormat::F16 { half::f16::from_f32(v).to_f32() } else { v };
    let rotated = |t: usize, i: usize, weight: &[f32], scale: f32| {
        let norm = qk_norm.then_some((weight, 1e-6));
        reference::rope(head(t, i), &RopeSpec { half_style, rope: &rope[t * n_pairs..(t + 1) * n_pairs], norm, scale })
    };
    let q_want: Vec<f32> = (0..n_all)
        .flat_map(|t| (0..h).flat_map(move |i| vec![(t, i)]))
        .flat_map(|(t, i)| rotated(t, i, &weights[0], scale))
        .collect();
    let what = format!("{:?} {:?} past {} new {}", case.shape, case.element, case.n_past, case.n_new);
    assert_close(&format!("q of {what}"), &download_f32(gpu, &q_all, n_all * h * d), &q_want, 1e-12);
    let keys: Vec<Vec<f32>> =
        (0..g).map(|i| (0..n_all).flat_map(|t| rotated(t, h + i, &weights[1], 1.0)).map(round).collect()).collect();
    let values: Vec<Vec<f32>> =
        (0..g).map(|i| (0..n_all).flat_map(|t| head(t, h + g + i).to_vec()).map(round).collect()).collect();
    let want = |t: usize| -> Vec<f32> {
        let seen = (t + 1) * d;
        (0..h)
            .flat_map(|i| {
                let kv_head = i / (h / g);
                let q = &q_want[(t * h + i) * d..(t * h + i + 1) * d];
                reference::attention(q, &keys[kv_head][..seen], &values[kv_head][..seen])
            })
            .collect()
    };
    // In f16, a key may round differently from the reference: one unit in the last place.
    let limit: f64 = if case.element == KvFormat::F16 { 1e-6 } else { 1e-11 };

    let prefill_want: Vec<f32> = (case.n_past..n_all).flat_map(want).collect();
    for variant in prefill_variants(gpu, d) {
        let op = AttentionPrefill::with_variant(gpu, h, g, d, case.element, variant).unwrap();
        let scores = empty(gpu, op.scores_bytes(case.n_new, case.tile));
        let state = empty(gpu, op.state_bytes(case.n_new));
        let out = empty(gpu, (case.n_new * h * d * 4) as u64);
        let q_new = upload(gpu, &q_want[case.n_past * h * d..]);
        let mut is_first = true;
        for (i, s) in segments.iter().enumerate() {
            let bindings = op.bind(gpu, [&q_new, &s.kv, &s.table, &scores, &state, &out]).unwrap();
            for first_key in (0..s.n_tokens).step_by(case.tile) {
                let n_keys = case.tile.min(s.n_tokens - first_key);
                let is_last = i + 1 == segments.len() && first_key + n_keys == s.n_tokens;
                // Token 0 of the chunk is at n_past; only later tokens attend to a segment that begins after it.
                let mask_from = case.n_past as i64 + 1 - s.first_token as i64;
                assert!(mask_from > 0, "a chunk never crosses into a later segment: the engine splits it there");
                let tile = KeyTile {
                    n_tokens: case.n_new,
                    first_key,
                    n_keys,
                    n_blocks: s.n_blocks,
                    mask_from: mask_from as usize,
                    is_first,
                    is_last,
                };
                op.record(&mut recorder, &bindings, tile);
                is_first = false;
            }
        }
        gpu.submit(&mut recorder).unwrap();
        assert_close(
            &format!("prefill ({variant:?}) of {what}"),
            &download_f32(gpu, &out, case.n_new * h * d),
            &prefill_want,
            if variant == PrefillVariant::FlashMatrices { limit.max(MATRICES_LIMIT) } else { limit },
        );
    }

    let out = empty(gpu, (h * d * 4) as u64);
    for kernel in decode_kernels(gpu) {
        let variant = DecodeVariant { kernel, selective: false };
        let op = AttentionDecode::with_variant(gpu, h, g, d, case.element, variant).unwrap();
        let split_keys = op.split_keys(n_all);
        let n_splits: usize = segments.iter().map(|s| s.n_tokens.div_ceil(split_keys)).sum();
        let (acc, state) = (empty(gpu, op.acc_bytes(n_splits)), empty(gpu, op.state_bytes(n_splits)));
        let q_last = upload(gpu, &q_want[(n_all - 1) * h * d..]);
        let mut first_split = 0;
        for s in &segments {
            let binding = op.bind_split(gpu, [&q_last, &s.kv, &s.table, &acc, &state]).unwrap();
            op.record_split(
                &mut recorder,
                &binding,
                SegmentKeys {
                    n_keys: s.n_tokens,
                    n_blocks: s.n_blocks,
                    first_split,
                    n_splits,
                    split_keys,
                    entries: SegmentEntries::ALL,
                },
            );
            first_split += s.n_tokens.div_ceil(split_keys);
        }
        let binding = op.bind_merge(gpu, [&acc, &state, &out], None).unwrap();
        op.record_merge(&mut recorder, &binding, n_splits);
        gpu.submit(&mut recorder).unwrap();
        assert_close(&format!("decode ({kernel:?}) of {what}"), &download_f32(gpu, &out, h * d), &want(n_all - 1), limit);
    }
}

#[test]
fn attention_prefill_and_decode_match_reference() {
    let Some(gpu) = gpu("attention_prefill_and_decode_match_reference", FeatureOverrides::default()) else { return };
    let mut rng = Rng::new(3);
    for (i, &shape) in SHAPES.iter().enumerate() {
        // Compilation dominates the time: every shape in f16, every third also in f32.
        let elements = if i % 3 == 0 { &[KvFormat::F16, KvFormat::F32][..] } else { &[KvFormat::F16] };
        for &element in elements {
            for (n_past, n_new, first_segment, tile) in
                [(0, 1, 512, 512), (0, 17, 512, 512), (16, 15, 512, 16), (256, 9, 256, 64)]
            {
                run(&gpu, &mut rng, &Case { shape, element, n_past, n_new, first_segment, tile });
            }
        }
    }
}

#[test]
fn attention_over_several_splits_and_segments_matches_reference() {
    for overrides in [FeatureOverrides::default(), FeatureOverrides { no_immediates: true, ..FeatureOverrides::default() }] {
        let Some(gpu) = gpu("attention_over_several_splits_and_segments_matches_reference", overrides) else { return };
        let mut rng = Rng::new(4);
        for (n_past, n_new, first_segment, tile) in [(600, 40, 384, 200), (767, 1, 512, 512), (512, 33, 512, 128)] {
            let shape = (4, 2, 64, 32, false, false);
            run(&gpu, &mut rng, &Case { shape, element: KvFormat::F16, n_past, n_new, first_segment, tile });
        }
    }
}

#[test]
fn attention_over_splits_that_grew_with_the_keys_matches_reference() {
    let test = "attention_over_splits_that_grew_with_the_keys_matches_reference";
    let Some(gpu) = gpu(test, FeatureOverrides::default()) else { return };
    let mut rng = Rng::new(5);
    // More than 64 of the smallest splits, of which the last is ragged.
    let case = Case {
        shape: (2, 1, 128, 64, true, true),
        element: KvFormat::F16,
        n_past: 9000,
        n_new: 1,
        first_segment: 6144,
        tile: 512,
    };
    run(&gpu, &mut rng, &case);
    for tuning in TuningPart::DecodeAttention.candidates(Tuning::default()) {
        gpu.set_tuning(tuning);
        run(&gpu, &mut rng, &case);
    }
    gpu.set_tuning(Tuning::default());
}

#[test]
fn attention_prefill_of_ragged_chunks_matches_reference() {
    let test = "attention_prefill_of_ragged_chunks_matches_reference";
    let Some(gpu) = gpu(test, FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() }) else { return };
    let matrices = PrefillVariant::FlashMatrices;
    if !PrefillVariant::supported(&gpu, 64).contains(&matrices) {
        eprintln!("skipped: {test}: {matrices:?}: this device has no cooperative matrices");
    }
    let mut rng = Rng::new(9);
    for (i, &shape) in SHAPES.iter().enumerate() {
        for n_new in [1 + rng.uniform(8), 9 + rng.uniform(55), 65 + rng.uniform(66)].map(|n| n as usize) {
            let n_past = rng.uniform(300) as usize * (n_new % 2);
            // Two segments if possible. A segment has whole pages.
            let first_segment = if n_past >= 64 { n_past / 64 * 64 } else { 512 };
            let tile = [16, 72, 512][rng.uniform(3) as usize];
            let element = if i % 3 == 0 { KvFormat::F32 } else { KvFormat::F16 };
            run(&gpu, &mut rng, &Case { shape, element, n_past, n_new, first_segment, tile });
        }
    }
}
