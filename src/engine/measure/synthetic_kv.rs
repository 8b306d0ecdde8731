//! A context that nobody read: pseudo-random keys and values in place of those of tokens, for `bench --fill`.
//!
//! ```text
//! table of noise ─► pages of the tail, layer by layer ─► sealed, with abstracts, as after a chunk of prefill
//! ```
//! 1. From the tail on, pages go where those of real tokens go: frames, RAM and the disk, by the budgets.
//! 2. The same seed gives the same pages. 3. Nothing of it is saved: there is no document.
//!
//! Owner: the engine thread. Shapes: a page f16 or f32 `[4, G, 2, 16, D]`.
//!
//! Limits: keys of a page have half of their variance in common, so that what matters comes in clusters as it does in text;
//! what a real model would attend to is not imitated, nor how long it stays the same.

use half::vec::HalfFloatVecExt;

use crate::base::Rng;
use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::engine::error::EngineError;
use crate::engine::runner::ModelRunner;
use crate::engine::runner::gpu_model::GpuModel;
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::gpu::Gpu;
use crate::gpu::kernels::KvFormat;
use crate::kv::{BLOCKS_PER_PAGE, KvSpec};

/// Numbers of the table; pages begin anywhere in it.
const N_NOISE: usize = 1 << 20;

/// Makes pages.
pub(in crate::engine) struct SyntheticKv {
    /// of mean 0 and variance 1
    noise: Vec<f32>,
    rng: Rng,
}

impl SyntheticKv {
    pub(in crate::engine) fn new(seed: u64) -> SyntheticKv {
        let mut rng = Rng::new(seed);
        // The sum of three of variance 1/3 is close enough to a normal distribution.
        let noise = (0..N_NOISE).map(|_| rng.next_signed() + rng.next_signed() + rng.next_signed()).collect();
        SyntheticKv { noise, rng }
    }

    /// `n` numbers of the table.
    fn draw(&mut self, n: usize) -> &[f32] {
        let from = self.rng.below((self.noise.len() - n) as u32) as usize;
        &self.noise[from..from + n]
    }

    /// `n_pages` pages of a layer.
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
    /// No room in all tiers, what the tiers below failed with, a lost device.
    pub(in crate::engine) fn fill(&mut self, gpu: &Gpu, n_tokens: usize) -> Result<(), EngineError> {
        let mut filler = SyntheticKv::new(n_tokens as u64);
        self.truncate(self.tokens.len() / KV_PAGE_TOKENS * KV_PAGE_TOKENS);
        self.reserve(gpu, n_tokens)?;
        while self.tokens.len() < n_tokens {
            let first_pos = self.tokens.len();
            let chunk = vec![0; self.model.kv.room_at(first_pos).min(n_tokens - first_pos)];
            self.model.kv.append_tokens(first_pos, &chunk);
            self.model.fill_layers(gpu, &mut self.pacer, &mut filler, first_pos, chunk.len())?;
            self.tokens.extend_from_slice(&chunk);
        }
        Ok(self.pacer.finish(gpu)?)
    }
}

impl GpuModel {
    /// What a pass over `n` tokens leaves in the cache, without the pass. `first_pos` begins a group.
    fn fill_layers(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        filler: &mut SyntheticKv,
        first_pos: usize,
        n: usize,
    ) -> Result<(), EngineError> {
        // Pages of the tail are overwritten below: what reads them must be on its way.
        pacer.flush(gpu)?;
        self.kv.begin_pass(gpu, first_pos, false);
        for layer in 0..self.dims.n_layer {
            // All of the tail, whose order therefore does not matter.
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
    fn filled_pages_have_mean_0_and_variance_1_and_repeat_with_the_seed() {
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
    fn filled_keys_of_a_page_are_alike_and_of_two_pages_are_not() {
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
