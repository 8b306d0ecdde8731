//! The window's state against every kind of engine event.

use super::*;
use crate::app::state::chat::Outcome;
use crate::app::test_support::{model_info, selective_summary, summary};
use crate::engine::{AttentionKind, AttentionMode, EngineEvent, RequestId, RequestSummary};

fn ready() -> ViewState {
    let mut state = ViewState::new(ModelSource::BuiltIn, LoadOptions::default());
    state.apply(EngineEvent::ModelLoaded(Box::new(model_info())));
    state
}

fn document(text: &str) -> Document {
    Document::from_bytes("notes.txt", text.as_bytes()).unwrap()
}

fn asked(state: &mut ViewState, question: &str) -> RequestId {
    state.chat_mut().draft = question.to_owned();
    state.send();
    state.engine.running.unwrap().request
}

fn token(request: RequestId, text: &str, n: usize) -> EngineEvent {
    EngineEvent::Token { request, text: text.into(), n, tokens_per_s: 20.0, context_used: 100 + n }
}

#[test]
fn send_asks_with_the_document_in_front_and_clears_the_draft() {
    let mut state = ready();
    state.add_document(document("Facts."), false);
    state.engine.outbox.clear();
    asked(&mut state, "  What?  ");
    let [EngineCommand::Generate { messages, max_tokens, .. }] = state.engine.outbox.as_slice() else {
        panic!("{:?}", state.engine.outbox)
    };
    assert_eq!(messages[0].content, "Facts.\n\nWhat?");
    assert_eq!(*max_tokens, state.settings.values.max_tokens);
    assert_eq!(state.chat().draft, "");
}

#[test]
fn send_while_a_turn_runs_keeps_the_draft() {
    let mut state = ready();
    asked(&mut state, "One?");
    state.engine.outbox.clear();
    state.chat_mut().draft = "Two?".into();
    state.send();
    assert!(state.engine.outbox.is_empty());
    assert_eq!(state.chat().draft, "Two?");
}

#[test]
fn tokens_build_the_answer_and_finished_ends_the_turn() {
    let mut state = ready();
    let request = asked(&mut state, "Say.");
    state.apply(EngineEvent::RequestStarted { request, prompt_tokens: 100, cached_tokens: 40 });
    assert_eq!(state.chat().cached_tokens, 40);
    state.apply(EngineEvent::Prefill { request, done: 80, total: 100, tokens_per_s: 500.0 });
    assert_eq!(state.engine.running.unwrap().phase, Phase::Prefill { done: 80, total: 100, tokens_per_s: 500.0 });
    state.apply(token(request, "Hel", 1));
    state.apply(token(request, "lo", 2));
    assert_eq!(state.chat().exchanges[0].answer, "Hello");
    state.apply(EngineEvent::Finished { request, summary: Box::new(summary()) });
    assert!(state.engine.running.is_none());
    assert_eq!(state.chat().cached_tokens, summary().context_used);
    assert!(matches!(state.chat().exchanges[0].outcome, Outcome::Done(_)));
}

#[test]
fn event_of_another_turn_is_ignored() {
    let mut state = ready();
    let request = asked(&mut state, "Say.");
    state.apply(token(request + 1000, "wrong", 1));
    state.apply(EngineEvent::Finished { request: request + 1000, summary: Box::new(summary()) });
    state.apply(EngineEvent::Failed { request: request + 1000, sentence: "wrong".into(), bad_input: true });
    assert_eq!(state.chat().exchanges[0].answer, "");
    assert_eq!(state.chat().exchanges[0].outcome, Outcome::Running);
}

#[test]
fn answer_goes_to_its_own_chat_when_another_is_on_screen() {
    let mut state = ready();
    let first = state.chats.current;
    let request = asked(&mut state, "Say.");
    state.new_chat();
    state.apply(token(request, "Here.", 1));
    assert!(state.chat().exchanges.is_empty());
    assert!(state.running_here().is_none());
    state.select_chat(first);
    assert_eq!(state.chat().exchanges[0].answer, "Here.");
}

#[test]
fn failed_turn_keeps_the_question_and_can_be_asked_again() {
    let mut state = ready();
    let request = asked(&mut state, "Long?");
    let sentence = "The prompt has 9,000 tokens, this model's window is 8,192.";
    state.apply(EngineEvent::Failed { request, sentence: sentence.into(), bad_input: true });
    assert_eq!(state.chat().exchanges[0].outcome, Outcome::Failed(sentence.into()));
    state.engine.outbox.clear();
    state.regenerate();
    assert!(matches!(state.engine.outbox.as_slice(), [EngineCommand::Generate { .. }]));
    assert_eq!(state.chat().exchanges[0].outcome, Outcome::Running);
}

#[test]
fn regenerate_sends_the_same_messages_with_the_next_seed() {
    let mut state = ready();
    let request = asked(&mut state, "Say.");
    state.apply(token(request, "A", 1));
    state.apply(EngineEvent::Finished { request, summary: Box::new(summary()) });
    let ask = |command: &EngineCommand| match command {
        EngineCommand::Generate { messages, sampling, .. } => (messages.clone(), sampling.seed),
        other => panic!("{other:?}"),
    };
    let before = ask(&state.engine.outbox[0]);
    state.engine.outbox.clear();
    state.regenerate();
    let after = ask(&state.engine.outbox[0]);
    assert_eq!(after.0, before.0);
    assert_eq!(after.1, before.1 + 1);
}

/// A selective answer on screen, and its exchange.
fn answered_selectively(state: &mut ViewState, stop: StopReason) -> u64 {
    let request = asked(state, "Say.");
    state.apply(token(request, "This.", 1));
    let summary = RequestSummary { stop, ..selective_summary() };
    state.apply(EngineEvent::Finished { request, summary: Box::new(summary) });
    state.engine.outbox.clear();
    state.chat().exchanges[0].id
}

#[test]
fn check_asks_as_it_was_asked_whatever_is_set_since() {
    for (stop, as_long_as) in [(StopReason::Eos, None), (StopReason::Cancelled, Some(20))] {
        let mut state = ready();
        let (sampling, max_tokens) = (state.settings.values.sampling, state.settings.values.max_tokens);
        let exchange = answered_selectively(&mut state, stop);
        (state.settings.values.sampling.seed, state.settings.values.max_tokens) = (99, 1);
        state.check(exchange);
        let [EngineCommand::Generate { sampling: again, max_tokens: n, policy: AttentionMode::Exact, .. }] =
            state.engine.outbox.as_slice()
        else {
            panic!("{:?}", state.engine.outbox)
        };
        assert_eq!((*again, *n), (sampling, as_long_as.unwrap_or(max_tokens)), "{stop:?}");
    }
}

#[test]
fn check_writes_its_own_answer_and_leaves_the_given_one_and_its_figures() {
    let mut state = ready();
    let exchange = answered_selectively(&mut state, StopReason::Eos);
    let (speed, mass) = (state.measured.last_speed, state.measured.mass_kept);
    assert!(mass.is_some());
    state.check(exchange);
    let request = state.engine.running.unwrap().request;
    state.apply(token(request, "That.", 1));
    state.apply(EngineEvent::Finished { request, summary: Box::new(RequestSummary { tokens_per_s: 3.0, ..summary() }) });
    let exchange = &state.chat().exchanges[0];
    let check = exchange.check.as_ref().unwrap();
    assert_eq!((exchange.answer.as_str(), check.answer.as_str()), ("This.", "That."));
    assert!(matches!((&exchange.outcome, &check.outcome), (Outcome::Done(a), Outcome::Done(b)) if a != b));
    assert_eq!(
        (state.measured.last_speed, state.measured.mass_kept, state.measured.attention),
        (speed, mass, Some(AttentionKind::Selective))
    );
}

#[test]
fn question_that_waits_for_a_check_stays_a_draft_when_its_chat_is_left() {
    let mut state = ready();
    let exchange = answered_selectively(&mut state, StopReason::Eos);
    let chat = state.chats.current;
    state.check(exchange);
    let request = state.engine.running.unwrap().request;
    state.chat_mut().draft = "Next?".into();
    state.send();
    assert!(state.engine.pending_stop && state.engine.running.unwrap().stopping);
    state.new_chat();
    state.engine.outbox.clear();
    state.apply(EngineEvent::Finished { request, summary: Box::new(summary()) });
    assert!(state.engine.outbox.is_empty() && state.engine.running.is_none());
    state.select_chat(chat);
    assert_eq!(state.chat().draft, "Next?");
}

#[test]
fn answer_asked_again_forgets_its_check() {
    let mut state = ready();
    let exchange = answered_selectively(&mut state, StopReason::Eos);
    state.check(exchange);
    let request = state.engine.running.unwrap().request;
    state.apply(EngineEvent::Finished { request, summary: Box::new(summary()) });
    state.regenerate();
    assert_eq!(state.chat().exchanges[0].check, None);
}

#[test]
fn document_is_counted_when_the_model_is_ready_and_again_for_the_next_model() {
    let mut state = ViewState::new(ModelSource::BuiltIn, LoadOptions::default());
    state.add_document(document("Some words."), false);
    assert!(state.engine.outbox.is_empty(), "no model, nobody to count");
    assert!(!state.documents.list[0].tokens().1);
    for tokens in [3, 5] {
        state.apply(EngineEvent::ModelLoaded(Box::new(model_info())));
        let Some(EngineCommand::Count { request, .. }) = state.engine.outbox.pop() else { panic!("not counted") };
        assert_eq!(state.documents.list[0].n_tokens, None);
        state.apply(EngineEvent::Counted { request, tokens: tokens + 30, positions: vec![20, 20 + tokens] });
        assert_eq!(state.documents.list[0].tokens(), (tokens, true));
    }
}

#[test]
fn same_document_twice_is_one_entry_of_the_library() {
    let mut state = ready();
    let a = state.add_document(document("Words."), false);
    state.new_chat();
    let b = state.add_document(document("Words."), false);
    assert_eq!((a, state.documents.list.len()), (b, 1));
    assert_eq!(state.chat().documents, vec![a]);
    assert_ne!(state.add_document(document("Other words."), false), a);
}

#[test]
fn stopped_reading_keeps_what_was_read() {
    let mut state = ready();
    state.add_document(document(&"word ".repeat(200)), false);
    state.documents.list[0].n_tokens = Some(200);
    state.prefill_documents();
    let request = state.engine.running.unwrap().request;
    state.apply(EngineEvent::RequestStarted { request, prompt_tokens: 200, cached_tokens: 0 });
    state.apply(EngineEvent::Prefill { request, done: 80, total: 200, tokens_per_s: 100.0 });
    assert!(state.request_stop());
    let stopped = PrefillEnd { context_used: 80 }.into_event(request);
    state.apply(stopped);
    assert!(state.engine.running.is_none());
    assert!((state.chat().read_share(&state.documents.list) - 0.4).abs() < 1e-6);
}

#[test]
fn stop_before_the_turn_began_is_due_when_it_begins() {
    let mut state = ViewState::new(ModelSource::BuiltIn, LoadOptions::default());
    let request = asked(&mut state, "While it loads?");
    assert!(state.request_stop() && !state.engine.pending_stop);
    state.apply(EngineEvent::ModelLoaded(Box::new(model_info())));
    state.apply(EngineEvent::RequestStarted { request, prompt_tokens: 9, cached_tokens: 0 });
    assert!(state.engine.pending_stop);
}

struct PrefillEnd {
    context_used: usize,
}

impl PrefillEnd {
    fn into_event(self, request: RequestId) -> EngineEvent {
        let mut summary = summary();
        summary.context_used = self.context_used;
        summary.stop = StopReason::Cancelled;
        EngineEvent::Finished { request, summary: Box::new(summary) }
    }
}

#[test]
fn turn_in_another_chat_takes_the_cache_away_from_the_first() {
    let mut state = ready();
    let first = state.chats.current;
    let request = asked(&mut state, "One?");
    state.apply(EngineEvent::Finished { request, summary: Box::new(summary()) });
    assert!(state.chat().cached_tokens > 0);
    state.new_chat();
    let request = asked(&mut state, "Two?");
    state.apply(EngineEvent::RequestStarted { request, prompt_tokens: 9, cached_tokens: 3 });
    state.select_chat(first);
    assert_eq!(state.chat().cached_tokens, 0);
}

#[test]
fn model_advice_on_sampling_yields_to_the_user() {
    let mut state = ready();
    state.settings.form.texts[0] = "0.3".into();
    state.check_settings();
    let mut info = model_info();
    info.sampling.temperature = 0.9;
    state.apply(EngineEvent::ModelLoaded(Box::new(info.clone())));
    assert_eq!(state.settings.values.sampling.temperature, 0.3);
    let mut fresh = ready();
    fresh.apply(EngineEvent::ModelLoaded(Box::new(info)));
    assert_eq!(fresh.settings.values.sampling.temperature, 0.9);
}

#[test]
fn model_failure_is_kept_and_the_cap_goes_with_the_next_load() {
    let mut state = ready();
    state.apply(EngineEvent::ModelFailed { sentence: "The file is cut short; download it again.".into(), bad_input: true });
    assert_eq!(state.engine.model, ModelState::Failed("The file is cut short; download it again.".into()));
    state.settings.form.texts[7] = "4096".into();
    state.check_settings();
    state.load_model(ModelSource::BuiltIn);
    let Some(EngineCommand::LoadModel { options, .. }) = state.engine.outbox.pop() else { panic!("nothing sent") };
    assert_eq!(options.context, Some(4096));
}

#[test]
fn new_chat_reuses_an_empty_one() {
    let mut state = ready();
    state.new_chat();
    state.new_chat();
    assert_eq!(state.chats.list.len(), 1);
    asked(&mut state, "Hello?");
    state.new_chat();
    assert_eq!(state.chats.list.len(), 2);
    assert!(state.chat().is_blank());
}

#[test]
fn engine_that_is_gone_fails_the_turn_with_a_sentence() {
    let mut state = ready();
    asked(&mut state, "Anyone?");
    state.engine_lost();
    assert!(state.engine.running.is_none());
    assert!(matches!(&state.chat().exchanges[0].outcome, Outcome::Failed(s) if s.contains("start it again")));
}

#[test]
fn two_thousand_tokens_apply_quickly() {
    let mut state = ready();
    let request = asked(&mut state, "Long story?");
    let began = std::time::Instant::now();
    for n in 0..2000 {
        state.apply(token(request, "word ", n));
    }
    assert_eq!(state.chat().exchanges[0].answer.len(), 10_000);
    assert!(began.elapsed().as_millis() < 50, "{:?}", began.elapsed());
}
