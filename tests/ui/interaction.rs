//! Interaction with the window by accessible label, as a screen reader has it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use egui::{Event, ImeEvent, Key, Modifiers};
use egui_kittest::kittest::{NodeT, Queryable};
use strata::app::state::MainView;
use strata::app::state::chat::{Exchange, Outcome};
use strata::app::ui::shortcuts::PLACES;
use strata::engine::{EngineCommand, EngineEvent, Message, ModelSource, Role, StopReason};

use crate::mock_engine::{Rig, Setup, summary};

struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Files {
        Files { dir: tempfile::tempdir().unwrap() }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn with_document(text: &str) -> Rig {
    let mut rig = Rig::ready();
    rig.drop_text("notes.txt", text);
    rig
}

fn user(content: &str) -> Message {
    Message { role: Role::User, content: content.into() }
}

#[test]
fn enter_sends_the_question_with_the_document_in_front() {
    let mut rig = with_document("The bell weighs 412 kg.");
    rig.harness.get_by_label("Question").type_text("What weighs 412 kg?");
    rig.harness.run();
    rig.harness.key_press(Key::Enter);
    match rig.command() {
        Some(EngineCommand::Generate { messages, .. }) => {
            assert_eq!(messages, vec![user("The bell weighs 412 kg.\n\nWhat weighs 412 kg?")]);
        }
        other => panic!("{other:?}"),
    }
    assert!(rig.shows("What weighs 412 kg?"), "the question is in the chat");
    assert_eq!(rig.harness.get_by_label("Question").value().unwrap_or_default(), "");
}

#[test]
fn second_question_repeats_the_first_turn_and_not_the_document() {
    let mut rig = with_document("Facts.");
    let request = rig.ask("One?");
    rig.answer(request, "First.");
    rig.harness.get_by_label("Question").type_text("Two?");
    rig.harness.run();
    rig.harness.key_press(Key::Enter);
    let Some(EngineCommand::Generate { messages, .. }) = rig.command() else { panic!("not asked") };
    let answer = Message { role: Role::Assistant, content: "First.".into() };
    assert_eq!(messages, vec![user("Facts.\n\nOne?"), answer, user("Two?")]);
}

#[test]
fn shift_enter_breaks_the_line_and_does_not_send() {
    let mut rig = Rig::ready();
    rig.harness.get_by_label("Question").type_text("one");
    rig.harness.run();
    rig.harness.key_press_modifiers(Modifiers::SHIFT, Key::Enter);
    rig.harness.run();
    rig.harness.get_by_label("Question").type_text("two");
    assert!(rig.command().is_none());
    assert_eq!(rig.harness.get_by_label("Question").value().as_deref(), Some("one\ntwo"));
}

#[test]
fn enter_during_input_method_composition_does_not_send() {
    let mut rig = Rig::ready();
    rig.harness.get_by_label("Question").type_text("abc ");
    rig.harness.run();
    rig.harness.event(Event::Ime(ImeEvent::Preedit { text: "ni".into(), active_range_chars: None }));
    rig.harness.run();
    rig.harness.key_press(Key::Enter);
    assert!(rig.command().is_none(), "the Enter belongs to the input method");
    rig.harness.event(Event::Ime(ImeEvent::Commit("ni".into())));
    rig.harness.run();
    rig.harness.key_press(Key::Enter);
    let Some(EngineCommand::Generate { messages, .. }) = rig.command() else { panic!("not asked after the composition") };
    assert_eq!(messages, vec![user("abc ni")]);
}

#[test]
fn escape_stops_the_turn_and_keeps_the_focus() {
    let mut rig = Rig::ready();
    let request = rig.ask("Tell me.");
    let watch = rig.port.cancel_flag();
    rig.emit(EngineEvent::Token { request, text: "Once".into(), n: 1, tokens_per_s: 5.0, context_used: 9 });
    rig.harness.key_press(Key::Escape);
    rig.harness.run();
    assert!(watch.stopped());
    assert!(rig.harness.get_by_label("Question").is_focused());
    rig.emit(EngineEvent::Finished { request, summary: Box::new(summary(9, 1, StopReason::Cancelled)) });
    assert!(rig.shows("stopped"), "the answer says that it was stopped");
    assert!(rig.shows("Once"), "what was written stays");
}

#[test]
fn stop_button_is_there_while_a_turn_runs_and_stops_it() {
    let mut rig = Rig::ready();
    assert!(rig.harness.query_by_label("Stop").is_none());
    rig.ask("Tell me.");
    let watch = rig.port.cancel_flag();
    rig.click("Stop");
    assert!(watch.stopped());
}

#[test]
fn regenerate_asks_the_same_again_and_replaces_the_answer() {
    let mut rig = Rig::ready();
    let request = rig.ask("Tell me.");
    rig.answer(request, "First answer.");
    rig.click("Regenerate");
    let Some(EngineCommand::Generate { request: again, messages, .. }) = rig.command() else { panic!("not asked") };
    assert_ne!(again, request);
    assert_eq!(messages, vec![user("Tell me.")]);
    rig.answer(again, "Second answer.");
    assert!(rig.shows("Second answer.") && !rig.shows("First answer."));
}

#[test]
fn copy_puts_the_answer_as_markdown_on_the_clipboard() {
    let mut rig = Rig::ready();
    let request = rig.ask("Tell me.");
    rig.answer(request, "It is **bold**.");
    rig.harness.get_by_label("Copy answer").click();
    assert_eq!(rig.copied().as_deref(), Some("It is **bold**."));
    rig.click("More about this answer");
    rig.harness.get_by_label("Copy with question, as Markdown").click();
    let both = "## Question\n\nTell me.\n\n## Answer\n\nIt is **bold**.\n";
    assert_eq!(rig.copied().as_deref(), Some(both));
    rig.click("More about the chat Tell me.");
    rig.harness.get_by_label("Copy as Markdown").click();
    assert_eq!(rig.copied(), Some(format!("# Tell me.\n\n{both}")), "as an export has it");
}

#[test]
fn json_is_a_trace_only_where_it_is_one() {
    let mut rig = Rig::ready();
    let files = Files::new();
    rig.drop_files(&[files.write("rents.json", b"{\"rents\": [1662, 1663]}")]);
    assert_eq!(rig.harness.state().state.documents.list[0].name, "rents.json");
    assert!(!rig.harness.state().dashboard.open);
    rig.harness
        .input_mut()
        .dropped_files
        .push(std::sync::Arc::new(crate::mock_engine::Dropped(files.write("run.json", b"{\"traceEvents\":[]}"))));
    rig.wait_for(|rig| rig.harness.state().dashboard.open);
    assert_eq!(rig.harness.state().state.documents.list.len(), 1);
}

#[test]
fn budget_that_is_too_small_names_the_field_of_the_settings() {
    let mut rig = Rig::starting(Setup::default());
    let sentence = "the KV cache of this model needs at least 3 MiB of VRAM to work with, over the budget of 1 MiB; raise \
                    --vram-budget";
    rig.emit(EngineEvent::ModelFailed { sentence: sentence.into(), bad_input: true });
    assert!(rig.shows("raise \u{201C}VRAM budget\u{201D} in Settings") && !rig.shows("--vram-budget"));
}

#[test]
fn file_that_is_no_text_is_refused_with_a_sentence() {
    let mut rig = Rig::ready();
    let files = Files::new();
    let bad = files.write("picture.bin", &[0x89, 0x50, 0x00, 0x81]);
    rig.drop_files(&[bad]);
    assert!(rig.shows("picture.bin"), "the sentence names the file");
    assert!(rig.harness.state().state.documents.list.is_empty());
    rig.click("Dismiss");
    assert!(!rig.shows("picture.bin"));
}

#[test]
fn dragged_file_shows_where_it_will_land() {
    let mut rig = Rig::ready();
    let before = rig.harness.render().unwrap();
    let hovered = egui::HoveredFile { path: Some("a.txt".into()), mime: String::new() };
    rig.harness.input_mut().hovered_files.push(hovered);
    rig.harness.step();
    let during = rig.harness.render().unwrap();
    let changed = before.pixels().zip(during.pixels()).filter(|(a, b)| a != b).count();
    assert!(changed > 100_000, "{changed} pixels changed");
}

#[test]
fn dropped_gguf_is_opened_as_a_model() {
    let mut rig = Rig::ready();
    let files = Files::new();
    let path = files.write("mine.gguf", b"GGUF");
    let file: egui::DroppedFileHandle = std::sync::Arc::new(crate::mock_engine::Dropped(path.clone()));
    rig.harness.input_mut().dropped_files.push(file);
    rig.wait_for(|rig| rig.shows("mine.gguf"));
    match rig.command() {
        Some(EngineCommand::LoadModel { source, .. }) => assert_eq!(source, ModelSource::Path(path)),
        other => panic!("{other:?}"),
    }
    assert!(rig.shows("mine.gguf"));
}

#[test]
fn prefill_of_a_question_shows_share_and_time_left_in_the_chat() {
    let mut rig = with_document("Facts.");
    let request = rig.ask("What?");
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 1000, cached_tokens: 200 });
    rig.emit(EngineEvent::Prefill { request, done: 500, total: 1000, tokens_per_s: 100.0 });
    assert!(rig.shows("Reading 50 % · 500 of 1,000 tokens · 100 tok/s · 5 s left"));
}

#[test]
fn refused_turn_shows_both_numbers_and_can_be_asked_again() {
    let mut rig = Rig::ready();
    let request = rig.ask("Too long?");
    let sentence = "The conversation has 140,000 tokens and this model's window holds 131,072. Use a shorter document.";
    rig.emit(EngineEvent::Failed { request, sentence: sentence.into(), bad_input: true });
    assert!(rig.shows("140,000") && rig.shows("131,072"));
    rig.click("Ask again");
    assert!(matches!(rig.command(), Some(EngineCommand::Generate { .. })));
}

#[test]
fn answer_shows_its_kind_of_attention_speed_and_first_token_time() {
    let mut rig = Rig::ready();
    let request = rig.ask("Tell me.");
    rig.answer(request, "Done.");
    assert!(rig.shows("exact dense · 31.2 tok/s · 0.9 s to first token · 30 tokens"));
    assert!(rig.shows("430 of 128k tokens"), "the context meter");
}

#[test]
fn theme_button_switches_between_dark_and_light() {
    let mut rig = Rig::ready();
    let dark = |rig: &Rig| rig.harness.ctx.global_style().visuals.dark_mode;
    assert!(dark(&rig));
    rig.click("Light theme");
    assert!(!dark(&rig));
    rig.click("Dark theme");
    assert!(dark(&rig));
}

#[test]
fn tab_reaches_every_main_control() {
    let mut rig = with_document("Facts.");
    let request = rig.ask("One?");
    rig.answer(request, "First.");
    let mut seen = Vec::new();
    for _ in 0..60 {
        rig.harness.key_press(Key::Tab);
        rig.harness.run();
        if let Some(id) = rig.harness.ctx.memory(|m| m.focused()) {
            let node = rig.harness.root().children_recursive().find(|n| n.accesskit_node().locate().0 == id.accesskit_id());
            seen.extend(node.and_then(|n| n.accesskit_node().label()));
        }
    }
    let wanted = [
        "Search chats",
        "New chat",
        "Chat: One?",
        "Add a document",
        "notes.txt, not read",
        "More about notes.txt",
        "More about the chat One?",
        "Model: ",
        "Settings",
        "Light theme",
        "Shortcuts and legend",
        "Remove notes.txt",
        "Add another document",
        "Instructions and sampling",
        "Question",
        "Edit question",
        "Copy answer",
        "Regenerate",
    ];
    for wanted in wanted {
        assert!(seen.iter().any(|s| s.starts_with(wanted)), "{wanted} not in {seen:?}");
    }
}

#[test]
fn shortcuts_open_chats_settings_search_and_help() {
    let mut rig = Rig::ready();
    let request = rig.ask("One?");
    rig.answer(request, "First.");
    let press = |rig: &mut Rig, modifiers, key| {
        rig.harness.key_press_modifiers(modifiers, key);
        rig.harness.run();
    };
    press(&mut rig, Modifiers::COMMAND, Key::N);
    assert_eq!(rig.harness.state().state.chats.list.len(), 2);
    press(&mut rig, Modifiers::COMMAND, Key::Comma);
    assert_eq!(rig.harness.state().state.page, MainView::Settings);
    press(&mut rig, Modifiers::NONE, Key::F1);
    for (place, shortcuts) in PLACES {
        assert!(rig.shows(&place.to_uppercase()), "{place}");
        let keys: Vec<String> = shortcuts.iter().map(|shortcut| shortcut.names(&rig.harness.ctx)).collect();
        assert!(keys.iter().all(|keys| !keys.is_empty() && rig.shows(keys)), "{keys:?}");
    }
    press(&mut rig, Modifiers::NONE, Key::Escape);
    assert_eq!(rig.harness.state().state.page, MainView::Chat);
    press(&mut rig, Modifiers::COMMAND, Key::F);
    assert!(rig.harness.get_by_label("Search chats").is_focused());
}

#[test]
fn search_shows_only_chats_that_hold_the_words() {
    let mut rig = Rig::ready();
    let request = rig.ask("About fire?");
    rig.answer(request, "It began in Pudding Lane.");
    rig.click("New chat");
    let request = rig.ask("About rents?");
    rig.answer(request, "They rose.");
    rig.harness.get_by_label("Search chats").focus();
    rig.harness.run();
    rig.harness.get_by_label("Search chats").type_text("pudding");
    rig.wait_for(|rig| rig.shows("began in Pudding Lane"));
    assert!(rig.harness.query_by_label("Chat: About fire?").is_some());
    assert!(rig.harness.query_by_label("Chat: About rents?").is_none());
    rig.click("Chat: About fire?");
    assert!(rig.shows("Pudding Lane"));
}

#[test]
fn model_menu_offers_the_built_in_model_a_file_and_a_folder() {
    let mut rig = Rig::ready();
    rig.harness.get_by_label_contains("Model: Strata Quote, 8.9M parameters · Q8_0, 128k context").click();
    rig.harness.run();
    assert!(rig.harness.query_by_label("Open a GGUF file…").is_some());
    assert!(rig.harness.query_by_label("Open a model folder…").is_some());
    rig.click("Use the built-in model");
    assert!(matches!(rig.command(), Some(EngineCommand::LoadModel { source: ModelSource::BuiltIn, .. })));
}

#[test]
fn loading_shows_its_share_and_a_failure_shows_what_to_do() {
    let mut rig = Rig::starting(Setup::default());
    rig.emit(EngineEvent::ModelLoading { share: 0.42, what: "reading weights".into() });
    assert!(rig.shows("Loading 42 % · reading weights"));
    rig.emit(EngineEvent::ModelFailed { sentence: "The file is cut short; download it again.".into(), bad_input: true });
    assert!(rig.shows("The file is cut short; download it again."));
    rig.click("Try again");
    assert!(matches!(rig.command(), Some(EngineCommand::LoadModel { .. })));
}

#[test]
fn first_run_asks_a_question_of_the_sample_with_one_click() {
    let mut rig = Rig::ready();
    assert!(rig.shows("finds and quotes passages"), "honest about the built-in model");
    let question = include_str!("../../assets/sample-questions.txt").lines().next().unwrap();
    rig.click(question);
    let Some(EngineCommand::Generate { messages, .. }) = rig.command() else { panic!("not asked") };
    let document = include_str!("../../assets/sample-document.md");
    assert_eq!(messages.len(), 1);
    assert!(messages[0].content.starts_with(document.lines().next().unwrap()));
    assert!(messages[0].content.ends_with(&format!("\n\n{question}")));
}

#[test]
fn documents_of_the_command_line_are_opened_after_the_first_frame() {
    let files = Files::new();
    let path = files.write("given.txt", b"Given text.");
    let mut rig = Rig::starting(Setup { documents: vec![path], ..Setup::default() });
    rig.wait_for(|rig| !rig.harness.state().state.documents.list.is_empty());
    assert!(rig.shows("given.txt"));
}

#[test]
fn window_at_rest_draws_no_frames() {
    let mut rig = Rig::ready();
    rig.harness.run();
    assert_eq!(rig.harness.run(), 1, "one frame because the test asked, and no repaint after it");
}

#[test]
fn thousands_of_token_events_are_taken_in_bounded_time() {
    let mut rig = Rig::ready();
    let request = rig.ask("A long story.");
    let mut quickest = Duration::MAX;
    for frame in 0..4 {
        for i in 0..500 {
            let n = frame * 500 + i;
            let text = if n % 12 == 11 { "word.\n\n" } else { "word " };
            assert!(rig.port.emit(EngineEvent::Token { request, text: text.into(), n, tokens_per_s: 99.0, context_used: n }));
        }
        let began = Instant::now();
        rig.harness.step();
        quickest = quickest.min(began.elapsed());
    }
    assert_eq!(rig.harness.state().state.chat().exchanges[0].answer.matches("word").count(), 2000);
    // The quickest of four: other work on the machine makes a frame slower, never faster.
    assert!(quickest < Duration::from_millis(100), "{quickest:?}");
}

#[test]
fn long_chat_lays_out_only_what_is_in_view() {
    let mut rig = Rig::ready();
    let answer = "A paragraph of an answer that goes on for a while, as answers do. ".repeat(15);
    let chat = rig.harness.state_mut().state.chat_mut();
    for id in 0..100 {
        let outcome = Outcome::Done(Box::new(summary(100, 10, StopReason::Eos)));
        let exchange = Exchange { answer: answer.clone(), outcome, ..Exchange::new(1000 + id, format!("Q{id}?")) };
        chat.exchanges.push(exchange);
    }
    chat.exchanges[50].answer = format!("{answer}\n\n").repeat(100);
    rig.harness.run();
    let mut quickest = Duration::MAX;
    for _ in 0..20 {
        let began = Instant::now();
        rig.harness.step();
        quickest = quickest.min(began.elapsed());
    }
    assert!(rig.harness.state().drawn_items() < 20, "{} items", rig.harness.state().drawn_items());
    assert!(quickest < Duration::from_millis(50), "{quickest:?}");
    assert!(rig.shows("Q99?"), "the end is in view");
    assert!(!rig.shows("Q10?"));
}

#[test]
fn engine_that_goes_away_fails_the_turn_with_a_sentence() {
    let mut rig = Rig::ready();
    rig.ask("Anyone?");
    let (_handle, port) = strata::engine::EngineHandle::pair(|| {});
    drop(std::mem::replace(&mut rig.port, port));
    rig.harness.run();
    assert!(rig.shows("The engine does not answer. Close Strata and start it again."));
    assert!(rig.harness.query_by_label("Stop").is_none());
}

#[test]
fn stop_while_the_model_loads_stops_the_turn_when_it_begins() {
    let mut rig = Rig::starting(Setup::default());
    let request = rig.ask("Early?");
    assert!(rig.shows("Waiting for the model"));
    rig.harness.key_press(Key::Escape);
    rig.harness.run();
    let watch = rig.port.cancel_flag();
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 5, cached_tokens: 0 });
    assert!(watch.stopped());
}

#[test]
fn sentence_of_a_failed_load_is_whole_in_the_frame_it_appears() {
    let mut rig = Rig::starting(Setup::default());
    assert!(rig.port.emit(EngineEvent::ModelFailed { sentence: "The file is cut short.".into(), bad_input: true }));
    rig.harness.step();
    let button = rig.harness.get_by_label("Try again").rect();
    let heading = rig.harness.get_by_label("Ask a document").rect();
    assert!(button.bottom() < heading.top(), "{button:?} over {heading:?}");
}

#[test]
fn composer_grows_with_its_lines_and_stays_in_the_window() {
    let mut rig = Rig::ready();
    let one = rig.harness.get_by_label("Question").rect();
    for _ in 0..4 {
        rig.harness.key_press_modifiers(Modifiers::SHIFT, Key::Enter);
        rig.harness.step();
    }
    let five = rig.harness.get_by_label("Question").rect();
    assert!(five.height() > one.height() + 60.0, "{one:?} {five:?}");
    assert!((rig.harness.get_by_label("Send").rect().bottom() - 760.0).abs() < 40.0);
}

#[test]
fn small_window_shows_every_control() {
    let mut rig = Rig::ready_with(Setup { size: [760.0, 480.0], ..Setup::default() });
    for label in ["Question", "Send", "Settings", "Open a document…", "New chat", "Search chats"] {
        let rect = rig.harness.get_by_label(label).rect();
        assert!(rig.harness.ctx.content_rect().contains_rect(rect), "{label} at {rect:?}");
    }
    rig.harness.run();
}

#[test]
fn closing_the_window_stops_the_turn_and_shuts_the_engine_down() {
    let mut rig = Rig::ready();
    rig.ask("Long?");
    let watch = rig.port.cancel_flag();
    eframe::App::on_exit(rig.harness.state_mut());
    assert!(watch.stopped());
    assert!(matches!(rig.port.commands.try_recv(), Ok(EngineCommand::Shutdown)));
}
