//! Pictures of the window, compared with those in `tests/snapshots` (`UPDATE_SNAPSHOTS=1` writes them anew), and every
//! page in both themes: the harness fails on a character without a glyph and on a control without a name.
//!
//! With `STRATA_SHOTS=DIR`, the pages are also written there at 1280x800, at 1x and 2x.

use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable;
use strata::app::settings::ThemeChoice;
use strata::engine::{EngineCommand, EngineEvent, StopReason};

use crate::fake::{Rig, Setup, summary};

const ANSWER: &str = "The diary puts the start of the fire in **Pudding Lane**, in the house of the King's baker:\n\n> “it begun this \
morning in the King's baker's house in Pudding Lane”\n\nThree things follow from the passage:\n\n1. It began before dawn.\n2. It had \
*already* burned St Magnus' Church.\n3. The wind was from the east.\n\n```text\n2 September 1666\n```\n";

fn with_diary(setup: Setup) -> Rig {
    let mut rig = Rig::ready_with(setup);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pepys-diary.txt");
    std::fs::write(&path, "Up betimes. ".repeat(4000)).unwrap();
    rig.drop_files(&[path]);
    assert!(rig.command().is_none());
    rig
}

fn conversation(setup: Setup) -> Rig {
    let mut rig = with_diary(setup);
    let turn = rig.ask("What burned first?");
    rig.emit(EngineEvent::TurnStarted { turn, prompt_tokens: 16_020, cached_tokens: 0 });
    rig.emit(EngineEvent::Token { turn, text: ANSWER.into(), n: 96, tokens_per_s: 31.2, context_used: 16_116 });
    rig.emit(EngineEvent::Finished { turn, summary: Box::new(summary(16_116, 96, StopReason::Eos)) });
    let turn = rig.ask("And who told him?");
    rig.emit(EngineEvent::TurnStarted { turn, prompt_tokens: 16_130, cached_tokens: 16_116 });
    let text = "His maid Jane called him up about three in the morning, to tell him".to_owned();
    rig.emit(EngineEvent::Token { turn, text, n: 15, tokens_per_s: 29.8, context_used: 16_145 });
    rig
}

fn reading(setup: Setup) -> Rig {
    let mut rig = with_diary(setup);
    rig.harness.get_by_label("Read now").click();
    let Some(EngineCommand::Read { turn, .. }) = rig.command() else { panic!("not read") };
    rig.emit(EngineEvent::TurnStarted { turn, prompt_tokens: 16_000, cached_tokens: 0 });
    rig.emit(EngineEvent::Prefill { turn, done: 6_560, total: 16_000, tokens_per_s: 1850.0 });
    rig.harness.remove_cursor();
    rig.harness.run();
    rig
}

fn refused(setup: Setup) -> Rig {
    let mut rig = with_diary(setup);
    let turn = rig.ask("What burned first?");
    let sentence = "The conversation has 16,020 tokens and this model's window holds 8,192. Use a shorter document, or open a \
                    model with a longer window.";
    rig.emit(EngineEvent::Failed { turn, sentence: sentence.into(), bad_input: true });
    rig.emit(EngineEvent::Notice("The device was lost and is back; the document is read again when you ask.".into()));
    rig
}

fn small(theme: ThemeChoice) -> Setup {
    Setup { size: [960.0, 640.0], theme, ..Setup::default() }
}

#[test]
fn conversation_in_the_dark_theme_looks_as_it_did() {
    conversation(small(ThemeChoice::Dark)).harness.snapshot("chat_dark");
}

#[test]
fn conversation_in_the_light_theme_looks_as_it_did() {
    conversation(small(ThemeChoice::Light)).harness.snapshot("chat_light");
}

#[test]
fn reading_looks_as_it_did() {
    reading(small(ThemeChoice::Light)).harness.snapshot("reading_light");
}

#[test]
fn refusal_looks_as_it_did() {
    refused(small(ThemeChoice::Dark)).harness.snapshot("refused_dark");
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
        rig.harness.key_press(Key::F1);
        rig.harness.run();
        save(&mut rig, "help", scale);
        save(&mut with_diary(setup()), "document", scale);
        save(&mut conversation(setup()), "chat", scale);
        save(&mut reading(setup()), "reading", scale);
        save(&mut refused(setup()), "refused", scale);
        save(&mut reading(Setup { size: [760.0, 480.0], ..setup() }), "narrow", scale);
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
