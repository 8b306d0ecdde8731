//! Teacher-forced scoring: the logits of given tokens as decoding them gives, to judge a policy against exact attention.
//!
//! ```text
//! tokens ─► prefill of the first n_prefix ─► one decode step for each later token ─► LogitsRows [1, V] per step
//! ```
//! 1. What decode steps read of the context is what is measured; nothing else differs between two runs on one device.
//! 2. So the prefix is cut into the largest chunks there are, not by measured speed as answers are: the same bits every time.
//! 3. Stop is obeyed between chunks and between steps.

use std::time::{Duration, Instant};

use crate::base::limits::MAX_PREFILL_CHUNK;

use super::command::{EngineEvent, StopReason, TurnId, TurnSummary};
use super::error::EngineError;
use super::measure::measured;
use super::worker::Worker;

impl Worker {
    /// Logits of the positions `n_prefix ..` of `tokens`, each by a decode step.
    pub(super) fn score(&mut self, turn: TurnId, tokens: &[u32], n_prefix: usize) -> Result<TurnSummary, EngineError> {
        let watch = self.port.stop_watch();
        let (Some(gpu), Some(loaded)) = (&self.gpu, &mut self.loaded) else { return Err(EngineError::NoModel) };
        if tokens.len() <= n_prefix {
            return Err(EngineError::Empty);
        }
        let limit = loaded.model.kv.limit();
        if tokens.len() > limit {
            return Err(EngineError::TooLong { tokens: tokens.len(), limit, advice: String::new() });
        }
        loaded.leave_document(gpu, tokens)?;
        loaded.truncate(0);
        loaded.reserve(gpu, tokens.len())?;
        loaded.watch_device(gpu)?;
        if let Some(selective) = &mut loaded.model.selective {
            selective.begin_answer(tokens.len() - n_prefix);
            selective.measure_mass();
        }
        let (before, began) = (loaded.spent(), Instant::now());
        let (mut prefill, mut n_steps, mut stop) = (Duration::ZERO, 0, StopReason::Length);
        while loaded.tokens.len() < tokens.len() {
            if watch.stopped() {
                stop = StopReason::Cancelled;
                break;
            }
            let first = loaded.tokens.len();
            let n_left = n_prefix.saturating_sub(first);
            loaded.pace.set_whole(n_left == 0);
            if n_left > 0 {
                let n = loaded.model.chunk_at(first, n_left, MAX_PREFILL_CHUNK);
                loaded.run_chunk(gpu, &tokens[first..first + n])?;
                loaded.pace.finish(gpu)?;
                prefill = began.elapsed();
                let tokens_per_s = (first + n) as f64 / prefill.as_secs_f64().max(1e-9);
                self.port.emit(EngineEvent::Prefill { turn, done: first + n, total: n_prefix, tokens_per_s });
            } else {
                loaded.decode(gpu, tokens[first])?;
                loaded.model.run_output(gpu, &mut loaded.pace, 0)?;
                loaded.pace.finish(gpu)?;
                n_steps += 1;
                let (rows, vocab_size) = (loaded.all_logits(gpu)?, loaded.model.dims.vocab_size);
                self.port.emit(EngineEvent::LogitsRows { turn, first, rows, vocab_size });
            }
            loaded.look(gpu)?;
        }
        let decode = began.elapsed() - prefill;
        loaded.tell(&self.port);
        Ok(TurnSummary {
            generated_tokens: n_steps,
            decode_ms: decode.as_secs_f64() * 1e3,
            tokens_per_s: n_steps as f64 / decode.as_secs_f64().max(1e-9),
            ..measured(gpu, loaded, &before, n_prefix, prefill, stop)
        })
    }
}
