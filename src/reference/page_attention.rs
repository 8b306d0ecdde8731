//! Reference of `attention/page_logsumexp` and `attention/page_attention`.

use crate::base::limits::KV_PAGE_TOKENS;

/// Attention share of each of the first `n_pages`, the mean over `rows`; a row has the scores of all its visible keys.
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
