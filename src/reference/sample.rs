//! Reference of `sample/argmax` and `sample/top_k`.

/// The token with the largest logit; the lowest wins a tie.
pub fn argmax(logits: &[f32]) -> u32 {
    top_k(logits, 1).first().map_or(0, |&(token, _)| token)
}

/// The k best (token, logit), best first; of equal logits the lower token first.
pub fn top_k(logits: &[f32], k: usize) -> Vec<(u32, f32)> {
    let mut all: Vec<(u32, f32)> = (0u32..).zip(logits.iter().copied()).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.truncate(k);
    all
}
