//! Benchmark commands: logits of every position, and prefill and decode speed on random tokens.

use std::time::{Duration, Instant};

use crate::base::limits::KV_PAGE_TOKENS;
use crate::base::{Rng, Tiers};
use crate::gpu::Gpu;

use crate::engine::api::{
    AttentionMode, BenchRow, BenchTests, EngineEvent, IoSummary, KernelProfile, Phases, RequestId, RequestSummary, Sampling,
    SelectionSummary, StopReason,
};
use crate::engine::error::EngineError;
use crate::engine::handle::{CancelFlag, EnginePort};
use crate::engine::measure::kernel_profile::Profiler;
use crate::engine::runner::pass::{NextToken, Row, SequenceKv};
use crate::engine::runner::sampling::RecordedSampling;
use crate::engine::runner::{ModelRunner, UsageCounters};
use crate::engine::sampler::Sampler;
use crate::engine::worker::Worker;

/// Decoded tokens whose kernels are timed by family.
const PROFILED_TOKENS: usize = 16;
/// Maximum bytes of logits per readback.
const LOGITS_BYTES: usize = 16 << 20;

impl Worker {
    pub(in crate::engine) fn logits(&mut self, request: RequestId, tokens: &[u32]) -> Result<RequestSummary, EngineError> {
        let watch = self.port.cancel_flag();
        let (Some(gpu), Some(runner)) = (&self.gpu, &mut self.runner) else { return Err(EngineError::NoModel) };
        if tokens.is_empty() {
            return Err(EngineError::Empty);
        }
        let limit = runner.exec.kv.limit();
        if tokens.len() > limit {
            return Err(EngineError::TooLong { tokens: tokens.len(), limit, advice: String::new() });
        }
        let (began, before) = (Instant::now(), runner.usage());
        let vocab_size = runner.exec.model.dims.vocab_size;
        let rows = (LOGITS_BYTES / (vocab_size * 4)).clamp(1, runner.exec.model.max_chunk);
        runner.truncate(0);
        runner.reserve(gpu, tokens.len())?;
        runner.pacer.set_whole(false);
        let (output, logits) = runner.exec.model.wide_output(gpu, rows)?;
        let mut stop = StopReason::Length;
        while runner.tokens.len() < tokens.len() {
            if watch.stopped() {
                stop = StopReason::Cancelled;
                break;
            }
            let first = runner.tokens.len();
            let n = runner.next_chunk(first, (tokens.len() - first).min(rows));
            runner.run_chunk(gpu, &tokens[first..first + n])?;
            runner.exec.run_output(gpu, &mut runner.pacer, &output, (0, n))?;
            runner.pacer.finish(gpu)?;
            let bytes = gpu.download(&logits.buffer.slice(0, (n * vocab_size * 4) as u64))?;
            let rows = bytemuck::pod_collect_to_vec(&bytes);
            self.port.emit(EngineEvent::LogitsRows { request, first, rows, vocab_size });
        }
        Ok(measured(gpu, runner, &before, tokens.len(), began.elapsed(), stop))
    }

    pub(in crate::engine) fn bench(&mut self, request: RequestId, tests: &BenchTests) -> Result<RequestSummary, EngineError> {
        let watch = self.port.cancel_flag();
        let (Some(gpu), Some(runner)) = (&self.gpu, &mut self.runner) else { return Err(EngineError::NoModel) };
        let (began, before) = (Instant::now(), runner.usage());
        let lengths = || tests.n_prompt.iter().chain(&tests.n_gen);
        let longest = lengths().max().copied().unwrap_or(0) + tests.depths.iter().max().copied().unwrap_or(0);
        let limit = runner.exec.kv.limit();
        if longest > limit {
            return Err(EngineError::TooLong { tokens: longest, limit, advice: String::new() });
        }
        let mut b =
            Bench { gpu, runner, port: &self.port, request, watch, rng: Rng::new(7), tests, selection: None, profiler: None };
        let depths = if tests.depths.is_empty() { &[0][..] } else { &tests.depths };
        for &depth in depths {
            for (lengths, decode) in [(&tests.n_prompt, false), (&tests.n_gen, true)] {
                for &n in lengths.iter().filter(|n| **n > 0) {
                    if !b.row(n, depth, decode)? {
                        return Ok(measured(gpu, b.runner, &before, 0, began.elapsed(), StopReason::Cancelled));
                    }
                }
            }
        }
        Ok(measured(gpu, b.runner, &before, 0, began.elapsed(), StopReason::Length))
    }
}

struct Bench<'a> {
    gpu: &'a Gpu,
    runner: &'a mut ModelRunner,
    port: &'a EnginePort,
    request: RequestId,
    watch: CancelFlag,
    rng: Rng,
    tests: &'a BenchTests,
    /// selection of the policy in the last repetition
    selection: Option<SelectionSummary>,
    /// while kernel families are timed
    profiler: Option<Profiler>,
}

impl Bench<'_> {
    /// Measures one line: an untimed repetition, then the timed ones. False if stopped.
    fn row(&mut self, n: usize, depth: usize, decode: bool) -> Result<bool, EngineError> {
        let repetitions = self.tests.repetitions.max(1);
        let mut samples = Vec::new();
        let (mut encode_ms, mut dispatches, mut disk_bytes) = (0.0, 0, 0);
        self.fill(depth)?;
        for repetition in 0..=repetitions {
            if self.watch.stopped() {
                return Ok(false);
            }
            self.runner.truncate(depth);
            self.runner.pacer.finish(self.gpu)?;
            let before = (self.runner.pacer.encode, self.runner.pacer.n_dispatches, self.runner.usage());
            let began = Instant::now();
            if decode {
                self.decode(n)?
            } else {
                self.prefill(n)?
            }
            let secs = began.elapsed().as_secs_f64();
            if repetition > 0 {
                samples.push(n as f64 / secs);
                encode_ms = (self.runner.pacer.encode - before.0).as_secs_f64() * 1e3 / n as f64;
                dispatches = self.runner.pacer.n_dispatches - before.1;
                disk_bytes += self.runner.usage().since(&before.2).moved.disk_to_ram;
            }
        }
        let profile = if self.tests.by_family { self.profile(n, depth, decode)? } else { None };
        let kind = if decode { "tg" } else { "pp" };
        let at = if depth > 0 { format!(" @ d{depth}") } else { String::new() };
        let exec = &self.runner.exec;
        let output = 2 * (exec.model.ops.output.rows * exec.model.ops.output.cols) as u64;
        let row = BenchRow {
            test: format!("{kind}{n}{at}"),
            samples,
            dispatches: if decode { dispatches / n } else { dispatches },
            encode_ms_per_token: encode_ms,
            weight_bytes_per_token: exec.model.weight_bytes_per_token(),
            flops_per_token: exec.model.layer_flops_per_token() + if decode { output } else { 0 },
            disk_bytes_per_token: disk_bytes / (n * repetitions) as u64,
            selection: self.selection.take().filter(|_| decode),
            profile,
        };
        self.port.emit(EngineEvent::BenchResult { request: self.request, row: Box::new(row) });
        Ok(true)
    }

    /// Runs the test once more, with the time of each kernel family.
    fn profile(&mut self, n: usize, depth: usize, decode: bool) -> Result<Option<KernelProfile>, EngineError> {
        self.runner.truncate(depth);
        self.profiler = Profiler::begin(self.gpu, self.runner)?;
        if self.profiler.is_none() {
            return Ok(None);
        }
        let n = if decode { n.min(PROFILED_TOKENS) } else { n };
        let selection = self.selection.clone();
        let ran = if decode { self.decode(n) } else { self.prefill(n) };
        self.selection = selection;
        let ended = self.profiler.take().map(|profiler| profiler.end(self.gpu, self.runner, (!decode, n))).transpose();
        ran?;
        Ok(ended?.flatten())
    }

    fn random_tokens(&mut self, n: usize) -> Vec<u32> {
        let vocab_size = self.runner.exec.model.dims.vocab_size as u32;
        (0..n).map(|_| self.rng.uniform(vocab_size)).collect()
    }

    fn fill(&mut self, depth: usize) -> Result<(), EngineError> {
        self.runner.truncate(0);
        match depth {
            0 => Ok(()),
            _ if self.tests.fill => self.runner.fill(self.gpu, depth),
            _ => self.prefill(depth),
        }
    }

    /// Prefills `n` random tokens; logits of the last token only, as llama-bench does.
    fn prefill(&mut self, n: usize) -> Result<(), EngineError> {
        let tokens = self.random_tokens(n);
        let (runner, profiler) = (&mut *self.runner, &mut self.profiler);
        runner.reserve(self.gpu, runner.tokens.len() + n)?;
        runner.pacer.set_whole(false);
        let (mut done, mut last) = (0, 1);
        while done < n {
            let first = runner.tokens.len();
            last = runner.next_chunk(first, n - done);
            runner.run_chunk(self.gpu, &tokens[done..done + last])?;
            done += last;
            if let Some(profiler) = profiler {
                profiler.add(self.gpu, runner, &runner.work_shape().prefill(first, last));
            }
        }
        runner.sample(self.gpu, last - 1, &[&Sampler::new(Sampling::default())])?;
        if let Some(profiler) = profiler {
            profiler.add(self.gpu, runner, &runner.work_shape().sample(1));
        }
        Ok(())
    }

    fn decode(&mut self, n: usize) -> Result<(), EngineError> {
        let tokens = self.random_tokens(n);
        let share_read = self.selection.as_ref().map_or(1.0, |selection| selection.share_read);
        let (runner, profiler) = (&mut *self.runner, &mut self.profiler);
        let greedy = Sampler::new(Sampling::default());
        runner.pacer.set_whole(true);
        let mut policy = runner.begin_answer(self.gpu, n, runner.tokens.len())?;
        // Random tokens, and after a lookahead step the token that the GPU chose.
        let (mut lookahead, mut best): (Option<RecordedSampling>, u32) = (None, 0);
        for (i, token) in tokens.into_iter().enumerate() {
            let step = match lookahead.take() {
                Some(step) => {
                    runner.confirm(best);
                    step
                }
                None => {
                    runner.reserve(self.gpu, runner.tokens.len() + 1)?;
                    runner.decode(self.gpu, token, policy.as_mut())?;
                    runner.record_sampling(self.gpu, 0, &[&greedy], 0)?
                }
            };
            let may_select = policy.is_none() || runner.selects_on_device();
            if i + 1 < n && may_select && runner.allows_lookahead(self.gpu, true) {
                runner.reserve(self.gpu, runner.tokens.len() + 1)?;
                let rows = &mut [Row { token: NextToken::OnDevice, kv: SequenceKv::Context, policy: policy.as_mut() }];
                runner.decode_rows(self.gpu, runner.tokens.len(), rows)?;
                lookahead = Some(runner.record_sampling(self.gpu, 0, &[&greedy], 1)?);
            }
            best = runner.read_sampling(self.gpu, &step)?.first().and_then(|row| row.predicted).unwrap_or(0);
            if let Some(profiler) = profiler {
                let pages = runner.exec.kv.n_sealed() as usize * KV_PAGE_TOKENS;
                let n_keys = (pages as f64 * share_read) as usize + runner.tokens.len() - pages;
                profiler.add(self.gpu, runner, &runner.work_shape().decode(1, n_keys));
            }
        }
        self.selection = runner.selection_summary(self.gpu, policy.as_mut())?;
        Ok(())
    }
}

/// Summary of a measurement over `n_tokens` that took `elapsed`. `before` is the usage at its begin.
pub(in crate::engine) fn measured(
    gpu: &Gpu,
    runner: &ModelRunner,
    before: &UsageCounters,
    n_tokens: usize,
    elapsed: Duration,
    stop: StopReason,
) -> RequestSummary {
    let (kv, report, usage) = (&runner.exec.kv, runner.exec.kv.report(), runner.usage().since(before));
    let staging = kv.staging_bytes();
    RequestSummary {
        prompt_tokens: n_tokens,
        cached_tokens: 0,
        approximate_tokens: runner.storage.n_approximate_tokens(runner.tokens.len()),
        prefill_ms: elapsed.as_secs_f64() * 1e3,
        first_token_ms: 0.0,
        generated_tokens: 0,
        decode_ms: 0.0,
        tokens_per_s: 0.0,
        attention: runner.attention_of(&usage, AttentionMode::AsLoaded),
        kv_bytes: runner.tiers_used(),
        kv_peak_bytes: Tiers { vram: kv.peak_bytes(), ram: report.usage.ram.peak.0 + staging, disk: report.usage.disk.peak.0 },
        moved_bytes: usage.moved,
        pages: usage.pages,
        selection: None,
        overlap: None,
        io: IoSummary::default(),
        vram_bytes: gpu.allocated_bytes(),
        context_used: runner.tokens.len(),
        dispatches_per_token: 0,
        encode_ms_per_token: 0.0,
        lookahead_steps: 0,
        phases: Phases::default(),
        stop,
    }
}
