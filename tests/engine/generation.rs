//! Whole answers of the built-in model: facts, cached prefix, stop, refusals, a lost device.

use std::sync::Arc;

use strata::engine::{
    EngineCommand, EngineEvent, EngineHandle, KvDtype, Message, ModelSource, RequestSummary, Role, Sampling, StopReason,
};

use super::{document, engine, finish, half_document};

/// The document, and the answers of the model's PyTorch code (`tests/fixtures/make_quote.py`).
pub(crate) fn golden() -> (String, Vec<serde_json::Value>) {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quote");
    let rows = serde_json::from_slice(&std::fs::read(dir.join("golden.json")).unwrap()).unwrap();
    (document(), rows)
}

pub(crate) fn user(content: String) -> Message {
    Message { role: Role::User, content }
}

pub(crate) struct Answer {
    pub text: String,
    summary: Box<RequestSummary>,
    events: Vec<EngineEvent>,
}

fn generate_with(handle: &EngineHandle, messages: Vec<Message>, sampling: Sampling, max_tokens: usize) -> Answer {
    handle.send(EngineCommand::Generate {
        request: 7,
        messages,
        documents: Vec::new(),
        sampling,
        max_tokens,
        policy: Default::default(),
    });
    let (events, end) = finish(handle);
    let text = events.iter().filter_map(|e| if let EngineEvent::Token { text, .. } = e { Some(text.as_str()) } else { None });
    Answer { text: text.collect(), summary: end.unwrap(), events }
}

pub(crate) fn generate(handle: &EngineHandle, messages: Vec<Message>) -> Answer {
    generate_with(handle, messages, Sampling::default(), 48)
}

#[test]
fn answers_on_an_unseen_document_equal_the_torch_code() {
    let test = "answers_on_an_unseen_document_equal_the_torch_code";
    let Some((handle, info)) = engine(test, ModelSource::BuiltIn, KvDtype::F32) else { return };
    assert!(info.built_in && info.context_len == 131_072);
    let (document, rows) = golden();
    assert_eq!(document.len(), 20_000);
    let (mut facts, mut near_ties) = (0, 0);
    for row in &rows {
        let question = row["question"].as_str().unwrap();
        let answer = generate(&handle, vec![user(format!("{document}\n\n{question}"))]);
        let want = row["answer"].as_str().unwrap();
        if answer.text.trim() != want {
            let margin = row["min_margin"].as_f64().unwrap();
            assert!(margin < 0.1, "{question}: '{}' instead of '{want}', margin {margin}", answer.text);
            near_ties += 1;
        }
        facts += usize::from(row["value"].as_str().is_some_and(|v| answer.text.contains(v)));
    }
    eprintln!("{} questions, {facts} facts right, {near_ties} near-ties", rows.len());
    assert!(facts == 8 && near_ties <= 1);
}

#[test]
fn list_of_mentions_names_each_once_and_ends() {
    let test = "list_of_mentions_names_each_once_and_ends";
    let Some((handle, _)) = engine(test, ModelSource::BuiltIn, KvDtype::F16) else { return };
    let document = include_str!("../../assets/sample-document.md");
    for name in ["Nerisa", "Somiko", "Savane"] {
        let mut wanted: Vec<&str> =
            document.match_indices(name).map(|(at, _)| document[at..].split_inclusive('.').next().unwrap()).collect();
        let question = user(format!("{document}\n\nList all mentions of {name}."));
        let answer = generate_with(&handle, vec![question], Sampling::default(), 96).text;
        let (said, end) = answer.trim().trim_start_matches("- ").rsplit_once("\n- ").unwrap();
        let mut said: Vec<&str> = said.split("\n- ").collect();
        said.sort_unstable();
        wanted.sort_unstable();
        assert_eq!((said, end), (wanted, format!("{name}: no more mentions.").as_str()));
    }
}

#[test]
fn second_question_on_a_document_prefills_only_the_question() {
    let test = "second_question_on_a_document_prefills_only_the_question";
    let Some((handle, _)) = engine(test, ModelSource::BuiltIn, KvDtype::F16) else { return };
    let (document, rows) = golden();
    let document = &document[..6000];
    let questions: Vec<&str> = rows.iter().map(|r| r["question"].as_str().unwrap()).collect();
    // Prefill in advance, as the window does when a document is dropped.
    handle.send(EngineCommand::Prefill { request: 1, text: document.to_owned(), documents: Vec::new() });
    let read = finish(&handle).1.unwrap();
    assert_eq!((read.stop, read.cached_tokens), (StopReason::Length, 0));
    let first = generate(&handle, vec![user(format!("{document}\n\n{}", questions[3]))]);
    assert!(first.summary.cached_tokens + 4 >= read.prompt_tokens, "{:?} after {:?}", first.summary, read);
    assert_eq!(first.summary.stop, StopReason::Eos);
    // The next turn of the same chat, then another chat on the same document.
    let messages = vec![
        user(format!("{document}\n\n{}", questions[3])),
        Message { role: Role::Assistant, content: first.text.trim().to_owned() },
        user(questions[4].to_owned()),
    ];
    let second = generate(&handle, messages);
    assert!(second.summary.cached_tokens >= first.summary.prompt_tokens, "{:?}", second.summary);
    let other = generate(&handle, vec![user(format!("{document}\n\n{}", questions[5]))]);
    // Only complete pages are reused: the rest of the last one is prefilled again.
    assert!(other.summary.cached_tokens + 4 + 64 >= read.prompt_tokens);
    // Reused pages do not change the answer: a fresh engine gives the same.
    let Some((fresh, _)) = engine(test, ModelSource::BuiltIn, KvDtype::F16) else { return };
    assert_eq!(generate(&fresh, vec![user(format!("{document}\n\n{}", questions[5]))]).text, other.text);
}

#[test]
fn edited_question_and_earlier_branch_prefill_only_the_difference() {
    let test = "edited_question_and_earlier_branch_prefill_only_the_difference";
    let Some((handle, _)) = engine(test, ModelSource::BuiltIn, KvDtype::F16) else { return };
    let (document, rows) = golden();
    let questions: Vec<&str> = rows.iter().map(|r| r["question"].as_str().unwrap()).collect();
    let first = || user(format!("{}\n\n{}", &document[..6000], questions[3]));
    let answer = generate(&handle, vec![first()]);
    let said = || Message { role: Role::Assistant, content: answer.text.trim().to_owned() };
    let second = generate(&handle, vec![first(), said(), user(questions[4].to_owned())]);
    // Another second question, then the first branch again. Only complete pages are reused: the rest of the last one is
    // prefilled again.
    let edited = generate(&handle, vec![first(), said(), user(questions[5].to_owned())]);
    assert!(edited.summary.cached_tokens + 64 >= answer.summary.prompt_tokens, "{:?}", edited.summary);
    let back = generate(&handle, vec![first(), said(), user(questions[4].to_owned())]);
    assert!(back.summary.cached_tokens + 64 >= answer.summary.prompt_tokens, "{:?}", back.summary);
    assert_eq!(back.text, second.text);
    // Instructions after the document do not invalidate its pages.
    let instructed = generate(&handle, vec![user(format!("{}\n\nBe brief.\n\n{}", &document[..6000], questions[3]))]);
    let n_question = 64;
    assert!(instructed.summary.cached_tokens + 64 + n_question >= answer.summary.prompt_tokens, "{:?}", instructed.summary);
}

#[test]
fn sampling_same_seed_repeats_and_other_seed_differs() {
    let test = "sampling_same_seed_repeats_and_other_seed_differs";
    let Some((handle, _)) = engine(test, ModelSource::BuiltIn, KvDtype::F16) else { return };
    let question = || vec![user("The lamp stood by the door and the wind was cold.\n\nFind: The lamp".into())];
    // The built-in model quotes with high confidence: at temperature 1.5, two seeds give the same answer.
    let say = |seed, penalty| {
        let sampling = Sampling { temperature: 9.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: penalty, seed };
        generate_with(&handle, question(), sampling, 24).text
    };
    assert_eq!(say(1, 1.0), say(1, 1.0));
    assert_ne!(say(1, 1.0), say(2, 1.0));
    assert_eq!(say(1, 1.3), say(1, 1.3));
}

#[test]
fn stop_ends_prefill_and_keeps_prefilled_tokens() {
    let test = "stop_ends_prefill_and_keeps_prefilled_tokens";
    let Some((handle, _)) = engine(test, ModelSource::BuiltIn, KvDtype::F16) else { return };
    let (document, row) = (half_document(), &golden().1[4]);
    let messages = vec![user(format!("{document}\n\n{}", row["question"].as_str().unwrap()))];
    handle.send(EngineCommand::Generate {
        request: 1,
        messages: messages.clone(),
        documents: Vec::new(),
        sampling: Sampling::default(),
        max_tokens: 24,
        policy: Default::default(),
    });
    let seen = loop {
        if let EngineEvent::Prefill { done, .. } = handle.wait(std::time::Duration::from_secs(60)).unwrap() {
            break done;
        }
    };
    handle.stop();
    let stopped = finish(&handle).1.unwrap();
    assert_eq!(stopped.stop, StopReason::Cancelled);
    assert!(stopped.context_used >= seen && stopped.context_used < stopped.prompt_tokens, "{stopped:?}");
    let again = generate(&handle, messages);
    assert_eq!(again.summary.cached_tokens, stopped.context_used);
    assert_eq!(again.text.trim(), row["answer"].as_str().unwrap());
}

#[test]
fn dropped_handle_waits_for_its_worker() {
    let test = "dropped_handle_waits_for_its_worker";
    if super::common::gpu(test, strata::gpu::FeatureOverrides::default()).is_none() {
        return;
    }
    // A reference that the worker holds until it ends.
    let held = Arc::new(());
    let worker_holds = held.clone();
    let dir = tempfile::tempdir().unwrap();
    let options = strata::engine::LoadOptions { kv_dir: Some(dir.path().to_owned()), ..Default::default() };
    let handle = strata::engine::spawn(move || drop(worker_holds.clone()));
    handle.send(EngineCommand::LoadModel { source: ModelSource::BuiltIn, options });
    // One running request, and one queued.
    for request in 1..3 {
        handle.send(EngineCommand::Generate {
            request,
            messages: vec![user(golden().0)],
            documents: Vec::new(),
            sampling: Sampling::default(),
            max_tokens: 24,
            policy: Default::default(),
        });
    }
    while !matches!(handle.wait(std::time::Duration::from_secs(60)).unwrap(), EngineEvent::Prefill { .. }) {}
    drop(handle);
    assert_eq!(Arc::strong_count(&held), 1, "the worker is still alive");
}

#[test]
fn prompt_over_the_window_is_refused_with_both_numbers() {
    let test = "prompt_over_the_window_is_refused_with_both_numbers";
    let Some((handle, _)) = engine(test, ModelSource::BuiltIn, KvDtype::F16) else { return };
    let options = strata::engine::LoadOptions { context: Some(200), ..Default::default() };
    handle.send(EngineCommand::LoadModel { source: ModelSource::BuiltIn, options });
    while !matches!(handle.wait(std::time::Duration::from_secs(60)).unwrap(), EngineEvent::ModelLoaded(_)) {}
    let (document, _) = golden();
    let messages = vec![user(document)];
    let n_bytes = messages[0].content.len();
    handle.send(EngineCommand::Count { request: 2, messages: messages.clone(), offsets: vec![0, n_bytes / 2, n_bytes] });
    let (n, positions) = loop {
        if let EngineEvent::Counted { tokens, positions, .. } = handle.wait(std::time::Duration::from_secs(60)).unwrap() {
            break (tokens, positions);
        }
    };
    // Tokens of the template precede and follow the text.
    assert!(positions.len() == 3 && positions.is_sorted() && 0 < positions[0] && positions[2] < n, "{positions:?} of {n}");
    handle.send(EngineCommand::Generate {
        request: 3,
        messages,
        documents: Vec::new(),
        sampling: Sampling::default(),
        max_tokens: 8,
        policy: Default::default(),
    });
    let (_, end) = finish(&handle);
    let sentence = end.unwrap_err();
    assert!(sentence.contains(&n.to_string()) && sentence.contains("200") && sentence.contains("--context"), "{sentence}");
    // The engine continues.
    assert!(generate(&handle, vec![user("A bell rang.\n\nFind: A bell".into())]).summary.generated_tokens > 0);
}

#[test]
fn too_small_vram_budget_is_refused_with_both_numbers() {
    let test = "too_small_vram_budget_is_refused_with_both_numbers";
    let Some((handle, _)) = engine(test, ModelSource::BuiltIn, KvDtype::F16) else { return };
    let vram = Some(strata::base::Bytes(256 << 10));
    let budgets = strata::base::Tiers { vram, ..Default::default() };
    let options = strata::engine::LoadOptions { budgets, ..Default::default() };
    handle.send(EngineCommand::LoadModel { source: ModelSource::BuiltIn, options });
    let sentence = loop {
        match handle.wait(std::time::Duration::from_secs(60)).unwrap() {
            EngineEvent::ModelFailed { sentence, bad_input } => break (sentence, bad_input),
            EngineEvent::ModelLoaded(_) => panic!("loaded"),
            _ => {}
        }
    };
    assert!(sentence.1 && sentence.0.contains("256 KiB") && sentence.0.contains("--vram-budget"), "{}", sentence.0);
}

#[test]
fn lost_device_is_rebuilt_and_the_answer_is_the_same() {
    let test = "lost_device_is_rebuilt_and_the_answer_is_the_same";
    let Some((handle, _)) = engine(test, ModelSource::BuiltIn, KvDtype::F16) else { return };
    let (document, rows) = golden();
    let messages = vec![user(format!("{}\n\n{}", &document[..4000], rows[3]["question"].as_str().unwrap()))];
    let before = generate(&handle, messages.clone());
    handle.send(EngineCommand::LoseDevice);
    let after = generate(&handle, messages);
    assert!(after.events.iter().any(|e| matches!(e, EngineEvent::Notice(n) if n.contains("lost"))));
    assert_eq!(after.text, before.text);
}

#[test]
fn unreadable_model_is_reported_and_the_engine_survives() {
    let test = "unreadable_model_is_reported_and_the_engine_survives";
    let Some((handle, _)) = engine(test, ModelSource::BuiltIn, KvDtype::F16) else { return };
    let source = ModelSource::Path("no/such/model.gguf".into());
    handle.send(EngineCommand::LoadModel { source, options: Default::default() });
    let sentence = loop {
        match handle.wait(std::time::Duration::from_secs(60)).unwrap() {
            EngineEvent::ModelFailed { sentence, .. } => break sentence,
            EngineEvent::ModelLoaded(_) => panic!("loaded"),
            _ => {}
        }
    };
    assert!(sentence.contains("no/such/model.gguf") && sentence.ends_with('.'), "{sentence}");
    handle.send(EngineCommand::Generate {
        request: 1,
        messages: vec![user("x".into())],
        documents: Vec::new(),
        sampling: Sampling::default(),
        max_tokens: 1,
        policy: Default::default(),
    });
    assert!(finish(&handle).1.unwrap_err().contains("No model is loaded"));
}

#[test]
fn estimate_before_loading_is_within_five_percent() {
    let test = "estimate_before_loading_is_within_five_percent";
    for source in [ModelSource::BuiltIn, ModelSource::Synthetic { name: "tiny".into(), weight_type: "Q4_0".into() }] {
        let Some((_, info)) = engine(test, source, KvDtype::F16) else { return };
        let ratio = info.estimated_vram_bytes as f64 / info.vram_bytes as f64;
        assert!((0.95..=1.05).contains(&ratio), "{info:?}");
    }
}
