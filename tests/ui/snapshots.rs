//! Snapshots of the window, compared with those in `tests/snapshots` (`UPDATE_SNAPSHOTS=1` rewrites them), and every page in
//! both themes: the harness fails on a character without a glyph and on a control without a name.
//!
//! With `STRATA_SHOTS=DIR`, the pages are also written there at 1280x800, at 1x and 2x.

use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable;
use strata::app::state::settings::ThemeChoice;
use strata::base::{MovedBytes, Tiers};
use strata::engine::{AttentionKind, EngineCommand, EngineEvent, RequestSummary, SavedDocument, SavedState, StopReason};

use crate::mock_engine::{Rig, Setup, kv_setup, model_info, saved, summary};

const ANSWER: &str = "The diary puts the start of the fire in **Pudding Lane**, in the house of the King's baker:\n\n> “it begun this \
morning in the King's baker's house in Pudding Lane”\n\nThree things follow from the passage:\n\n1. It began before dawn.\n2. It had \
*already* burned St Magnus' Church.\n3. The wind was from the east.\n\n```text\n2 September 1666\n```\n";

fn with_diary(setup: Setup) -> Rig {
    with_diary_and(setup, library())
}

fn with_diary_and(setup: Setup, library: Vec<SavedDocument>) -> Rig {
    let mut rig = Rig::ready_with(setup);
    rig.emit(EngineEvent::Library(library));
    rig.emit(kv_use(49_545_216, 0, 6_200_000_000));
    rig.drop_text("pepys-diary.txt", &diary());
    rig
}

fn diary() -> String {
    "Up betimes. ".repeat(4000)
}

fn kv_use(vram: u64, ram: u64, disk: u64) -> EngineEvent {
    EngineEvent::KvUse { used: Tiers { vram, ram, disk }, budgets: kv_setup().budgets }
}

/// Saved documents of a reader of old books.
fn library() -> Vec<SavedDocument> {
    let document = |name, state, tokens, saved_tokens, kv_bytes| SavedDocument {
        tokens,
        saved_tokens,
        kv_bytes,
        prefill_seconds: 640.0,
        pages: 1640,
        bytes: 4_900_000,
        ..saved(name, name, state)
    };
    vec![
        document("evelyn-diary.txt", SavedState::Read, 1_220_000, 1_220_000, 3_747_840_000),
        document("the-plague-year.txt", SavedState::Partial, 140_000, 57_400, 176_332_800),
        document("rents-of-the-city-1662.md", SavedState::Missing, 31_000, 31_000, 0),
    ]
}

/// A book whose KV needs all three tiers.
fn three_tiers(setup: Setup) -> Rig {
    let mut rig = Rig::starting(setup);
    let mut info = model_info();
    info.context_limit = 1 << 20;
    info.kv_bytes_per_token = 131_072;
    info.kv.budgets = Tiers { vram: 2 << 30, ram: 4 << 30, disk: 40 << 30 };
    rig.emit(EngineEvent::ModelLoaded(Box::new(info)));
    rig.emit(EngineEvent::Library(library()));
    rig.drop_text("pepys-diary.txt", &diary().repeat(4));
    rig
}

fn offload(setup: Setup) -> Rig {
    let mut rig = with_diary_and(setup, vec![saved("pepys-diary.txt", &diary(), SavedState::Read)]);
    let request = rig.ask("What burned first?");
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 16_020, cached_tokens: 16_000 });
    rig.emit(EngineEvent::Token { request, text: ANSWER.into(), n: 96, tokens_per_s: 31.2, context_used: 16_116 });
    let summary = RequestSummary {
        attention: AttentionKind::ExactOffload,
        moved_bytes: MovedBytes { disk_to_ram: 1_100_000_000, ram_to_vram: 5_400_000_000, ..MovedBytes::default() },
        overlap: Some(0.917),
        ..summary(16_116, 96, StopReason::Eos)
    };
    rig.emit(EngineEvent::Finished { request, summary: Box::new(summary) });
    rig.emit(kv_use(2 << 30, 3_300_000_000, 6_200_000_000));
    rig
}

fn over_budget(setup: Setup) -> Rig {
    let mut rig = offload(setup);
    rig.emit(kv_use(2_300_000_000, 3_300_000_000, 6_200_000_000));
    let mut listed = library();
    listed.insert(0, SavedDocument { id: "new".into(), ..saved("pepys-diary.txt", &diary(), SavedState::Read) });
    rig.emit(EngineEvent::Library(listed));
    rig
}

fn removing(setup: Setup) -> Rig {
    let mut rig = with_diary(setup);
    rig.click("More about evelyn-diary.txt");
    rig.click("Remove from the library");
    rig.harness.remove_cursor();
    rig.harness.run();
    rig
}

fn conversation(setup: Setup) -> Rig {
    let mut rig = with_diary(setup);
    let request = rig.ask("What burned first?");
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 16_020, cached_tokens: 0 });
    rig.emit(EngineEvent::Token { request, text: ANSWER.into(), n: 96, tokens_per_s: 31.2, context_used: 16_116 });
    rig.emit(EngineEvent::Finished { request, summary: Box::new(summary(16_116, 96, StopReason::Eos)) });
    let request = rig.ask("And who told him?");
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 16_130, cached_tokens: 16_116 });
    let text = "His maid Jane called him up about three in the morning, to tell him".to_owned();
    rig.emit(EngineEvent::Token { request, text, n: 15, tokens_per_s: 29.8, context_used: 16_145 });
    rig
}

/// A checked selective answer that differs from the exact one, and one about the whole diary.
fn checked(setup: Setup) -> Rig {
    let mut rig = with_diary(setup);
    let request = rig.ask("Who told Pepys of the fire, and when?");
    rig.answer_selectively(
        request,
        "His maid Jane called him up about three in the morning, to tell of a great fire in the City.",
    );
    rig.harness.get_by_label("Check exactly").click();
    let Some(EngineCommand::Generate { request, .. }) = rig.command() else { panic!("not checked") };
    let text = "His maid Jane called him up about three in the morning, to tell them of a great fire they saw in the City.";
    rig.emit(EngineEvent::Token { request, text: text.into(), n: 26, tokens_per_s: 8.2, context_used: 16_116 });
    let exact =
        RequestSummary { attention: AttentionKind::ExactOffload, tokens_per_s: 8.2, ..summary(16_116, 26, StopReason::Eos) };
    rig.emit(EngineEvent::Finished { request, summary: Box::new(exact) });
    let request = rig.ask("How many times does he go to the Tower?");
    rig.answer_selectively(request, "He goes to the Tower twice on that day.");
    rig.harness.remove_cursor();
    rig.harness.run();
    rig
}

/// A question with two versions and two answers, being edited; a pinned chat and a deleted one.
fn branches(setup: Setup) -> Rig {
    let mut rig = with_diary(setup);
    for (question, answer) in [("Who was Lord Mayor?", "Sir Thomas Bludworth."), ("What burned first?", ANSWER)] {
        let request = rig.ask(question);
        rig.answer(request, answer);
        rig.harness.get_all_by_label("Regenerate").last().unwrap().click();
        let Some(EngineCommand::Generate { request, .. }) = rig.command() else { panic!("not asked again") };
        rig.answer(request, answer);
    }
    rig.harness.get_all_by_label("Edit question").last().unwrap().click();
    rig.harness.run();
    rig.click("Ask this instead");
    let Some(EngineCommand::Generate { request, .. }) = rig.command() else { panic!("not asked") };
    rig.answer(request, "In **Pudding Lane**, as he says: “it begun this morning”.");
    rig.click("More about the chat Who was Lord Mayor?");
    rig.click("Pin");
    rig.click("New chat");
    let request = rig.ask("Rents in 1662?");
    rig.answer(request, "They rose.");
    rig.click("More about the chat Rents in 1662?");
    rig.click("Delete");
    rig.click("Chat: Who was Lord Mayor?");
    rig.harness.get_by_label("Who was Lord Mayor?").hover();
    rig.harness.run();
    rig
}

fn instructions(setup: Setup) -> Rig {
    let mut rig = with_diary(setup);
    rig.click("Instructions and sampling");
    rig.click("Short answers");
    rig.click("Set for this chat");
    rig.harness.remove_cursor();
    rig.harness.run();
    rig
}

fn found(setup: Setup) -> Rig {
    let mut rig = conversation(setup);
    rig.harness.get_by_label("Search chats").focus();
    rig.harness.run();
    rig.harness.get_by_label("Search chats").type_text("pepys");
    rig.wait_for(|rig| rig.harness.state().state.chats.persistence.hits("pepys").is_some());
    rig
}

fn reading(setup: Setup) -> Rig {
    let mut rig = with_diary(setup);
    rig.harness.get_by_label("Read now").click();
    let Some(EngineCommand::Prefill { request, .. }) = rig.command() else { panic!("not read") };
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 16_000, cached_tokens: 0 });
    rig.emit(EngineEvent::Prefill { request, done: 6_560, total: 16_000, tokens_per_s: 1850.0 });
    rig.harness.remove_cursor();
    rig.harness.run();
    rig
}

fn refused(setup: Setup) -> Rig {
    let mut rig = with_diary(setup);
    let request = rig.ask("What burned first?");
    let sentence = "The conversation has 16,020 tokens and this model's window holds 8,192. Use a shorter document, or open a \
                    model with a longer window.";
    rig.emit(EngineEvent::Failed { request, sentence: sentence.into(), bad_input: true });
    rig.emit(EngineEvent::Notice("The device was lost and is back; the document is read again when you ask.".into()));
    rig
}

fn small(theme: ThemeChoice) -> Setup {
    Setup { size: [960.0, 640.0], theme, ..Setup::default() }
}

#[test]
fn conversation_in_the_dark_theme_matches_its_snapshot() {
    conversation(small(ThemeChoice::Dark)).harness.snapshot("chat_dark");
}

#[test]
fn conversation_in_the_light_theme_matches_its_snapshot() {
    conversation(small(ThemeChoice::Light)).harness.snapshot("chat_light");
}

#[test]
fn reading_matches_its_snapshot() {
    reading(small(ThemeChoice::Light)).harness.snapshot("reading_light");
}

#[test]
fn refusal_matches_its_snapshot() {
    refused(small(ThemeChoice::Dark)).harness.snapshot("refused_dark");
}

#[test]
fn card_of_a_book_in_three_tiers_matches_its_snapshot() {
    three_tiers(small(ThemeChoice::Light)).harness.snapshot("three_tiers_light");
}

#[test]
fn answer_with_offload_matches_its_snapshot() {
    offload(small(ThemeChoice::Dark)).harness.snapshot("offload_dark");
}

#[test]
fn checked_answer_matches_its_snapshot() {
    checked(Setup { size: [960.0, 760.0], ..small(ThemeChoice::Light) }).harness.snapshot("checked_light");
}

#[test]
fn settings_match_their_snapshot() {
    let mut rig = Rig::ready_with(Setup { size: [960.0, 900.0], ..small(ThemeChoice::Dark) });
    rig.click("Settings");
    rig.harness.remove_cursor();
    rig.harness.run();
    rig.harness.snapshot("settings_dark");
}

#[test]
fn branches_match_their_snapshot() {
    branches(Setup { size: [960.0, 800.0], ..small(ThemeChoice::Light) }).harness.snapshot("branches_light");
}

#[test]
fn instructions_match_their_snapshot() {
    instructions(Setup { size: [960.0, 800.0], ..small(ThemeChoice::Dark) }).harness.snapshot("instructions_dark");
}

#[test]
fn removal_matches_its_snapshot() {
    removing(small(ThemeChoice::Light)).harness.snapshot("removing_light");
}

#[test]
fn every_page_in_both_themes_has_its_glyphs_and_names() {
    let shots = std::env::var_os("STRATA_SHOTS").map(std::path::PathBuf::from);
    let save = |rig: &mut Rig, page: &str, scale: f32| {
        let Some(dir) = &shots else { return };
        std::fs::create_dir_all(dir).unwrap();
        let dark = rig.harness.ctx.global_style().visuals.dark_mode;
        let name = format!("{page}-{}-{scale}x.png", if dark { "dark" } else { "light" });
        rig.harness.render().unwrap().save(dir.join(name)).unwrap();
    };
    let scales: &[f32] = if shots.is_some() { &[1.0, 2.0] } else { &[1.0] };
    for (theme, &scale) in [ThemeChoice::Dark, ThemeChoice::Light].into_iter().flat_map(|t| scales.iter().map(move |s| (t, s))) {
        let setup = || Setup { scale, theme, ..Setup::default() };
        let mut rig = Rig::ready_with(setup());
        save(&mut rig, "empty", scale);
        rig.harness.get_by_label_contains("Model: ").click();
        rig.harness.run();
        save(&mut rig, "menu", scale);
        rig.harness.key_press(Key::Escape);
        rig.harness.run();
        rig.harness.key_press_modifiers(Modifiers::COMMAND, Key::Comma);
        rig.harness.run();
        save(&mut rig, "settings", scale);
        rig.click("q8");
        rig.harness.set_size(egui::vec2(1280.0, 1100.0));
        rig.harness.run();
        save(&mut rig, "settings-changed", scale);
        rig.harness.key_press(Key::F1);
        rig.harness.run();
        save(&mut rig, "help", scale);
        save(&mut with_diary(setup()), "document", scale);
        save(&mut three_tiers(setup()), "tiers", scale);
        let mut rig = with_diary_and(setup(), vec![saved("pepys-diary.txt", &diary(), SavedState::Partial)]);
        save(&mut rig, "resume", scale);
        save(&mut offload(setup()), "offload", scale);
        save(&mut over_budget(setup()), "over", scale);
        save(&mut removing(setup()), "removing", scale);
        let mut rig = with_diary(setup());
        rig.harness.get_by_label_contains("evelyn-diary.txt, read").hover();
        (0..30).for_each(|_| rig.harness.step());
        save(&mut rig, "hover", scale);
        save(&mut conversation(setup()), "chat", scale);
        save(&mut checked(setup()), "checked", scale);
        save(&mut branches(setup()), "branches", scale);
        save(&mut instructions(setup()), "instructions", scale);
        save(&mut found(setup()), "found", scale);
        save(&mut reading(setup()), "reading", scale);
        save(&mut refused(setup()), "refused", scale);
        save(&mut reading(Setup { size: [760.0, 480.0], ..setup() }), "narrow", scale);
        save(&mut three_tiers(Setup { size: [760.0, 480.0], ..setup() }), "narrow-tiers", scale);
        let mut rig = Rig::starting(setup());
        rig.emit(EngineEvent::ModelLoading { share: 0.42, what: "reading weights".into() });
        save(&mut rig, "loading", scale);
        rig.emit(EngineEvent::ModelFailed {
            sentence: "model.gguf is cut short: it ends inside tensor 12; download it again.".into(),
            bad_input: true,
        });
        save(&mut rig, "failed", scale);
    }
}
