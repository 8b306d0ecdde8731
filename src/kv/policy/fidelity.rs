//! Selection fidelity: attention mass that a selection retains. Pure; needs the exact scores of every token.
//!
//! ```text
//! scores q·k [heads of a group][n] ─ softmax of each ─ mean ─► mass per token ─► mass of selected; of the best as many
//! ```
//! Units: fractions of the attention mass of one KV head, 0 to 1.

use crate::base::limits::KV_BLOCK_TOKENS;
use crate::kv::policy::SelectedBlock;

/// Fidelity of one layer, step and KV head.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Fidelity {
    /// attention mass of the selected tokens
    pub kept: f64,
    /// maximum attention mass of that many tokens
    pub best: f64,
    /// fraction of those best tokens that were selected
    pub recall: f64,
}

/// Fidelity of `blocks` plus the last `n_always` tokens, which are always read. `mass` is the [`mean_mass`] of a KV
/// head.
pub fn fidelity(mass: &[f64], blocks: &[SelectedBlock], n_always: usize) -> Fidelity {
    let mut is_selected = vec![false; mass.len()];
    is_selected.iter_mut().rev().take(n_always).for_each(|selected| *selected = true);
    for SelectedBlock { block, tokens } in blocks {
        let block_tokens = is_selected.iter_mut().skip(*block as usize * KV_BLOCK_TOKENS).take(KV_BLOCK_TOKENS);
        block_tokens.enumerate().for_each(|(bit, selected)| *selected |= tokens >> bit & 1 == 1);
    }
    let n_selected = is_selected.iter().filter(|selected| **selected).count();
    let kept = mass.iter().zip(&is_selected).filter(|(_, selected)| **selected).map(|(mass, _)| mass).sum();
    let mut order: Vec<usize> = (0..mass.len()).collect();
    order.sort_by(|a, b| mass[*b].total_cmp(&mass[*a]));
    order.truncate(n_selected);
    let best = order.iter().map(|t| mass[*t]).sum();
    let n_both = order.iter().filter(|t| is_selected[**t]).count();
    Fidelity { kept, best, recall: if n_selected == 0 { 1.0 } else { n_both as f64 / n_selected as f64 } }
}

/// Attention mass of every token for a KV head: the mean softmax over the query heads of its group. `scores` are of the
/// same `n` tokens. NaN scores have no mass.
pub fn mean_mass(scores: &[&[f32]]) -> Vec<f64> {
    let n = scores.first().map_or(0, |s| s.len());
    let mut mean = vec![0.0; n];
    for head_scores in scores {
        let top = head_scores.iter().copied().filter(|s| !s.is_nan()).fold(f32::NEG_INFINITY, f32::max);
        let weight = |s: f32| if s.is_nan() || top == f32::NEG_INFINITY { 0.0 } else { f64::from(s - top).exp() };
        let sum: f64 = head_scores.iter().map(|s| weight(*s)).sum();
        for (mean, score) in mean.iter_mut().zip(*head_scores) {
            *mean += weight(*score) / sum.max(f64::MIN_POSITIVE) / scores.len() as f64;
        }
    }
    mean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fidelity_of(scores: &[&[f32]], blocks: &[SelectedBlock]) -> Fidelity {
        fidelity(&mean_mass(scores), blocks, 0)
    }

    #[test]
    fn fidelity_compares_selected_with_the_best_tokens() {
        // Tokens 0 and 40 hold nearly all mass, in the ratio 1 to 2.
        let mut scores = vec![-30.0f32; 64];
        (scores[0], scores[40]) = (0.0, 2.0f32.ln());
        let got = fidelity_of(&[&scores], &[SelectedBlock::whole(0)]);
        assert!((got.kept - 1.0 / 3.0).abs() < 1e-6 && (got.best - 1.0).abs() < 1e-6, "{got:?}");
        let one = fidelity_of(&[&scores], &[SelectedBlock { block: 2, tokens: 1 << 8 }]);
        assert!((one.kept - 2.0 / 3.0).abs() < 1e-6 && one.recall == 1.0, "{one:?}");
        let other = fidelity_of(&[&scores], &[SelectedBlock { block: 2, tokens: 1 << 7 }]);
        assert!(other.kept < 1e-6 && other.recall == 0.0, "{other:?}");
        let all = fidelity_of(&[&scores], &SelectedBlock::of_pages(&[0]));
        assert!((all.kept - 1.0).abs() < 1e-9 && all.recall == 1.0, "{all:?}");
        assert_eq!(fidelity_of(&[&scores], &[]), Fidelity { kept: 0.0, best: 0.0, recall: 1.0 });
    }

    #[test]
    fn fidelity_counts_always_read_tokens_as_selected() {
        // A tenth on token 3 of a page, a fifth on token 5, the rest on the second of two tokens after the page.
        let mut mass = vec![0.0; 66];
        (mass[3], mass[5], mass[65]) = (0.1, 0.2, 0.7);
        let block = SelectedBlock { block: 0, tokens: 1 << 3 };
        let got = fidelity(&mass, &[block], 2);
        assert!((got.kept - 0.8).abs() < 1e-9 && (got.best - 1.0).abs() < 1e-9, "{got:?}");
        assert!((got.recall - 2.0 / 3.0).abs() < 1e-9, "{got:?}");
        assert!((fidelity(&mass, &[], 2).kept - 0.7).abs() < 1e-9);
    }

    #[test]
    fn fidelity_is_the_mean_over_a_group_and_ignores_nan() {
        let mut one = vec![-30.0f32; 32];
        let mut other = one.clone();
        (one[3], other[20], other[21]) = (5.0, 5.0, f32::NAN);
        let got = fidelity_of(&[&one, &other], &[SelectedBlock::whole(0)]);
        assert!((got.kept - 0.5).abs() < 1e-6, "{got:?}");
        assert_eq!(fidelity_of(&[], &[]).best, 0.0);
    }
}
