//! Teacher-forced scoring: the logits of given tokens as decoding them gives, to judge a policy against exact attention.
//!
//! ```text
//! tokens ─► prefill of the first n_prefix ─► one decode step for each later token ─► LogitsRows [1, V] per step
//! ```
//! 1. What decode steps read of the context is what is measured; nothing else differs between two runs on one device.
//! 2. So the prefix is cut into the largest chunks there are, not by measured speed as answers are: the same bits every time.
//! 3. Stop is obeyed between chunks and between steps.

use std::time::Instant;

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
        let Some((prefix, steps)) = tokens.split_at_checked(n_prefix).filter(|(_, steps)| !steps.is_empty()) else {
            return Err(EngineError::Empty);
        };
        let limit = loaded.model.kv.limit();
        if tokens.len() > limit {
            return Err(EngineError::TooLong { tokens: tokens.len(), limit, advice: String::new() });
        }
        let before = loaded.spent();
        loaded.leave_document(gpu, tokens)?;
        loaded.truncate(0);
        loaded.reserve(gpu, tokens.len())?;
        loaded.watch_device(gpu)?;
        let mut stop = StopReason::Length;
        let began = Instant::now();
        loaded.pace.set_whole(false);
        while loaded.tokens.len() < prefix.len() && stop != StopReason::Cancelled {
            let first = loaded.tokens.len();
            let n = loaded.model.chunk_at(first, prefix.len() - first, MAX_PREFILL_CHUNK);
            loaded.run_chunk(gpu, &prefix[first..first + n])?;
            loaded.pace.finish(gpu)?;
            loaded.look(gpu)?;
            let tokens_per_s = (first + n) as f64 / began.elapsed().as_secs_f64().max(1e-9);
            self.port.emit(EngineEvent::Prefill { turn, done: first + n, total: prefix.len(), tokens_per_s });
            if watch.stopped() {
                stop = StopReason::Cancelled;
            }
        }
        let prefill = began.elapsed();
        loaded.pace.set_whole(true);
        for token in steps {
            if watch.stopped() || stop == StopReason::Cancelled {
                stop = StopReason::Cancelled;
                break;
            }
            let first = loaded.tokens.len();
            loaded.run_chunk(gpu, &[*token])?;
            loaded.model.run_output(gpu, &mut loaded.pace, 0)?;
            loaded.pace.finish(gpu)?;
            loaded.look(gpu)?;
            let (rows, vocab_size) = (loaded.all_logits(gpu)?, loaded.model.dims.vocab_size);
            self.port.emit(EngineEvent::LogitsRows { turn, first, rows, vocab_size });
        }
        let decode = began.elapsed() - prefill;
        loaded.tell(&self.port);
        let n_decoded = loaded.tokens.len().saturating_sub(prefix.len());
        Ok(TurnSummary {
            generated_tokens: n_decoded,
            decode_ms: decode.as_secs_f64() * 1e3,
            tokens_per_s: n_decoded as f64 / decode.as_secs_f64().max(1e-9),
            ..measured(gpu, loaded, &before, prefix.len(), prefill, stop)
        })
    }
}
