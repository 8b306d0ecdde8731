//! LeoAM policy tests: compared with sorting all blocks, and with the layers, steps and tiers of the paper.

use proptest::prelude::*;

use super::*;
use crate::kv::policy::SelectedBlock;
use crate::kv::policy::testing::Recorded;
use crate::reference;

/// 22 pages, 20 of them free: a `rate` of 0.1 selects 128 tokens, 8 blocks.
const N_PAGES: usize = 22;

fn leoam(amount: SelectionBudget) -> LeoAm {
    LeoAm::new(PolicySpec { amount, ..PolicySpec::default() })
}

/// Low scores except for the given tokens.
fn scores(high: &[(usize, f32)]) -> Vec<f32> {
    let mut scores = vec![-9.0; N_PAGES * KV_PAGE_TOKENS];
    high.iter().for_each(|(token, score)| scores[*token] = *score);
    scores
}

/// Selected tokens of a KV head on the free pages.
fn free_tokens(selection: &Selection, kv_head: usize) -> Vec<usize> {
    free_tokens_of(selection, kv_head, N_PAGES)
}

fn free_tokens_of(selection: &Selection, kv_head: usize, n_pages: usize) -> Vec<usize> {
    let of_block = |selected: &SelectedBlock| {
        let SelectedBlock { block, tokens } = *selected;
        (0..16).filter(move |t| tokens >> t & 1 == 1).map(move |t| block as usize * 16 + t)
    };
    selection.blocks[kv_head].iter().flat_map(of_block).filter(|token| (64..(n_pages - 1) * 64).contains(token)).collect()
}

fn page(page: usize) -> Vec<usize> {
    (page * 64..(page + 1) * 64).collect()
}

#[test]
fn leoam_selects_the_important_tokens_of_each_kv_head() {
    let heads = vec![scores(&[(200, 0.0), (1000, -1.0)]), scores(&[(500, 0.0)])];
    let selection = leoam(SelectionBudget::Rate(0.0016)).select(&Recorded::of(heads).view(7));
    assert_eq!(free_tokens(&selection, 0), [200, 1000]);
    assert!(free_tokens(&selection, 1).contains(&500));
    assert_eq!(free_tokens(&selection, 1).len(), 2);
}

proptest! {
    #[test]
    fn gpu_selects_the_tokens_of_the_tree(seed in 0u64..1000, n_pages in 4usize..40, rate in 0.1f32..0.5, n_heads in 1usize..3) {
        let recorded = Recorded::random(seed, n_heads, n_pages);
        let mut policy = leoam(SelectionBudget::Rate(rate));
        let sizes = policy.device_sizes(7, n_pages).unwrap();
        let selection = policy.select(&recorded.view(7));
        prop_assert_eq!((sizes.n_sink, sizes.n_recent), (1, 1));
        for (kv_head, scores) in recorded.scores().iter().enumerate() {
            let view = recorded.view(7);
            let bounds: Vec<f32> = (1..n_pages - 1).map(|page| view.page_bounds(kv_head, page).upper()).collect();
            let pages = reference::page_candidates(&bounds, sizes.n_candidates, None);
            let tokens: Vec<usize> = pages.iter().flat_map(|page| (page + 1) * 64..(page + 2) * 64).collect();
            let keys: Vec<u32> = tokens.iter().map(|token| reference::token_key(&[scores[*token]], &[0.0])).collect();
            let selected: Vec<usize> = reference::select_tokens(&keys, sizes.n_wanted).iter().map(|i| tokens[*i]).collect();
            let of_tree: Vec<usize> = free_tokens_of(&selection, kv_head, n_pages);
            prop_assert_eq!(of_tree.len(), selected.len());
            let key_of = |token: &usize| reference::token_key(&[scores[*token]], &[0.0]);
            // Tokens with the key of the last one may be others.
            let last = selected.iter().map(key_of).min().unwrap_or(0);
            let above = |tokens: &[usize]| tokens.iter().copied().filter(|token| key_of(token) > last).collect::<Vec<_>>();
            prop_assert_eq!(above(&of_tree), above(&selected));
            prop_assert!(of_tree.iter().all(|token| key_of(token) >= last));
        }
    }
}

#[test]
fn gpu_selects_only_by_a_rate_or_number_of_tokens() {
    let sizes = |amount| leoam(amount).device_sizes(7, 102).map(|sizes| (sizes.n_candidates, sizes.n_wanted));
    assert_eq!(sizes(SelectionBudget::Rate(0.05)), Some(([5, 50], 320)));
    assert_eq!(sizes(SelectionBudget::Tokens(65)), Some(([2, 20], 65)));
    assert_eq!(sizes(SelectionBudget::Rate(0.0)), Some(([0, 0], 0)));
    assert_eq!(sizes(SelectionBudget::Mass { mass: 0.9, floor: 0.1 }), None);
    let every_token = LeoAm::new(PolicySpec { tree: false, amount: SelectionBudget::Rate(0.05), ..PolicySpec::default() });
    assert_eq!(every_token.device_sizes(7, 102).map(|sizes| sizes.n_candidates), Some([100, 100]));
}

#[test]
fn leoam_splits_only_important_pages() {
    let selection = leoam(SelectionBudget::Rate(0.0016)).select(&Recorded::of(vec![scores(&[(200, 0.0), (1000, -1.0)])]).view(7));
    // 20 pages; two of them are split three times with one evaluation each and perhaps one of a sibling, and 8 tokens
    // expanded.
    assert!((20 + 2 * 10..=20 + 2 * 13).contains(&selection.n_evaluations), "{}", selection.n_evaluations);
}

#[test]
fn leoam_without_scores_reads_the_pages_with_the_highest_bounds() {
    let mut recorded = Recorded::of(vec![scores(&[(200, 0.0), (1000, -1.0)])]);
    recorded.move_to_disk_from(0);
    let selection = leoam(SelectionBudget::Rate(0.1)).select(&recorded.view(7));
    assert_eq!((selection.pages.as_slice(), selection.n_evaluations), ([0, 3, 15, 21].as_slice(), 20));
}

#[test]
fn leoam_reads_whole_pages_from_disk_and_single_tokens_elsewhere() {
    let mut recorded = Recorded::of(vec![scores(&[(200, 0.0), (1000, -1.0)])]);
    recorded.move_to_disk_from(10);
    let selection = leoam(SelectionBudget::Rate(0.05)).select(&recorded.view(7));
    assert_eq!(free_tokens(&selection, 0), [vec![200], page(15)].concat());
}

#[test]
fn leoam_does_not_prefer_pages_on_disk_for_their_looser_bounds() {
    // The best page on disk is half a point below the tokens in VRAM, but its bound half a point above them.
    let mut recorded = Recorded::of(vec![scores(&[(200, -0.5), (400, -0.5), (1000, -1.0)])]);
    recorded.move_to_disk_from(10);
    let selection = leoam(SelectionBudget::Rate(0.0016)).select(&recorded.view(7));
    assert_eq!(free_tokens(&selection, 0), [200, 400]);
}

#[test]
fn leoam_starts_with_chunks_of_8_in_first_layers_and_early_steps() {
    let recorded = Recorded::random(3, 1, N_PAGES);
    let spec = PolicySpec { amount: SelectionBudget::Rate(0.0016), first_rate: 0.0016, ..PolicySpec::default() };
    let n_evaluations = |layer, step| LeoAm::new(spec).select(&LayerView { step, ..recorded.view(layer) }).n_evaluations;
    assert!(n_evaluations(2, 50) < 100 && n_evaluations(2, 10) < 100);
    for (layer, step) in [(0, 50), (1, 50), (2, 0), (2, 9)] {
        assert!(n_evaluations(layer, step) >= 160, "layer {layer}, step {step}");
    }
}

#[test]
fn leoam_starts_with_larger_chunks_at_low_density() {
    // All important tokens of layer 0 are in its last half, though half of its tokens are selected.
    let skewed: Vec<f32> = (0..N_PAGES * KV_PAGE_TOKENS).map(|token| if token < 700 { -9.0 } else { -1.0 }).collect();
    let recorded = Recorded::of(vec![skewed]);
    let mut policy = leoam(SelectionBudget::Rate(0.1));
    let first = policy.select(&recorded.view(0)).n_evaluations;
    let second = policy.select(&recorded.view(0)).n_evaluations;
    assert!(first >= 160 && second < 80, "{first}, {second}");
}

#[test]
fn leoam_by_mass_reads_few_tokens_for_sharp_attention_and_many_for_flat() {
    let sharp = scores(&[(200, 6.0)]);
    let flat = vec![-1.0; N_PAGES * KV_PAGE_TOKENS];
    let selection =
        leoam(SelectionBudget::Mass { mass: 0.9, floor: 0.0 }).select(&Recorded::of(vec![sharp.clone(), flat]).view(7));
    assert_eq!(free_tokens(&selection, 0), [200]);
    let share = free_tokens(&selection, 1).len() as f64 / 1280.0;
    assert!((0.85..=0.95).contains(&share), "{share}");
    let floored = leoam(SelectionBudget::Mass { mass: 0.9, floor: 0.5 }).select(&Recorded::of(vec![sharp]).view(7));
    assert_eq!(free_tokens(&floored, 0).len(), 640);
}

#[test]
fn leoam_by_mass_reads_nothing_more_if_the_always_read_pages_suffice() {
    let mut recorded = Recorded::of(vec![scores(&[(0, 9.0), (200, 0.0)])]);
    let by_mass = || leoam(SelectionBudget::Mass { mass: 0.9, floor: 0.0 });
    assert_eq!(by_mass().select(&recorded.view(7)).pages, [0, 21]);
    recorded.move_to_disk_from(0);
    assert!(by_mass().select(&recorded.view(7)).pages.contains(&3));
}

#[test]
fn candidates_are_the_pages_in_vram_that_may_matter() {
    // Bounds are a point too high: of 1,408 tokens, one with e^-14.2 holds a thousandth of an even share.
    let scores = |high| scores(high).into_iter().map(|score| if score == -9.0 { -30.0 } else { score }).collect();
    let mut recorded = Recorded::of(vec![scores(&[(200, 0.0), (1000, -14.0)]), scores(&[(500, 0.0), (700, -14.5)])]);
    let mut policy = leoam(SelectionBudget::Rate(0.05));
    assert_eq!(policy.candidates(&recorded.view(7)), [3, 7, 10, 15]);
    policy.select(&recorded.view(7));
    assert_eq!(policy.candidates(&recorded.view(7)), [3, 7, 15]);
    recorded.move_to_disk_from(10);
    assert_eq!(policy.candidates(&recorded.view(7)), [3, 7]);
    for rate in [0.0, 1.0] {
        assert_eq!(leoam(SelectionBudget::Rate(rate)).candidates(&recorded.view(7)), Vec::<u32>::new());
    }
}

#[test]
fn unpredicted_candidates_are_pages_in_vram_with_a_possible_high_score() {
    // Bounds are a point too high: with a threshold of -4.6 (ln 0.01), pages of -5.5 may reach it, pages of -5.7 not.
    let recorded = Recorded::of(vec![scores(&[(200, 0.0), (1000, -5.5), (1200, -5.7)])]);
    let policy = leoam(SelectionBudget::Rate(0.05));
    assert_eq!(policy.unpredicted_candidates(&recorded.view(7)), [3, 15]);
    let mut below = recorded;
    below.move_to_disk_from(10);
    assert_eq!(policy.unpredicted_candidates(&below.view(7)), [3]);
}

#[test]
fn initial_chunks_are_few_except_at_high_density() {
    assert_eq!([0.0, 0.1, 0.5, 0.9].map(|density| initial_chunks(64_000, density)), [1000; 4]);
    assert_eq!(initial_chunks(64_000, 1.0), 8000);
    assert_eq!([0, 1, 7, 8].map(|n_tokens| initial_chunks(n_tokens, 1.0)), [1; 4]);
}

proptest! {
    #[test]
    fn initial_chunks_minimize_f(n_tokens in 1usize..3000, density in 0.0f64..1.0) {
        let f = |m: usize| {
            let n_level = (n_tokens as f64 / m as f64).log2().ceil() as i32;
            (0..n_level).map(|i| m as f64 * (2.0 * density).powi(i)).sum::<f64>()
        };
        let least = (n_tokens.div_ceil(64)..=n_tokens.div_ceil(8)).map(f).fold(f64::INFINITY, f64::min);
        prop_assert!(f(initial_chunks(n_tokens, density)) <= least * (1.0 + 1e-12));
    }

    #[test]
    fn leoam_with_all_scores_selects_the_best_tokens(seed in 0u64..1000, n_pages in 3usize..40, rate in 0.01f32..0.99) {
        let recorded = Recorded::random(seed, 1, n_pages);
        let mut policy = leoam(SelectionBudget::Rate(rate));
        let view = recorded.view(7);
        let n_wanted = policy.spec.n_wanted(7, (n_pages - 2) * 64);
        let score = |token: &usize| view.page_scores(0, token / 64).unwrap()[token % 64];
        let mut predicted: Vec<usize> = (64..(n_pages - 1) * 64).collect();
        predicted.sort_by(|a, b| score(b).total_cmp(&score(a)));
        predicted.truncate(n_wanted);
        predicted.sort_unstable();
        let read = policy.select(&view).blocks.concat();
        let tokens = read.iter().flat_map(|b| (0..16).filter(|t| b.tokens >> t & 1 == 1).map(|t| b.block as usize * 16 + t));
        let got: Vec<usize> = tokens.filter(|token| (64..(n_pages - 1) * 64).contains(token)).collect();
        prop_assert_eq!(got, predicted);
    }
}

#[test]
fn offloaded_candidates_are_the_best_by_bound_and_all_that_may_hold_much() {
    // A token of page 3 in VRAM holds nearly all; of the offloaded pages, nine may hold a twentieth each, the others
    // next to nothing.
    let of_pages = |pages: Range<usize>, score: f32| pages.map(move |page| (page * KV_PAGE_TOKENS + 5, score));
    let high: Vec<(usize, f32)> = of_pages(10..19, -3.0).chain([(200, 0.0)]).collect();
    let mut recorded = Recorded::of(vec![scores(&high)]);
    recorded.move_to_disk_from(4);
    let mut policy = leoam(SelectionBudget::Rate(0.1));
    let (all, may_matter): (Vec<u32>, Vec<u32>) = ((4..21).collect(), (10..19).collect());
    assert_eq!(policy.offloaded_candidates(&recorded.view(7)), all, "nothing is known of how loose bounds are");
    policy.select(&recorded.view(7));
    assert_eq!(policy.offloaded_candidates(&recorded.view(7)), may_matter, "more than twice what is read");
    // A step without a page of much attention does not change the slack of such pages.
    let mut calm = Recorded::of(vec![scores(&[])]);
    calm.move_to_disk_from(4);
    policy.select(&calm.view(7));
    assert_eq!(policy.offloaded_candidates(&recorded.view(7)), may_matter);
    // If few pages may hold much, four are candidates: twice the two that the rate reads.
    assert!(policy.offloaded_candidates(&calm.view(7)).len() <= 4);
    assert_eq!(policy.offloaded_candidates(&recorded.view(0)), all, "a first layer reads half");
    assert!(leoam(SelectionBudget::Rate(1.0)).offloaded_candidates(&recorded.view(0)).is_empty());
    // With a budget of one page, ten pages are candidates if all may hold much, the likeliest first.
    let few = leoam(SelectionBudget::Tokens(64)).offloaded_candidates(&recorded.view(7));
    assert!(few.len() <= MAX_SCORED_PER_READ && may_matter.iter().all(|page| few.contains(page)), "{few:?}");
}

#[test]
fn leoam_fetches_only_relevant_pages_and_fills_the_rate_from_vram() {
    // A page of e^-20 is negligible, and so are all of them together.
    let mut low = scores(&[(200, 0.0), (700, -1.0), (1000, -2.0)]);
    for (token, score) in low.iter_mut().enumerate().filter(|(_, score)| **score == -9.0) {
        *score = if token < 640 { -30.0 } else { -20.0 };
    }
    let mut recorded = Recorded::of(vec![low.clone()]);
    recorded.move_to_ram_from(10);
    let mut policy = leoam(SelectionBudget::Rate(0.05));
    let selection = policy.select(&recorded.view(7));
    assert_eq!((free_tokens(&selection, 0).len(), selection.pages.as_slice()), (64, [0, 3, 10, 15, 21].as_slice()));
    recorded.move_to_disk_from(12);
    let selection = policy.select(&recorded.view(7));
    assert_eq!(selection.pages.iter().filter(|page| **page >= 10).collect::<Vec<_>>(), [&10, &15, &21]);
    // Before any score is known, by the bound slack of the last step: four pages, one of them negligible.
    let mut policy = leoam(SelectionBudget::Rate(0.2));
    policy.select(&recorded.view(7));
    let predicted = policy.predict(&LayerView { scores: None, ..recorded.view(7) });
    assert!([0, 3, 10, 15, 21].iter().all(|page| predicted.contains(page)) && predicted.len() == 6, "{predicted:?}");
    assert!(predicted.iter().filter(|page| **page >= 10).count() == 3, "{predicted:?}");
}

#[test]
fn leoam_leaves_at_most_a_fiftieth_of_the_mass_unfetched() {
    // The pages from 10 on hold 0.3 % each, in one token.
    let few = |page: usize| (page * KV_PAGE_TOKENS + 5, 0.003f32.ln());
    let high: Vec<(usize, f32)> = (10..21).map(few).chain([(200, 0.96f32.ln())]).collect();
    let low = scores(&high).into_iter().map(|score| if score == -9.0 { -40.0 } else { score }).collect();
    let mut recorded = Recorded::of(vec![low]);
    recorded.move_to_ram_from(10);
    let selection = leoam(SelectionBudget::Rate(0.4)).select(&recorded.view(7));
    assert_eq!(selection.pages.iter().filter(|page| (10..21).contains(*page)).count(), 5, "{:?}", selection.pages);
    // In VRAM, the rate selects all of them.
    recorded = Recorded::of(recorded.scores().to_vec());
    let selection = leoam(SelectionBudget::Rate(0.4)).select(&recorded.view(7));
    assert_eq!(selection.pages.iter().filter(|page| (10..21).contains(*page)).count(), 11, "{:?}", selection.pages);
}

#[test]
fn leoam_rates_pages_on_disk_by_the_slack_of_other_pages() {
    // One token of each page holds all its mass; pages from 10 on are on disk.
    let n_fetched = |weight: f32| {
        let high: Vec<(usize, f32)> = (0..21).map(|page| (page * KV_PAGE_TOKENS + 5, weight.ln())).chain([(200, 0f32)]).collect();
        let low = scores(&high).into_iter().map(|score| if score == -9.0 { -40.0 } else { score }).collect();
        let mut recorded = Recorded::of(vec![low]);
        recorded.move_to_disk_from(10);
        let selection = leoam(SelectionBudget::Rate(0.6)).select(&recorded.view(7));
        selection.pages.iter().filter(|page| (10..21).contains(*page)).count()
    };
    assert_eq!((n_fetched(0.0003), n_fetched(0.003)), (0, 5));
}

#[test]
fn leoam_fetches_pages_if_one_page_reached_its_bound() {
    // Bounds are useless: all are a point high. Of ten pages in VRAM, all are negligible, or one holds a third; each
    // page on disk may do so as well.
    let n_fetched = |high: &[(usize, f32)]| {
        let low = scores(high).into_iter().map(|score| if score == -9.0 { -40.0 } else { score }).collect();
        let mut recorded = Recorded::of(vec![low]);
        recorded.set_upper_bounds(1.0);
        recorded.move_to_disk_from(10);
        let mut policy = leoam(SelectionBudget::Rate(0.1));
        policy.select(&recorded.view(7));
        let calm = recorded.with_scores(vec![vec![-40.0; N_PAGES * KV_PAGE_TOKENS]]);
        [&recorded, &calm].map(|recorded| {
            let selection = policy.clone().select(&recorded.view(7));
            selection.pages.iter().filter(|page| (10..21).contains(*page)).count()
        })
    };
    assert_eq!(n_fetched(&[]), [0, 0]);
    assert_eq!(n_fetched(&[(200, 0.3f32.ln())]), [2, 2], "as many as the rate reads, in the next step as well");
}

#[test]
fn leoam_without_a_tree_selects_the_same_tokens_with_more_evaluations() {
    let recorded = Recorded::random(11, 2, N_PAGES);
    let spec = PolicySpec { tree: false, amount: SelectionBudget::Rate(0.025), ..PolicySpec::default() };
    let (without_tree, with_tree) =
        (LeoAm::new(spec).select(&recorded.view(7)), leoam(SelectionBudget::Rate(0.025)).select(&recorded.view(7)));
    assert_eq!(without_tree.blocks, with_tree.blocks);
    assert_eq!(without_tree.n_evaluations, 2 * 20 * KV_PAGE_TOKENS);
    assert!(with_tree.n_evaluations < without_tree.n_evaluations / 3, "{}", with_tree.n_evaluations);
    assert_eq!(LeoAm::new(spec).candidates(&recorded.view(7)).len(), N_PAGES);
}
