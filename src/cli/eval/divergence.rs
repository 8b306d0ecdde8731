//! Divergence of a policy's next-token distributions from those of exact attention, position by position.
//!
//! ```text
//! exact logits [T, V] ─┐
//! policy logits [T, V] ─┴► Divergence [T] ─► mean, 99th percentile, top-1 agreement, perplexity of both
//! next token ids [T] ───┘
//! ```
//! Invariants: 1. Equal logits diverge by exactly 0. 2. A value that is not finite is an error, never a result.
//! Units: KL(exact ‖ policy) in nats, computed in f64.

use serde::Serialize;

/// Comparison at one position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Position {
    /// KL(exact ‖ policy), nats
    pub kld: f64,
    /// true if both have the same top token
    pub same_best: bool,
    /// `-ln p(next token)` by exact attention and by the policy
    pub nll: [f64; 2],
}

/// Logits that form no distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its logits have a value that is not finite, or lack the next token {next}. Please report this bug")]
pub struct NotALogit {
    /// next token of the text
    pub next: u32,
}

/// Statistics of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    /// mean KL(exact ‖ policy), nats
    pub kld_mean: f64,
    /// 99th percentile
    pub kld_p99: f64,
    /// maximum
    pub kld_max: f64,
    /// share of positions with the same top token
    pub top1_agreement: f64,
    /// perplexity of the text with exact attention
    pub perplexity_exact: f64,
    /// perplexity of the text with the policy
    pub perplexity: f64,
}

/// Compares the logits `[V]` of one position; `next` is the next token of the text.
///
/// # Errors
/// A value that is not finite, or `next` outside the vocabulary.
pub fn compare(exact: &[f32], policy: &[f32], next: u32) -> Result<Position, NotALogit> {
    let error = NotALogit { next };
    let (p, q) = (log_softmax(exact).ok_or(error)?, log_softmax(policy).ok_or(error)?);
    let nll = |log_p: &[f64]| log_p.get(next as usize).map(|l| -l).ok_or(error);
    let kld: f64 = p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum();
    // Rounding may leave a sum slightly below 0.
    Ok(Position { kld: kld.max(0.0), same_best: best(exact) == best(policy), nll: [nll(&p)?, nll(&q)?] })
}

/// Statistics over the positions of a run; None if there are none.
pub fn figures(positions: &[Position]) -> Option<Figures> {
    let mut klds: Vec<f64> = positions.iter().map(|p| p.kld).collect();
    klds.sort_by(f64::total_cmp);
    let mean = |of: fn(&Position) -> f64| positions.iter().map(of).sum::<f64>() / positions.len() as f64;
    Some(Figures {
        kld_mean: mean(|p| p.kld),
        kld_p99: percentile(&klds, 99)?,
        kld_max: *klds.last()?,
        top1_agreement: mean(|p| f64::from(u8::from(p.same_best))),
        perplexity_exact: mean(|p| p.nll[0]).exp(),
        perplexity: mean(|p| p.nll[1]).exp(),
    })
}

/// The `percent`-th percentile of ascending values.
pub fn percentile(ascending: &[f64], percent: usize) -> Option<f64> {
    let rank = (ascending.len() * percent).div_ceil(100).max(1);
    ascending.get(rank - 1).copied()
}

/// `ln softmax`; None if a value is not finite.
fn log_softmax(logits: &[f32]) -> Option<Vec<f64>> {
    let top = f64::from(logits.iter().copied().reduce(f32::max)?);
    let log_sum = logits.iter().map(|l| (f64::from(*l) - top).exp()).sum::<f64>().ln();
    logits.iter().all(|l| l.is_finite()).then(|| logits.iter().map(|l| f64::from(*l) - top - log_sum).collect())
}

/// Index of the top token; the first of equal ones.
fn best(logits: &[f32]) -> usize {
    let later_is_better = |best: usize, i: usize| if logits.get(i) > logits.get(best) { i } else { best };
    (0..logits.len()).reduce(later_is_better).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn compare_known_distributions_gives_the_textbook_divergence() {
        // p = (3/4, 1/4), q = (1/2, 1/2), up to a constant that must not matter.
        let exact = [3.0f32.ln() + 50.0, 50.0];
        let position = compare(&exact, &[7.0, 7.0], 0).unwrap();
        let kld = 0.75 * 1.5f64.ln() + 0.25 * 0.5f64.ln();
        assert!((position.kld - kld).abs() < 1e-6, "{position:?}");
        assert!((position.nll[0] - -(0.75f64.ln())).abs() < 1e-6 && (position.nll[1] - 2f64.ln()).abs() < 1e-12);
        assert!(position.same_best);
        assert!(!compare(&exact, &[1.0, 2.0], 0).unwrap().same_best);
    }

    #[test]
    fn compare_rejects_invalid_logits() {
        for (exact, policy, next) in [
            (&[0.0, f32::NAN][..], &[0.0, 1.0][..], 0),
            (&[0.0, 1.0], &[f32::INFINITY, 0.0], 0),
            (&[0.0, 1.0], &[0.0, 1.0], 2),
            (&[], &[], 0),
        ] {
            assert_eq!(compare(exact, policy, next), Err(NotALogit { next }), "{exact:?} {policy:?}");
        }
    }

    #[test]
    fn figures_are_mean_percentile_and_perplexity() {
        let position = |i: usize| Position { kld: i as f64, same_best: !i.is_multiple_of(4), nll: [8f64.ln(), 2f64.ln()] };
        let positions: Vec<Position> = (0..200).rev().map(position).collect();
        let figures = figures(&positions).unwrap();
        assert_eq!((figures.kld_mean, figures.kld_p99, figures.kld_max), (99.5, 197.0, 199.0));
        assert_eq!(figures.top1_agreement, 0.75);
        assert!((figures.perplexity_exact - 8.0).abs() < 1e-9 && (figures.perplexity - 2.0).abs() < 1e-9);
        assert_eq!(super::figures(&[]), None);
        assert_eq!((percentile(&[4.0], 99), percentile(&[], 99), percentile(&[1.0, 2.0], 50)), (Some(4.0), None, Some(1.0)));
    }

    proptest! {
        #[test]
        fn divergence_is_zero_for_equal_logits_and_never_negative(
            a in prop::collection::vec(-40f32..40.0, 2..64), shift in -3f32..3.0
        ) {
            prop_assert_eq!(compare(&a, &a, 0).unwrap().kld, 0.0);
            let b: Vec<f32> = a.iter().enumerate().map(|(i, x)| x + shift * (i % 3) as f32).collect();
            prop_assert!(compare(&a, &b, 0).unwrap().kld >= 0.0);
        }
    }
}
