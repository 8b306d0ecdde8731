//! LeoAM against sorting all blocks, and in what the paper says about layers, steps and tiers.

use proptest::prelude::*;

use super::*;
use crate::kv::policy::SelectedBlock;
use crate::kv::policy::testing::Recorded;

/// 22 pages, 20 of them free: `rate` 0.1 wants 128 tokens, 8 blocks.
const N_PAGES: usize = 22;

fn leoam(amount: SelectionBudget) -> LeoAm {
    LeoAm::new(PolicySpec { amount, ..PolicySpec::default() })
}

/// Low but for the given tokens.
fn scores(high: &[(usize, f32)]) -> Vec<f32> {
    let mut scores = vec![-9.0; N_PAGES * KV_PAGE_TOKENS];
    high.iter().for_each(|(token, score)| scores[*token] = *score);
    scores
}

/// Tokens that a KV head reads of the free pages.
fn free_tokens(selection: &Selection, kv_head: usize) -> Vec<usize> {
    let of_block = |chosen: &SelectedBlock| {
        let SelectedBlock { block, tokens } = *chosen;
        (0..16).filter(move |t| tokens >> t & 1 == 1).map(move |t| block as usize * 16 + t)
    };
    selection.blocks[kv_head].iter().flat_map(of_block).filter(|token| (64..21 * 64).contains(token)).collect()
}

fn page(page: usize) -> Vec<usize> {
    (page * 64..(page + 1) * 64).collect()
}

#[test]
fn leoam_reads_the_tokens_that_matter_to_each_kv_head() {
    let heads = vec![scores(&[(200, 0.0), (1000, -1.0)]), scores(&[(500, 0.0)])];
    let selection = leoam(SelectionBudget::Rate(0.0016)).select(&Recorded::of(heads).view(7));
    assert_eq!(free_tokens(&selection, 0), [200, 1000]);
    assert!(free_tokens(&selection, 1).contains(&500));
    assert_eq!(free_tokens(&selection, 1).len(), 2);
}

#[test]
fn leoam_evaluates_pages_and_splits_only_those_that_matter() {
    let selection = leoam(SelectionBudget::Rate(0.0016)).select(&Recorded::of(vec![scores(&[(200, 0.0), (1000, -1.0)])]).view(7));
    // 20 pages; two of them split thrice with one evaluation each and perhaps a sibling to look at, and 8 tokens opened.
    assert!((20 + 2 * 10..=20 + 2 * 13).contains(&selection.n_evaluations), "{}", selection.n_evaluations);
}

#[test]
fn leoam_with_bounds_alone_reads_the_pages_with_the_highest() {
    let mut recorded = Recorded::of(vec![scores(&[(200, 0.0), (1000, -1.0)])]);
    recorded.forget_scores_from(0);
    let selection = leoam(SelectionBudget::Rate(0.1)).select(&recorded.view(7));
    assert_eq!((selection.pages.as_slice(), selection.n_evaluations), ([0, 3, 15, 21].as_slice(), 20));
}

#[test]
fn leoam_takes_pages_on_the_disk_as_a_whole_and_others_by_token() {
    let mut recorded = Recorded::of(vec![scores(&[(200, 0.0), (1000, -1.0)])]);
    recorded.forget_scores_from(10);
    let selection = leoam(SelectionBudget::Rate(0.05)).select(&recorded.view(7));
    assert_eq!(free_tokens(&selection, 0), [vec![200], page(15)].concat());
}

#[test]
fn leoam_does_not_prefer_the_disk_for_its_looser_bounds() {
    // The best page on the disk is half a point below the tokens in VRAM, and its bound half a point above them.
    let mut recorded = Recorded::of(vec![scores(&[(200, -0.5), (400, -0.5), (1000, -1.0)])]);
    recorded.forget_scores_from(10);
    let selection = leoam(SelectionBudget::Rate(0.0016)).select(&recorded.view(7));
    assert_eq!(free_tokens(&selection, 0), [200, 400]);
}

#[test]
fn leoam_begins_with_chunks_of_8_in_the_first_layers_and_steps() {
    let recorded = Recorded::random(3, 1, N_PAGES);
    let spec = PolicySpec { amount: SelectionBudget::Rate(0.0016), first_rate: 0.0016, ..PolicySpec::default() };
    let n_evaluations = |layer, step| LeoAm::new(spec).select(&LayerView { step, ..recorded.view(layer) }).n_evaluations;
    assert!(n_evaluations(2, 50) < 100 && n_evaluations(2, 10) < 100);
    for (layer, step) in [(0, 50), (1, 50), (2, 0), (2, 9)] {
        assert!(n_evaluations(layer, step) >= 160, "layer {layer}, step {step}");
    }
}

#[test]
fn leoam_begins_with_larger_chunks_once_the_density_says_so() {
    // All that matters of layer 0 stands in its last half, though half of its tokens are wanted.
    let skewed: Vec<f32> = (0..N_PAGES * KV_PAGE_TOKENS).map(|token| if token < 700 { -9.0 } else { -1.0 }).collect();
    let recorded = Recorded::of(vec![skewed]);
    let mut policy = leoam(SelectionBudget::Rate(0.1));
    let first = policy.select(&recorded.view(0)).n_evaluations;
    let second = policy.select(&recorded.view(0)).n_evaluations;
    assert!(first >= 160 && second < 80, "{first}, {second}");
}

#[test]
fn leoam_by_mass_reads_little_where_attention_is_sharp_and_much_where_it_is_flat() {
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
fn leoam_by_mass_reads_nothing_more_where_what_is_always_read_holds_it() {
    let mut recorded = Recorded::of(vec![scores(&[(0, 9.0), (200, 0.0)])]);
    let by_mass = || leoam(SelectionBudget::Mass { mass: 0.9, floor: 0.0 });
    assert_eq!(by_mass().select(&recorded.view(7)).pages, [0, 21]);
    recorded.forget_scores_from(0);
    assert!(by_mass().select(&recorded.view(7)).pages.contains(&3));
}

#[test]
fn candidates_are_the_pages_in_vram_that_may_hold_something() {
    // Bounds are a point too high: of 1,408 tokens, one of e^-14.2 holds a thousandth of an even share.
    let scores = |high| scores(high).into_iter().map(|score| if score == -9.0 { -30.0 } else { score }).collect();
    let mut recorded = Recorded::of(vec![scores(&[(200, 0.0), (1000, -14.0)]), scores(&[(500, 0.0), (700, -14.5)])]);
    let mut policy = leoam(SelectionBudget::Rate(0.05));
    assert_eq!(policy.candidates(&recorded.view(7)), [3, 7, 10, 15]);
    policy.select(&recorded.view(7));
    assert_eq!(policy.candidates(&recorded.view(7)), [3, 7, 15]);
    recorded.forget_scores_from(10);
    assert_eq!(policy.candidates(&recorded.view(7)), [3, 7]);
    for rate in [0.0, 1.0] {
        assert_eq!(leoam(SelectionBudget::Rate(rate)).candidates(&recorded.view(7)), Vec::<u32>::new());
    }
}

#[test]
fn surprises_are_the_pages_in_vram_of_which_a_token_may_hold_a_hundredth() {
    // Bounds are a point too high: of -4.6, the logarithm of a hundredth, pages of -5.5 may hold as much and of -5.7 not.
    let recorded = Recorded::of(vec![scores(&[(200, 0.0), (1000, -5.5), (1200, -5.7)])]);
    let policy = leoam(SelectionBudget::Rate(0.05));
    assert_eq!(policy.surprises(&recorded.view(7)), [3, 15]);
    let mut below = recorded;
    below.forget_scores_from(10);
    assert_eq!(policy.surprises(&below.view(7)), [3]);
}

#[test]
fn initial_chunks_are_few_unless_nearly_all_of_them_matter() {
    assert_eq!([0.0, 0.1, 0.5, 0.9].map(|density| initial_chunks(64_000, density)), [1000; 4]);
    assert_eq!(initial_chunks(64_000, 1.0), 8000);
    assert_eq!([0, 1, 7, 8].map(|n_tokens| initial_chunks(n_tokens, 1.0)), [1; 4]);
}

proptest! {
    #[test]
    fn initial_chunks_are_those_of_the_least_f(n_tokens in 1usize..3000, density in 0.0f64..1.0) {
        let f = |m: usize| {
            let n_level = (n_tokens as f64 / m as f64).log2().ceil() as i32;
            (0..n_level).map(|i| m as f64 * (2.0 * density).powi(i)).sum::<f64>()
        };
        let least = (n_tokens.div_ceil(64)..=n_tokens.div_ceil(8)).map(f).fold(f64::INFINITY, f64::min);
        prop_assert!(f(initial_chunks(n_tokens, density)) <= least * (1.0 + 1e-12));
    }

    #[test]
    fn leoam_that_knows_every_score_reads_the_best_tokens(seed in 0u64..1000, n_pages in 3usize..40, rate in 0.01f32..0.99) {
        let recorded = Recorded::random(seed, 1, n_pages);
        let mut policy = leoam(SelectionBudget::Rate(rate));
        let view = recorded.view(7);
        let n_wanted = policy.spec.n_wanted(7, (n_pages - 2) * 64);
        let score = |token: &usize| view.page_scores(0, token / 64).unwrap()[token % 64];
        let mut expected: Vec<usize> = (64..(n_pages - 1) * 64).collect();
        expected.sort_by(|a, b| score(b).total_cmp(&score(a)));
        expected.truncate(n_wanted);
        expected.sort_unstable();
        let read = policy.select(&view).blocks.concat();
        let tokens = read.iter().flat_map(|b| (0..16).filter(|t| b.tokens >> t & 1 == 1).map(|t| b.block as usize * 16 + t));
        let got: Vec<usize> = tokens.filter(|token| (64..(n_pages - 1) * 64).contains(token)).collect();
        prop_assert_eq!(got, expected);
    }
}

#[test]
fn leoam_asks_for_keys_below_of_the_pages_that_bounds_put_first_and_of_all_that_may_hold_much() {
    // In VRAM a token of page 3 holds nearly all; below, nine pages may hold a twentieth each, others next to nothing.
    let of_pages = |pages: Range<usize>, score: f32| pages.map(move |page| (page * KV_PAGE_TOKENS + 5, score));
    let high: Vec<(usize, f32)> = of_pages(10..19, -3.0).chain([(200, 0.0)]).collect();
    let mut recorded = Recorded::of(vec![scores(&high)]);
    recorded.forget_scores_from(4);
    let mut policy = leoam(SelectionBudget::Rate(0.1));
    let (all, may_matter): (Vec<u32>, Vec<u32>) = ((4..21).collect(), (10..19).collect());
    assert_eq!(policy.candidates_below(&recorded.view(7)), all, "nothing is known of how loose bounds are");
    policy.select(&recorded.view(7));
    assert_eq!(policy.candidates_below(&recorded.view(7)), may_matter, "more than twice what is read");
    // A step in which no page holds much says nothing of those that do.
    let mut calm = Recorded::of(vec![scores(&[])]);
    calm.forget_scores_from(4);
    policy.select(&calm.view(7));
    assert_eq!(policy.candidates_below(&recorded.view(7)), may_matter);
    // Where few may hold much, four are asked for: twice the two that the rate reads.
    assert!(policy.candidates_below(&calm.view(7)).len() <= 4);
    assert_eq!(policy.candidates_below(&recorded.view(0)), all, "a first layer reads half");
    assert!(leoam(SelectionBudget::Rate(1.0)).candidates_below(&recorded.view(0)).is_empty());
    // Of a number of tokens that one page holds, ten pages are asked for where all may hold much, the likeliest first.
    let few = leoam(SelectionBudget::Tokens(64)).candidates_below(&recorded.view(7));
    assert!(few.len() <= SCORED_BELOW_AT_MOST && may_matter.iter().all(|page| few.contains(page)), "{few:?}");
}

#[test]
fn leoam_fetches_what_holds_something_and_fills_the_rate_from_vram() {
    // A page of e^-20 holds next to nothing, and so do all of them.
    let mut low = scores(&[(200, 0.0), (700, -1.0), (1000, -2.0)]);
    for (token, score) in low.iter_mut().enumerate().filter(|(_, score)| **score == -9.0) {
        *score = if token < 640 { -30.0 } else { -20.0 };
    }
    let mut recorded = Recorded::of(vec![low.clone()]);
    recorded.put_into_ram_from(10);
    let mut policy = leoam(SelectionBudget::Rate(0.05));
    let selection = policy.select(&recorded.view(7));
    assert_eq!((free_tokens(&selection, 0).len(), selection.pages.as_slice()), (64, [0, 3, 10, 15, 21].as_slice()));
    recorded.forget_scores_from(12);
    let selection = policy.select(&recorded.view(7));
    assert_eq!(selection.pages.iter().filter(|page| **page >= 10).collect::<Vec<_>>(), [&10, &15, &21]);
    // Before any score is known, by what bounds were worth in the last step: four pages, one of which holds next to nothing.
    let mut policy = leoam(SelectionBudget::Rate(0.2));
    policy.select(&recorded.view(7));
    let expected = policy.expect(&LayerView { scores: None, ..recorded.view(7) });
    assert!([0, 3, 10, 15, 21].iter().all(|page| expected.contains(page)) && expected.len() == 6, "{expected:?}");
    assert!(expected.iter().filter(|page| **page >= 10).count() == 3, "{expected:?}");
}

#[test]
fn leoam_leaves_out_a_fiftieth_of_the_mass_at_most_where_it_would_have_to_be_fetched() {
    // The pages from 10 on hold 0.3 % each, in one token.
    let few = |page: usize| (page * KV_PAGE_TOKENS + 5, 0.003f32.ln());
    let high: Vec<(usize, f32)> = (10..21).map(few).chain([(200, 0.96f32.ln())]).collect();
    let low = scores(&high).into_iter().map(|score| if score == -9.0 { -40.0 } else { score }).collect();
    let mut recorded = Recorded::of(vec![low]);
    recorded.put_into_ram_from(10);
    let selection = leoam(SelectionBudget::Rate(0.4)).select(&recorded.view(7));
    assert_eq!(selection.pages.iter().filter(|page| (10..21).contains(*page)).count(), 5, "{:?}", selection.pages);
    // In VRAM the rate reads them all.
    recorded = Recorded::of(recorded.scores().to_vec());
    let selection = leoam(SelectionBudget::Rate(0.4)).select(&recorded.view(7));
    assert_eq!(selection.pages.iter().filter(|page| (10..21).contains(*page)).count(), 11, "{:?}", selection.pages);
}

#[test]
fn leoam_weighs_pages_on_the_disk_by_what_bounds_of_others_came_to() {
    // One token of each page holds all that the page does, on the disk from page 10 on.
    let n_fetched = |weight: f32| {
        let high: Vec<(usize, f32)> = (0..21).map(|page| (page * KV_PAGE_TOKENS + 5, weight.ln())).chain([(200, 0f32)]).collect();
        let low = scores(&high).into_iter().map(|score| if score == -9.0 { -40.0 } else { score }).collect();
        let mut recorded = Recorded::of(vec![low]);
        recorded.forget_scores_from(10);
        let selection = leoam(SelectionBudget::Rate(0.6)).select(&recorded.view(7));
        selection.pages.iter().filter(|page| (10..21).contains(*page)).count()
    };
    assert_eq!((n_fetched(0.0003), n_fetched(0.003)), (0, 5));
}

#[test]
fn leoam_fetches_from_the_disk_where_one_page_of_many_held_what_its_bound_allows() {
    // Bounds tell nothing: all are a point high. Of ten pages in VRAM all hold next to nothing, or one of them a third; so may each
    // of those on the disk.
    let n_fetched = |high: &[(usize, f32)]| {
        let low = scores(high).into_iter().map(|score| if score == -9.0 { -40.0 } else { score }).collect();
        let mut recorded = Recorded::of(vec![low]);
        recorded.set_upper_bounds(1.0);
        recorded.forget_scores_from(10);
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
fn leoam_without_a_tree_reads_the_same_tokens_and_evaluates_every_token() {
    let recorded = Recorded::random(11, 2, N_PAGES);
    let spec = PolicySpec { tree: false, amount: SelectionBudget::Rate(0.025), ..PolicySpec::default() };
    let (without, with) =
        (LeoAm::new(spec).select(&recorded.view(7)), leoam(SelectionBudget::Rate(0.025)).select(&recorded.view(7)));
    assert_eq!(without.blocks, with.blocks);
    assert_eq!(without.n_evaluations, 2 * 20 * KV_PAGE_TOKENS);
    assert!(with.n_evaluations < without.n_evaluations / 3, "{}", with.n_evaluations);
    assert_eq!(LeoAm::new(spec).candidates(&recorded.view(7)).len(), N_PAGES);
}
