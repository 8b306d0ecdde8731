//! Documents: cost and tiers before prefilling, read progress, the library, and the summary of an answer.

use egui::Key;
use egui_kittest::kittest::Queryable;
use strata::base::{MovedBytes, Tiers};
use strata::engine::{
    AttentionKind, EngineCommand, EngineEvent, IoSummary, LibraryAction, RequestSummary, SavedDocument, SavedState, StopReason,
};

use crate::mock_engine::{Rig, Setup, model_info, saved, summary};

const TEXT: &str = "The bell weighs 412 kg.";

fn with_document(text: &str) -> Rig {
    let mut rig = Rig::ready();
    rig.drop_text("notes.txt", text);
    rig
}

fn with_library(documents: Vec<SavedDocument>) -> Rig {
    let mut rig = Rig::ready();
    rig.emit(EngineEvent::Library(documents));
    rig
}

fn with_budgets(budgets: Tiers<u64>) -> Rig {
    let mut rig = Rig::starting(Setup::default());
    let mut info = model_info();
    info.kv.budgets = budgets;
    rig.emit(EngineEvent::ModelLoaded(Box::new(info)));
    rig
}

fn removed(rig: &mut Rig) -> Option<String> {
    match rig.command() {
        Some(EngineCommand::Library(LibraryAction::Remove { id, .. })) => Some(id),
        None => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn question_names_its_document_by_the_hash_of_its_text() {
    let mut rig = with_document(TEXT);
    rig.harness.get_by_label("Question").type_text("What?");
    rig.harness.run();
    rig.harness.key_press(Key::Enter);
    let Some(EngineCommand::Generate { documents, messages, .. }) = rig.command() else { panic!("not asked") };
    let [document] = documents.as_slice() else { panic!("{documents:?}") };
    assert_eq!(document.content_hash, *blake3::hash(TEXT.as_bytes()).as_bytes());
    assert_eq!(messages[0].content.get(..document.end_byte), Some(TEXT));
    assert_eq!((document.name.as_str(), document.bytes, document.pages), ("notes.txt", TEXT.len() as u64, 1));
    assert!(document.save, "kept unless told otherwise");
}

#[test]
fn question_without_a_document_names_none() {
    let mut rig = Rig::ready();
    rig.harness.get_by_label("Question").type_text("What?");
    rig.harness.run();
    rig.harness.key_press(Key::Enter);
    assert!(matches!(rig.command(), Some(EngineCommand::Generate { documents, .. }) if documents.is_empty()));
}

#[test]
fn prefill_names_each_of_two_documents() {
    let mut rig = with_document(TEXT);
    rig.drop_text("more.txt", "And it cracked.");
    rig.click("Read now");
    let Some(EngineCommand::Prefill { text, documents, .. }) = rig.command() else { panic!("not read") };
    let named: Vec<_> = documents.iter().map(|d| (d.name.as_str(), text.get(..d.end_byte).unwrap())).collect();
    assert_eq!(named, [("notes.txt", TEXT), ("more.txt", text.as_str())]);
    assert_eq!(documents[1].content_hash, *blake3::hash(b"And it cracked.").as_bytes());
}

#[test]
fn library_shows_state_size_and_tokens_of_what_was_read() {
    let text = "word ".repeat(3000);
    let documents = vec![
        saved("diary.txt", &text, SavedState::Read),
        saved("contract.pdf", &text, SavedState::Partial),
        saved("lost.txt", &text, SavedState::Missing),
    ];
    let rig = with_library(documents);
    let open = "open its file to ask about it";
    assert!(rig.shows(&format!("diary.txt, read · 14.6 MiB · 5k tokens: {open}")));
    assert!(rig.shows(&format!("contract.pdf, 41 % read · 6.01 MiB · 5k tokens: {open}")));
    assert!(rig.shows(&format!("lost.txt, missing · 5k tokens: {open}")));
}

#[test]
fn library_document_under_the_pointer_shows_model_type_and_what_it_saves() {
    let mut rig = with_library(vec![saved("diary.txt", &"word ".repeat(3000), SavedState::Read)]);
    rig.harness.get_by_label_contains("diary.txt, read").hover();
    for _ in 0..30 {
        rig.harness.step();
    }
    for told in ["Read by", "Strata Quote", "f16, 14.6 MiB", "Saves reading for", "13 s", "Last used", "Nov 2026"] {
        assert!(rig.shows(told), "{told}");
    }
}

fn choose(rig: &mut Rig, name: &str, entry: &str) {
    rig.click(&format!("More about {name}"));
    rig.click(entry);
}

#[test]
fn removal_from_the_library_can_be_undone_until_it_is_discarded() {
    let mut rig = with_library(vec![saved("diary.txt", "Up betimes.", SavedState::Read)]);
    choose(&mut rig, "diary.txt", "Remove from the library");
    assert!(rig.shows("Removed diary.txt from the library; its file stays. This frees 9.00 KiB on the disk."));
    assert!(!rig.shows("diary.txt, read"));
    assert_eq!(removed(&mut rig), None, "not before the undo is discarded");
    rig.click("Undo");
    assert!(rig.shows("diary.txt, read") && !rig.shows("Removed"));
    choose(&mut rig, "diary.txt", "Remove from the library");
    rig.click("Do not undo");
    assert_eq!(removed(&mut rig).as_deref(), Some("id of diary.txt"));
    rig.emit(EngineEvent::Library(Vec::new()));
    assert!(!rig.shows("diary.txt"));
}

#[test]
fn removal_that_was_not_undone_is_done_when_the_window_closes() {
    let mut rig = with_library(vec![saved("diary.txt", "Up betimes.", SavedState::Read)]);
    choose(&mut rig, "diary.txt", "Remove from the library");
    eframe::App::on_exit(rig.harness.state_mut());
    assert!(matches!(rig.port.commands.try_recv(), Ok(EngineCommand::Library(LibraryAction::Remove { .. }))));
}

#[test]
fn kv_is_deleted_and_the_text_stays() {
    let mut rig = with_document(TEXT);
    rig.emit(EngineEvent::Library(vec![saved("notes.txt", TEXT, SavedState::Read)]));
    choose(&mut rig, "notes.txt", "Delete KV, keep text");
    assert!(rig.shows("Deleted the KV of notes.txt; its text stays."));
    assert!(rig.shows("notes.txt, not read") && !rig.shows("notes.txt, read · "));
    rig.click("Do not undo");
    assert_eq!(removed(&mut rig).as_deref(), Some("id of notes.txt"));
    rig.emit(EngineEvent::Library(Vec::new()));
    assert!(rig.shows("notes.txt, not read"));
}

#[test]
fn menu_of_a_document_is_reached_by_tab() {
    let mut rig = with_library(vec![saved("diary.txt", "Up betimes.", SavedState::Read)]);
    let reached = (0..30).any(|_| {
        rig.harness.key_press(Key::Tab);
        rig.harness.run();
        rig.harness.query_by_label("More about diary.txt").is_some_and(|n| n.is_focused())
    });
    assert!(reached);
}

#[test]
fn chips_of_many_documents_wrap_in_a_narrow_chat() {
    let mut rig = Rig::ready_with(Setup { size: [760.0, 600.0], ..Setup::default() });
    for i in 0..4 {
        rig.drop_text(&format!("document number {i}.txt"), &format!("{i} {TEXT}"));
    }
    let window = rig.harness.ctx.content_rect();
    let tops: Vec<f32> = (0..4)
        .map(|i| {
            let rect = rig.harness.get_by_label(&format!("Remove document number {i}.txt")).rect();
            assert!(window.contains_rect(rect), "{i} at {rect:?}");
            rect.top()
        })
        .collect();
    assert!(tops[3] > tops[0], "{tops:?}");
}

#[test]
fn document_that_was_read_before_shows_how_soon_it_is_back() {
    let text = "word ".repeat(3000);
    let mut rig = with_library(vec![saved("an old name.txt", &text, SavedState::Read)]);
    rig.drop_text("notes.txt", &text);
    assert!(rig.shows("Read before: resumes in under 0.1 s."));
    assert!(rig.shows("notes.txt, 5,000 tokens · read"));
    assert!(rig.harness.query_by_label("Read now").is_none());
    rig.click("Resume");
    assert!(matches!(rig.command(), Some(EngineCommand::Prefill { .. })));
}

#[test]
fn chip_of_each_document_shows_what_is_read_of_it() {
    let mut rig = Rig::ready();
    rig.template_tokens = 30;
    let (first, second) = ("word ".repeat(600), "more ".repeat(600));
    rig.drop_text("first.txt", &first);
    rig.drop_text("second.txt", &second);
    let shows = |rig: &Rig, read: [&str; 2]| {
        let labels = [format!("first.txt, 1,000 tokens · {}", read[0]), format!("second.txt, 1,000 tokens · {}", read[1])];
        labels.iter().for_each(|label| assert!(rig.harness.query_by_label(label).is_some(), "{label}"));
    };
    shows(&rig, ["not read", "not read"]);
    rig.click("Read now");
    let Some(EngineCommand::Prefill { request, text, .. }) = rig.command() else { panic!("not read") };
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 2022, cached_tokens: 0 });
    rig.emit(EngineEvent::Prefill { request, done: 530, total: 2022, tokens_per_s: 900.0 });
    shows(&rig, ["50 % read", "not read"]);
    rig.emit(EngineEvent::Prefill { request, done: 1530, total: 2022, tokens_per_s: 900.0 });
    shows(&rig, ["read", "50 % read"]);
    rig.emit(EngineEvent::Finished { request, summary: Box::new(summary(2022, 0, StopReason::Eos)) });
    shows(&rig, ["read", "read"]);
    let request = rig.ask("What?");
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 2070, cached_tokens: 2022 });
    shows(&rig, ["read", "read"]);
    rig.emit(EngineEvent::Finished { request, summary: Box::new(summary(2100, 30, StopReason::Eos)) });
    shows(&rig, ["read", "read"]);
    // Another chat takes the context; of the saved document, 1,200 tokens are left.
    let saved = SavedDocument { saved_tokens: 1230, ..saved("first.txt and 1 more", &text, SavedState::Partial) };
    rig.emit(EngineEvent::Library(vec![saved]));
    rig.emit(EngineEvent::ModelLoaded(Box::new(model_info())));
    while rig.command().is_some() {}
    shows(&rig, ["read", "20 % read"]);
}

#[test]
fn document_read_in_part_shows_what_is_left_to_read() {
    let text = "word ".repeat(3000);
    let mut rig = with_library(vec![saved("notes.txt", &text, SavedState::Partial)]);
    rig.drop_text("notes.txt", &text);
    assert!(rig.shows("Read before to 41 %: resumes in under 0.1 s, the rest takes ~7.4 s."));
}

#[test]
fn document_read_by_another_model_is_read_again() {
    let other = SavedDocument { model: "Another".into(), ..saved("notes.txt", TEXT, SavedState::Read) };
    let mut rig = with_library(vec![other]);
    rig.drop_text("notes.txt", TEXT);
    assert!(rig.harness.query_by_label("Read now").is_some());
}

#[test]
fn saved_document_of_this_session_is_one_entry_that_a_click_attaches() {
    let mut rig = with_library(vec![saved("notes.txt", TEXT, SavedState::Read)]);
    rig.drop_text("notes.txt", TEXT);
    assert_eq!(rig.harness.query_all_by_label_contains("notes.txt, read · ").count(), 1);
    assert!(!rig.shows("Add notes.txt to this chat") && !rig.shows("notes.txt, in this chat"));
    let request = rig.ask("One?");
    rig.answer(request, "First.");
    rig.click("New chat");
    rig.harness.get_by_label_contains("notes.txt, read · ").click();
    rig.harness.run();
    assert_eq!(rig.harness.state().state.chat().documents.len(), 1);
}

#[test]
fn card_shows_which_tiers_the_kv_needs() {
    let mib = 1u64 << 20;
    let text = "word ".repeat(1200); // 2,000 tokens, 5.86 MiB
    for (budgets, said) in [
        (Tiers { vram: 8 * mib, ram: 0, disk: 0 }, "Fits VRAM · "),
        (Tiers { vram: 4 * mib, ram: 8 * mib, disk: 0 }, "Fits VRAM 4.00 MiB + RAM 1.86 MiB · "),
        (Tiers { vram: mib, ram: mib, disk: 8 * mib }, "Fits VRAM 1.00 MiB + RAM 1.00 MiB + disk 3.86 MiB · "),
        (Tiers { vram: mib, ram: mib, disk: 0 }, "Does not fit: its KV cache needs 5.86 MiB, and the budgets hold 2.00 MiB"),
    ] {
        let mut rig = with_budgets(budgets);
        rig.drop_text("notes.txt", &text);
        assert!(rig.shows(said), "{said}");
    }
}

#[test]
fn card_shows_whether_attention_will_be_dense_or_offloaded() {
    let mut rig = with_budgets(Tiers { vram: 1 << 20, ram: 1 << 30, disk: 0 });
    rig.drop_text("notes.txt", &"word ".repeat(1200));
    assert!(rig.shows("Attention will be exact offload"));
    assert!(rig.shows("KV cache of the document, VRAM: 1.00 of 1.00 MiB"));
    assert!(rig.shows("KV cache of the document, Disk: not used"));
    let rig = with_document(TEXT);
    assert!(rig.shows("Attention will be exact dense"));
}

#[test]
fn status_line_shows_each_tier_against_its_budget() {
    let mut rig = Rig::ready();
    assert!(rig.shows("KV cache, VRAM: N/A of 2.00 GiB"), "nothing said yet");
    let budgets = Tiers { vram: 2 << 30, ram: 8 << 30, disk: 0 };
    rig.emit(EngineEvent::KvUse { used: Tiers { vram: 3 << 29, ram: 1 << 30, disk: 0 }, budgets });
    assert!(rig.shows("KV cache, VRAM: 1.50 of 2.00 GiB"));
    assert!(rig.shows("KV cache, RAM: 1.00 of 8.00 GiB"));
    assert!(rig.shows("KV cache, Disk: not used"));
    rig.emit(EngineEvent::KvUse { used: Tiers { vram: 3 << 30, ram: 0, disk: 0 }, budgets });
    assert!(rig.shows("KV cache, VRAM: 3.00 of 2.00 GiB, over"));
}

#[test]
fn answer_over_three_tiers_shows_what_was_resumed_moved_and_overlapped() {
    let mut rig = with_library(vec![saved("notes.txt", TEXT, SavedState::Read)]);
    rig.drop_text("notes.txt", TEXT);
    let request = rig.ask("What?");
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 16_020, cached_tokens: 16_000 });
    rig.emit(EngineEvent::Token { request, text: "412 kg".into(), n: 30, tokens_per_s: 9.0, context_used: 16_050 });
    let summary = RequestSummary {
        attention: AttentionKind::ExactOffload,
        moved_bytes: MovedBytes { disk_to_ram: 1 << 30, ram_to_vram: 1 << 29, ..MovedBytes::default() },
        overlap: Some(0.917),
        io: IoSummary { backend: Some("io_uring".into()), direct: true, read_bytes: 1 << 30, read_ms: 500.0 },
        ..summary(16_050, 30, StopReason::Eos)
    };
    rig.emit(EngineEvent::Finished { request, summary: Box::new(summary) });
    assert!(rig.shows("exact offload · 31.2 tok/s · 0.9 s to first token · 30 tokens"));
    assert!(rig.shows("resumed 16,000 tokens · moved 1.50 GiB · overlap 91 %"));
    assert_eq!(rig.harness.state().state.measured.disk_speed, Some((2u64 << 30) as f64));
    let request = rig.ask("Again?");
    rig.answer(request, "Yes.");
    assert_eq!(rig.harness.query_all_by_label_contains("resumed").count(), 1, "the second question had it in memory");
}

#[test]
fn answer_that_moved_bytes_without_a_measured_overlap_shows_n_a() {
    let mut rig = Rig::ready();
    let request = rig.ask("What?");
    let moved_bytes = MovedBytes { ram_to_vram: 1 << 20, ..MovedBytes::default() };
    let summary = RequestSummary { moved_bytes, ..summary(430, 30, StopReason::Eos) };
    rig.emit(EngineEvent::Finished { request, summary: Box::new(summary) });
    assert!(rig.shows("moved 1.00 MiB · overlap N/A"));
}

#[test]
fn dropped_file_joins_the_chat_and_shows_what_it_will_cost() {
    let rig = with_document(&"word ".repeat(600));
    assert!(rig.shows("notes.txt, 1,000 tokens · not read"));
    assert!(rig.shows("3,000"), "characters");
    assert!(rig.shows("2.93 MiB"), "KV bytes of 1000 tokens at 3 KiB");
    assert!(rig.shows("Fits VRAM · under 1 % of the model's 128k window"));
    assert!(rig.harness.query_by_label("Read now").is_some());
}

#[test]
fn strip_of_the_first_answer_shows_what_turning_the_file_into_text_took() {
    let mut rig = with_document(&"word ".repeat(600));
    rig.harness.state_mut().dashboard.toggle();
    assert!(matches!(rig.command(), Some(EngineCommand::MeasureLinks)));
    for question in ["What?", "Again?"] {
        let request = rig.ask(question);
        rig.answer(request, "Yes.");
        let n_parts = rig.harness.query_all_by_label_contains("ingest: ").count();
        assert_eq!(n_parts, 1, "only the first answer waited for the file");
    }
}

#[test]
fn document_longer_than_the_window_is_said_before_reading_with_both_numbers() {
    let mut rig = Rig::starting(Setup::default());
    let mut info = model_info();
    info.context_limit = 512;
    rig.emit(EngineEvent::ModelLoaded(Box::new(info)));
    rig.drop_text("long.txt", &"x".repeat(3000));
    assert!(rig.shows("Does not fit: 1,000 tokens, and this model's window holds 512"));
    assert!(rig.harness.query_by_label("Read now").is_none(), "what does not fit is not offered");
}

#[test]
fn reading_ahead_shows_share_speed_and_time_left_and_what_is_read_stays_read() {
    let mut rig = with_document(&"word ".repeat(18_000));
    rig.click("Read now");
    let Some(EngineCommand::Prefill { request, text, .. }) = rig.command() else { panic!("not read") };
    assert_eq!(text.len(), 90_000);
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 30_000, cached_tokens: 0 });
    rig.emit(EngineEvent::Prefill { request, done: 12_300, total: 30_000, tokens_per_s: 1850.0 });
    assert!(rig.shows("Reading 41 % · 12,300 of 30,000 tokens · 1,850 tok/s · 10 s left"));
    let watch = rig.port.cancel_flag();
    rig.click("Stop reading");
    assert!(watch.stopped());
    rig.emit(EngineEvent::Finished { request, summary: Box::new(summary(12_500, 0, StopReason::Cancelled)) });
    assert!(rig.shows("41 % read"));
    assert!(rig.harness.query_by_label("Continue reading").is_some());
}
