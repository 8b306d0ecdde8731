//! Document view: documents of every format, citations that open their page, and pages of a long document.

use std::path::Path;

use egui_kittest::kittest::Queryable;
use strata::document::{Document, Progress, Reader};
use strata::engine::{EngineCommand, EngineEvent, ModelInfo};

use crate::mock_engine::{Rig, model_info};

/// Pages with a form feed between them.
const PAGED: &str = "The keeper lit the lamp.\u{0C}The harbour was built in stone, in 1704.\u{0C}Nothing else is known of it.";

fn with_document(text: &str) -> Rig {
    let mut rig = Rig::ready();
    rig.drop_text("harbour.txt", text);
    rig
}

fn answered(rig: &mut Rig, answer: &str) {
    let request = rig.ask("What is said?");
    rig.answer(request, answer);
}

fn search(rig: &mut Rig, words: &str) {
    rig.harness.get_by_label("Search this document").focus();
    rig.harness.run();
    rig.harness.get_by_label("Search this document").type_text(words);
    rig.harness.run();
}

#[test]
fn quotation_opens_its_page_and_one_that_is_not_there_is_said() {
    let mut rig = with_document(PAGED);
    answered(&mut rig, "It says \u{201C}harbour was built in stone\u{201D}, and \u{201C}the harbour was built in 1705\u{201D}.");
    assert!(rig.shows("Not found in the document: \u{201C}the harbour was built in 1705\u{201D}"));
    rig.click("\u{201C}harbour was built in stone\u{201D}, page 2 of harbour.txt");
    let viewer = rig.harness.state().state.documents.viewer.clone().unwrap();
    assert_eq!((viewer.page, viewer.marked), (1, Some(29..55)));
    assert!(rig.shows("The harbour was built in stone, in 1704."), "its page is shown");
    assert!(!rig.shows("Nothing else is known"), "and no other");
    rig.harness.snapshot("quotation_dark");
    rig.click("Next page");
    assert!(rig.shows("Nothing else is known"));
    rig.click("Close the document");
    assert!(!rig.shows("Nothing else is known"));
}

#[test]
fn quotation_names_its_document_if_the_chat_has_several() {
    let mut rig = with_document(PAGED);
    let name = "the history of the harbour and its lamps, volume 7.txt";
    rig.drop_text(name, "The second lamp was lit by the keeper's son.");
    answered(&mut rig, "It says \u{201C}harbour was built in stone\u{201D}, and \u{201C}second lamp was lit\u{201D}.");
    for label in
        ["harbour was built in stone\u{201D}, page 2 of harbour.txt", &format!("second lamp was lit\u{201D}, page 1 of {name}")]
    {
        assert!(rig.shows(label), "{label}");
    }
    rig.harness.remove_cursor();
    rig.harness.run();
    rig.harness.snapshot("quotations_of_two_dark");
}

#[test]
fn reasoning_is_folded_away_and_quotes_nothing() {
    let mut rig = with_document(PAGED);
    let reasoning = "Perhaps \u{201C}the harbour was built in 1705\u{201D}.";
    answered(&mut rig, &format!("<think>{reasoning}</think>\n\nIt says \u{201C}harbour was built in stone\u{201D}."));
    assert!(rig.shows("harbour was built in stone\u{201D}, page 2 of harbour.txt"));
    assert!(!rig.shows("Not found in the document") && !rig.shows("Perhaps"), "its guesses are no quotations");
    rig.click("Reasoning");
    rig.harness.run();
    assert!(rig.shows("Perhaps"));
    rig.harness.get_by_label("Copy answer").click();
    assert_eq!(rig.copied().as_deref(), Some("It says \u{201C}harbour was built in stone\u{201D}."));
}

#[test]
fn documents_of_the_same_name_are_told_apart() {
    let mut rig = Rig::ready();
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<_> = ["old", "new"].map(|folder| dir.path().join(folder).join("notes.txt")).into();
    for (path, text) in paths.iter().zip(["The harbour was built in stone.", "The second lamp was lit by the keeper."]) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    for path in paths {
        rig.drop_files(&[path]);
        while rig.command().is_some() {}
    }
    answered(&mut rig, "It says \u{201C}harbour was built in stone\u{201D}, and \u{201C}second lamp was lit\u{201D}.");
    for label in ["Remove old/notes.txt", "Remove new/notes.txt", "page 1 of old/notes.txt", "page 1 of new/notes.txt"] {
        assert!(rig.shows(label), "{label}");
    }
}

#[test]
fn document_of_one_chat_is_not_shown_beside_another() {
    let mut rig = with_document(PAGED);
    answered(&mut rig, "It says \u{201C}harbour was built in stone\u{201D}.");
    rig.click("\u{201C}harbour was built in stone\u{201D}, page 2 of harbour.txt");
    assert!(rig.shows("Close the document"));
    rig.click("New chat");
    assert!(!rig.shows("Close the document"), "nothing of it is asked there");
}

#[test]
fn pages_are_turned_and_searched() {
    let mut rig = with_document(PAGED);
    rig.click("harbour.txt, 31 tokens · not read");
    assert!(rig.shows("The keeper lit the lamp."));
    search(&mut rig, "STONE");
    rig.click("Next match");
    assert!(rig.shows("The harbour was built in stone") && rig.shows("1 of 1"));
    search(&mut rig, " age");
    rig.click("Next match");
    assert!(rig.shows("not found"));
}

/// Drops ten pages, of which two fit into the window of `context_limit` tokens, and adds these; returns one page.
fn take_two_of_ten_pages(rig: &mut Rig, context_limit: usize) -> String {
    let info = ModelInfo { context_limit, ..model_info() };
    rig.emit(EngineEvent::ModelLoaded(Box::new(info)));
    let page = "A page of words that are read one after the other. ".repeat(58);
    rig.drop_text("long.txt", &[page.as_str(); 10].join("\u{0C}"));
    assert!(rig.shows("too many"));
    assert!(rig.shows("The first 2 pages of long.txt fit."));
    rig.click("Read only these pages");
    while rig.command().is_some() {}
    assert!(rig.shows("long.txt (pages 1\u{2013}2)") && !rig.shows("Does not fit"));
    page
}

#[test]
fn document_too_long_for_the_window_offers_the_pages_that_fit() {
    let mut rig = Rig::ready();
    let page = take_two_of_ten_pages(&mut rig, 3000);
    rig.click("Read now");
    let Some(EngineCommand::Prefill { text, .. }) = rig.command() else { panic!("not read") };
    assert_eq!(text.split('\n').map(str::trim).collect::<Vec<_>>(), [page.trim(), page.trim(), ""]);
}

#[test]
fn document_too_long_for_a_conversation_offers_the_pages_that_fit() {
    let mut rig = with_document(PAGED);
    answered(&mut rig, "It was built in 1704.");
    assert!(!rig.shows("Does not fit"));
    take_two_of_ten_pages(&mut rig, 3200);
    assert!(rig.shows("It was built in 1704."), "what was said stays");
}

#[test]
fn dropped_folder_gives_its_documents_and_a_notice_if_there_are_none() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.txt", "b.md"] {
        std::fs::write(folder.path().join(name), format!("Words of {name}.")).unwrap();
    }
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let mut rig = Rig::ready();
    rig.drop_files(&[folder.path().to_owned()]);
    rig.wait_for(|rig| rig.harness.state().state.documents.list.len() == 2);
    assert!(rig.shows("2 documents"));
    rig.drop_files(&[folder.path().join("empty")]);
    assert!(rig.shows("There are no documents in"));
}

#[test]
fn long_text_that_is_pasted_becomes_a_document_and_a_short_one_does_not() {
    let mut rig = Rig::ready();
    rig.harness.get_by_label("Question").focus();
    rig.harness.run();
    for (text, n_documents) in
        [("Short.".to_owned(), 0), ("Many words of a letter. ".repeat(200), 1), ("More of it. ".repeat(400), 2)]
    {
        rig.harness.event(egui::Event::Paste(text));
        rig.harness.run();
        assert_eq!(rig.harness.state().state.documents.list.len(), n_documents);
    }
    assert!(rig.shows("Pasted text 1") && rig.shows("Pasted text 2"));
    assert_eq!(rig.harness.state().state.chat().draft, "Short.");
}

#[test]
fn what_a_reader_should_know_stands_on_the_card() {
    let mut rig = Rig::ready();
    let old = b"Der K\xF6nig gr\xFC\xDFte die G\xE4ste, und sp\xE4ter fuhr er \xFCber die Br\xFCcke.";
    let document = Document::from_bytes("old.txt", old).unwrap();
    rig.harness.state_mut().state.add_document(document, false);
    rig.harness.run();
    assert!(rig.shows("windows-1252") && rig.shows("Pages"));
}

#[test]
fn word_document_is_read_by_another_process_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    std::fs::write(&path, "<html><body><h1>Rents</h1><p>In 1662 the rents rose.</p></body></html>").unwrap();
    let reader = Reader::with_sandbox(env!("CARGO_BIN_EXE_strata"));
    let document = reader.open(Path::new(&path), &Progress::default()).unwrap();
    let mut rig = Rig::ready();
    rig.harness.state_mut().state.add_document(document, false);
    rig.harness.run();
    answered(&mut rig, "In 1662 the rents rose.");
    assert!(rig.shows("page 1 of page.html"), "the built-in model's whole answer is a quotation");
}
