//! Sampler: from logits to the next token, greedy, or by top-k, top-p, min-p and temperature.
//!
//! ```text
//! device: best 64 (+ max, sum over all) ─► top-k ─► top-p ─► min-p ─► temperature ─► draw       (llama.cpp's order)
//!                      └ too few? ─► all logits from the device, same path
//! ```
//! 1. Temperature 0 takes the largest logit, on a tie the lowest token id. 2. Same seed, same logits, same token.
//! 3. The number of candidates never truncates the distribution: [`Sampler::sample`] returns None if it needs all logits.

use crate::base::Rng;
use crate::gpu::kernels::sample::{Candidates, Draw};

use crate::engine::api::Sampling;

/// Last tokens of prompt and answer to which the repetition penalty applies.
const PENALTY_WINDOW: usize = 64;

/// Token sampler of one answer.
#[derive(Clone)]
pub struct Sampler {
    sampling: Sampling,
    rng: Rng,
}

impl Sampler {
    /// A sampler seeded by `sampling.seed`.
    pub fn new(sampling: Sampling) -> Sampler {
        Sampler { sampling, rng: Rng::new(sampling.seed) }
    }

    /// True if the best token is enough.
    pub fn is_greedy(&self) -> bool {
        self.sampling.temperature <= 0.0 && self.sampling.repetition_penalty == 1.0
    }

    /// True if candidates are not enough, because penalties change the order of all logits.
    pub fn needs_all_logits(&self) -> bool {
        self.sampling.repetition_penalty != 1.0
    }

    /// The draw of the next token but `n_before`, for the GPU. Every sampled token takes one random number.
    pub fn draw(&self, n_before: usize) -> Draw {
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.sampling;
        let mut rng = self.rng.clone();
        (0..n_before).for_each(|_| {
            rng.next_f32();
        });
        Draw { top_k, top_p, min_p, temperature, random: rng.next_f32() }
    }

    /// Samples the next token. None if the distribution needs more candidates.
    pub fn sample(&mut self, candidates: &Candidates, vocab_size: usize) -> Option<u32> {
        let first = candidates.entries.first()?;
        if self.sampling.temperature <= 0.0 {
            return Some(first.0);
        }
        let remaining = self.truncate(candidates, vocab_size)?;
        let temperature = self.sampling.temperature;
        let weights: Vec<f64> = remaining.iter().map(|(_, l)| f64::from((l - first.1) / temperature).exp()).collect();
        let mut left = f64::from(self.rng.next_f32()) * weights.iter().sum::<f64>();
        for ((token, _), w) in remaining.iter().zip(&weights) {
            left -= w;
            if left < 0.0 {
                return Some(*token);
            }
        }
        remaining.last().map(|(token, _)| *token)
    }

    /// Same from all logits `[V]`. The repetition penalty applies to `recent` tokens.
    pub fn sample_from_all(&mut self, logits: &[f32], recent: &[u32]) -> u32 {
        let mut penalized = logits.to_vec();
        if self.needs_all_logits() {
            let mut seen = recent[recent.len().saturating_sub(PENALTY_WINDOW)..].to_vec();
            seen.sort_unstable();
            seen.dedup();
            for token in seen {
                if let Some(l) = penalized.get_mut(token as usize) {
                    *l = if *l > 0.0 { *l / self.sampling.repetition_penalty } else { *l * self.sampling.repetition_penalty };
                }
            }
        }
        let candidates = all_candidates(&penalized);
        self.sample(&candidates, logits.len()).unwrap_or(0)
    }

    /// Candidates that remain after top-k, top-p and min-p, in this order. None if they are too few.
    fn truncate<'a>(&self, candidates: &'a Candidates, vocab_size: usize) -> Option<&'a [(u32, f32)]> {
        let Sampling { top_k, top_p, min_p, .. } = self.sampling;
        let entries = &candidates.entries[..];
        let complete = entries.len() >= vocab_size;
        let limited = top_k > 0 && top_k as usize <= entries.len() && !candidates.overflowed;
        let (mut remaining, total) = if limited {
            let remaining = &entries[..top_k as usize];
            (remaining, remaining.iter().map(|(_, l)| mass(*l, candidates.max)).sum::<f64>())
        } else {
            (entries, f64::from(candidates.sum))
        };
        let mut known = limited || complete;
        if top_p < 1.0 {
            let mut sum = 0.0;
            let cut = remaining.iter().position(|(_, l)| {
                sum += mass(*l, candidates.max);
                sum >= f64::from(top_p) * total
            });
            if let Some(last) = cut {
                remaining = &remaining[..=last];
                known = true;
            }
        }
        if min_p > 0.0 {
            let n = remaining.iter().take_while(|(_, l)| mass(*l, candidates.max) >= f64::from(min_p)).count().max(1);
            known |= n < remaining.len();
            remaining = &remaining[..n];
        }
        known.then_some(remaining)
    }
}

fn mass(logit: f32, max: f32) -> f64 {
    f64::from(logit - max).exp()
}

fn all_candidates(logits: &[f32]) -> Candidates {
    let mut entries: Vec<(u32, f32)> = (0u32..).zip(logits.iter().copied()).collect();
    entries.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let max = entries.first().map_or(0.0, |e| e.1);
    let sum = entries.iter().map(|e| mass(e.1, max)).sum::<f64>() as f32;
    Candidates { entries, max, sum, overflowed: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::TOP_K_CANDIDATES;
    use crate::gpu::kernels::sample::{Sample, TOP_K_BYTES, parse_drawn, parse_top_k};
    use crate::gpu::testing::gpu_with;
    use crate::gpu::{FeatureOverrides, Gpu, Recorder};

    fn logits() -> Vec<f32> {
        let mut rng = Rng::new(9);
        (0..200).map(|_| rng.next_signed() * 6.0).collect()
    }

    fn best(n: usize) -> Candidates {
        let mut c = all_candidates(&logits());
        c.entries.truncate(n);
        c
    }

    fn sampling(temperature: f32, top_k: u32, top_p: f32, min_p: f32) -> Sampling {
        Sampling { temperature, top_k, top_p, min_p, repetition_penalty: 1.0, seed: 5 }
    }

    #[test]
    fn sampler_greedy_takes_the_lowest_of_equal_logits() {
        let mut s = Sampler::new(sampling(0.0, 0, 1.0, 0.0));
        assert_eq!(s.sample_from_all(&[1.0, 3.0, 3.0, 2.0], &[]), 1);
    }

    #[test]
    fn sampler_from_few_candidates_equals_from_all_logits() {
        for (k, p, m) in [(40, 0.95, 0.05), (5, 1.0, 0.0), (0, 0.5, 0.0), (0, 1.0, 0.2), (64, 0.99, 0.0)] {
            let mut few = Sampler::new(sampling(0.8, k, p, m));
            let mut all = Sampler::new(sampling(0.8, k, p, m));
            for _ in 0..50 {
                assert_eq!(few.sample(&best(64), 200), Some(all.sample_from_all(&logits(), &[])), "k {k} p {p} min {m}");
            }
        }
    }

    #[test]
    fn sampler_without_truncation_needs_all_logits() {
        assert_eq!(Sampler::new(sampling(1.0, 0, 1.0, 0.0)).sample(&best(64), 200), None);
        assert_eq!(Sampler::new(sampling(1.0, 100, 1.0, 0.0)).sample(&best(64), 200), None);
        assert!(Sampler::new(sampling(1.0, 0, 1.0, 0.0)).sample(&best(200), 200).is_some());
    }

    #[test]
    fn sampler_draws_follow_the_distribution_and_the_seed() {
        let all = [0.0f32, 1.0, 2.0, f32::MIN / 2.0];
        let mut s = Sampler::new(sampling(1.0, 0, 1.0, 0.0));
        let mut counts = [0usize; 4];
        for _ in 0..20_000 {
            counts[s.sample_from_all(&all, &[]) as usize] += 1;
        }
        let total: f64 = all[..3].iter().map(|l| f64::from(*l).exp()).sum();
        for (i, l) in all[..3].iter().enumerate() {
            let share = counts[i] as f64 / 20_000.0;
            assert!((share - f64::from(*l).exp() / total).abs() < 0.02, "{i}: {share}");
        }
        assert_eq!(counts[3], 0);
        let draw = |seed| {
            let mut s = Sampler::new(Sampling { seed, ..sampling(1.0, 0, 1.0, 0.0) });
            (0..20).map(|_| s.sample_from_all(&all, &[])).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn sampler_repetition_penalty_lowers_recent_tokens() {
        let mut s = Sampler::new(Sampling { repetition_penalty: 2.0, ..sampling(0.0, 0, 1.0, 0.0) });
        assert!(s.needs_all_logits() && !s.is_greedy());
        assert_eq!(s.sample_from_all(&[3.0, 2.0, -1.0], &[0]), 1);
        assert_eq!(s.sample_from_all(&[-3.0, -4.0], &[0]), 1);
    }

    /// Candidates of `logits` and the token that the GPU draws from them.
    fn drawn_by(gpu: &Gpu, op: &Sample, logits: &[f32], draw: Draw) -> (Candidates, u32) {
        let buffer = |bytes: u64| gpu.buffer("test", bytes).unwrap().all();
        let (input, out) = (buffer(4 * logits.len() as u64), buffer(TOP_K_BYTES));
        gpu.upload(&input, bytemuck::cast_slice(logits)).unwrap();
        let bindings = op.bind(gpu, &input, &out).unwrap();
        let mut recorder = Recorder::new();
        op.record_top_k(&mut recorder, &bindings, logits.len(), TOP_K_CANDIDATES);
        op.record_draw(&mut recorder, &bindings, draw);
        gpu.submit(&mut recorder).unwrap();
        let bytes = gpu.download(&out).unwrap();
        (parse_top_k(&bytes, TOP_K_CANDIDATES), parse_drawn(&bytes))
    }

    #[test]
    fn sampler_and_gpu_draw_the_same_tokens() {
        let overrides = FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() };
        let Some(gpu) = gpu_with("sampler_and_gpu_draw_the_same_tokens", overrides) else { return };
        let op = Sample::new(&gpu).unwrap();
        let mut logits = logits();
        // Equal logits: the lower token comes first.
        (logits[7], logits[150]) = (5.5, 5.5);
        let (mut n_drawn, mut tokens) = (0, std::collections::BTreeSet::new());
        for (temperature, k, p, m) in
            [(0.8, 40, 0.95, 0.05), (3.0, 5, 1.0, 0.0), (2.0, 0, 0.5, 0.0), (1.5, 0, 1.0, 0.2), (5.0, 64, 0.99, 0.0)]
        {
            let mut sampler = Sampler::new(sampling(temperature, k, p, m));
            for n_before in 0..30 {
                // The draw of a later token is known before the ones between are sampled.
                let draw = Sampler { rng: Sampler::new(sampler.sampling).rng, ..sampler.clone() }.draw(n_before);
                assert_eq!(draw, sampler.draw(0));
                let (candidates, drawn) = drawn_by(&gpu, &op, &logits, draw);
                assert_eq!(Some(drawn), sampler.sample(&candidates, logits.len()), "T {temperature} k {k} p {p} min {m}");
                tokens.insert(drawn);
                n_drawn += 1;
            }
        }
        assert!(n_drawn == 150 && tokens.len() > 20, "{tokens:?}");
    }
}
