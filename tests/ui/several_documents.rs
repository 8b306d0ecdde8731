//! Several documents in a chat: each is saved by itself, prefilled alone while the window is idle, and listed once.

use egui::Key;
use egui_kittest::kittest::{NodeT, Queryable};
use strata::document::catalog::PrecedingDocument;
use strata::engine::{
    EngineCommand, EngineEvent, LibraryAction, RequestId, RequestSummary, ReusedDocument, SavedDocument, SavedState, StopReason,
};

use crate::mock_engine::{Rig, saved, summary};

/// A text of some hundred tokens.
fn text(name: &str) -> String {
    let sentence = format!("{name}: the rents of the houses by the harbour were raised again. ");
    sentence.repeat(30).trim_end().to_owned()
}

fn entry(name: &str, after: &[&str]) -> SavedDocument {
    let before = |name: &&str| PrecedingDocument {
        name: (*name).into(),
        content_hash: saved(name, &text(name), SavedState::Read).content_hash,
    };
    let id = format!("{name} after {after:?}");
    SavedDocument { id, after: after.iter().map(before).collect(), ..saved(name, &text(name), SavedState::Read) }
}

fn library() -> Vec<SavedDocument> {
    vec![entry("a.txt", &[]), entry("b.txt", &["a.txt"]), entry("c.txt", &["a.txt", "b.txt"])]
}

fn with_documents(names: &[&str]) -> Rig {
    let mut rig = Rig::ready();
    names.iter().for_each(|name| rig.drop_text(name, &text(name)));
    rig
}

/// Lets time pass; the next command of a turn.
fn after_seconds(rig: &mut Rig, seconds: usize) -> Option<EngineCommand> {
    for _ in 0..4 * seconds {
        rig.harness.step();
    }
    rig.command()
}

/// The names and the text of a prefill.
#[track_caller]
fn prefill_of(command: Option<EngineCommand>) -> (RequestId, Vec<String>, String) {
    match command {
        Some(EngineCommand::Prefill { request, text, documents }) => {
            (request, documents.into_iter().map(|d| d.name).collect(), text)
        }
        other => panic!("{other:?}"),
    }
}

fn end(rig: &mut Rig, request: RequestId, stop: StopReason, library: Vec<SavedDocument>) {
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 1000, cached_tokens: 0 });
    rig.emit(EngineEvent::Library(library));
    rig.emit(EngineEvent::Finished { request, summary: Box::new(summary(1000, 0, stop)) });
}

#[test]
fn idle_window_prefills_documents_alone_and_a_question_stops_it() {
    let mut rig = with_documents(&["a.txt", "b.txt", "c.txt"]);
    assert!(after_seconds(&mut rig, 30).is_none(), "nothing before the documents are saved");
    rig.click("Read now");
    let (request, names, _) = prefill_of(rig.command());
    assert_eq!(names, ["a.txt", "b.txt", "c.txt"]);
    end(&mut rig, request, StopReason::Length, library());
    for name in ["a.txt", "b.txt", "c.txt"] {
        assert!(rig.harness.query_all_by_label_contains(&format!("{name}, ")).any(|_| true), "{name}");
    }
    assert!(after_seconds(&mut rig, 10).is_none(), "not yet idle");
    rig.harness.key_press(Key::ArrowDown);
    assert!(after_seconds(&mut rig, 10).is_none(), "a key was pressed");
    let (request, names, prefilled) = prefill_of(after_seconds(&mut rig, 10));
    assert_eq!((names, prefilled), (vec!["b.txt".to_owned()], text("b.txt")));
    assert!(rig.shows("reading b.txt by itself"));
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 1000, cached_tokens: 0 });
    rig.emit(EngineEvent::Prefill { request, done: 410, total: 1000, tokens_per_s: 900.0 });
    assert!(rig.shows("reading b.txt by itself, 41 %"));
    let mut listed = library();
    listed.push(entry("b.txt", &[]));
    end(&mut rig, request, StopReason::Length, listed.clone());

    let (request, names, _) = prefill_of(after_seconds(&mut rig, 20));
    assert_eq!(names, ["c.txt"]);
    rig.harness.get_by_label("Question").focus();
    rig.harness.run();
    rig.harness.get_by_label("Question").type_text("What rose?");
    rig.harness.run();
    rig.harness.key_press(Key::Enter);
    assert!(rig.command().is_none(), "not before it has stopped");
    end(&mut rig, request, StopReason::Cancelled, listed);
    let Some(EngineCommand::Generate { documents, messages, .. }) = rig.command() else { panic!("the question was lost") };
    assert_eq!(documents.len(), 3);
    assert!(messages[0].content.ends_with("\n\nWhat rose?"));
}

#[test]
fn document_is_prefilled_alone_once_whatever_comes_of_it() {
    let mut rig = with_documents(&["a.txt", "b.txt"]);
    rig.emit(EngineEvent::Library(library()));
    let (request, names, _) = prefill_of(after_seconds(&mut rig, 20));
    assert_eq!(names, ["b.txt"]);
    rig.emit(EngineEvent::Failed { request, sentence: "The disk is full.".into(), bad_input: false });
    assert!(rig.shows("The disk is full."));
    assert!(after_seconds(&mut rig, 40).is_none());
    rig.click("More about b.txt");
    rig.click("Read it by itself");
    assert_eq!(prefill_of(rig.command()).1, ["b.txt"], "a click tries again");
}

#[test]
fn nothing_is_prefilled_alone_if_nothing_is_saved() {
    let mut rig = with_documents(&["a.txt", "b.txt"]);
    rig.emit(EngineEvent::Library(library()));
    rig.harness.state_mut().state.settings.values.keep_read = false;
    assert!(after_seconds(&mut rig, 40).is_none());
}

#[test]
fn saved_document_goes_first_while_the_order_is_free() {
    let mut rig = with_documents(&[]);
    rig.emit(EngineEvent::Library(vec![entry("b.txt", &[])]));
    rig.drop_text("a.txt", &text("a.txt"));
    rig.drop_text("b.txt", &text("b.txt"));
    let resumes = "Read before to";
    assert!(rig.harness.query_all_by_label_contains(resumes).any(|_| true), "the saved part of the documents is named");
    rig.click("Resume");
    let (request, names, all) = prefill_of(rig.command());
    assert_eq!(names, ["b.txt", "a.txt"]);
    assert!(all.starts_with("b.txt:"));
    end(&mut rig, request, StopReason::Length, vec![entry("b.txt", &[]), entry("a.txt", &["b.txt"]), entry("c.txt", &[])]);
    // The prefilled order stays.
    rig.drop_text("c.txt", &text("c.txt"));
    rig.click("Resume");
    assert_eq!(prefill_of(rig.command()).1, ["b.txt", "a.txt", "c.txt"]);
}

#[test]
fn library_lists_each_document_once_with_what_is_saved_of_it() {
    let mut rig = with_documents(&[]);
    let mut all = library();
    all.push(entry("b.txt", &[]));
    all.push(entry("b.txt", &["c.txt"]));
    rig.emit(EngineEvent::Library(all));
    for (row, n) in
        [("a.txt, read · ", 1), ("b.txt, read · ", 1), ("c.txt, read after a.txt, b.txt · ", 1), ("b.txt, read after", 0)]
    {
        assert_eq!(rig.harness.query_all_by_label_contains(row).count(), n, "{row}");
    }
    rig.harness.get_by_label_contains("b.txt, read · ").hover();
    for _ in 0..30 {
        rig.harness.step();
    }
    assert!(rig.shows("read after a.txt") && rig.shows("read after c.txt"));
}

#[test]
fn document_goes_with_all_that_was_saved_after_it() {
    let mut rig = with_documents(&[]);
    let mut all = library();
    all.push(entry("a.txt", &["c.txt"]));
    all.push(entry("b.txt", &[]));
    rig.emit(EngineEvent::Library(all));
    rig.click("More about a.txt");
    rig.click("Remove from the library");
    rig.click("Do not undo");
    let mut removed = Vec::new();
    while let Ok(command) = rig.port.commands.try_recv() {
        if let EngineCommand::Library(LibraryAction::Remove { id, .. }) = command {
            removed.push(id);
        }
    }
    // The engine removes b and c after a with a.
    assert_eq!(removed, [entry("a.txt", &[]).id, entry("a.txt", &["c.txt"]).id]);
}

#[test]
fn reused_document_is_labelled_approximate_everywhere() {
    let mut rig = with_documents(&["a.txt", "b.txt"]);
    let approximate = |rig: &Rig| rig.harness.query_all_by_label_contains("approximate").count();
    rig.click("Read now");
    let (request, ..) = prefill_of(rig.command());
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 1000, cached_tokens: 400 });
    assert_eq!(approximate(&rig), 0);
    let content_hash = *blake3::hash(text("b.txt").as_bytes()).as_bytes();
    let documents = vec![ReusedDocument { content_hash, tokens: 384 }];
    rig.emit(EngineEvent::Approximate { request, documents: documents.clone() });
    let reused = || RequestSummary { approximate_tokens: 384, ..summary(1000, 0, StopReason::Length) };
    rig.emit(EngineEvent::Finished { request, summary: Box::new(reused()) });
    let chip = |rig: &Rig, name: &str, note: &str| {
        let begin = format!("{name}, ");
        rig.harness
            .query_all_by_label_contains(&begin)
            .any(|chip| chip.accesskit_node().label().is_some_and(|label| label.ends_with(note)))
    };
    assert!(chip(&rig, "b.txt", "read · approximate") && chip(&rig, "a.txt", "read"));
    assert!(rig.shows("Answers are approximate"), "the card");
    assert!(rig.shows("exact dense, approximate"), "the status line");
    let request = rig.ask("What rose?");
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 1020, cached_tokens: 1000 });
    rig.emit(EngineEvent::Approximate { request, documents });
    rig.emit(EngineEvent::Token { request, text: "The rents.".into(), n: 3, tokens_per_s: 9.0, context_used: 1023 });
    rig.emit(EngineEvent::Finished { request, summary: Box::new(reused()) });
    assert!(rig.shows("approximate, 384 tokens reused at another position"), "the summary");
    assert!(rig.shows("exact dense, approximate") && chip(&rig, "b.txt", "read · approximate"));
    // Another chat has another context.
    rig.click("New chat");
    rig.drop_text("c.txt", &text("c.txt"));
    rig.click("Read now");
    let (request, ..) = prefill_of(rig.command());
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 500, cached_tokens: 0 });
    assert_eq!(approximate(&rig), 0);
}
