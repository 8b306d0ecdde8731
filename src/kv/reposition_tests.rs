//! Tests of repositioned pages: plans, rotations against the reference, every page format.

use super::*;
use crate::base::Rng;
use crate::reference::{PageShape, RopeSpec, dequantize_page, quantize_page, rope};

fn tokens(n: usize, seed: u64) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    (0..n).map(|_| rng.uniform(30_000)).collect()
}

#[test]
fn document_after_another_is_reused_but_for_its_ends() {
    // Saved alone: 20 tokens of a template, 500 of the document, of which the last 16 are in no complete group.
    let document = tokens(500, 1);
    let saved = [tokens(20, 2), document.clone()].concat();
    let prompt = [tokens(333, 3), document, tokens(40, 4)].concat();
    // Group 7 is the first that begins 64 tokens after the document. Token 832 has no saved page: 512 - 20 + 333 = 825.
    let expected = ReusableGroups { groups: 7..12, first_saved: 7 * 64 - 333 + 20 };
    assert_eq!(reusable_groups(&prompt, 333..833, &saved), Some(expected));
    // Nothing of it within the boundary of a short one.
    assert_eq!(reusable_groups(&prompt, 333..460, &saved[..147]), None);
}

#[test]
fn only_the_longest_run_under_one_shift_is_reused() {
    let document = tokens(1000, 1);
    let mut saved = [tokens(20, 2), document.clone()].concat();
    // One token more at the beginning, as if a word had been split otherwise, and another one in the middle.
    saved.insert(25, 7);
    saved[700] = 40_000;
    let prompt = [tokens(100, 3), document].concat();
    let found = reusable_groups(&prompt, 100..1100, &saved).unwrap();
    let shift = 100 - 21;
    assert_eq!(found.first_saved, found.groups.start as usize * 64 - shift);
    let tokens_of = |group: usize| (&prompt[group * 64..][..64], &saved[group * 64 - shift..][..64]);
    for (new, old) in found.groups.clone().map(|group| tokens_of(group as usize)) {
        assert_eq!(new, old);
    }
    // Token 779 differs, so the run has tokens 105 to 778.
    assert_eq!(found.groups, 3..12);
}

#[test]
fn repeated_and_unrelated_tokens_have_a_plan_that_holds() {
    let same = vec![5; 640];
    let prompt = [tokens(30, 1), same.clone()].concat();
    let found = reusable_groups(&prompt, 30..670, &same).unwrap();
    assert!(found.groups.end as usize * 64 <= 670 && found.first_saved + found.groups.len() * 64 <= 640);
    assert_eq!(reusable_groups(&tokens(640, 2), 0..640, &tokens(640, 3)), None);
    assert_eq!(reusable_groups(&prompt, 30..670, &[]), None);
    assert_eq!(reusable_groups(&[], 0..0, &same), None);
}

/// Angles of a position as the engine computes them: in f32.
fn angle(pos: usize, pair: usize, n_pairs: usize) -> f64 {
    f64::from(pos as f32 * (10_000f64.powf(-(pair as f64) / n_pairs as f64) as f32))
}

fn table(pos: usize, n_pairs: usize) -> Vec<[f32; 2]> {
    (0..n_pairs).map(|i| [angle(pos, i, n_pairs).cos() as f32, angle(pos, i, n_pairs).sin() as f32]).collect()
}

#[test]
fn rotated_key_equals_the_reference_at_the_new_position() {
    for (half_style, n_pairs, from, to) in [(true, 32, 70, 1234), (false, 32, 1234, 70), (true, 8, 0, 40_000), (false, 12, 9, 9)]
    {
        let mut rng = Rng::new(3);
        let key: Vec<f32> = (0..64).map(|_| rng.next_signed()).collect();
        let at = |pos| rope(&key, &RopeSpec { half_style, rope: &table(pos, n_pairs), norm: None, scale: 1.0 });
        // As saved: rounded to f16.
        let mut moved: Vec<f32> = at(from).iter().map(|x| f16::from_f32(*x).to_f32()).collect();
        let rotations: Vec<_> = (0..n_pairs).map(|i| rotation(angle(from, i, n_pairs), angle(to, i, n_pairs))).collect();
        rotate_key(&mut moved, &rotations, half_style);
        for (i, (x, y)) in moved.iter().zip(at(to)).enumerate() {
            assert!((x - y).abs() < 1e-3, "channel {i} from {from} to {to}: {x} and {y}");
        }
        assert_eq!(moved[2 * n_pairs..], key[2 * n_pairs..].iter().map(|x| f16::from_f32(*x).to_f32()).collect::<Vec<_>>());
    }
}

#[test]
fn quantized_page_has_the_numbers_of_the_reference() {
    let mut rng = Rng::new(9);
    for (sealed, code_bits) in [(KvFormat::Q8, 8), (KvFormat::Q4, 4)] {
        for (n_kv_head, head_dim) in [(1, 8), (2, 64), (3, 40)] {
            let spec = KvSpec { n_layer: 1, n_kv_head, head_dim, work: KvFormat::F16, sealed };
            let page: Vec<f32> = (0..64 * 2 * n_kv_head * head_dim).map(|_| rng.next_signed()).collect();
            let shape = PageShape { n_kv_head, head_dim, code_bits };
            let bytes = quantize_page(&page, shape);
            assert_eq!(
                page_numbers(&spec, &bytes).unwrap(),
                dequantize_page(&bytes, shape),
                "{sealed:?} {n_kv_head} x {head_dim}"
            );
            assert_eq!(page_numbers(&spec, &bytes[1..]), None);
        }
    }
}

#[test]
fn page_of_a_group_has_the_rows_of_two_saved_pages() {
    let spec = KvSpec { n_layer: 1, n_kv_head: 2, head_dim: 8, work: KvFormat::F32, sealed: KvFormat::F32 };
    let n = 64 * 2 * 2 * 8;
    // A page whose rows are all the token, plus a half in values.
    let page = |first: usize| -> Vec<f32> {
        (0..n).map(|i| (first + i / 512 * 16 + i / 8 % 16) as f32 + if i / 128 % 2 == 1 { 0.5 } else { 0.0 }).collect()
    };
    let (first, second) = (page(0), page(64));
    for first_row in [0, 1, 40, 63] {
        let still = vec![vec![[1.0, 0.0]; 2]; 64];
        let to = Reposition { first_row, rotations: &still, half_style: true };
        let bytes = repositioned_page(&spec, [&first, &second], &to);
        let numbers: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        assert_eq!(numbers, page(first_row));
        // Half a turn of the first pair changes the sign of two channels of each key, and no value.
        let turned = vec![vec![[-1.0, 0.0], [1.0, 0.0]]; 64];
        let to = Reposition { first_row, rotations: &turned, half_style: true };
        let bytes = repositioned_page(&spec, [&first, &second], &to);
        let changed: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        for (i, (x, y)) in numbers.iter().zip(&changed).enumerate() {
            let is_turned = i / 128 % 2 == 0 && [0, 2].contains(&(i % 8));
            assert_eq!(*y, if is_turned { -x } else { *x }, "number {i}");
        }
    }
    let halves = KvSpec { work: KvFormat::F16, sealed: KvFormat::F16, ..spec };
    let still = vec![Vec::new(); 64];
    let to = Reposition { first_row: 3, rotations: &still, half_style: false };
    assert_eq!(repositioned_page(&halves, [&first, &second], &to).len() as u64, halves.page_bytes());
}
