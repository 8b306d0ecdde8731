//! Teacher-forced scoring: rows as decoding gives them, the same bits every time.

use strata::base::{Bytes, Tiers};
use strata::engine::{EngineCommand, EngineEvent, EngineHandle, KvDtype, LoadOptions, ModelSource, TurnSummary};

use crate::common::nmse;
use crate::{engine, engine_with, finish};

const N_PREFIX: usize = 300;

fn tokens() -> Vec<u32> {
    let mut rng = strata::base::Rng::new(11);
    (0..N_PREFIX + 20).map(|_| rng.below(2000)).collect()
}

/// Rows `[n, V]` and the position of the first.
fn rows(handle: &EngineHandle, command: EngineCommand) -> (Vec<f32>, usize, Box<TurnSummary>) {
    handle.send(command);
    let (events, end) = finish(handle);
    let (mut all, mut start) = (Vec::new(), None);
    for event in events {
        if let EngineEvent::LogitsRows { first, rows, vocab_size, .. } = event {
            let start = *start.get_or_insert(first);
            assert_eq!((first - start) * vocab_size, all.len(), "a row is missing or comes twice");
            all.extend(rows);
        }
    }
    (all, start.unwrap_or(0), end.unwrap())
}

#[test]
fn score_rows_are_those_of_prefill_after_the_prefix() {
    let test = "score_rows_are_those_of_prefill_after_the_prefix";
    let tokens = tokens();
    let Some((handle, _)) = engine(test, ModelSource::BuiltIn, KvDtype::F32) else { return };
    let (every, _, _) = rows(&handle, EngineCommand::Logits { turn: 1, tokens: tokens.clone() });
    let vocab_size = every.len() / tokens.len();
    for n_prefix in [0, 64, N_PREFIX] {
        let scored = EngineCommand::Score { turn: 2, tokens: tokens.clone(), n_prefix };
        let (got, first, summary) = rows(&handle, scored);
        assert_eq!((first, got.len()), (n_prefix, (tokens.len() - n_prefix) * vocab_size));
        assert_eq!((summary.prompt_tokens, summary.generated_tokens), (n_prefix, tokens.len() - n_prefix));
        let (error, _) = nmse(&got, &every[n_prefix * vocab_size..]);
        assert!(error <= 1e-8, "after {n_prefix}: {error:.2e}");
    }
}

#[test]
fn score_twice_gives_the_same_bits_and_offloaded_the_same_distributions() {
    let test = "score_twice_gives_the_same_bits";
    let score = || EngineCommand::Score { turn: 1, tokens: tokens(), n_prefix: N_PREFIX };
    let Some((handle, _)) = engine(test, ModelSource::BuiltIn, KvDtype::F16) else { return };
    let (first, _, _) = rows(&handle, score());
    assert!(rows(&handle, score()).0 == first, "two runs differ");
    drop(handle);
    let budgets = Tiers { vram: Some(Bytes(1100 << 10)), ..Tiers::default() };
    let options = LoadOptions { budgets, context: Some(1024), ..LoadOptions::default() };
    let Some((handle, _)) = engine_with(test, ModelSource::BuiltIn, options) else { return };
    let (offloaded, _, summary) = rows(&handle, score());
    assert!(summary.pages.fetched > 0, "nothing was offloaded: {summary:?}");
    let (error, _) = nmse(&offloaded, &first);
    assert!(error <= 1e-6, "{error:.2e}");
}

#[test]
fn score_without_anything_to_score_is_refused() {
    let Some((handle, _)) = engine("score_without_anything", ModelSource::BuiltIn, KvDtype::F16) else { return };
    for n_prefix in [3, 4] {
        handle.send(EngineCommand::Score { turn: 1, tokens: vec![5, 6, 7], n_prefix });
        assert!(finish(&handle).1.is_err(), "{n_prefix}");
    }
}
