//! What a selection kept of the attention there is. Pure; needs the exact scores of every token.
//!
//! ```text
//! scores q·k [heads of a group][n] ─ softmax of each ─ mean ─► mass of every token ─► of the chosen; of as many best
//! ```
//! Units: shares of the attention mass of one KV head, 0 to 1.

use crate::base::limits::KV_BLOCK_TOKENS;
use crate::kv::policy::SelectedBlock;

/// One layer, step and KV head.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Fidelity {
    /// share of the attention mass that went to chosen tokens
    pub kept: f64,
    /// the most that as many tokens could have held
    pub best: f64,
    /// share of those best tokens that were chosen
    pub recall: f64,
}

/// What `blocks` and the last `n_always` tokens, which are read whatever is chosen, keep of a KV head's attention, whose tokens
/// have this [`mean_mass`].
pub fn fidelity(mass: &[f64], blocks: &[SelectedBlock], n_always: usize) -> Fidelity {
    let mut is_chosen = vec![false; mass.len()];
    is_chosen.iter_mut().rev().take(n_always).for_each(|chosen| *chosen = true);
    for SelectedBlock { block, tokens } in blocks {
        let of_block = is_chosen.iter_mut().skip(*block as usize * KV_BLOCK_TOKENS).take(KV_BLOCK_TOKENS);
        of_block.enumerate().for_each(|(bit, chosen)| *chosen |= tokens >> bit & 1 == 1);
    }
    let n_chosen = is_chosen.iter().filter(|chosen| **chosen).count();
    let kept = mass.iter().zip(&is_chosen).filter(|(_, chosen)| **chosen).map(|(mass, _)| mass).sum();
    let mut order: Vec<usize> = (0..mass.len()).collect();
    order.sort_by(|a, b| mass[*b].total_cmp(&mass[*a]));
    order.truncate(n_chosen);
    let best = order.iter().map(|t| mass[*t]).sum();
    let n_both = order.iter().filter(|t| is_chosen[**t]).count();
    Fidelity { kept, best, recall: if n_chosen == 0 { 1.0 } else { n_both as f64 / n_chosen as f64 } }
}

/// Attention mass of every token for a KV head: the mean over the query heads of its group of the softmax of their `scores`, all
/// of the same `n` tokens. What is no number has no mass.
pub fn mean_mass(scores: &[&[f32]]) -> Vec<f64> {
    let n = scores.first().map_or(0, |s| s.len());
    let mut mean = vec![0.0; n];
    for of_head in scores {
        let top = of_head.iter().copied().filter(|s| !s.is_nan()).fold(f32::NEG_INFINITY, f32::max);
        let weight = |s: f32| if s.is_nan() || top == f32::NEG_INFINITY { 0.0 } else { f64::from(s - top).exp() };
        let sum: f64 = of_head.iter().map(|s| weight(*s)).sum();
        for (mean, score) in mean.iter_mut().zip(*of_head) {
            *mean += weight(*score) / sum.max(f64::MIN_POSITIVE) / scores.len() as f64;
        }
    }
    mean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(scores: &[&[f32]], blocks: &[SelectedBlock]) -> Fidelity {
        fidelity(&mean_mass(scores), blocks, 0)
    }

    #[test]
    fn fidelity_counts_mass_of_chosen_and_of_as_many_best_tokens() {
        // Tokens 0 and 40 hold nearly everything, a third to two thirds.
        let mut scores = vec![-30.0f32; 64];
        (scores[0], scores[40]) = (0.0, 2.0f32.ln());
        let got = of(&[&scores], &[SelectedBlock::whole(0)]);
        assert!((got.kept - 1.0 / 3.0).abs() < 1e-6 && (got.best - 1.0).abs() < 1e-6, "{got:?}");
        let one = of(&[&scores], &[SelectedBlock { block: 2, tokens: 1 << 8 }]);
        assert!((one.kept - 2.0 / 3.0).abs() < 1e-6 && one.recall == 1.0, "{one:?}");
        let other = of(&[&scores], &[SelectedBlock { block: 2, tokens: 1 << 7 }]);
        assert!(other.kept < 1e-6 && other.recall == 0.0, "{other:?}");
        let all = of(&[&scores], &SelectedBlock::of_pages(&[0]));
        assert!((all.kept - 1.0).abs() < 1e-9 && all.recall == 1.0, "{all:?}");
        assert_eq!(of(&[&scores], &[]), Fidelity { kept: 0.0, best: 0.0, recall: 1.0 });
    }

    #[test]
    fn fidelity_counts_what_is_always_read_as_chosen() {
        // A tenth on token 3 of a page, a fifth on token 5, the rest on the second of two tokens behind the page.
        let mut mass = vec![0.0; 66];
        (mass[3], mass[5], mass[65]) = (0.1, 0.2, 0.7);
        let block = SelectedBlock { block: 0, tokens: 1 << 3 };
        let got = fidelity(&mass, &[block], 2);
        assert!((got.kept - 0.8).abs() < 1e-9 && (got.best - 1.0).abs() < 1e-9, "{got:?}");
        assert!((got.recall - 2.0 / 3.0).abs() < 1e-9, "{got:?}");
        assert!((fidelity(&mass, &[], 2).kept - 0.7).abs() < 1e-9);
    }

    #[test]
    fn fidelity_is_the_mean_over_the_heads_of_a_group_and_bears_what_is_no_number() {
        let mut one = vec![-30.0f32; 32];
        let mut other = one.clone();
        (one[3], other[20], other[21]) = (5.0, 5.0, f32::NAN);
        let got = of(&[&one, &other], &[SelectedBlock::whole(0)]);
        assert!((got.kept - 0.5).abs() < 1e-6, "{got:?}");
        assert_eq!(of(&[], &[]).best, 0.0);
    }
}
