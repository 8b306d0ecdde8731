//! Lookahead steps, which the GPU begins before the last token is read back: same answers, and nothing left behind by discarded ones.
//!
//! Contexts stay below the end of a page, after which a request would prefill the page again: the speed of the machine decides
//! how chunks are split, and so how K and V are rounded.

use strata::engine::{
    AttentionMode, EngineCommand, EngineEvent, EngineHandle, LoadOptions, Message, ModelSource, PolicyKind, PolicySpec,
    PromptRequest, RequestSummary, Role, Sampling, SelectionBudget, StopReason,
};

use crate::{HARDWARE, document, engine_on, finish};

/// Engine whose steps follow each other without waiting, unless `synchronous`.
fn start(test: &str, synchronous: bool) -> Option<EngineHandle> {
    let options = LoadOptions { context: Some(2048), synchronous, ..LoadOptions::default() };
    Some(engine_on(test, ModelSource::BuiltIn, options, None, HARDWARE.clone())?.0)
}

fn user(content: &str) -> Message {
    Message { role: Role::User, content: content.to_owned() }
}

/// Samples for long: without end tokens for most seeds.
fn sampling(top_k: u32, top_p: f32, seed: u64) -> Sampling {
    Sampling { temperature: 3.0, top_k, top_p, min_p: 0.0, seed, ..Sampling::default() }
}

/// Questions longer than a matvec takes.
const WHY: &str = "Why did all of this happen, and who was there to see it?";
const WHEN: &str = "When did all of this happen, and who was there to see it?";

type Answer = (String, Box<RequestSummary>);

fn generate(
    handle: &EngineHandle,
    messages: Vec<Message>,
    sampling: Sampling,
    max_tokens: usize,
    policy: AttentionMode,
) -> Answer {
    let documents = Vec::new();
    handle.send(EngineCommand::Generate { request: 7, messages, documents, sampling, max_tokens, policy });
    let (events, end) = finish(handle);
    (text_of(events), end.unwrap())
}

fn text_of(events: Vec<EngineEvent>) -> String {
    let text = |event| if let EngineEvent::Token { text, .. } = event { Some(text) } else { None };
    events.into_iter().filter_map(text).collect()
}

#[test]
fn answers_with_lookahead_steps_equal_those_without() {
    let test = "answers_with_lookahead_steps_equal_those_without";
    let (Some(fast), Some(plain)) = (start(test, false), start(test, true)) else { return };
    let text = document()[..200].to_owned();
    let greedy = Sampling::default();
    for (sampling, policy, n) in [
        (greedy, AttentionMode::AsLoaded, 30),
        (sampling(40, 0.95, 2), AttentionMode::Sampled, 30),
        (Sampling { repetition_penalty: 1.2, ..sampling(40, 0.95, 3) }, AttentionMode::AsLoaded, 20),
        // Over several page boundaries.
        (Sampling { temperature: 50.0, ..sampling(40, 1.0, 1) }, AttentionMode::AsLoaded, 150),
    ] {
        let answer = |handle: &EngineHandle| generate(handle, vec![user(&text)], sampling, n, policy);
        let ((got, summary), (want, without)) = (answer(&fast), answer(&plain));
        assert_eq!(got, want, "{sampling:?}");
        assert_eq!((summary.generated_tokens, summary.stop), (without.generated_tokens, without.stop));
        assert_eq!(summary.context_used, without.context_used);
        assert_eq!((without.lookahead_steps, summary.dispatches_per_token), (0, without.dispatches_per_token));
        // Each page of 64 tokens has two steps that are not lookahead steps, and an answer has its first; a few are measured.
        let n_steps = summary.generated_tokens - usize::from(summary.stop != StopReason::Eos);
        let most = if sampling.repetition_penalty != 1.0 { 0 } else { n_steps - 1 };
        let least = if most == 0 { 0 } else { n_steps - n_steps.div_ceil(64) * 2 - 5 };
        assert!(
            (least..=most).contains(&summary.lookahead_steps),
            "{} of {n_steps} steps, {sampling:?}",
            summary.lookahead_steps
        );
        if n == 150 {
            continue;
        }
        // The next turn continues from the same context.
        let next = |handle: &EngineHandle, answer: &str| {
            let assistant = Message { role: Role::Assistant, content: answer.to_owned() };
            let messages = vec![user(&text), assistant, user("What else?")];
            generate(handle, messages, greedy, 8, AttentionMode::AsLoaded)
        };
        assert_eq!(next(&fast, &got).0, next(&plain, &want).0);
    }
}

#[test]
fn selection_by_the_gpu_has_lookahead_steps_and_the_same_answer() {
    let test = "selection_by_the_gpu_has_lookahead_steps_and_the_same_answer";
    let amount = SelectionBudget::Rate(0.1);
    let policy = Some(PolicySpec { kind: PolicyKind::LeoAm, amount, is_forced: true, ..PolicySpec::default() });
    let start = |synchronous| {
        let options = LoadOptions { context: Some(2048), synchronous, policy, ..LoadOptions::default() };
        Some(engine_on(test, ModelSource::BuiltIn, options, None, HARDWARE.clone())?.0)
    };
    let (Some(fast), Some(plain)) = (start(false), start(true)) else { return };
    let text = format!("{}\n\nWhen did all of this happen?", &document()[..2000]);
    // The second one measures the attention of a few steps, which are not lookahead steps.
    for (policy, least) in [(AttentionMode::AsLoaded, 12), (AttentionMode::Sampled, 8)] {
        let answer = |handle: &EngineHandle| generate(handle, vec![user(&text)], Sampling::default(), 20, policy);
        let ((got, summary), (want, without)) = (answer(&fast), answer(&plain));
        assert_eq!(got, want);
        let selections = [&summary, &without].map(|summary| summary.selection.clone().unwrap());
        let [own, other] = selections.each_ref().map(|s| (s.steps, s.share_read, s.mass_steps));
        assert_eq!(own, other, "discarded steps do not count");
        assert!(own.0 + 1 >= summary.generated_tokens as u64 && own.1 < 0.7, "{own:?}");
        assert!(selections[0].evaluations_per_step > 0.0 && without.lookahead_steps == 0);
        assert!(summary.lookahead_steps >= least.min(summary.generated_tokens.saturating_sub(6)), "{}", summary.lookahead_steps);
    }
}

#[test]
fn step_is_repeated_if_the_candidates_are_too_few() {
    let test = "step_is_repeated_if_the_candidates_are_too_few";
    let (Some(fast), Some(plain)) = (start(test, false), start(test, true)) else { return };
    // The first token needs all logits; or a later one, as 64 candidates rarely lack so little of the mass.
    for (top_p, seed) in [(1.0, 1), (0.9995, 2), (0.9995, 3)] {
        let answer = |handle: &EngineHandle| {
            generate(handle, vec![user(&document()[..200])], sampling(0, top_p, seed), 16, AttentionMode::AsLoaded)
        };
        let ((got, summary), (want, _)) = (answer(&fast), answer(&plain));
        assert_eq!(got, want, "seed {seed}");
        // One step was recorded in vain; then none.
        let most = if top_p == 1.0 { 0 } else { 14 };
        assert!(summary.lookahead_steps <= most, "{} {top_p} {seed}", summary.lookahead_steps);
    }
}

#[test]
fn rows_of_a_batch_have_lookahead_steps_until_one_ends() {
    let test = "rows_of_a_batch_have_lookahead_steps_until_one_ends";
    let (Some(fast), Some(plain)) = (start(test, false), start(test, true)) else { return };
    let text = document()[..200].to_owned();
    let answer = |handle: &EngineHandle| {
        let questions = ["Who is it about?", "Where does it happen, and when?", "What is the end of the story?"];
        let request = |(id, q): (u64, &&str)| PromptRequest { id, messages: vec![user(&format!("{text}\n\n{q}"))] };
        let requests = (0u64..).zip(&questions).map(request).collect();
        let sampling = Sampling::default();
        handle.send(EngineCommand::GenerateBatch { requests, documents: Vec::new(), sampling, max_tokens: 40 });
        let (mut texts, mut ends) = (vec![String::new(); 3], Vec::new());
        while ends.len() < 3 {
            match handle.wait(std::time::Duration::from_secs(300)).unwrap() {
                EngineEvent::Token { request, text, .. } => texts[request as usize].push_str(&text),
                EngineEvent::Finished { request, summary } => {
                    ends.push((request, summary.generated_tokens, summary.context_used, summary.lookahead_steps));
                }
                EngineEvent::Failed { sentence, .. } => panic!("{sentence}"),
                _ => {}
            }
        }
        ends.sort_unstable();
        (texts, ends)
    };
    let ((got, ends), (want, without)) = (answer(&fast), answer(&plain));
    assert_eq!(got, want);
    for (end, without) in ends.iter().zip(&without) {
        assert_eq!((end.0, end.1, end.2), (without.0, without.1, without.2));
        assert!(without.3 == 0 && end.3 > 0, "{ends:?}");
    }
}

#[test]
fn stop_and_lost_device_leave_nothing_of_a_lookahead_step() {
    let test = "stop_and_lost_device_leave_nothing_of_a_lookahead_step";
    let (Some(fast), Some(plain)) = (start(test, false), start(test, true)) else { return };
    let text = document()[..200].to_owned();
    // Another seed if the answer ends before it is stopped.
    let ended = (1..9).map(|seed| {
        let (messages, documents) = (vec![user(&text)], Vec::new());
        let (sampling, policy) = (Sampling { temperature: 50.0, ..sampling(40, 1.0, seed) }, AttentionMode::AsLoaded);
        fast.send(EngineCommand::Generate { request: 7, messages, documents, sampling, max_tokens: 300, policy });
        let mut n_tokens = 0;
        loop {
            match fast.wait(std::time::Duration::from_secs(300)).unwrap() {
                EngineEvent::Token { .. } => {
                    n_tokens += 1;
                    if n_tokens == 3 {
                        fast.stop();
                    }
                }
                EngineEvent::Finished { summary, .. } => break summary,
                EngineEvent::Failed { sentence, .. } => panic!("{sentence}"),
                _ => {}
            }
        }
    });
    let summary = { ended }.find(|summary| summary.stop == StopReason::Cancelled).unwrap();
    assert!(summary.lookahead_steps > 0 && summary.generated_tokens < 20, "{}", summary.generated_tokens);
    let answer = |handle: &EngineHandle, question: &str| {
        generate(handle, vec![user(&text), user(question)], Sampling::default(), 20, AttentionMode::AsLoaded).0
    };
    assert_eq!(answer(&fast, WHY), answer(&plain, WHY));
    fast.send(EngineCommand::LoseDevice);
    assert_eq!(answer(&fast, WHEN), answer(&plain, WHEN));
}
