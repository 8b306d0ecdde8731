//! Several questions on one document at once: the answers of asking one by one, with the document read once.

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

/// Answers of 48 tokens at most.
const MAX_TOKENS: usize = 48;

fn questions() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quote");
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&std::fs::read(dir.join("golden.json")).unwrap()).unwrap();
    rows.iter().map(|row| row["question"].as_str().unwrap().to_owned()).collect()
}

fn messages(text: &str, question: &str) -> Vec<Message> {
    vec![Message { role: Role::User, content: format!("{text}\n\n{question}") }]
}

fn ask_alone(handle: &EngineHandle, text: &str, question: &str) -> (String, Box<RequestSummary>) {
    ask_alone_for(handle, text, question, MAX_TOKENS)
}

fn ask_alone_for(handle: &EngineHandle, text: &str, question: &str, max_tokens: usize) -> (String, Box<RequestSummary>) {
    let (messages, sampling) = (messages(text, question), Sampling::default());
    handle.send(EngineCommand::Generate {
        turn: 99,
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

fn command(text: &str, asked: &[String], max_tokens: usize) -> EngineCommand {
    let question = |(i, q): (usize, &String)| PromptRequest { turn: i as RequestId, messages: messages(text, q) };
    let questions = asked.iter().enumerate().map(question).collect();
    EngineCommand::GenerateBatch { questions, documents: Vec::new(), sampling: Sampling::default(), max_tokens }
}

#[derive(Default)]
struct Many {
    texts: BTreeMap<RequestId, String>,
    ends: BTreeMap<RequestId, Result<Box<RequestSummary>, String>>,
    notices: Vec<String>,
    /// turns of token events, in order
    order: Vec<RequestId>,
}

/// Collects until `n` questions have ended; `on` hears every event.
fn collect(handle: &EngineHandle, n: usize, mut on: impl FnMut(&EngineEvent)) -> Many {
    let mut many = Many::default();
    while many.ends.len() < n {
        let event = handle.wait(std::time::Duration::from_secs(300)).unwrap();
        on(&event);
        match event {
            EngineEvent::Token { turn, text, .. } => {
                many.texts.entry(turn).or_default().push_str(&text);
                many.order.push(turn);
            }
            EngineEvent::Finished { turn, summary } => assert!(many.ends.insert(turn, Ok(summary)).is_none()),
            EngineEvent::Failed { turn, sentence, .. } => assert!(many.ends.insert(turn, Err(sentence)).is_none()),
            EngineEvent::Notice(notice) => many.notices.push(notice),
            _ => {}
        }
    }
    many
}

fn ask_many(handle: &EngineHandle, text: &str, asked: &[String]) -> Many {
    handle.send(command(text, asked, MAX_TOKENS));
    collect(handle, asked.len(), |_| {})
}

/// An engine for contexts of 8192 tokens.
fn start(test: &str, options: LoadOptions) -> Option<EngineHandle> {
    Some(engine_with(test, ModelSource::BuiltIn, LoadOptions { context: Some(8192), ..options })?.0)
}

fn vram(bytes: u64) -> Tiers<Option<Bytes>> {
    Tiers { vram: Some(Bytes(bytes)), ..Default::default() }
}

/// A part of the document that takes about 2000 tokens, 6 MiB of KV.
fn short_document() -> String {
    document()[..8000].to_owned()
}

#[test]
fn questions_at_once_are_answered_as_one_by_one() {
    let test = "questions_at_once_are_answered_as_one_by_one";
    let (text, asked) = (short_document(), &questions()[..3]);
    for (kv_dtype, budget) in [(KvDtype::F16, None), (KvDtype::Q8, None), (KvDtype::F16, Some(5 << 20))] {
        let budgets = budget.map(vram).unwrap_or_default();
        let Some(handle) = start(test, LoadOptions { kv_dtype, budgets, ..LoadOptions::default() }) else { return };
        // What it leaves in VRAM makes room for what the others need.
        ask_alone(&handle, &text, &asked[0]);
        let many = ask_many(&handle, &text, asked);
        assert!(many.notices.is_empty(), "{:?}", many.notices);
        // They were answered together: tokens of different questions alternate.
        assert!(many.order.windows(2).filter(|pair| pair[0] != pair[1]).count() > 16, "{:?}", many.order);
        for (i, question) in asked.iter().enumerate() {
            let (alone, expected) = ask_alone(&handle, &text, question);
            let summary = many.ends[&(i as RequestId)].as_ref().unwrap();
            assert_eq!(many.texts[&(i as RequestId)], alone, "{kv_dtype:?} in {budget:?}: {question}");
            assert_eq!((summary.stop, summary.prompt_tokens), (expected.stop, expected.prompt_tokens));
            assert_eq!(summary.generated_tokens, expected.generated_tokens);
            assert!(summary.kv_peak_bytes.vram <= budget.unwrap_or(u64::MAX), "{:?}", summary.kv_peak_bytes);
            let attention = if budget.is_some() { AttentionKind::ExactOffload } else { AttentionKind::Dense };
            assert_eq!(summary.attention, attention);
            // The document was read for the first of them.
            assert!(i == 0 || summary.cached_tokens + 128 > summary.prompt_tokens, "{i}: {}", summary.cached_tokens);
        }
    }
}

#[test]
fn questions_that_do_not_fit_vram_together_are_answered_in_turn() {
    let test = "questions_that_do_not_fit_vram_together_are_answered_in_turn";
    let (text, asked) = (short_document(), &questions()[..3]);
    // Room for two tails of two pages, and for one of ten.
    for (max_tokens, how) in [(48, "2 at a time"), (600, "one after the other")] {
        let Some(handle) = start(test, LoadOptions { budgets: vram(3500 << 10), ..LoadOptions::default() }) else { return };
        handle.send(command(&text, asked, max_tokens));
        let many = collect(&handle, asked.len(), |_| {});
        let told: Vec<_> = many.notices.iter().filter(|notice| notice.contains("3 questions at once need")).collect();
        assert!(told.len() == 1 && told[0].contains(how) && told[0].matches("iB").count() == 3, "{:?}", many.notices);
        for (i, question) in asked.iter().enumerate() {
            let summary = many.ends[&(i as RequestId)].as_ref().unwrap();
            assert!(summary.kv_peak_bytes.vram <= 3500 << 10, "{:?}", summary.kv_peak_bytes);
            assert_eq!(many.texts[&(i as RequestId)], ask_alone(&handle, &text, question).0, "{question}");
        }
    }
}

#[test]
fn stop_ends_one_question_or_all() {
    let test = "stop_ends_one_question_or_all";
    let text = document()[..3000].to_owned();
    // Sampling at random, answers do not come to their end soon.
    let sampling = Sampling { temperature: 3.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 1 };
    let Some(handle) = start(test, LoadOptions::default()) else { return };
    for stop_all in [false, true] {
        let EngineCommand::GenerateBatch { questions, documents, .. } = command(&text, &questions()[..3], 0) else { return };
        handle.send(EngineCommand::GenerateBatch { questions, documents, sampling, max_tokens: 40 });
        let mut n_heard = 0;
        let many = collect(&handle, 3, |event| {
            if let EngineEvent::Token { turn: 1, .. } = event {
                n_heard += 1;
                match (n_heard, stop_all) {
                    (5, true) => handle.stop(),
                    (5, false) => handle.stop_turn(1),
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
    // What was stopped is forgotten: the next answers are whole.
    let many = ask_many(&handle, &text, &questions()[..3]);
    assert!(many.ends.values().all(|end| end.as_ref().unwrap().stop != StopReason::Cancelled), "{:?}", many.ends);
}

#[test]
fn question_too_long_is_refused_and_the_others_are_answered() {
    let test = "question_too_long_is_refused_and_the_others_are_answered";
    let text = document()[..3000].to_owned();
    let Some(handle) = start(test, LoadOptions::default()) else { return };
    let asked = [questions()[0].clone(), document().repeat(3), questions()[1].clone()];
    let many = ask_many(&handle, &text, &asked);
    let sentence = many.ends[&1].as_ref().unwrap_err();
    assert!(sentence.contains("8192"), "{sentence}");
    for i in [0, 2] {
        assert_eq!(many.texts[&(i as RequestId)], ask_alone(&handle, &text, &asked[i]).0);
    }
}

#[test]
fn questions_at_once_go_on_after_a_lost_device() {
    let test = "questions_at_once_go_on_after_a_lost_device";
    let (text, asked) = (document()[..3000].to_owned(), &questions()[..2]);
    let Some(handle) = start(test, LoadOptions::default()) else { return };
    let before = ask_many(&handle, &text, asked);
    handle.send(EngineCommand::LoseDevice);
    let after = ask_many(&handle, &text, asked);
    assert!(after.notices.iter().any(|n| n.contains("lost")), "{:?}", after.notices);
    assert_eq!(after.texts, before.texts);
}

#[test]
fn questions_at_once_go_on_without_a_disk_that_cannot_be_read() {
    let test = "questions_at_once_go_on_without_a_disk_that_cannot_be_read";
    let (text, asked) = (document()[..6000].to_owned(), &questions()[..2]);
    let dir = tempfile::tempdir().unwrap();
    let saved = || {
        let EngineCommand::GenerateBatch { questions, sampling, max_tokens, .. } = command(&text, asked, MAX_TOKENS) else {
            panic!()
        };
        let documents = vec![saved_as("document.txt", &text, 1)];
        EngineCommand::GenerateBatch { questions, documents, sampling, max_tokens }
    };
    let start = |hook| {
        // VRAM holds a part only, so that every step reads what lies below.
        let budgets = Tiers { vram: Some(Bytes(4000 << 10)), ram: Some(Bytes(10 << 20)), disk: None };
        let options = LoadOptions { budgets, kv_dir: Some(dir.path().to_owned()), context: Some(8192), ..LoadOptions::default() };
        Some(engine_hooked(test, ModelSource::BuiltIn, options, hook)?.0)
    };
    let Some(handle) = start(None) else { return };
    handle.send(saved());
    let whole = collect(&handle, asked.len(), |_| {});
    assert!(whole.notices.iter().all(|n| !n.contains("at once")), "{:?}", whole.notices);
    drop(handle);
    let hook: FolderHook = Arc::new(|inner: Arc<dyn Folder>| {
        let faulty = FaultInjectingFolder::new(inner);
        faulty.add(Rule::always(FaultOp::Read, "kv-", Fault::Failed));
        Arc::new(faulty)
    });
    let broken = start(Some(hook)).unwrap();
    broken.send(saved());
    let repaired = collect(&broken, asked.len(), |_| {});
    assert!(repaired.notices.iter().any(|n| n.contains("cannot be read")), "{:?}", repaired.notices);
    assert_eq!(repaired.texts, whole.texts);
}

#[test]
fn questions_at_once_choose_for_themselves() {
    let test = "questions_at_once_choose_for_themselves";
    let text = half_document();
    let asked = [
        "What is the current temperature for Reribe?".to_owned(),
        "What is the current population for Bemopuna?".to_owned(),
        "What is the secret balance of Sesa?".to_owned(),
    ];
    for (kind, rate, budget) in [
        (PolicyKind::LeoAm, 1.0, None),
        (PolicyKind::H2o, 1.0, Some(4 << 20)),
        (PolicyKind::LeoAm, 0.1, None),
        (PolicyKind::LeoAm, 0.1, Some(5 << 20)),
    ] {
        let policy = Some(PolicySpec { kind, amount: SelectionBudget::Rate(rate), ..PolicySpec::default() });
        let budgets = budget.map(vram).unwrap_or_default();
        let Some(handle) = start(test, LoadOptions { policy, budgets, ..LoadOptions::default() }) else { return };
        let many = ask_many(&handle, &text, &asked);
        assert!(many.notices.is_empty(), "{:?}", many.notices);
        for (i, question) in asked.iter().enumerate() {
            let (alone, expected) = ask_alone(&handle, &text, question);
            let summary = many.ends[&(i as RequestId)].as_ref().unwrap();
            assert_eq!(many.texts[&(i as RequestId)], alone, "{kind} of {rate} in {budget:?}: {question}");
            assert_eq!(summary.attention, AttentionKind::Selective);
            assert!(summary.kv_peak_bytes.vram <= budget.unwrap_or(u64::MAX), "{:?}", summary.kv_peak_bytes);
            let (chosen, expected) = (summary.chosen.as_ref().unwrap(), expected.chosen.unwrap());
            assert_eq!(chosen.steps, expected.steps);
            assert!((chosen.share_read - expected.share_read).abs() < 0.05, "{chosen:?} and {expected:?}");
        }
    }
}

#[test]
fn questions_at_once_choose_of_a_context_shorter_than_a_page() {
    let test = "questions_at_once_choose_of_a_context_shorter_than_a_page";
    let text = "The annual budget of Somiko is 4120 crowns. The mill stands by the river.";
    let asked = ["What is the annual budget of Somiko?".to_owned(), "Quote: The mill stands".to_owned()];
    let options = LoadOptions { policy: Some(PolicySpec::default()), ..LoadOptions::default() };
    let Some(handle) = start(test, options) else { return };
    let many = ask_many(&handle, text, &asked);
    for (i, question) in asked.iter().enumerate() {
        assert_eq!(many.texts[&(i as RequestId)], ask_alone(&handle, text, question).0, "{question}");
    }
    assert!(many.texts[&0].contains("4120"), "{:?}", many.texts);
}

#[test]
fn passages_are_quoted_to_the_next_page_and_beyond_wherever_that_lies_alone_and_at_once() {
    let test = "passages_are_quoted_to_the_next_page_and_beyond_wherever_that_lies_alone_and_at_once";
    // Each is one sentence that begins on a page, fills the next one and ends behind it.
    let passages: Vec<&str> = include_str!("../fixtures/passages.txt").lines().collect();
    let document = document();
    let text: String = document[..12_000].split_inclusive("\n\n").enumerate().fold(String::new(), |text, (i, paragraph)| {
        let passage = passages.get(i / 3).filter(|_| i % 3 == 2);
        text + paragraph + &passage.map_or(String::new(), |passage| format!("{passage}\n\n"))
    });
    let asked: Vec<&str> = passages.iter().copied().filter(|passage| text.contains(passage)).take(3).collect();
    assert_eq!(asked.len(), 3, "the document has too few paragraphs");
    let questions: Vec<String> = asked
        .iter()
        .map(|passage| format!("Quote the passage that says {}", passage.split(' ').take(7).collect::<Vec<_>>().join(" ")))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let budgets = Tiers { vram: Some(Bytes(4 << 20)), ram: Some(Bytes(6 << 20)), disk: None };
    let (kv_dir, policy) = (Some(dir.path().to_owned()), Some(PolicySpec::default()));
    let options = LoadOptions { budgets, kv_dir, policy, ..LoadOptions::default() };
    let Some(handle) = start(test, options) else { return };
    // Only the case of the first letter is that of the question.
    let is_quoted = |text: &str, passage: &str| passage.to_lowercase().starts_with(&text.to_lowercase());
    handle.send(command(&text, &questions, 128));
    let many = collect(&handle, questions.len(), |_| {});
    for (i, passage) in asked.iter().enumerate() {
        let (at_once, summary) = (&many.texts[&(i as RequestId)], many.ends[&(i as RequestId)].as_ref().unwrap());
        assert!(summary.generated_tokens == 128 && is_quoted(at_once, passage), "at once: {at_once:?}");
        assert!(summary.kv_bytes.disk > 0, "{:?}", summary.kv_bytes);
    }
    let (alone, summary) = ask_alone_for(&handle, &text, &questions[1], 128);
    assert!(summary.generated_tokens == 128 && is_quoted(&alone, asked[1]), "alone: {alone:?}");
}
