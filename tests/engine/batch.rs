//! Several questions on one document at once: the answers of asking one by one, with the document read once.

use std::collections::BTreeMap;
use std::path::Path;

use strata::base::{Bytes, Tiers};
use strata::engine::{
    Amount, AttentionKind, EngineCommand, EngineEvent, EngineHandle, KvDtype, LoadOptions, Message, ModelSource, PolicyKind,
    Question, Role, Sampling, SelectiveSpec, StopReason, TurnId, TurnSummary,
};

use crate::{engine_with, finish};

/// Answers of 48 tokens at most.
const MAX_TOKENS: usize = 48;

fn document() -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quote");
    std::fs::read_to_string(dir.join("document.txt")).unwrap()
}

fn questions() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quote");
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&std::fs::read(dir.join("golden.json")).unwrap()).unwrap();
    rows.iter().map(|row| row["question"].as_str().unwrap().to_owned()).collect()
}

fn messages(text: &str, question: &str) -> Vec<Message> {
    vec![Message { role: Role::User, content: format!("{text}\n\n{question}") }]
}

fn ask_alone(handle: &EngineHandle, text: &str, question: &str) -> (String, Box<TurnSummary>) {
    let (messages, sampling) = (messages(text, question), Sampling::default());
    handle.send(EngineCommand::Ask { turn: 99, messages, document: None, sampling, max_tokens: MAX_TOKENS });
    let (events, end) = finish(handle);
    let text = |event| if let EngineEvent::Token { text, .. } = event { Some(text) } else { None };
    (events.into_iter().filter_map(text).collect(), end.unwrap())
}

fn command(text: &str, asked: &[String], max_tokens: usize) -> EngineCommand {
    let question = |(i, q): (usize, &String)| Question { turn: i as TurnId, messages: messages(text, q) };
    let questions = asked.iter().enumerate().map(question).collect();
    EngineCommand::AskMany { questions, document: None, sampling: Sampling::default(), max_tokens }
}

#[derive(Default)]
struct Many {
    texts: BTreeMap<TurnId, String>,
    ends: BTreeMap<TurnId, Result<Box<TurnSummary>, String>>,
    notices: Vec<String>,
    /// turns of token events, in order
    order: Vec<TurnId>,
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

#[test]
fn questions_at_once_are_answered_as_one_by_one() {
    let test = "questions_at_once_are_answered_as_one_by_one";
    let (text, asked) = (document(), &questions()[..4]);
    for kv_dtype in [KvDtype::F16, KvDtype::Q8] {
        for vram in [None, Some(8 << 20)] {
            let budgets = Tiers { vram: vram.map(Bytes), ..Default::default() };
            let options = LoadOptions { kv_dtype, budgets, context: Some(8192), ..LoadOptions::default() };
            let Some((handle, _)) = engine_with(test, ModelSource::BuiltIn, options) else { return };
            let many = ask_many(&handle, &text, asked);
            assert!(many.notices.is_empty(), "{:?}", many.notices);
            // They were answered together: tokens of different questions alternate.
            assert!(many.order.windows(2).filter(|pair| pair[0] != pair[1]).count() > 16, "{:?}", many.order);
            for (i, question) in asked.iter().enumerate() {
                let (alone, expected) = ask_alone(&handle, &text, question);
                let summary = many.ends[&(i as TurnId)].as_ref().unwrap();
                assert_eq!(many.texts[&(i as TurnId)], alone, "{kv_dtype:?} in {vram:?}: {question}");
                assert_eq!((summary.stop, summary.prompt_tokens), (expected.stop, expected.prompt_tokens));
                assert_eq!(summary.generated_tokens, expected.generated_tokens);
                assert!(summary.kv_peak_bytes.vram <= vram.unwrap_or(u64::MAX), "{:?}", summary.kv_peak_bytes);
                if vram.is_some() {
                    assert_eq!(summary.attention, AttentionKind::ExactOffload);
                }
                // The document was read for the first of them.
                assert!(i == 0 || summary.cached_tokens + 128 > summary.prompt_tokens, "{i}: {}", summary.cached_tokens);
            }
        }
    }
}

#[test]
fn questions_at_once_choose_for_themselves() {
    let test = "questions_at_once_choose_for_themselves";
    let text = document();
    let asked = [
        "What is the current temperature for Reribe?".to_owned(),
        "What is the average magic number of Rino?".to_owned(),
        questions()[3].clone(),
    ];
    for (kind, rate, vram) in [
        (PolicyKind::LeoAm, 1.0, Some(8 << 20)),
        (PolicyKind::H2o, 1.0, Some(8 << 20)),
        (PolicyKind::LeoAm, 0.1, None),
        (PolicyKind::LeoAm, 0.1, Some(10 << 20)),
    ] {
        let policy = Some(SelectiveSpec { kind, amount: Amount::Rate(rate), ..SelectiveSpec::default() });
        let budgets = Tiers { vram: vram.map(Bytes), ..Default::default() };
        let options = LoadOptions { policy, budgets, context: Some(8192), ..LoadOptions::default() };
        let Some((handle, _)) = engine_with(test, ModelSource::BuiltIn, options) else { return };
        let many = ask_many(&handle, &text, &asked);
        assert!(many.notices.is_empty(), "{:?}", many.notices);
        for (i, question) in asked.iter().enumerate() {
            let (alone, expected) = ask_alone(&handle, &text, question);
            let summary = many.ends[&(i as TurnId)].as_ref().unwrap();
            assert_eq!(many.texts[&(i as TurnId)], alone, "{kind} of {rate} in {vram:?}: {question}");
            assert_eq!(summary.attention, AttentionKind::Selective);
            assert!(summary.kv_peak_bytes.vram <= vram.unwrap_or(u64::MAX), "{:?}", summary.kv_peak_bytes);
            let (chosen, expected) = (summary.chosen.as_ref().unwrap(), expected.chosen.unwrap());
            assert_eq!(chosen.steps, expected.steps);
            assert!((chosen.share_read - expected.share_read).abs() < 0.05, "{chosen:?} and {expected:?}");
        }
    }
}
