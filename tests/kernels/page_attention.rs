//! Page attention tests: attention of the last tokens of a chunk, tile by tile.

use strata::base::Rng;
use strata::gpu::kernels::KvFormat;
use strata::gpu::kernels::attention_prefill::{AttentionPrefill, KeyTile, PrefillVariant};
use strata::gpu::kernels::linear::Precision;
use strata::gpu::kernels::page_attention::{PageAttentionKernel, Window};
use strata::gpu::{FeatureOverrides, Recorder};
use strata::reference;

use super::common::{assert_close, gpu};
use super::page_abstracts::Pool;
use super::{download_f32, empty, random, upload};

#[test]
fn page_attention_matches_reference_for_any_tiles() {
    let Some(gpu) = gpu("page_attention_matches_reference_for_any_tiles", FeatureOverrides::default()) else { return };
    let mut rng = Rng::new(51);
    for ((h, g, d), element, n_pages, n_tokens, n_observed) in [
        ((4, 1, 64), KvFormat::F16, 5, 17, 17),
        ((6, 2, 80), KvFormat::F32, 3, 40, 32),
        ((4, 4, 64), KvFormat::Q8, 70, 9, 1),
        ((14, 2, 64), KvFormat::Q4, 2, 33, 5),
    ] {
        let (pool, tail) = (Pool::new(&mut rng, g, d, element, n_pages), Pool::new(&mut rng, g, d, KvFormat::F32, 1));
        let table = |pool: &Pool, n_pages: usize| -> Vec<u32> {
            (0..g).flat_map(|head| (0..4 * n_pages).map(move |block| (head, block))).map(|(head, b)| pool.slot(head, b)).collect()
        };
        let q = random(&mut rng, n_tokens * h * d, 1.0 / (d as f32).sqrt());
        let keys = |pool: &Pool, kv_head: usize, n_blocks: usize| -> Vec<f32> {
            (0..n_blocks).flat_map(|b| pool.keys(pool.slot(kv_head, b)).to_vec()).collect()
        };
        let row = |token: usize, head: usize| -> Vec<f64> {
            let seen = &keys(&tail, head / (h / g), 4)[..(token + 1) * d];
            let all = [keys(&pool, head / (h / g), 4 * n_pages), seen.to_vec()].concat();
            reference::qk_scores(&q[(token * h + head) * d..][..d], &all)
        };
        let last = n_tokens - n_observed..n_tokens;
        let rows: Vec<Vec<f64>> = last.flat_map(|t| (0..h).map(move |head| (t, head))).map(|(t, head)| row(t, head)).collect();
        let want: Vec<f32> = reference::page_attention(&rows, n_pages).into_iter().map(|share| share as f32).collect();
        assert!(want.iter().sum::<f32>() < 1.0 && want.iter().all(|share| *share > 0.0));

        let window = Window { n_tokens, n_observed, stride: n_pages + 3 };
        let shares = PageAttentionKernel::new(&gpu, h, g).unwrap();
        let [of_pages, of_tail] =
            [element, KvFormat::F32].map(|e| AttentionPrefill::new(&gpu, h, g, d, e, Precision::Exact).unwrap());
        let scores = empty(&gpu, of_pages.scores_bytes(n_tokens, 64 * n_pages));
        let state = empty(&gpu, of_pages.state_bytes(n_tokens));
        let (lse, out) = (empty(&gpu, shares.lse_bytes(window)), empty(&gpu, (n_tokens * h * d * 4) as u64));
        let got = upload(&gpu, &vec![-1.0f32; n_pages + 2]);
        let q = upload(&gpu, &q);
        let (kv, kv_table) = (upload(&gpu, &pool.bytes), upload(&gpu, &table(&pool, n_pages)));
        let (own, own_table) = (upload(&gpu, &tail.bytes), upload(&gpu, &table(&tail, 1)));
        let bindings = shares.bind(&gpu, [&scores, &state, &lse, &got]).unwrap();
        let pages = of_pages.bind(&gpu, [&q, &kv, &kv_table, &scores, &state, &out]).unwrap();
        let tail = of_tail.bind(&gpu, [&q, &own, &own_table, &scores, &state, &out]).unwrap();
        let mut recorder = Recorder::new();
        // The tail is between tiles of pages, as in a prefill.
        let tile = |first_page: usize, n: usize, is_last: bool| KeyTile {
            n_tokens,
            first_key: 64 * first_page,
            n_keys: 64 * n,
            n_blocks: 4 * n_pages,
            mask_from: 64 * n_pages,
            is_first: first_page == 0,
            is_last,
        };
        let first = tile(0, 2, false);
        of_pages.record(&mut recorder, &pages, first);
        shares.record_tile(&mut recorder, &bindings, window, &first, 0);
        let (is_first, is_last) = (false, n_pages == 2);
        let of_own = KeyTile { n_tokens, first_key: 0, n_keys: n_tokens, n_blocks: 4, mask_from: 1, is_first, is_last };
        of_tail.record(&mut recorder, &tail, of_own);
        if n_pages > 2 {
            let rest = tile(2, n_pages - 2, true);
            of_pages.record(&mut recorder, &pages, rest);
            shares.record_tile(&mut recorder, &bindings, window, &rest, 2);
        }
        shares.record_shares(&mut recorder, &bindings, window, n_pages, 1);
        gpu.submit(&mut recorder).unwrap();
        let got = download_f32(&gpu, &got, n_pages + 2);
        assert_eq!((got[0], got[n_pages + 1]), (-1.0, -1.0), "shares outside the range changed");
        assert_close(&format!("{h} heads on {g} of {d} in {element:?}"), &got[1..=n_pages], &want, 1e-9);

        // After flash attention: scores of the observed tokens alone, with a maximum of their own in each tile.
        let variant = PrefillVariant::Flash;
        let [of_pages, of_tail] =
            [element, KvFormat::F32].map(|e| AttentionPrefill::with_variant(&gpu, h, g, d, e, variant).unwrap());
        let of_window = of_pages.scores_only(&gpu).unwrap();
        let scores = empty(&gpu, of_window.scores_bytes(n_observed, 64 * n_pages));
        let (own_state, got) = (empty(&gpu, of_pages.state_bytes(n_observed)), empty(&gpu, 4 * n_pages as u64));
        let [of_lse, _] = shares.bind(&gpu, [&scores, &own_state, &lse, &got]).unwrap();
        let [_, of_shares] = shares.bind(&gpu, [&scores, &state, &lse, &got]).unwrap();
        let bindings = [of_lse, of_shares];
        let of_scores = of_window.bind(&gpu, [&q, &kv, &kv_table, &scores, &own_state]).unwrap();
        let pages = of_pages.bind(&gpu, [&q, &kv, &kv_table, &scores, &state, &out]).unwrap();
        let tail = of_tail.bind(&gpu, [&q, &own, &own_table, &scores, &state, &out]).unwrap();
        of_pages.record(&mut recorder, &pages, KeyTile { n_keys: 64 * n_pages, ..first });
        of_tail.record(&mut recorder, &tail, KeyTile { is_last: true, ..of_own });
        let first_token = n_tokens - n_observed;
        for (first_page, n) in [(0, 1), (1, n_pages - 1)] {
            let of_tile = tile(first_page, n, false);
            let mask_from = of_tile.mask_from + first_token;
            let part = KeyTile { n_tokens: n_observed, mask_from, is_first: true, ..of_tile };
            of_window.record(&mut recorder, &of_scores, part, first_token);
            shares.record_tile(&mut recorder, &bindings, Window { n_tokens: n_observed, ..window }, &part, first_page);
        }
        shares.record_shares(&mut recorder, &bindings, window, n_pages, 0);
        gpu.submit(&mut recorder).unwrap();
        let got = download_f32(&gpu, &got, n_pages);
        assert_close(&format!("window of {h} heads on {g} of {d} in {element:?}"), &got, &want, 1e-9);
    }
}
