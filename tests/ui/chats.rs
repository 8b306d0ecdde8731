//! Chats: branches, titles, search, deletion, instructions, and the window after a restart.

use egui::Key;
use egui_kittest::kittest::Queryable;
use strata::app::persist::paths::Folders;
use strata::app::state::chat::Chat;
use strata::engine::{EngineCommand, EngineEvent, Message, Role};

use crate::mock_engine::{Rig, Setup};

fn answered(rig: &mut Rig, question: &str, answer: &str) {
    let request = rig.ask(question);
    rig.answer(request, answer);
}

fn asked(rig: &mut Rig) -> (u64, Vec<String>) {
    match rig.command() {
        Some(EngineCommand::Generate { request, messages, .. }) => (request, messages.into_iter().map(|m| m.content).collect()),
        other => panic!("not asked: {other:?}"),
    }
}

fn stored_in(dir: &tempfile::TempDir) -> Setup {
    Setup { folders: Folders { data: Some(dir.path().to_owned()), ..Folders::default() }, ..Setup::default() }
}

/// A window with the chats of a folder, once it has listed them.
fn window_on(dir: &tempfile::TempDir, title: &str) -> Rig {
    let mut rig = Rig::ready_with(stored_in(dir));
    let label = format!("Chat: {title}");
    rig.wait_for(|rig| rig.harness.query_by_label(&label).is_some());
    rig
}

fn close(mut rig: Rig) {
    eframe::App::on_exit(rig.harness.state_mut());
}

#[test]
fn regenerated_answers_can_be_switched_between() {
    let mut rig = Rig::ready();
    answered(&mut rig, "Tell me.", "First answer.");
    assert!(rig.harness.query_by_label("Previous answer").is_none(), "no choice yet");
    rig.click("Regenerate");
    let (request, _) = asked(&mut rig);
    rig.answer(request, "Second answer.");
    assert!(rig.shows("2 / 2") && rig.shows("Second answer."));
    rig.click("Previous answer");
    assert!(rig.shows("1 / 2") && rig.shows("First answer.") && !rig.shows("Second answer."));
    rig.click("Next answer");
    assert!(rig.shows("Second answer."));
}

#[test]
fn of_a_thousand_chats_only_those_in_view_are_drawn_and_the_last_is_reached_by_scrolling() {
    let mut rig = Rig::ready();
    let chats = (1..=1000).map(|i| Chat { id: 10_000 + i, name: format!("Number {i}"), ..Chat::default() });
    rig.harness.state_mut().state.chats.list.extend(chats);
    rig.harness.run();
    let n_drawn = |rig: &Rig| rig.harness.query_all_by_label_contains("Chat: Number").count();
    assert!((10..60).contains(&n_drawn(&rig)), "{}", n_drawn(&rig));
    assert!(rig.harness.query_by_label("Chat: Number 1").is_none(), "it stands last");
    rig.harness.event(egui::Event::PointerMoved(egui::pos2(100.0, 300.0)));
    let (unit, phase) = (egui::MouseWheelUnit::Point, egui::TouchPhase::Move);
    let (source, modifiers, delta) = (egui::MouseWheelSource::Unknown, egui::Modifiers::NONE, egui::vec2(0.0, -1e6));
    rig.harness.event(egui::Event::MouseWheel { unit, phase, source, modifiers, delta });
    rig.wait_for(|rig| rig.harness.query_by_label("Chat: Number 1").is_some());
    assert!(n_drawn(&rig) < 60);
}

#[test]
fn edited_question_begins_a_branch_and_the_old_one_is_still_there() {
    let mut rig = Rig::ready();
    answered(&mut rig, "One?", "First.");
    answered(&mut rig, "Two?", "Second.");
    rig.harness.get_all_by_label("Edit question").next().unwrap().click();
    rig.harness.run();
    rig.harness.get_by_label("Changed question").type_text(" Really");
    rig.harness.run();
    rig.click("Ask this instead");
    let (request, messages) = asked(&mut rig);
    assert_eq!(messages.len(), 1);
    assert!(messages[0].contains("One?") && messages[0].contains("Really"), "{messages:?}");
    rig.answer(request, "Another.");
    assert!(rig.shows("Another.") && !rig.shows("Second."));
    rig.click("Previous question");
    assert!(rig.shows("First.") && rig.shows("Second.") && !rig.shows("Another."));
}

#[test]
fn edit_is_called_off_by_escape() {
    let mut rig = Rig::ready();
    answered(&mut rig, "One?", "First.");
    rig.click("Edit question");
    assert!(rig.harness.query_by_label("Changed question").is_some());
    rig.harness.key_press(Key::Escape);
    rig.harness.run();
    assert!(rig.harness.query_by_label("Changed question").is_none() && rig.shows("One?"));
    assert!(rig.command().is_none());
}

#[test]
fn branch_from_an_earlier_answer_keeps_what_came_after_it() {
    let mut rig = Rig::ready();
    answered(&mut rig, "One?", "First.");
    answered(&mut rig, "Two?", "Second.");
    rig.click("Branch from here");
    assert!(rig.shows("The next question starts a new branch.") && !rig.shows("Second."));
    rig.click("Show it");
    assert!(rig.shows("Second."));
    rig.click("Branch from here");
    let request = rig.ask("Three?");
    rig.answer(request, "Third.");
    assert!(rig.shows("2 / 2"), "two questions after the first answer");
    rig.click("Previous question");
    assert!(rig.shows("Second.") && !rig.shows("Third."));
}

#[test]
fn chat_is_renamed_in_place_and_pinned_above_the_others() {
    let mut rig = Rig::ready();
    answered(&mut rig, "One?", "First.");
    rig.click("New chat");
    answered(&mut rig, "Two?", "Second.");
    let top = |rig: &Rig, label: &str| rig.harness.get_by_label(label).rect().top();
    assert!(top(&rig, "Chat: Two?") < top(&rig, "Chat: One?"));
    rig.click("More about the chat One?");
    rig.click("Pin");
    assert!(top(&rig, "Chat: One?") < top(&rig, "Chat: Two?"));
    rig.click("More about the chat One?");
    rig.click("Rename");
    rig.harness.get_by_label("Title of the chat").type_text(" and only");
    rig.harness.run();
    rig.harness.key_press(Key::Enter);
    rig.harness.run();
    assert!(rig.harness.query_by_label("Chat: One? and only").is_some());
    assert!(rig.command().is_none(), "the Enter is no question");
}

#[test]
fn deleted_chat_is_undone() {
    let mut rig = Rig::ready();
    answered(&mut rig, "One?", "First.");
    rig.click("More about the chat One?");
    rig.click("Delete");
    assert!(rig.harness.query_by_label("Chat: One?").is_none());
    assert!(rig.shows("Deleted the chat \u{201C}One?\u{201D}."));
    rig.click("Undo");
    assert!(rig.shows("First.") && rig.harness.query_by_label("Undo").is_none());
}

#[test]
fn search_shows_where_the_words_are_and_leads_to_them() {
    let mut rig = Rig::ready();
    answered(&mut rig, "About fire?", &"A long line of an answer.\n\n".repeat(60));
    answered(&mut rig, "And where?", "It began in Pudding Lane.");
    answered(&mut rig, "And then?", &"Another long line of it.\n\n".repeat(60));
    rig.click("New chat");
    rig.harness.get_by_label("Search chats").focus();
    rig.harness.run();
    rig.harness.get_by_label("Search chats").type_text("pudding");
    rig.wait_for(|rig| rig.shows("It began in Pudding Lane."));
    rig.click("Chat: About fire?");
    rig.harness.run();
    let shown = rig.harness.query_all_by_label_contains("Pudding Lane").count();
    assert_eq!(shown, 2, "in the list and in the chat");
}

#[test]
fn instructions_of_a_chat_are_said_to_the_model() {
    let mut rig = Rig::ready();
    rig.click("Instructions and sampling");
    rig.click("Short answers");
    rig.harness.key_press(Key::Escape);
    rig.harness.run();
    rig.harness.get_by_label("Question").focus();
    rig.harness.run();
    rig.harness.get_by_label("Question").type_text("What?");
    rig.harness.run();
    rig.harness.key_press(Key::Enter);
    let Some(EngineCommand::Generate { messages, .. }) = rig.command() else { panic!("not asked") };
    assert_eq!(messages.len(), 2);
    assert!(messages[0].role == Role::System && messages[0].content.contains("one to three sentences"));
    assert_eq!(messages[1], Message { role: Role::User, content: "What?".into() });
    assert!(rig.harness.query_by_label("Instructions and sampling, set").is_some());
}

#[test]
fn instructions_are_stored_as_a_preset_for_other_chats() {
    let mut rig = Rig::ready();
    rig.click("Instructions and sampling");
    for (field, text) in [("Instructions", "Answer in French."), ("Name of the preset", "French")] {
        rig.harness.get_by_label(field).focus();
        rig.harness.run();
        rig.harness.get_by_label(field).type_text(text);
        rig.harness.run();
    }
    rig.click("Save as a preset");
    rig.click("Set for this chat");
    assert!(rig.harness.query_all_by_label("Temperature").next().is_some());
    rig.harness.key_press(Key::Escape);
    rig.harness.run();
    let request = rig.ask("Quoi?");
    rig.answer(request, "Oui.");
    rig.click("New chat");
    rig.click("Instructions and sampling");
    rig.click("French");
    assert_eq!(rig.harness.state().state.chat().instructions, "Answer in French.");
    rig.click("Delete the preset French");
    assert!(rig.harness.query_by_label("French").is_none());
}

#[test]
fn chat_is_there_after_a_restart_with_its_document() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::ready_with(stored_in(&dir));
    rig.drop_text("notes.txt", "The bell weighs 412 kg.");
    answered(&mut rig, "What weighs it?", "It says \"The bell weighs 412 kg\" there.");
    close(rig);
    let mut rig = window_on(&dir, "What weighs it?");
    assert!(!rig.shows("The bell"), "a new chat is on screen");
    rig.click("Chat: What weighs it?");
    rig.wait_for(|rig| rig.shows("notes.txt, 7 tokens") || rig.shows("notes.txt, ~7 tokens"));
    rig.wait_for(|rig| rig.shows("\u{201C}The bell weighs 412 kg\u{201D}, page 1 of notes.txt"));
    assert!(rig.shows("exact dense · 31.2 tok/s"), "and what it cost");
    let request = rig.ask("Again?");
    rig.answer(request, "Yes.");
    assert_eq!(rig.harness.state().state.chat().exchanges.len(), 2);
}

#[test]
fn answer_that_was_cut_off_by_a_kill_has_what_was_shown() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::ready_with(stored_in(&dir));
    let request = rig.ask("Where?");
    rig.emit(EngineEvent::Token { request, text: "It began in Pud".into(), n: 4, tokens_per_s: 9.0, context_used: 9 });
    // The file as a killed window leaves it, while this one still has it open; a slow disk may take longer than a frame.
    let is_whole = |copy: &tempfile::TempDir| {
        let store = strata::chats::ChatStore::open(&copy.path().join("chats")).ok()?;
        let chat = store.list().ok()?.first()?.id;
        store.messages(chat).ok()?.iter().any(|m| m.text == "It began in Pud").then_some(())
    };
    let copy = (0..50).find_map(|_| {
        let copy = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("chats"), copy.path().join("chats"));
        std::fs::create_dir(&to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        is_whole(&copy).map(|()| copy)
    });
    let copy = copy.unwrap();
    let mut after = window_on(&copy, "Where?");
    after.click("Chat: Where?");
    after.wait_for(|rig| rig.shows("It began in Pud"));
    assert!(after.shows("interrupted when Strata ended"));
    after.click("Regenerate");
    assert_eq!(asked(&mut after).1, ["Where?"]);
}

#[test]
fn damaged_chats_are_said_in_a_sentence_and_the_window_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let chats = dir.path().join("chats");
    std::fs::create_dir(&chats).unwrap();
    std::fs::write(chats.join("chats.sqlite"), "This is a letter, not a database. ".repeat(100)).unwrap();
    let mut rig = Rig::ready_with(stored_in(&dir));
    rig.wait_for(|rig| rig.shows("Chats of this window are not saved"));
    assert!(rig.shows("is corrupt and was left unchanged"));
    answered(&mut rig, "One?", "First.");
    assert!(rig.shows("First."));
}

#[test]
fn lost_document_is_named_and_nothing_is_asked_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::ready_with(stored_in(&dir));
    rig.drop_text("notes.txt", "The bell weighs 412 kg.");
    answered(&mut rig, "What weighs it?", "The bell.");
    rig.click("New chat");
    rig.click("More about notes.txt");
    rig.click("Remove from the library");
    close(rig);
    let mut rig = window_on(&dir, "What weighs it?");
    rig.click("Chat: What weighs it?");
    rig.wait_for(|rig| rig.shows("notes.txt, not here: open its file"));
    rig.harness.get_by_label("Question").type_text("Again?");
    rig.harness.run();
    rig.harness.key_press(Key::Enter);
    assert!(rig.command().is_none());
    rig.drop_text("notes.txt", "The bell weighs 412 kg.");
    assert!(!rig.shows("not here"));
    rig.click("Send");
    assert_eq!(asked(&mut rig).1[0], "The bell weighs 412 kg.\n\nWhat weighs it?");
}

#[test]
fn answer_in_the_words_of_the_document_is_a_link_to_its_page() {
    let mut rig = Rig::ready();
    rig.drop_text("notes.txt", "Long ago.\u{0C}The bell weighs 412 kg.");
    answered(&mut rig, "What?", "The bell weighs 412 kg.");
    rig.harness.get_by_label("The bell weighs 412 kg.").click();
    rig.harness.run();
    assert_eq!(rig.harness.state().state.documents.viewer.as_ref().map(|v| (v.page, v.marked.clone())), Some((1, Some(10..33))));
}

#[test]
fn answer_that_changes_the_document_text_is_a_link_only_as_far_as_it_is_there() {
    let mut rig = Rig::ready();
    rig.drop_text("notes.txt", "The bell of the tower weighs 412 kg.");
    answered(&mut rig, "What?", "The bell of the tower weighs 421 kg.");
    assert!(rig.shows("Not found in the document: \u{201C}421 kg\u{201D}"));
    rig.harness.get_by_label("The bell of the tower weighs").click();
    rig.harness.run();
    assert_eq!(rig.harness.state().state.documents.viewer.as_ref().and_then(|v| v.marked.clone()), Some(0..28));
}

#[test]
fn list_of_mentions_shows_those_that_it_leaves_out() {
    let mut rig = Rig::ready();
    rig.drop_text("notes.txt", "The bell weighs 412 kg.\u{0C}Who rang the bell twice? The bell was sold.");
    answered(&mut rig, "List all mentions of bell.", "- bell weighs 412 kg.\n- bell: no more mentions.");
    assert!(rig.shows("The list leaves out 2 mentions:") && rig.shows("\u{201C}The bell was sold.\u{201D}, page 2 of notes.txt"));
    rig.harness.get_by_label("\u{201C}Who rang the bell twice?\u{201D}, page 2 of notes.txt").click();
    rig.harness.run();
    assert_eq!(rig.harness.state().state.documents.viewer.as_ref().map(|v| (v.page, v.marked.clone())), Some((1, Some(24..48))));
    answered(&mut rig, "Again.", "- bell weighs 412 kg.\n- bell twice?\n- bell was sold.\n- bell: no more mentions.");
    assert_eq!(rig.harness.query_all_by_label("The list leaves out 2 mentions:").count(), 1, "the second list has all");
    assert!(!rig.shows("The list leaves out one mention:"));
}

#[test]
fn quotation_within_the_answer_opens_its_page() {
    let mut rig = Rig::ready();
    rig.drop_text("notes.txt", "The bell weighs 412 kg.");
    answered(&mut rig, "What?", "It says “The bell weighs 412 kg” on page one.");
    rig.harness.get_by_label("“The bell weighs 412 kg”").click();
    rig.harness.run();
    assert!(rig.harness.state().state.documents.viewer.is_some());
}
