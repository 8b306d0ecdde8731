//! Twin of `page_lse` and `page_shares`.

use crate::base::limits::KV_PAGE_TOKENS;

/// Share of attention that each of the first `n_pages` has, mean over `rows`: of each, scores of all keys that it sees.
pub fn page_attention(rows: &[Vec<f64>], n_pages: usize) -> Vec<f64> {
    let mut shares = vec![0.0; n_pages];
    for row in rows {
        let highest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = row.iter().map(|score| (score - highest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        for (share, page) in shares.iter_mut().zip(weights.chunks(KV_PAGE_TOKENS)) {
            *share += page.iter().sum::<f64>() / sum / rows.len() as f64;
        }
    }
    shares
}
