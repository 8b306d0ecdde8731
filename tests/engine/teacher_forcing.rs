//! Teacher forcing: rows equal those of prefill, and are bit-identical in every run.

use std::path::{Path, PathBuf};

use strata::base::{Bytes, Tiers};
use strata::engine::{EngineCommand, EngineEvent, EngineHandle, KvDtype, LoadOptions, ModelSource, RequestSummary};
use strata::model::ModelFile;
use strata::token::{ChatMessage, ChatTemplate};

use crate::common::nmse;
use crate::{engine, engine_with, finish, saved_as};

const N_PREFIX: usize = 300;
/// Bytes of a page of the built-in model on disk.
const PAGE_BYTES: usize = 64 * 3072 / 6;

fn tokens() -> Vec<u32> {
    let mut rng = strata::base::Rng::new(11);
    (0..N_PREFIX + 20).map(|_| rng.uniform(2000)).collect()
}

/// Rows `[n, V]` and the position of the first.
pub(crate) fn rows(handle: &EngineHandle, command: EngineCommand) -> (Vec<f32>, usize, Box<RequestSummary>) {
    handle.send(command);
    let (events, end) = finish(handle);
    let (mut all, mut start) = (Vec::new(), None);
    for event in events {
        if let EngineEvent::LogitsRows { first, rows, vocab_size, .. } = event {
            let start = *start.get_or_insert(first);
            assert_eq!((first - start) * vocab_size, all.len(), "a row is missing or repeated");
            all.extend(rows);
        }
    }
    (all, start.unwrap_or(0), end.unwrap())
}

#[test]
fn score_rows_match_prefill_after_the_prefix() {
    let test = "score_rows_match_prefill_after_the_prefix";
    let tokens = tokens();
    let Some((handle, _)) = engine(test, ModelSource::BuiltIn, KvDtype::F32) else { return };
    let (every, _, _) = rows(&handle, EngineCommand::Logits { request: 1, tokens: tokens.clone() });
    let vocab_size = every.len() / tokens.len();
    for n_prefix in [0, 64, N_PREFIX] {
        let scored = EngineCommand::Score { request: 2, tokens: tokens.clone(), n_prefix };
        let (got, first, summary) = rows(&handle, scored);
        assert_eq!((first, got.len()), (n_prefix, (tokens.len() - n_prefix) * vocab_size));
        assert_eq!((summary.prompt_tokens, summary.generated_tokens), (n_prefix, tokens.len() - n_prefix));
        let (error, _) = nmse(&got, &every[n_prefix * vocab_size..]);
        assert!(error <= 1e-8, "after {n_prefix}: {error:.2e}");
    }
}

#[test]
fn repeated_score_is_bit_identical_and_offloaded_score_matches() {
    let test = "repeated_score_is_bit_identical";
    let score = || EngineCommand::Score { request: 1, tokens: tokens(), n_prefix: N_PREFIX };
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

/// Tokens of a prefill of `text`, without a question.
pub(crate) fn tokens_of(text: &str) -> Vec<u32> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/demo-model/strata-quote-Q8_0.gguf");
    let (file, tokenizer) = (ModelFile::open(&path).unwrap(), strata::engine::tokenizer(&ModelSource::BuiltIn).unwrap());
    let template = ChatTemplate::for_model(file.info().chat_template.as_deref(), &tokenizer).unwrap();
    template.prompt(&tokenizer, &[ChatMessage::new("user", text)], false).unwrap().tokens
}

#[test]
fn score_over_corrupt_pages_recomputes_them_and_emits_every_row_once() {
    let test = "score_over_corrupt_pages";
    let dir = tempfile::tempdir().unwrap();
    // Neither VRAM nor RAM holds the context, so that every step reads from disk.
    let budgets = Tiers { vram: Some(Bytes(1400 << 10)), ram: Some(Bytes(1 << 20)), disk: None };
    let options = LoadOptions { budgets, kv_dir: Some(dir.path().to_owned()), ..LoadOptions::default() };
    let Some((handle, _)) = engine_with(test, ModelSource::BuiltIn, options) else { return };
    let text = "The ferryman counted the boats and went home. ".repeat(90);
    let tokens = tokens_of(&text);
    let document = saved_as("ferry.txt", &text, 1);
    let score = || EngineCommand::Score { request: 2, tokens: tokens.clone(), n_prefix: tokens.len() - 8 };
    handle.send(EngineCommand::Prefill { request: 1, text, documents: vec![document] });
    finish(&handle).1.unwrap();
    let (want, first, summary) = rows(&handle, score());
    assert_eq!(summary.pages.recomputed, 0);
    let arena = files(dir.path()).into_iter().find(|path| path.ends_with("kv-0000.arena")).unwrap();
    for (what, stride) in [("one page in twenty", 20), ("every page", 1)] {
        let mut bytes = std::fs::read(&arena).unwrap();
        bytes.chunks_mut(PAGE_BYTES).step_by(stride).for_each(|page| page[1000] ^= 0x10);
        std::fs::write(&arena, bytes).unwrap();
        let (got, first_again, summary) = rows(&handle, score());
        assert!(summary.pages.recomputed > 0, "{what}: {:?}", summary.pages);
        assert_eq!((first_again, got.len(), summary.generated_tokens), (first, want.len(), 8), "{what}");
        let (error, _) = nmse(&got, &want);
        assert!(error <= 1e-6, "{what}: {error:.2e}");
    }
}

/// Every file under `dir`.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let (dirs, mut files): (Vec<_>, Vec<_>) =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).partition(|p| p.is_dir());
    files.extend(dirs.iter().flat_map(|dir| self::files(dir)));
    files
}

#[test]
fn score_without_tokens_to_score_is_refused() {
    let Some((handle, _)) = engine("score_without_tokens", ModelSource::BuiltIn, KvDtype::F16) else { return };
    for n_prefix in [3, 4] {
        handle.send(EngineCommand::Score { request: 1, tokens: vec![5, 6, 7], n_prefix });
        assert!(finish(&handle).1.is_err(), "{n_prefix}");
    }
}
