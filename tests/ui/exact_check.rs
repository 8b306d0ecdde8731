//! Exact check: the share kept by a selective answer, and the exact answer beside it.

use egui::Key;
use egui_kittest::kittest::Queryable;
use strata::engine::{AttentionKind, AttentionMode, EngineCommand, EngineEvent, Message, RequestId, RequestSummary, StopReason};

use crate::mock_engine::{Rig, summary};

/// A chat with a selective answer.
fn answered(question: &str, answer: &str) -> Rig {
    let mut rig = Rig::ready();
    rig.drop_text("notes.txt", "The bell weighs 412 kg.");
    let request = rig.ask(question);
    rig.answer_selectively(request, answer);
    rig
}

/// Clicks the button of this name; returns the turn it began.
fn check(rig: &mut Rig, button: &str) -> (RequestId, Vec<Message>) {
    rig.click(button);
    match rig.command() {
        Some(EngineCommand::Generate { request, messages, policy: AttentionMode::Exact, .. }) => (request, messages),
        other => panic!("not checked: {other:?}"),
    }
}

fn exactly(rig: &mut Rig, request: RequestId, text: &str, stop: StopReason) {
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 16_020, cached_tokens: 16_000 });
    rig.emit(EngineEvent::Token { request, text: text.into(), n: 12, tokens_per_s: 8.2, context_used: 16_032 });
    let summary = RequestSummary { attention: AttentionKind::ExactOffload, tokens_per_s: 8.2, ..summary(16_032, 12, stop) };
    rig.emit(EngineEvent::Finished { request, summary: Box::new(summary) });
}

#[test]
fn selective_answer_shows_what_it_read_and_kept_and_how_that_is_known() {
    let mut rig = answered("What weighs 412 kg?", "The bell.");
    assert!(rig.shows("selective · leoam, 12 % read · mass kept ~0.98 · 31.2 tok/s"));
    assert!(rig.shows("selective (mass kept ~0.98)"), "the status line");
    rig.harness.get_by_label_contains("12 % read").hover();
    (0..30).for_each(|_| rig.harness.step());
    assert!(rig.shows("0.94 in layer 3, which kept least"));
    assert!(rig.shows("Measured at 5 of 96 tokens"));
}

#[test]
fn exact_answer_shows_that_everything_was_read_and_offers_no_check() {
    let mut rig = Rig::ready();
    let request = rig.ask("Tell me.");
    rig.answer(request, "Done.");
    assert!(rig.harness.query_by_label("Check exactly").is_none());
    rig.harness.get_by_label_contains("exact dense · ").hover();
    (0..30).for_each(|_| rig.harness.step());
    assert!(rig.shows("every token of the context was read"));
}

#[test]
fn check_asks_the_same_of_everything_and_finds_the_same_answer() {
    let mut rig = answered("What weighs 412 kg?", "The bell.");
    let (request, messages) = check(&mut rig, "Check exactly");
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].content, "The bell weighs 412 kg.\n\nWhat weighs 412 kg?");
    assert!(rig.shows("Checking exactly"));
    exactly(&mut rig, request, "The bell.", StopReason::Eos);
    assert!(rig.shows("the same answer, word for word") && rig.shows("exact offload · 8.2 tok/s"));
    assert!(rig.harness.query_by_label("Check exactly").is_none(), "it is known");
    assert!(rig.shows("selective (mass kept ~0.98)"), "the status line is about the answer");
}

#[test]
fn check_that_differs_shows_both_answers_from_where_they_part() {
    let mut rig = answered("What weighs 412 kg?", "It is the small bell of the gate.");
    let (request, _) = check(&mut rig, "Check exactly");
    exactly(&mut rig, request, "It is the great bell.", StopReason::Eos);
    assert!(rig.shows("another answer after 3 words"));
    assert!(rig.shows("AS GIVEN · 12 % READ") && rig.shows("EXACT · ALL READ"));
    assert!(rig.shows("small bell of the gate.") && rig.shows("great bell."));
    let at = |part: &str| rig.harness.query_all_by_label_contains(part).last().unwrap().rect();
    assert!(at("small bell").right() < at("great bell").left(), "side by side");
    assert!(rig.harness.query_by_label("Copy the exact answer").is_some());
}

#[test]
fn question_about_the_whole_document_is_offered_an_exact_answer() {
    let mut rig = answered("Summarize the notes.", "A bell.");
    assert!(rig.shows("seems to be about the whole document"));
    assert!(rig.harness.query_by_label("Check exactly").is_none());
    let (request, _) = check(&mut rig, "Answer exactly");
    exactly(&mut rig, request, "A bell of 412 kg.", StopReason::Eos);
    assert!(!rig.shows("seems to be about the whole document") && rig.shows("of 412 kg."));
}

#[test]
fn check_is_stopped_by_its_button_and_can_be_asked_for_again() {
    let mut rig = answered("What weighs 412 kg?", "The bell of the gate.");
    let (request, _) = check(&mut rig, "Check exactly");
    let watch = rig.port.cancel_flag();
    rig.click("Stop checking");
    assert!(watch.stopped());
    exactly(&mut rig, request, "The bell", StopReason::Cancelled);
    assert!(rig.shows("The check was stopped; the same for 12 tokens"));
    check(&mut rig, "Check exactly");
}

#[test]
fn question_asked_during_a_check_stops_it_and_is_sent_when_it_has_ended() {
    let mut rig = answered("What weighs 412 kg?", "The bell of the gate.");
    let (request, _) = check(&mut rig, "Check exactly");
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 16_020, cached_tokens: 16_000 });
    let watch = rig.port.cancel_flag();
    rig.harness.get_by_label("Question").type_text("And the gate?");
    rig.harness.run();
    assert!(rig.shows("Enter stops the check and sends"));
    rig.harness.key_press(Key::Enter);
    assert!(rig.command().is_none(), "one turn at a time");
    assert!(watch.stopped());
    exactly(&mut rig, request, "The bell", StopReason::Cancelled);
    let Some(EngineCommand::Generate { messages, policy, .. }) = rig.command() else { panic!("the question was lost") };
    assert_eq!((messages[1].content.as_str(), messages[2].content.as_str()), ("The bell of the gate.", "And the gate?"));
    assert_eq!(policy, AttentionMode::Sampled);
}

#[test]
fn failed_check_shows_why_and_keeps_the_answer() {
    let mut rig = answered("What weighs 412 kg?", "The bell.");
    let (request, _) = check(&mut rig, "Check exactly");
    rig.emit(EngineEvent::Failed { request, sentence: "The disk is gone.".into(), bad_input: false });
    assert!(rig.shows("The disk is gone.") && rig.shows("The bell."));
    check(&mut rig, "Check exactly");
}

#[test]
fn answer_of_another_model_or_document_cannot_be_checked() {
    let mut rig = answered("What weighs 412 kg?", "The bell.");
    rig.click("Remove notes.txt");
    assert!(rig.harness.query_by_label("Check exactly").is_none());
    let mut rig = answered("What weighs 412 kg?", "The bell.");
    rig.harness.get_by_label_contains("Model: ").click();
    rig.harness.run();
    rig.click("Use the built-in model");
    assert!(rig.harness.query_by_label("Check exactly").is_none());
    assert!(rig.shows("The bell."));
}
