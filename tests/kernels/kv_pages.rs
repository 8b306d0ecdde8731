//! Quantized KV page tests: quantization compared with its reference, and every attention variant over quantized pages
//! and a tail.

use strata::base::Rng;
use strata::gpu::kernels::KvFormat;
use strata::gpu::kernels::attention_decode::{AttentionDecode, DecodeKernel, DecodeVariant, SegmentEntries, SegmentKeys};
use strata::gpu::kernels::attention_prefill::{AttentionPrefill, KeyTile, PrefillVariant};
use strata::gpu::kernels::dequantize_pages::DequantizePages;
use strata::gpu::kernels::quantize_pages::QuantizePages;
use strata::gpu::kernels::rope_append::{RopeAppend, RopeAppendSpec};
use strata::gpu::{FeatureOverrides, Gpu, Recorder, Slice};
use strata::reference;

use super::common::{assert_close, gpu};
use super::page_abstracts::{f16_bits, page, page_shape};
use super::{MATRICES_LIMIT, decode_kernels, download_f32, empty, prefill_variants, random, upload};

/// Dequantized numbers are equal on both sides; only the order of f32 sums differs.
const LIMIT: f64 = 1e-10;
#[test]
fn quantized_pages_equal_the_reference_bit_for_bit() {
    use KvFormat::{F16, F32, Q4, Q8};
    let fallback = FeatureOverrides { no_immediates: true, ..FeatureOverrides::default() };
    // Compilation dominates the time: each pair of formats and each shape, but not all combinations.
    let pairs = [(F16, Q8, 2, 64), (F16, Q4, 2, 64), (F32, Q8, 3, 80), (F32, Q4, 3, 80), (F16, Q8, 1, 8), (F32, Q4, 2, 128)];
    let cases = pairs.map(|pair| (pair, FeatureOverrides::default())).into_iter().chain([((F16, Q4, 1, 256), fallback)]);
    let mut rng = Rng::new(11);
    for ((work, sealed, g, d), overrides) in cases {
        let Some(gpu) = gpu("quantized_pages_equal_the_reference_bit_for_bit", overrides) else { return };
        let mut pages: Vec<Vec<f32>> = (0..3).map(|_| page(&mut rng, g, d)).collect();
        // Magnitudes from below the smallest to above the largest f16, and a page of few different numbers.
        pages[1].iter_mut().for_each(|x| *x *= 2f32.powf(rng.next_signed() * 28.0 - 4.0));
        pages[2].iter_mut().for_each(|x| *x = if x.to_bits() & 1 == 0 { 0.1 } else { -0.0 });
        if work == F16 {
            pages.iter_mut().flatten().for_each(|x| *x = half::f16::from_f32(*x).to_f32());
        }
        let numbers = pages.concat();
        let blocks = if work == F16 { upload(&gpu, &f16_bits(&numbers)) } else { upload(&gpu, &numbers) };
        let page_bytes = sealed.page_bytes(g, d) as usize;
        let out = upload(&gpu, &vec![0xabu8; 4 * page_bytes]);
        let op = QuantizePages::new(&gpu, g, d, work, sealed).unwrap();
        let binding = op.bind(&gpu, [&blocks, &out]).unwrap();
        let mut recorder = Recorder::new();
        op.record(&mut recorder, &binding, 0, 3, 1);
        op.record(&mut recorder, &binding, 1, 1, 2);
        gpu.submit(&mut recorder).unwrap();
        let got = gpu.download(&out).unwrap();
        let what = format!("{g} heads of {d}, {work:?} to {sealed:?}, {overrides:?}");
        assert!(got[..page_bytes].iter().all(|b| *b == 0xab), "{what}: a page outside the range changed");
        for (from, to) in [(0, 3), (1, 1), (2, 2)] {
            let want = reference::quantize_page(&pages[from], page_shape(g, d, sealed));
            let got = &got[to * page_bytes..(to + 1) * page_bytes];
            assert_eq!(got.len(), want.len());
            let differs = got.iter().zip(&want).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{what}: first byte that differs in page {from}, of {page_bytes}");
        }
    }
}

#[test]
fn dequantized_pages_equal_the_reference_bit_for_bit() {
    use KvFormat::{Q4, Q8};
    let no_immediates = FeatureOverrides { no_immediates: true, ..FeatureOverrides::default() };
    let plain = [(Q4, 2, 64), (Q8, 3, 80), (Q4, 3, 80), (Q8, 1, 8), (Q4, 7, 128)].map(|case| (case, FeatureOverrides::default()));
    let mut rng = Rng::new(13);
    for ((sealed, g, d), overrides) in plain.into_iter().chain([((Q8, 1, 256), no_immediates)]) {
        let Some(gpu) = gpu("dequantized_pages_equal_the_reference_bit_for_bit", overrides) else { return };
        let mut pages: Vec<Vec<f32>> = (0..3).map(|_| page(&mut rng, g, d)).collect();
        // Numbers over the whole range of f16, whose ends a rounded scale exceeds, and numbers with little f16
        // precision.
        pages[1].iter_mut().for_each(|x| *x = 66_000.0 * rng.next_signed());
        pages[2].iter_mut().for_each(|x| *x *= 2f32.powf(rng.next_signed() * 6.0 - 18.0));
        let shape = page_shape(g, d, sealed);
        let bytes: Vec<Vec<u8>> = pages.iter().map(|p| reference::quantize_page(p, shape)).collect();
        let page_bytes = KvFormat::F16.page_bytes(g, d) as usize;
        let out = upload(&gpu, &vec![0xabu8; 4 * page_bytes]);
        let op = DequantizePages::new(&gpu, g, d, sealed).unwrap();
        let binding = op.bind(&gpu, [&upload(&gpu, &bytes.concat()), &out]).unwrap();
        let mut recorder = Recorder::new();
        op.record(&mut recorder, &binding, 0, 3, 1);
        op.record(&mut recorder, &binding, 1, 1, 2);
        gpu.submit(&mut recorder).unwrap();
        let got = gpu.download(&out).unwrap();
        let what = format!("{g} heads of {d} from {sealed:?}, {overrides:?}");
        assert!(got[..page_bytes].iter().all(|b| *b == 0xab), "{what}: a page outside the range changed");
        for (from, to) in [(0, 3), (1, 1), (2, 2)] {
            let want: Vec<u16> = reference::dequantize_page_as_f16(&bytes[from], shape).iter().map(|h| h.to_bits()).collect();
            let got: Vec<u16> = bytemuck::pod_collect_to_vec(&got[to * page_bytes..(to + 1) * page_bytes]);
            let differs = (0..want.len()).find(|&i| got[i] != want[i]);
            assert_eq!(differs.map(|i| (i, got[i], want[i])), None, "{what}: page {from}");
        }
    }
}

#[test]
fn unsupported_format_pairs_are_rejected() {
    let Some(gpu) = gpu("unsupported_format_pairs_are_rejected", FeatureOverrides::default()) else {
        return;
    };
    let spec = RopeAppendSpec {
        n_head: 2,
        n_kv_head: 1,
        head_dim: 8,
        n_pairs: 0,
        half_style: false,
        qk_norm: false,
        eps: 1e-6,
        scale: 1.0,
        element: KvFormat::Q8,
    };
    assert!(RopeAppend::new(&gpu, spec).is_err());
    for (work, sealed) in [(KvFormat::F16, KvFormat::F16), (KvFormat::F32, KvFormat::F16), (KvFormat::Q8, KvFormat::Q4)] {
        assert!(QuantizePages::new(&gpu, 1, 8, work, sealed).is_err());
    }
    assert!(DequantizePages::new(&gpu, 1, 8, KvFormat::F16).is_err());
}

struct Segment {
    element: KvFormat,
    kv: Slice,
    table: Slice,
    n_blocks: usize,
    first_key: usize,
    n_keys: usize,
}

struct Case {
    /// (H, G, D)
    shape: (usize, usize, usize),
    sealed: KvFormat,
    n_pages: usize,
    /// keys of the pages
    n_sealed: usize,
    /// keys in the f16 tail
    n_tail: usize,
    /// the queries belong to the last of all keys
    n_new: usize,
    tile: usize,
}

/// Quantized pages in shuffled frames of a pool with garbage in between, then an f16 tail. Adds the keys and values of
/// each head.
fn segments(gpu: &Gpu, rng: &mut Rng, case: &Case, keys: &mut [Vec<f32>], values: &mut [Vec<f32>]) -> Vec<Segment> {
    let (_, g, d) = case.shape;
    let shape = page_shape(g, d, case.sealed);
    let page_bytes = case.sealed.page_bytes(g, d) as usize;
    let mut frames: Vec<usize> = (0..case.n_pages + 2).collect();
    for i in (1..frames.len()).rev() {
        frames.swap(i, rng.uniform(i as u32 + 1) as usize);
    }
    let mut pool = vec![0xffu8; frames.len() * page_bytes];
    let mut collect = |numbers: &[f32], n_keys: usize| {
        for (slot, numbers) in numbers.chunks_exact(32 * d).enumerate() {
            let n_here = 16.min(n_keys.saturating_sub(slot / g * 16)) * d;
            keys[slot % g].extend(&numbers[..n_here]);
            values[slot % g].extend(&numbers[16 * d..16 * d + n_here]);
        }
    };
    for (i, &frame) in frames[..case.n_pages].iter().enumerate() {
        let bytes = reference::quantize_page(&page(rng, g, d), shape);
        collect(&reference::dequantize_page(&bytes, shape), case.n_sealed.saturating_sub(64 * i));
        pool[frame * page_bytes..(frame + 1) * page_bytes].copy_from_slice(&bytes);
    }
    let n_blocks = 4 * case.n_pages;
    let slot = |head: usize, block: usize| (frames[block / 4] * 4 * g + block % 4 * g + head) as u32;
    let table: Vec<u32> = (0..g).flat_map(|head| (0..n_blocks).map(move |b| (head, b))).map(|(h, b)| slot(h, b)).collect();
    let pages = Segment {
        element: case.sealed,
        kv: upload(gpu, &pool),
        table: upload(gpu, &table),
        n_blocks,
        first_key: 0,
        n_keys: case.n_sealed,
    };
    if case.n_tail == 0 {
        return vec![pages];
    }
    let tail: Vec<f32> = page(rng, g, d).iter().map(|&v| half::f16::from_f32(v).to_f32()).collect();
    collect(&tail, case.n_tail);
    let table: Vec<u32> = (0..g as u32).flat_map(|head| (0..4).map(move |b| b * g as u32 + head)).collect();
    let (kv, table) = (upload(gpu, &f16_bits(&tail)), upload(gpu, &table));
    vec![pages, Segment { element: KvFormat::F16, kv, table, n_blocks: 4, first_key: case.n_sealed, n_keys: case.n_tail }]
}

fn run(gpu: &Gpu, rng: &mut Rng, case: &Case) {
    let (h, g, d) = case.shape;
    let (mut keys, mut values) = (vec![Vec::new(); g], vec![Vec::new(); g]);
    let segments = segments(gpu, rng, case, &mut keys, &mut values);
    let n_all = case.n_sealed + case.n_tail;
    let q = random(rng, case.n_new * h * d, 1.0 / (d as f32).sqrt());
    let want: Vec<f32> = (0..case.n_new * h)
        .flat_map(|row| {
            let (t, head) = (row / h, row % h / (h / g));
            let seen = (n_all - case.n_new + t + 1) * d;
            reference::attention(&q[row * d..(row + 1) * d], &keys[head][..seen], &values[head][..seen])
        })
        .collect();
    let what = format!("{:?} of {:?}, {} keys and {} in the tail", case.shape, case.sealed, case.n_sealed, case.n_tail);
    for variant in prefill_variants(gpu, d) {
        let got = prefill(gpu, case, &segments, &q, variant);
        let limit = if variant == PrefillVariant::FlashMatrices { MATRICES_LIMIT } else { LIMIT };
        assert_close(&format!("prefill ({variant:?}) of {what}"), &got, &want, limit);
    }
    let last = (case.n_new - 1) * h * d;
    for kernel in decode_kernels(gpu) {
        let got = decode(gpu, case, &segments, &q[last..], kernel);
        assert_close(&format!("decode ({kernel:?}) of {what}"), &got, &want[last..], LIMIT);
    }
}

/// All tiles of all segments, each with the kernels of its format.
fn prefill(gpu: &Gpu, case: &Case, segments: &[Segment], q: &[f32], variant: PrefillVariant) -> Vec<f32> {
    let (h, g, d) = case.shape;
    let n_all = case.n_sealed + case.n_tail;
    let op = |element| AttentionPrefill::with_variant(gpu, h, g, d, element, variant).unwrap();
    let (scores, state) =
        (empty(gpu, op(case.sealed).scores_bytes(case.n_new, case.tile)), op(case.sealed).state_bytes(case.n_new));
    let (state, out, q) = (empty(gpu, state), empty(gpu, (case.n_new * h * d * 4) as u64), upload(gpu, q));
    let mut recorder = Recorder::new();
    for s in segments {
        let op = op(s.element);
        let bindings = op.bind(gpu, [&q, &s.kv, &s.table, &scores, &state, &out]).unwrap();
        for first_key in (0..s.n_keys).step_by(case.tile) {
            let n_keys = case.tile.min(s.n_keys - first_key);
            let tile = KeyTile {
                n_tokens: case.n_new,
                first_key,
                n_keys,
                n_blocks: s.n_blocks,
                mask_from: n_all - case.n_new + 1 - s.first_key,
                is_first: s.first_key + first_key == 0,
                is_last: s.first_key + first_key + n_keys == n_all,
            };
            op.record(&mut recorder, &bindings, tile);
        }
    }
    gpu.submit(&mut recorder).unwrap();
    download_f32(gpu, &out, case.n_new * h * d)
}

/// The splits of all segments, each with the kernel of its format, and one merge.
fn decode(gpu: &Gpu, case: &Case, segments: &[Segment], q: &[f32], kernel: DecodeKernel) -> Vec<f32> {
    let (h, g, d) = case.shape;
    let variant = DecodeVariant { kernel, selective: false };
    let op = |element| AttentionDecode::with_variant(gpu, h, g, d, element, variant).unwrap();
    let merge = op(case.sealed);
    let split_keys = merge.split_keys(segments.iter().map(|s| s.n_keys).sum());
    let n_splits: usize = segments.iter().map(|s| s.n_keys.div_ceil(split_keys)).sum();
    let (acc, state) = (empty(gpu, merge.acc_bytes(n_splits)), empty(gpu, merge.state_bytes(n_splits)));
    let (out, q) = (empty(gpu, (h * d * 4) as u64), upload(gpu, q));
    let mut recorder = Recorder::new();
    let mut first_split = 0;
    for s in segments {
        let op = op(s.element);
        let binding = op.bind_split(gpu, [&q, &s.kv, &s.table, &acc, &state]).unwrap();
        let keys = SegmentKeys {
            n_keys: s.n_keys,
            n_blocks: s.n_blocks,
            first_split,
            n_splits,
            split_keys,
            entries: SegmentEntries::ALL,
        };
        op.record_split(&mut recorder, &binding, keys);
        first_split += s.n_keys.div_ceil(split_keys);
    }
    let binding = merge.bind_merge(gpu, [&acc, &state, &out], None).unwrap();
    merge.record_merge(&mut recorder, &binding, n_splits);
    gpu.submit(&mut recorder).unwrap();
    download_f32(gpu, &out, h * d)
}

#[test]
fn attention_over_quantized_pages_matches_reference() {
    for overrides in [FeatureOverrides::default(), FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() }] {
        let Some(gpu) = gpu("attention_over_quantized_pages_matches_reference", overrides) else { return };
        if overrides.hardware_kernels && gpu.cooperative_matrix_size().is_none() {
            continue;
        }
        run_all(&gpu);
    }
}

fn run_all(gpu: &Gpu) {
    let mut rng = Rng::new(12);
    use KvFormat::{Q4, Q8};
    for (shape, elements) in [
        ((1, 1, 8), &[Q8, Q4][..]),
        ((4, 4, 64), &[Q8]),
        ((7, 1, 64), &[Q4]),
        ((3, 3, 80), &[Q8, Q4]),
        ((4, 2, 96), &[Q8]),
        ((2, 1, 128), &[Q4]),
        ((2, 2, 256), &[Q8, Q4]),
    ] {
        for &sealed in elements {
            for (n_pages, n_sealed, n_tail, n_new, tile) in
                [(1, 64, 0, 1, 512), (1, 37, 0, 9, 512), (5, 320, 1, 1, 128), (5, 301, 0, 17, 64), (9, 576, 50, 20, 256)]
            {
                run(gpu, &mut rng, &Case { shape, sealed, n_pages, n_sealed, n_tail, n_new, tile });
            }
        }
    }
}
