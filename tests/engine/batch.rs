//! Batches of questions on one document: same answers as one by one, with a single prefill of the document.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use strata::base::{Bytes, Tiers};
use strata::engine::{
    AttentionKind, AttentionMode, EngineCommand, EngineEvent, EngineHandle, FolderHook, KvDtype, LoadOptions, Message,
    ModelSource, PolicyKind, PolicySpec, PromptRequest, RequestId, RequestSummary, Role, Sampling, SelectionBudget, StopReason,
};

use strata::kv::store::{Fault, FaultInjectingFolder, FaultOp, Folder, Rule};

use crate::{document, engine_hooked, engine_with, finish, half_document, saved_as};

/// Maximum tokens of an answer.
const MAX_TOKENS: usize = 48;

fn questions() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quote");
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&std::fs::read(dir.join("golden.json")).unwrap()).unwrap();
    rows.iter().map(|row| row["question"].as_str().unwrap().to_owned()).collect()
}

fn messages(text: &str, question: &str) -> Vec<Message> {
    vec![Message { role: Role::User, content: format!("{text}\n\n{question}") }]
}

fn generate_alone(handle: &EngineHandle, text: &str, question: &str) -> (String, Box<RequestSummary>) {
    generate_alone_for(handle, text, question, MAX_TOKENS)
}

fn generate_alone_for(handle: &EngineHandle, text: &str, question: &str, max_tokens: usize) -> (String, Box<RequestSummary>) {
    let (messages, sampling) = (messages(text, question), Sampling::default());
    handle.send(EngineCommand::Generate {
        request: 99,
        messages,
        documents: Vec::new(),
        sampling,
        max_tokens,
        policy: AttentionMode::AsLoaded,
    });
    let (events, end) = finish(handle);
    let text = |event| if let EngineEvent::Token { text, .. } = event { Some(text) } else { None };
    (events.into_iter().filter_map(text).collect(), end.unwrap())
}

fn command(text: &str, prompts: &[String], max_tokens: usize) -> EngineCommand {
    let question = |(i, q): (usize, &String)| PromptRequest { id: i as RequestId, messages: messages(text, q) };
    let requests = prompts.iter().enumerate().map(question).collect();
    EngineCommand::GenerateBatch { requests, documents: Vec::new(), sampling: Sampling::default(), max_tokens }
}

#[derive(Default)]
struct Many {
    texts: BTreeMap<RequestId, String>,
    ends: BTreeMap<RequestId, Result<Box<RequestSummary>, String>>,
    notices: Vec<String>,
    /// requests of the token events, in order
    order: Vec<RequestId>,
}

/// Collects events until `n` requests have ended. `on` gets every event.
fn collect(handle: &EngineHandle, n: usize, mut on: impl FnMut(&EngineEvent)) -> Many {
    let mut many = Many::default();
    while many.ends.len() < n {
        let event = handle.wait(std::time::Duration::from_secs(300)).unwrap();
        on(&event);
        match event {
            EngineEvent::Token { request, text, .. } => {
                many.texts.entry(request).or_default().push_str(&text);
                many.order.push(request);
            }
            EngineEvent::Finished { request, summary } => assert!(many.ends.insert(request, Ok(summary)).is_none()),
            EngineEvent::Failed { request, sentence, .. } => assert!(many.ends.insert(request, Err(sentence)).is_none()),
            EngineEvent::Notice(notice) => many.notices.push(notice),
            _ => {}
        }
    }
    many
}

fn generate_batch(handle: &EngineHandle, text: &str, prompts: &[String]) -> Many {
    handle.send(command(text, prompts, MAX_TOKENS));
    collect(handle, prompts.len(), |_| {})
}

/// An engine for contexts of 8192 tokens.
fn start(test: &str, options: LoadOptions) -> Option<EngineHandle> {
    Some(engine_with(test, ModelSource::BuiltIn, LoadOptions { context: Some(8192), ..options })?.0)
}

fn vram(bytes: u64) -> Tiers<Option<Bytes>> {
    Tiers { vram: Some(Bytes(bytes)), ..Default::default() }
}

/// A part of the document of about 2000 tokens, 6 MiB of KV.
fn short_document() -> String {
    document()[..8000].to_owned()
}

#[test]
fn batch_answers_match_single_answers() {
    let test = "batch_answers_match_single_answers";
    let (text, prompts) = (short_document(), &questions()[..3]);
    for (kv_dtype, budget) in [(KvDtype::F16, None), (KvDtype::Q8, None), (KvDtype::F16, Some(5 << 20))] {
        let budgets = budget.map(vram).unwrap_or_default();
        let Some(handle) = start(test, LoadOptions { kv_dtype, budgets, ..LoadOptions::default() }) else { return };
        // Its pages in VRAM are evicted for the others.
        generate_alone(&handle, &text, &prompts[0]);
        let many = generate_batch(&handle, &text, prompts);
        assert!(many.notices.is_empty(), "{:?}", many.notices);
        // Tokens of different requests alternate, so they were answered together.
        assert!(many.order.windows(2).filter(|pair| pair[0] != pair[1]).count() > 16, "{:?}", many.order);
        for (i, question) in prompts.iter().enumerate() {
            let (alone, expected) = generate_alone(&handle, &text, question);
            let summary = many.ends[&(i as RequestId)].as_ref().unwrap();
            assert_eq!(many.texts[&(i as RequestId)], alone, "{kv_dtype:?} in {budget:?}: {question}");
            assert_eq!((summary.stop, summary.prompt_tokens), (expected.stop, expected.prompt_tokens));
            assert_eq!(summary.generated_tokens, expected.generated_tokens);
            assert!(summary.kv_peak_bytes.vram <= budget.unwrap_or(u64::MAX), "{:?}", summary.kv_peak_bytes);
            let attention = if budget.is_some() { AttentionKind::ExactOffload } else { AttentionKind::Dense };
            assert_eq!(summary.attention, attention);
            // Only the first one prefilled the document.
            assert!(i == 0 || summary.cached_tokens + 128 > summary.prompt_tokens, "{i}: {}", summary.cached_tokens);
        }
    }
}

#[test]
fn batch_over_the_vram_budget_is_answered_in_smaller_batches() {
    let test = "batch_over_the_vram_budget_is_answered_in_smaller_batches";
    let (text, prompts) = (short_document(), &questions()[..3]);
    // Room for two tails of two pages, or for one of ten.
    for (max_tokens, how) in [(48, "2 at a time"), (600, "one after the other")] {
        let Some(handle) = start(test, LoadOptions { budgets: vram(3500 << 10), ..LoadOptions::default() }) else { return };
        handle.send(command(&text, prompts, max_tokens));
        let many = collect(&handle, prompts.len(), |_| {});
        let told: Vec<_> = many.notices.iter().filter(|notice| notice.contains("3 questions at once need")).collect();
        assert!(told.len() == 1 && told[0].contains(how) && told[0].matches("iB").count() == 3, "{:?}", many.notices);
        for (i, question) in prompts.iter().enumerate() {
            let summary = many.ends[&(i as RequestId)].as_ref().unwrap();
            assert!(summary.kv_peak_bytes.vram <= 3500 << 10, "{:?}", summary.kv_peak_bytes);
            assert_eq!(many.texts[&(i as RequestId)], generate_alone(&handle, &text, question).0, "{question}");
        }
    }
}

#[test]
fn stop_ends_one_request_of_a_batch_or_all() {
    let test = "stop_ends_one_request_of_a_batch_or_all";
    let text = document()[..3000].to_owned();
    // Random sampling, so that answers do not end early.
    let sampling = Sampling { temperature: 3.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 1 };
    let Some(handle) = start(test, LoadOptions::default()) else { return };
    for stop_all in [false, true] {
        let EngineCommand::GenerateBatch { requests, documents, .. } = command(&text, &questions()[..3], 0) else { return };
        handle.send(EngineCommand::GenerateBatch { requests, documents, sampling, max_tokens: 40 });
        let mut n_heard = 0;
        let many = collect(&handle, 3, |event| {
            if let EngineEvent::Token { request: 1, .. } = event {
                n_heard += 1;
                match (n_heard, stop_all) {
                    (5, true) => handle.stop(),
                    (5, false) => handle.stop_request(1),
                    _ => {}
                }
            }
        });
        let ends: Vec<_> = many.ends.values().map(|end| end.as_ref().unwrap()).collect();
        assert_eq!(ends[1].stop, StopReason::Cancelled);
        assert!(ends[1].generated_tokens < 40, "{}", ends[1].generated_tokens);
        for other in [ends[0], ends[2]] {
            assert_eq!(other.stop == StopReason::Cancelled, stop_all, "{other:?}");
            assert!(stop_all || other.generated_tokens > ends[1].generated_tokens, "{other:?}");
        }
    }
    // The stop does not affect the next answers.
    let many = generate_batch(&handle, &text, &questions()[..3]);
    assert!(many.ends.values().all(|end| end.as_ref().unwrap().stop != StopReason::Cancelled), "{:?}", many.ends);
}

#[test]
fn too_long_question_of_a_batch_is_refused_and_the_others_are_answered() {
    let test = "too_long_question_of_a_batch_is_refused_and_the_others_are_answered";
    let text = document()[..3000].to_owned();
    let Some(handle) = start(test, LoadOptions::default()) else { return };
    let prompts = [questions()[0].clone(), document().repeat(3), questions()[1].clone()];
    let many = generate_batch(&handle, &text, &prompts);
    let sentence = many.ends[&1].as_ref().unwrap_err();
    assert!(sentence.contains("8192"), "{sentence}");
    for i in [0, 2] {
        assert_eq!(many.texts[&(i as RequestId)], generate_alone(&handle, &text, &prompts[i]).0);
    }
}

#[test]
fn batch_continues_after_a_lost_device() {
    let test = "batch_continues_after_a_lost_device";
    let (text, prompts) = (document()[..3000].to_owned(), &questions()[..2]);
    let Some(handle) = start(test, LoadOptions::default()) else { return };
    let before = generate_batch(&handle, &text, prompts);
    handle.send(EngineCommand::LoseDevice);
    let after = generate_batch(&handle, &text, prompts);
    assert!(after.notices.iter().any(|n| n.contains("lost")), "{:?}", after.notices);
    assert_eq!(after.texts, before.texts);
}

#[test]
fn batch_continues_after_disk_read_failures() {
    let test = "batch_continues_after_disk_read_failures";
    let (text, prompts) = (document()[..6000].to_owned(), &questions()[..2]);
    let dir = tempfile::tempdir().unwrap();
    let saved = || {
        let EngineCommand::GenerateBatch { requests, sampling, max_tokens, .. } = command(&text, prompts, MAX_TOKENS) else {
            panic!()
        };
        let documents = vec![saved_as("document.txt", &text, 1)];
        EngineCommand::GenerateBatch { requests, documents, sampling, max_tokens }
    };
    let start = |hook| {
        // VRAM holds only some pages, so that every step reads from the offload tiers.
        let budgets = Tiers { vram: Some(Bytes(4000 << 10)), ram: Some(Bytes(10 << 20)), disk: None };
        let options = LoadOptions { budgets, kv_dir: Some(dir.path().to_owned()), context: Some(8192), ..LoadOptions::default() };
        Some(engine_hooked(test, ModelSource::BuiltIn, options, hook)?.0)
    };
    let Some(handle) = start(None) else { return };
    handle.send(saved());
    let whole = collect(&handle, prompts.len(), |_| {});
    assert!(whole.notices.iter().all(|n| !n.contains("at once")), "{:?}", whole.notices);
    drop(handle);
    let hook: FolderHook = Arc::new(|inner: Arc<dyn Folder>| {
        let faulty = FaultInjectingFolder::new(inner);
        faulty.add(Rule::always(FaultOp::Read, "kv-", Fault::Failed));
        Arc::new(faulty)
    });
    let broken = start(Some(hook)).unwrap();
    broken.send(saved());
    let repaired = collect(&broken, prompts.len(), |_| {});
    assert!(repaired.notices.iter().any(|n| n.contains("cannot be read")), "{:?}", repaired.notices);
    assert_eq!(repaired.texts, whole.texts);
}

#[test]
fn sequences_of_a_batch_select_independently() {
    let test = "sequences_of_a_batch_select_independently";
    // 1,700 tokens, 5 MiB of KV.
    let text = half_document()[4000..9000].to_owned();
    let prompts = [
        "What is the current temperature for Reribe?".to_owned(),
        "What is the current population for Bemopuna?".to_owned(),
        "What is the secret balance of Sesa?".to_owned(),
    ];
    for (kind, rate, budget) in [
        (PolicyKind::LeoAm, 1.0, None),
        (PolicyKind::H2o, 1.0, Some(15 << 18)),
        (PolicyKind::LeoAm, 0.1, None),
        (PolicyKind::LeoAm, 0.1, Some(15 << 18)),
    ] {
        let policy = Some(PolicySpec { kind, amount: SelectionBudget::Rate(rate), is_forced: true, ..PolicySpec::default() });
        let budgets = budget.map(vram).unwrap_or_default();
        let Some(handle) = start(test, LoadOptions { policy, budgets, ..LoadOptions::default() }) else { return };
        let many = generate_batch(&handle, &text, &prompts);
        assert!(many.notices.is_empty(), "{:?}", many.notices);
        for (i, question) in prompts.iter().enumerate() {
            let (alone, expected) = generate_alone(&handle, &text, question);
            let summary = many.ends[&(i as RequestId)].as_ref().unwrap();
            assert_eq!(many.texts[&(i as RequestId)], alone, "{kind} of {rate} in {budget:?}: {question}");
            assert_eq!(summary.attention, AttentionKind::Selective);
            assert!(summary.kv_peak_bytes.vram <= budget.unwrap_or(u64::MAX), "{:?}", summary.kv_peak_bytes);
            let (selection, expected) = (summary.selection.as_ref().unwrap(), expected.selection.unwrap());
            assert_eq!(selection.steps, expected.steps);
            assert!((selection.share_read - expected.share_read).abs() < 0.05, "{selection:?} and {expected:?}");
        }
    }
}

#[test]
fn batch_with_a_policy_answers_on_a_context_shorter_than_a_page() {
    let test = "batch_with_a_policy_answers_on_a_context_shorter_than_a_page";
    let text = "The annual budget of Somiko is 4120 crowns. The mill stands by the river.";
    let prompts = ["What is the annual budget of Somiko?".to_owned(), "Quote: The mill stands".to_owned()];
    let options = LoadOptions { policy: Some(PolicySpec::default()), ..LoadOptions::default() };
    let Some(handle) = start(test, options) else { return };
    let many = generate_batch(&handle, text, &prompts);
    for (i, question) in prompts.iter().enumerate() {
        assert_eq!(many.texts[&(i as RequestId)], generate_alone(&handle, text, question).0, "{question}");
    }
    assert!(many.texts[&0].contains("4120"), "{:?}", many.texts);
}

#[test]
fn passages_across_pages_are_quoted_from_any_tier_alone_and_in_a_batch() {
    let test = "passages_across_pages_are_quoted_from_any_tier_alone_and_in_a_batch";
    // Each passage is one sentence that begins on a page, fills the next one and ends after it.
    let passages: Vec<&str> = include_str!("../fixtures/passages.txt").lines().collect();
    let document = document();
    let text: String = document[..6_000].split_inclusive("\n\n").enumerate().fold(String::new(), |text, (i, paragraph)| {
        let passage = passages.get(i / 3).filter(|_| i % 3 == 2);
        text + paragraph + &passage.map_or(String::new(), |passage| format!("{passage}\n\n"))
    });
    let prompts: Vec<&str> = passages.iter().copied().filter(|passage| text.contains(passage)).take(3).collect();
    assert_eq!(prompts.len(), 3, "the document has too few paragraphs");
    let questions: Vec<String> = prompts
        .iter()
        .map(|passage| format!("Quote the passage that says {}", passage.split(' ').take(7).collect::<Vec<_>>().join(" ")))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let budgets = Tiers { vram: Some(Bytes(3 << 20)), ram: Some(Bytes(3 << 20)), disk: None };
    let (kv_dir, policy) = (Some(dir.path().to_owned()), Some(PolicySpec::default()));
    let options = LoadOptions { budgets, kv_dir, policy, ..LoadOptions::default() };
    let Some(handle) = start(test, options) else { return };
    // Only the case of the first letter may be that of the question.
    let is_quoted = |text: &str, passage: &str| passage.to_lowercase().starts_with(&text.to_lowercase());
    handle.send(command(&text, &questions, 128));
    let many = collect(&handle, questions.len(), |_| {});
    for (i, passage) in prompts.iter().enumerate() {
        let (at_once, summary) = (&many.texts[&(i as RequestId)], many.ends[&(i as RequestId)].as_ref().unwrap());
        assert!(summary.generated_tokens == 128 && is_quoted(at_once, passage), "at once: {at_once:?}");
        assert!(summary.kv_bytes.disk > 0, "{:?}", summary.kv_bytes);
    }
    let (alone, summary) = generate_alone_for(&handle, &text, &questions[1], 128);
    assert!(summary.generated_tokens == 128 && is_quoted(&alone, prompts[1]), "alone: {alone:?}");
}
