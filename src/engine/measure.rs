//! The measuring commands: logits of every position, and prefill and decode speed on random tokens.

use std::time::{Duration, Instant};

use crate::base::{Rng, Tiers};
use crate::gpu::Gpu;

use super::command::{BenchRow, BenchTests, EngineEvent, Sampling, TurnId};
use super::error::EngineError;
use super::handle::{EnginePort, StopWatch};
use super::loaded::{Loaded, Spent};
use super::sampler::Sampler;
use super::summary::{IoSummary, Phases, StopReason, TurnSummary};
use super::turn::TurnPolicy;
use super::worker::Worker;

/// Bytes of logits that are read back at once.
const LOGITS_BYTES: usize = 16 << 20;

impl Worker {
    pub(super) fn logits(&mut self, turn: TurnId, tokens: &[u32]) -> Result<TurnSummary, EngineError> {
        let watch = self.port.stop_watch();
        let (Some(gpu), Some(loaded)) = (&self.gpu, &mut self.loaded) else { return Err(EngineError::NoModel) };
        if tokens.is_empty() {
            return Err(EngineError::Empty);
        }
        let limit = loaded.model.kv.limit();
        if tokens.len() > limit {
            return Err(EngineError::TooLong { tokens: tokens.len(), limit, advice: String::new() });
        }
        let (began, before) = (Instant::now(), loaded.spent());
        let vocab_size = loaded.model.dims.vocab_size;
        let rows = (LOGITS_BYTES / (vocab_size * 4)).clamp(1, loaded.model.max_chunk);
        loaded.truncate(0);
        loaded.reserve(gpu, tokens.len())?;
        loaded.pace.set_whole(false);
        let (output, logits) = loaded.model.wide_output(gpu, rows)?;
        let mut stop = StopReason::Length;
        while loaded.tokens.len() < tokens.len() {
            if watch.stopped() {
                stop = StopReason::Cancelled;
                break;
            }
            let first = loaded.tokens.len();
            let n = loaded.next_chunk(first, (tokens.len() - first).min(rows));
            loaded.run_chunk(gpu, &tokens[first..first + n])?;
            loaded.model.run_wide_output(gpu, &mut loaded.pace, &output, n)?;
            loaded.pace.finish(gpu)?;
            let bytes = gpu.download(&logits.buffer.slice(0, (n * vocab_size * 4) as u64))?;
            let rows = bytemuck::pod_collect_to_vec(&bytes);
            self.port.emit(EngineEvent::LogitsRows { turn, first, rows, vocab_size });
        }
        Ok(measured(gpu, loaded, &before, tokens.len(), began.elapsed(), stop))
    }

    pub(super) fn bench(&mut self, turn: TurnId, tests: &BenchTests) -> Result<TurnSummary, EngineError> {
        let watch = self.port.stop_watch();
        let (Some(gpu), Some(loaded)) = (&self.gpu, &mut self.loaded) else { return Err(EngineError::NoModel) };
        let (began, before) = (Instant::now(), loaded.spent());
        let lengths = || tests.n_prompt.iter().chain(&tests.n_gen);
        let longest = lengths().max().copied().unwrap_or(0) + tests.depths.iter().max().copied().unwrap_or(0);
        let limit = loaded.model.kv.limit();
        if longest > limit {
            return Err(EngineError::TooLong { tokens: longest, limit, advice: String::new() });
        }
        let mut b = Bench { gpu, loaded, port: &self.port, turn, watch, rng: Rng::new(7), tests };
        let depths = if tests.depths.is_empty() { &[0][..] } else { &tests.depths };
        for &depth in depths {
            for (lengths, decode) in [(&tests.n_prompt, false), (&tests.n_gen, true)] {
                for &n in lengths.iter().filter(|n| **n > 0) {
                    if !b.row(n, depth, decode)? {
                        return Ok(measured(gpu, b.loaded, &before, 0, began.elapsed(), StopReason::Cancelled));
                    }
                }
            }
        }
        Ok(measured(gpu, b.loaded, &before, 0, began.elapsed(), StopReason::Length))
    }
}

struct Bench<'a> {
    gpu: &'a Gpu,
    loaded: &'a mut Loaded,
    port: &'a EnginePort,
    turn: TurnId,
    watch: StopWatch,
    rng: Rng,
    tests: &'a BenchTests,
}

impl Bench<'_> {
    /// One line: an untimed repetition, then the timed ones. False when stopped.
    fn row(&mut self, n: usize, depth: usize, decode: bool) -> Result<bool, EngineError> {
        let repetitions = self.tests.repetitions.max(1);
        let mut samples = Vec::new();
        let (mut encode_ms, mut dispatches, mut disk_bytes) = (0.0, 0, 0);
        self.fill(depth)?;
        for repetition in 0..=repetitions {
            if self.watch.stopped() {
                return Ok(false);
            }
            self.loaded.truncate(depth);
            self.loaded.pace.finish(self.gpu)?;
            let before = (self.loaded.pace.encode, self.loaded.pace.n_dispatches, self.loaded.spent());
            let began = Instant::now();
            if decode {
                self.decode(n)?
            } else {
                self.prefill(n)?
            }
            let secs = began.elapsed().as_secs_f64();
            if repetition > 0 {
                samples.push(n as f64 / secs);
                encode_ms = (self.loaded.pace.encode - before.0).as_secs_f64() * 1e3 / n as f64;
                dispatches = self.loaded.pace.n_dispatches - before.1;
                disk_bytes += self.loaded.spent().since(&before.2).moved.disk_to_ram;
            }
        }
        let kind = if decode { "tg" } else { "pp" };
        let at = if depth > 0 { format!(" @ d{depth}") } else { String::new() };
        let model = &self.loaded.model;
        let output = 2 * (model.output.rows * model.output.cols) as u64;
        let row = BenchRow {
            test: format!("{kind}{n}{at}"),
            samples,
            dispatches: if decode { dispatches / n } else { dispatches },
            encode_ms_per_token: encode_ms,
            weight_bytes_per_token: model.weight_bytes_per_token(),
            flops_per_token: model.layer_flops_per_token() + if decode { output } else { 0 },
            disk_bytes_per_token: disk_bytes / (n * repetitions) as u64,
            chosen: model.selective.as_ref().filter(|_| decode).and_then(|s| s.summary()),
        };
        self.port.emit(EngineEvent::BenchResult { turn: self.turn, row: Box::new(row) });
        Ok(true)
    }

    fn random_tokens(&mut self, n: usize) -> Vec<u32> {
        let vocab_size = self.loaded.model.dims.vocab_size as u32;
        (0..n).map(|_| self.rng.below(vocab_size)).collect()
    }

    fn fill(&mut self, depth: usize) -> Result<(), EngineError> {
        self.loaded.truncate(0);
        match depth {
            0 => Ok(()),
            _ if self.tests.fill => self.loaded.fill(self.gpu, depth),
            _ => self.prefill(depth),
        }
    }

    /// Prefills `n` random tokens; logits of the last token only, as llama-bench does.
    fn prefill(&mut self, n: usize) -> Result<(), EngineError> {
        let tokens = self.random_tokens(n);
        let loaded = &mut *self.loaded;
        loaded.reserve(self.gpu, loaded.tokens.len() + n)?;
        loaded.pace.set_whole(false);
        let (mut done, mut last) = (0, 1);
        while done < n {
            last = loaded.next_chunk(loaded.tokens.len(), n - done);
            loaded.run_chunk(self.gpu, &tokens[done..done + last])?;
            done += last;
        }
        loaded.pick(self.gpu, last - 1, &Sampler::new(Sampling::default()))?;
        Ok(())
    }

    fn decode(&mut self, n: usize) -> Result<(), EngineError> {
        let tokens = self.random_tokens(n);
        let loaded = &mut *self.loaded;
        let greedy = Sampler::new(Sampling::default());
        loaded.pace.set_whole(true);
        if let Some(selective) = &mut loaded.model.selective {
            selective.begin_answer(n);
        }
        for token in tokens {
            loaded.reserve(self.gpu, loaded.tokens.len() + 1)?;
            loaded.decode(self.gpu, token, TurnPolicy::AsLoaded)?;
            loaded.pick(self.gpu, 0, &greedy)?;
        }
        Ok(())
    }
}

/// The cost of a measurement that read `n_tokens` in `elapsed`; `before` is what had been spent when it began.
pub(super) fn measured(
    gpu: &Gpu,
    loaded: &Loaded,
    before: &Spent,
    n_tokens: usize,
    elapsed: Duration,
    stop: StopReason,
) -> TurnSummary {
    let (kv, report, spent) = (&loaded.model.kv, loaded.model.kv.report(), loaded.spent().since(before));
    let staging = kv.staging_bytes();
    TurnSummary {
        prompt_tokens: n_tokens,
        cached_tokens: 0,
        prefill_ms: elapsed.as_secs_f64() * 1e3,
        first_token_ms: 0.0,
        generated_tokens: 0,
        decode_ms: 0.0,
        tokens_per_s: 0.0,
        attention: loaded.attention_of(&spent, TurnPolicy::AsLoaded),
        kv_bytes: loaded.tiers_used(),
        kv_peak_bytes: Tiers { vram: kv.peak_bytes(), ram: report.usage.ram.peak.0 + staging, disk: report.usage.disk.peak.0 },
        moved_bytes: spent.moved,
        pages: spent.pages,
        chosen: loaded.model.selective.as_ref().and_then(|s| s.summary()),
        overlap: None,
        io: IoSummary::default(),
        vram_bytes: gpu.allocated_bytes(),
        context_used: loaded.tokens.len(),
        dispatches_per_token: 0,
        encode_ms_per_token: 0.0,
        phases: Phases::default(),
        stop,
    }
}
