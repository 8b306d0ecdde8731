//! Persistence: settings of each model, documents from a second start, and a log without text of documents or chats.

use egui::accesskit::Role;
use egui_kittest::kittest::Queryable;
use strata::app::persist::logging;
use strata::app::persist::paths::Folders;
use strata::app::single_instance::{Claim, claim, hand_over};
use strata::app::state::settings::ThemeChoice;
use strata::base::Bytes;
use strata::engine::{EngineEvent, ModelInfo, Sampling};

use crate::mock_engine::{Rig, Setup, model_info};

/// A window that saves its settings in a folder.
fn window(config: &tempfile::TempDir) -> Rig {
    let folders = Folders { config: Some(config.path().to_owned()), ..Folders::default() };
    let mut rig = Rig::ready_with(Setup { size: [1280.0, 1200.0], folders, ..Setup::default() });
    rig.click("Settings");
    rig
}

fn type_in(rig: &mut Rig, field: &str, text: &str) {
    rig.harness.get_by_role_and_label(Role::TextInput, field).focus();
    rig.harness.run();
    rig.harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::A);
    rig.harness.get_by_role_and_label(Role::TextInput, field).type_text(text);
    rig.harness.run();
}

#[test]
fn settings_of_one_window_are_those_of_the_next() {
    let config = tempfile::tempdir().unwrap();
    let mut rig = window(&config);
    type_in(&mut rig, "Temperature", "0.35");
    type_in(&mut rig, "RAM budget", "3GiB");
    rig.click("Larger");
    rig.click("Save what was read");
    drop(rig);
    let mut rig = window(&config);
    let settings = rig.harness.state().state.settings.values;
    assert_eq!((settings.sampling.temperature, settings.budgets.ram), (0.35, Some(Bytes(3 << 30))));
    assert!(!settings.keep_read);
    assert!((rig.harness.ctx.zoom_factor() - 1.1).abs() < 1e-6, "{}", rig.harness.ctx.zoom_factor());
    assert!(rig.shows("Saved for Strata Quote only"));
    rig.click("Use the model's own values");
    assert_eq!(rig.harness.state().state.settings.values.sampling, Sampling::default());
    drop(rig);
    assert_eq!(window(&config).harness.state().state.settings.values.sampling, Sampling::default());
}

#[test]
fn sampling_of_one_model_is_not_that_of_another() {
    let config = tempfile::tempdir().unwrap();
    let mut rig = window(&config);
    type_in(&mut rig, "Temperature", "0.35");
    let other = strata::engine::ModelSource::Path("/models/other.gguf".into());
    rig.harness.state_mut().state.load_model(other);
    let advised = Sampling { temperature: 0.9, top_k: 7, ..Sampling::default() };
    rig.emit(EngineEvent::ModelLoaded(Box::new(ModelInfo { name: "other".into(), sampling: advised, ..model_info() })));
    assert_eq!(rig.harness.state().state.settings.values.sampling, advised);
    rig.harness.state_mut().state.load_model(strata::engine::ModelSource::BuiltIn);
    rig.emit(EngineEvent::ModelLoaded(Box::new(model_info())));
    assert_eq!(rig.harness.state().state.settings.values.sampling.temperature, 0.35);
}

#[test]
fn damaged_settings_are_set_aside_with_a_sentence() {
    let config = tempfile::tempdir().unwrap();
    std::fs::write(config.path().join("settings.json"), b"{\"theme\": ").unwrap();
    let mut rig = window(&config);
    rig.click("Done");
    assert!(rig.shows("The settings file was damaged and is now"));
    assert!(config.path().join("settings.broken-1.json").exists());
}

#[test]
fn documents_of_a_second_start_open_in_the_window_that_is_there() {
    let data = tempfile::tempdir().unwrap();
    let Claim::Alone(_lock, inbox) = claim(data.path()) else { panic!("nobody else has it") };
    let mut rig = Rig::ready_with(Setup { inbox: Some(inbox), ..Setup::default() });
    let book = data.path().join("book.txt");
    std::fs::write(&book, "Up betimes.").unwrap();
    assert!(matches!(claim(data.path()), Claim::Taken));
    hand_over(data.path(), std::slice::from_ref(&book)).unwrap();
    rig.wait_for(|rig| rig.shows("book.txt"));
}

#[test]
fn log_records_a_turn_without_a_word_of_it() {
    let state = tempfile::tempdir().unwrap();
    // Every test of this process writes to it; only this one has these words.
    logging::start(state.path());
    let mut rig = Rig::ready_with(Setup { theme: ThemeChoice::Light, ..Setup::default() });
    rig.drop_text("notes.txt", "The password of the vault is xyzzyplugh. ".repeat(50).as_str());
    let request = rig.ask("Is it xyzzyplugh?");
    rig.answer(request, "Yes, “The password of the vault is xyzzyplugh.”");
    let request = rig.ask("Again xyzzyplugh?");
    rig.emit(EngineEvent::Failed { request, sentence: "The template says xyzzyplugh.".into(), bad_input: true });
    let caught = std::panic::catch_unwind(|| panic!("in the middle of xyzzyplugh"));
    assert!(caught.is_err());
    let log = std::fs::read_to_string(state.path().join("strata.log")).unwrap();
    for line in ["model loaded: Strata Quote", "turn ended (Eos): 430 tokens of prompt", "turn failed, refused", "panicked at"] {
        assert!(log.contains(line), "{line} in\n{log}");
    }
    assert!(!log.contains("xyzzyplugh"), "{log}");
}
