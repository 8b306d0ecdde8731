//! Synthetic KV: a context of pseudo-random keys and values, without prefill, for `bench --fill`.
//!
//! ```text
//! table of noise ─► pages of the tail, layer by layer ─► sealed, with abstracts, as after a chunk of prefill
//! ```
//! 1. Pages take the path of real ones from the tail on: to frames, RAM and disk, by the budgets.
//! 2. The same seed gives the same pages. 3. Nothing is saved, because there is no document.
//!
//! Owner: the engine thread. Shapes: a page f16 or f32 `[4, G, 2, 16, D]`.
//!
//! Limits: the keys of a page share half of their variance, so that important tokens are clustered as in text. The attention
//! of a real model and its persistence over steps are not imitated.

use half::vec::HalfFloatVecExt;

use crate::base::Rng;
use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::engine::error::EngineError;
use crate::engine::runner::ModelRunner;
use crate::engine::runner::executor::Executor;
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::gpu::Gpu;
use crate::gpu::kernels::KvFormat;
use crate::kv::{BLOCKS_PER_PAGE, KvSpec};

/// Length of the noise table.
const N_NOISE: usize = 1 << 20;

/// Generator of synthetic pages.
pub(in crate::engine) struct SyntheticKv {
    /// mean 0, variance 1
    noise: Vec<f32>,
    rng: Rng,
}

impl SyntheticKv {
    pub(in crate::engine) fn new(seed: u64) -> SyntheticKv {
        let mut rng = Rng::new(seed);
        // The sum of three uniform numbers of variance 1/3 is close enough to a normal distribution.
        let noise = (0..N_NOISE).map(|_| rng.next_signed() + rng.next_signed() + rng.next_signed()).collect();
        SyntheticKv { noise, rng }
    }

    /// `n` numbers from a random offset of the table.
    fn draw(&mut self, n: usize) -> &[f32] {
        let from = self.rng.uniform((self.noise.len() - n) as u32) as usize;
        &self.noise[from..from + n]
    }

    /// Bytes of `n_pages` pages of a layer.
    fn pages(&mut self, spec: &KvSpec, n_pages: usize) -> Vec<u8> {
        let (head_dim, n_half) = (spec.head_dim, KV_BLOCK_TOKENS * spec.head_dim);
        let mut numbers = Vec::with_capacity(n_pages * KV_PAGE_TOKENS * spec.n_kv_head * 2 * head_dim);
        for _ in 0..n_pages {
            let directions = self.draw(spec.n_kv_head * head_dim).to_vec();
            for _ in 0..BLOCKS_PER_PAGE {
                for direction in directions.chunks_exact(head_dim) {
                    let keys = self.draw(n_half).chunks_exact(head_dim).flat_map(|key| key.iter().zip(direction));
                    numbers.extend(keys.map(|(own, common)| (own + common) * std::f32::consts::FRAC_1_SQRT_2));
                    numbers.extend_from_slice(self.draw(n_half));
                }
            }
        }
        match spec.work {
            KvFormat::F32 => bytemuck::cast_slice(&numbers).to_vec(),
            _ => bytemuck::cast_slice(&Vec::<half::f16>::from_f32_slice(&numbers)).to_vec(),
        }
    }
}

impl ModelRunner {
    /// Fills the context up to `n_tokens`, from the last complete group on.
    ///
    /// # Errors
    /// All tiers full, an error of the offload tiers, a lost device.
    pub(in crate::engine) fn fill(&mut self, gpu: &Gpu, n_tokens: usize) -> Result<(), EngineError> {
        let mut filler = SyntheticKv::new(n_tokens as u64);
        self.truncate(self.tokens.len() / KV_PAGE_TOKENS * KV_PAGE_TOKENS);
        self.reserve(gpu, n_tokens)?;
        while self.tokens.len() < n_tokens {
            let first_pos = self.tokens.len();
            let chunk = vec![0; self.exec.kv.room_at(first_pos).min(n_tokens - first_pos)];
            self.exec.kv.append_tokens(first_pos, &chunk);
            self.exec.fill_layers(gpu, &mut self.pacer, &mut filler, first_pos, chunk.len())?;
            self.tokens.extend_from_slice(&chunk);
        }
        Ok(self.pacer.finish(gpu)?)
    }
}

impl Executor {
    /// Writes the KV of a pass over `n` tokens, without the pass. `first_pos` begins a group.
    fn fill_layers(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        filler: &mut SyntheticKv,
        first_pos: usize,
        n: usize,
    ) -> Result<(), EngineError> {
        // Pages of the tail are overwritten below: commands that read them must have been submitted.
        pacer.flush(gpu)?;
        self.kv.begin_pass(gpu, first_pos, false);
        for layer in 0..self.model.dims.n_layer {
            // The whole tail, so the order of its pages does not matter.
            let pages = filler.pages(self.kv.spec(), self.kv.plan().tail_pages);
            gpu.write(self.kv.tail(layer).0, &pages);
            self.seal(gpu, pacer, layer, first_pos + n)?;
        }
        self.kv.end_pass(first_pos + n);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: KvSpec = KvSpec { n_layer: 1, n_kv_head: 2, head_dim: 32, work: KvFormat::F32, sealed: KvFormat::F32 };

    /// Keys of a page of one KV head, `[64][D]`.
    fn keys(page: &[f32], head: usize) -> Vec<&[f32]> {
        page.chunks_exact(2 * 16 * 32).skip(head).step_by(2).flat_map(|block| block[..16 * 32].chunks_exact(32)).collect()
    }

    #[test]
    fn synthetic_pages_have_mean_0_and_variance_1_and_repeat_with_the_seed() {
        let bytes = SyntheticKv::new(3).pages(&SPEC, 8);
        assert_eq!(bytes.len() as u64, 8 * SPEC.tail_page_bytes());
        assert_eq!(bytes, SyntheticKv::new(3).pages(&SPEC, 8));
        assert_ne!(bytes, SyntheticKv::new(4).pages(&SPEC, 8));
        let numbers: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        let mean = numbers.iter().sum::<f32>() / numbers.len() as f32;
        let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / numbers.len() as f32;
        assert!(mean.abs() < 0.1 && (variance - 1.0).abs() < 0.1, "{mean} {variance}");
        let halves = SyntheticKv::new(3).pages(&KvSpec { work: KvFormat::F16, sealed: KvFormat::F16, ..SPEC }, 8);
        assert_eq!(halves.len(), bytes.len() / 2);
    }

    #[test]
    fn synthetic_keys_correlate_within_a_page_and_not_between_pages() {
        let numbers: Vec<f32> = bytemuck::pod_collect_to_vec(&SyntheticKv::new(3).pages(&SPEC, 2));
        let (first, second) = numbers.split_at(numbers.len() / 2);
        let mean_dot = |a: &[&[f32]], b: &[&[f32]]| {
            let dots = a.iter().zip(b).map(|(a, b)| a.iter().zip(*b).map(|(a, b)| a * b).sum::<f32>() / 32.0);
            dots.sum::<f32>() / a.len() as f32
        };
        let (a, b, c) = (keys(first, 0), keys(second, 0), keys(first, 1));
        let turned: Vec<&[f32]> = a[1..].iter().chain(&a[..1]).copied().collect();
        assert!(mean_dot(&a, &turned) > 0.25, "{}", mean_dot(&a, &turned));
        assert!(mean_dot(&a, &b).abs() < 0.25 && mean_dot(&a, &c).abs() < 0.25);
    }
}
