use half::f16;
use strata::base::Rng;
use strata::gpu::kernels::KvFormat;
use strata::gpu::kernels::attention_decode::PAD;
use strata::gpu::kernels::page_abstracts::{PageAbstracts, abstract_bytes};
use strata::gpu::kernels::page_bounds::{PageBoundsKernel, UNBOUNDED};
use strata::gpu::kernels::qk_scores::{MASKED, QkScores};
use strata::gpu::{FeatureOverrides, Gpu, Recorder, Slice};
use strata::reference;

use super::common::{assert_close, gpu};
use super::page_abstracts::{Pool, f16_bits, page};
use super::{download_f32, empty, random, upload};

fn download_f16(gpu: &Gpu, slice: &Slice, n: usize) -> Vec<f16> {
    bytemuck::pod_collect_to_vec(&gpu.download(slice).unwrap()[..2 * n])
}

/// Abstracts computed on the GPU for `pages`, written after two that must not change.
fn abstracts_of(gpu: &Gpu, pages: &[Vec<f32>], g: usize, d: usize, work: KvFormat) -> Vec<Vec<f16>> {
    let numbers = pages.concat();
    let blocks = if work == KvFormat::F16 { upload(gpu, &f16_bits(&numbers)) } else { upload(gpu, &numbers) };
    let n_here = abstract_bytes(g, d) as usize / 2;
    let out = upload(gpu, &vec![0xabcdu16; (pages.len() + 2) * n_here]);
    let op = PageAbstracts::new(gpu, g, d, work).unwrap();
    let binding = op.bind(gpu, [&blocks, &out]).unwrap();
    let mut recorder = Recorder::new();
    op.record(&mut recorder, &binding, 0, 2, 1);
    op.record(&mut recorder, &binding, 1, 3, pages.len() - 1);
    gpu.submit(&mut recorder).unwrap();
    let got = download_f16(gpu, &out, (pages.len() + 2) * n_here);
    assert!(got[..2 * n_here].iter().all(|h| h.to_bits() == 0xabcd), "abstracts outside the range changed");
    got[2 * n_here..].chunks_exact(n_here).map(<[f16]>::to_vec).collect()
}

/// Pages with every kind of key value.
fn odd_pages(rng: &mut Rng, g: usize, d: usize) -> Vec<Vec<f32>> {
    let mut pages: Vec<Vec<f32>> = (0..7).map(|_| page(rng, g, d)).collect();
    pages[1].fill(0.25);
    pages[2].iter_mut().for_each(|x| *x *= 2f32.powf(rng.next_signed() * 28.0 - 4.0));
    pages[3].iter_mut().for_each(|x| *x = -x.abs());
    pages[4].iter_mut().for_each(|x| *x = if x.to_bits() & 1 == 0 { -0.0 } else { 0.0 });
    // NaN keys of either sign, and infinite keys, in a few channels of the last head.
    let last = (4 * g - 1) * 32 * d;
    pages[5][last + 3] = f32::NAN;
    pages[5][last + 15 * d + 5] = -f32::NAN;
    pages[5][last + 7 * d + 6] = f32::INFINITY;
    // Values do not matter.
    pages[6].chunks_exact_mut(32 * d).for_each(|slot| slot[16 * d..].fill(f32::NAN));
    pages
}

#[test]
fn page_abstracts_equal_the_reference_and_bound_every_key() {
    use KvFormat::{F16, F32};
    let no_immediates = FeatureOverrides { no_immediates: true, ..FeatureOverrides::default() };
    let plain = [(F16, 2, 64), (F32, 2, 64), (F16, 3, 80), (F32, 3, 80), (F16, 1, 128), (F32, 1, 8), (F16, 7, 96)];
    let cases = plain.map(|case| (case, FeatureOverrides::default())).into_iter().chain([((F16, 1, 256), no_immediates)]);
    let mut rng = Rng::new(21);
    for ((work, g, d), overrides) in cases {
        let Some(gpu) = gpu("page_abstracts_equal_the_reference_and_bound_every_key", overrides) else { return };
        let mut pages = odd_pages(&mut rng, g, d);
        if work == F16 {
            pages.iter_mut().flatten().for_each(|x| *x = f16::from_f32(*x).to_f32());
        }
        for (i, (got, page)) in abstracts_of(&gpu, &pages, g, d, work).iter().zip(&pages).enumerate() {
            let what = format!("{g} heads of {d} in {work:?}, page {i}");
            let want = reference::page_abstracts(page, g, d);
            assert_eq!(got.len(), want.len());
            let differs = (0..got.len()).find(|&j| got[j] != want[j]);
            assert_eq!(differs.map(|j| (j, got[j], want[j])), None, "{what}");
            for (slot, keys) in page.chunks_exact(32 * d).map(|slot| &slot[..16 * d]).enumerate() {
                let bounds = &got[slot % g * 2 * d..][..2 * d];
                let outside = |(j, &k): (usize, &f32)| k < bounds[j % d].to_f32() || k > bounds[d + j % d].to_f32();
                assert!(!keys.iter().enumerate().any(outside), "{what}: a key is out of bounds");
            }
        }
    }
}

#[test]
fn page_abstracts_of_quantized_keys_are_rejected() {
    let Some(gpu) = gpu("page_abstracts_of_quantized_keys_are_rejected", FeatureOverrides::default()) else { return };
    assert!(PageAbstracts::new(&gpu, 1, 8, KvFormat::Q4).is_err());
}

#[test]
fn page_bounds_equal_the_reference_and_bound_the_token_scores() {
    let mut rng = Rng::new(22);
    let hardware = FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() };
    let any = [((1, 1, 8), 1), ((4, 4, 64), 63), ((14, 2, 64), 64), ((6, 2, 80), 65), ((9, 3, 80), 1), ((8, 4, 128), 300)];
    let cases = any.map(|case| (case, FeatureOverrides::default())).into_iter();
    for (((h, g, d), n_pages), overrides) in cases.chain([(((6, 2, 80), 1), hardware), (((9, 1, 64), 257), hardware)]) {
        let Some(gpu) = gpu("page_bounds_equal_the_reference_and_bound_the_token_scores", overrides) else {
            return;
        };
        let what = format!("{h} heads on {g} of {d}, {n_pages} pages");
        let q = random(&mut rng, h * d, 1.0 / (d as f32).sqrt());
        let mut pages: Vec<Vec<f32>> = (0..n_pages.min(4)).map(|_| page(&mut rng, g, d)).collect();
        if n_pages > 3 {
            // One page is unbounded for one head; another has equal keys.
            pages[2][5] = f32::NAN;
            pages[3].fill(0.5);
        }
        let few: Vec<Vec<f16>> = pages.iter().map(|p| reference::page_abstracts(p, g, d)).collect();
        let abstracts: Vec<f16> = (0..n_pages).flat_map(|p| few[p % few.len()].clone()).collect();
        let op = PageBoundsKernel::new(&gpu, h, g, d).unwrap();
        let bounds = empty(&gpu, op.bounds_bytes(n_pages + 3));
        let binding = op.bind(&gpu, [&upload(&gpu, &q), &upload(&gpu, &abstracts), &bounds]).unwrap();
        let mut recorder = Recorder::new();
        op.record(&mut recorder, &binding, n_pages, 1);
        gpu.submit(&mut recorder).unwrap();

        let want_bounds: Vec<Vec<[f32; 2]>> = (0..h)
            .map(|head| {
                let q = &q[head * d..(head + 1) * d];
                let of = |p: usize| &abstracts[(p * g + head / (h / g)) * 2 * d..][..2 * d];
                (0..n_pages).map(|p| reference::page_bounds(q, of(p))).collect()
            })
            .collect();
        let want: Vec<[f32; 2]> = want_bounds.concat();
        let got = download_f32(&gpu, &bounds, 2 * h * n_pages);
        // Infinite bounds are compared as such, the others by magnitude.
        let known = |v: &[f32]| -> Vec<f32> { v.iter().map(|&x| if x.abs() == UNBOUNDED { 0.0 } else { x }).collect() };
        assert!(got.iter().zip(want.as_flattened()).all(|(a, b)| (a.abs() == UNBOUNDED) == (b.abs() == UNBOUNDED)), "{what}");
        assert_close(&what, &known(&got), &known(want.as_flattened()), 1e-11);
        let n_unbounded = got.chunks(2).filter(|bounds| bounds[0] == UNBOUNDED).count();
        assert_eq!(n_unbounded, (n_pages + 1) / 4 * (h / g) * usize::from(n_pages > 3), "{what}");
        assert_bounds_hold(&pages, &q, (h, g, d), &got, n_pages);
    }
}

/// Checks that the scores of all tokens are within the bounds of their page, and equal to both for equal keys.
fn assert_bounds_hold(pages: &[Vec<f32>], q: &[f32], (h, g, d): (usize, usize, usize), bounds: &[f32], n_pages: usize) {
    for (p, page) in pages.iter().enumerate() {
        for (head, q) in q.chunks_exact(d).enumerate() {
            let slots = page.chunks_exact(32 * d).skip(head / (h / g)).step_by(g);
            let scores: Vec<f64> = slots.flat_map(|slot| reference::qk_scores(q, &slot[..16 * d])).collect();
            let [upper, lower] = [0, 1].map(|i| f64::from(bounds[2 * (head * n_pages + p) + i]));
            assert!(scores.iter().all(|s| s.is_nan() || (lower - 1e-4..=upper + 1e-4).contains(s)), "page {p}, head {head}");
            if page.iter().all(|&x| x == page[0]) {
                assert!((upper - lower).abs() < 1e-5, "page {p} of equal keys: {upper} and {lower}");
            }
        }
    }
}

#[test]
fn qk_scores_over_any_blocks_match_reference() {
    use KvFormat::{F16, F32, Q4, Q8};
    let mut rng = Rng::new(23);
    for (element, (h, g, d), n_keys) in [
        (F16, (1, 1, 8), 1usize),
        (F16, (14, 2, 64), 500),
        (F32, (6, 2, 80), 255),
        (Q8, (9, 3, 80), 257),
        (Q4, (4, 2, 128), 256),
        (Q4, (3, 3, 64), 90),
        (Q8, (2, 2, 128), 16),
    ] {
        let Some(gpu) = gpu("qk_scores_over_any_blocks_match_reference", FeatureOverrides::default()) else { return };
        let pool = Pool::new(&mut rng, g, d, element, 5);
        let n_blocks = n_keys.div_ceil(16) + 2;
        // Blocks of any pages, some twice; the last head has one less.
        let mut table: Vec<u32> = (0..g * n_blocks).map(|i| pool.slot(i / n_blocks, rng.uniform(20) as usize)).collect();
        table[(g - 1) * n_blocks] = PAD;
        let q = random(&mut rng, h * d, 1.0 / (d as f32).sqrt());
        let (kv, q_slice) = (upload(&gpu, &pool.bytes), upload(&gpu, &q));
        let score = |subgroup8: bool| {
            let op = QkScores::with_variant(&gpu, h, g, d, element, subgroup8).unwrap();
            let out = empty(&gpu, op.scores_bytes(n_keys));
            let binding = op.bind(&gpu, [&q_slice, &kv, &upload(&gpu, &table), &out]).unwrap();
            let mut recorder = Recorder::new();
            op.record(&mut recorder, &binding, n_keys, n_blocks);
            gpu.submit(&mut recorder).unwrap();
            download_f32(&gpu, &out, h * n_keys)
        };
        let variants = if gpu.has_subgroup8() { &[false, true][..] } else { &[false] };
        let of_variants: Vec<Vec<f32>> = variants.iter().map(|subgroup8| score(*subgroup8)).collect();
        for (head, got) in of_variants.iter().flat_map(|got| got.chunks_exact(n_keys).enumerate()) {
            let list = &table[head / (h / g) * n_blocks..][..n_blocks];
            let n_missing = if list[0] == PAD { 16.min(n_keys) } else { 0 };
            assert!(got[..n_missing].iter().all(|&s| s == MASKED));
            let keys: Vec<f32> = list.iter().filter(|slot| **slot != PAD).flat_map(|slot| pool.keys(*slot).to_vec()).collect();
            let want: Vec<f32> = reference::qk_scores(&q[head * d..(head + 1) * d], &keys).iter().map(|&s| s as f32).collect();
            let what = format!("{h} heads on {g} of {d} in {element:?}, head {head}");
            assert_close(&what, &got[n_missing..], &want[..n_keys - n_missing], 1e-11);
        }
    }
}
