//! Models page: models of other programs, their facts and whether they fit, before one is loaded.

use std::path::{Path, PathBuf};

use egui::accesskit::Role;
use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable;
use strata::app::persist::paths::Folders;
use strata::app::state::settings::ThemeChoice;
use strata::base::Bytes;
use strata::engine::{DeviceFacts, EngineCommand, EngineEvent, KvDtype, ModelInfo, ModelSource};
use strata::kv::budget::Machine;
use strata::model::discovery::{Provider, SearchPath};

use crate::gguf_writer::{Val, tiny_llama};
use crate::mock_engine::{Rig, Setup, model_info};

/// A disk with models of two programs and one file that is no model.
struct Disk {
    dir: tempfile::TempDir,
}

impl Disk {
    fn new() -> Disk {
        let disk = Disk { dir: tempfile::tempdir().unwrap() };
        let mut model = tiny_llama();
        model.set("general.license", Val::Str("apache-2.0"));
        model.set("tokenizer.chat_template", Val::Str("{{ messages }}"));
        disk.write("lm/ann/Tiny-GGUF/tiny-F32.gguf", &model.bytes());
        disk.write("lm/ann/Tiny-GGUF/torn-Q8_0.gguf", &model.bytes()[..2000]);
        disk.write("jan/models/ann/tiny-jan/model.gguf", &tiny_llama().bytes());
        disk.write("own/small/mine.gguf", &tiny_llama().bytes());
        disk
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn write(&self, below: &str, bytes: &[u8]) {
        std::fs::create_dir_all(self.path(below).parent().unwrap()).unwrap();
        std::fs::write(self.path(below), bytes).unwrap();
    }

    fn folders(&self) -> Folders {
        let place = |provider, below: &str| SearchPath { provider, folder: self.path(below) };
        Folders {
            config: Some(self.path("config")),
            models: vec![place(Provider::LmStudio, "lm"), place(Provider::Jan, "jan")],
            ..Folders::default()
        }
    }
}

fn device(free_memory: u64) -> EngineEvent {
    let machine = Machine { free_memory: Some(Bytes(free_memory)), free_disk: Some(Bytes(1 << 34)), ..Machine::default() };
    EngineEvent::Device(Box::new(DeviceFacts {
        name: "llvmpipe".into(),
        is_software: true,
        software_kernels: true,
        max_binding_bytes: 1 << 27,
        machine,
    }))
}

/// The picker after its search.
fn on_models(setup: Setup, free_memory: u64) -> Rig {
    let mut rig = Rig::ready_with(setup);
    rig.emit(device(free_memory));
    rig.harness.key_press_modifiers(Modifiers::COMMAND, Key::M);
    rig.harness.run();
    searched(&mut rig);
    rig
}

fn searched(rig: &mut Rig) {
    rig.wait_for(|rig| rig.harness.state().state.models.searched.is_some() && !rig.harness.state().state.models.is_searching);
}

fn with(disk: &Disk) -> Setup {
    Setup { size: [1280.0, 1100.0], folders: disk.folders(), ..Setup::default() }
}

fn loaded(name: &str) -> EngineEvent {
    EngineEvent::ModelLoaded(Box::new(ModelInfo { name: name.into(), built_in: false, ..model_info() }))
}

#[test]
fn picker_shows_what_each_model_is_and_whether_it_fits() {
    let disk = Disk::new();
    let mut rig = on_models(with(&disk), 8 << 30);
    assert!(rig.shows("LM STUDIO  2") && rig.shows("JAN  1"));
    assert!(rig.shows("F32 · llama · 64 window") && rig.shows("license apache-2.0 · chat template · ann/Tiny-GGUF"));
    assert!(rig.shows("license not stated · no chat template"), "of the other");
    assert!(rig.shows("of memory for the model") && rig.shows("of KV for 64 tokens in VRAM"));
    assert!(rig.shows("The model file is truncated"), "the torn file says why");
    assert!(rig.harness.query_by_label("Load torn-Q8_0").is_none());
    assert!(rig.shows("3 models found"));
    rig.harness.get_by_role_and_label(Role::TextInput, "Find by name").focus();
    rig.harness.run();
    rig.harness.get_by_role_and_label(Role::TextInput, "Find by name").type_text("JAN");
    rig.harness.run();
    assert!(rig.harness.query_by_label("Load tiny-jan").is_some() && rig.harness.query_by_label("Load tiny-F32").is_none());
}

#[test]
fn model_that_is_larger_than_the_memory_is_marked_before_it_is_loaded() {
    let disk = Disk::new();
    let rig = on_models(with(&disk), 4096);
    assert!(rig.shows("Too large: it needs at least") && rig.shows("4.00 KiB are free"));
    assert!(rig.harness.query_by_label("Load tiny-F32").is_some(), "an estimate refuses nothing");
}

#[test]
fn models_are_loaded_swapped_and_unloaded_from_the_picker() {
    let disk = Disk::new();
    let mut rig = on_models(with(&disk), 8 << 30);
    for (name, path) in [("tiny-F32", "lm/ann/Tiny-GGUF/tiny-F32.gguf"), ("tiny-jan", "jan/models/ann/tiny-jan/model.gguf")] {
        rig.click(&format!("Load {name}"));
        let Some(EngineCommand::LoadModel { source, .. }) = rig.command() else { panic!("not loaded") };
        assert_eq!(source, ModelSource::Path(disk.path(path)));
        rig.emit(EngineEvent::ModelLoading { share: 0.5, what: "copying".into() });
        assert!(rig.harness.query_by_label(&format!("Stop {name}")).is_some());
        rig.emit(loaded(name));
    }
    rig.click("Unload tiny-jan");
    assert!(matches!(rig.command(), Some(EngineCommand::UnloadModel)));
    rig.emit(EngineEvent::ModelUnloaded);
    assert!(rig.harness.query_by_label("Load tiny-jan").is_some());
    assert!(rig.shows("not loaded"));
    rig.click("Load Strata Quote");
    assert!(matches!(rig.command(), Some(EngineCommand::LoadModel { source: ModelSource::BuiltIn, .. })));
}

#[test]
fn model_that_could_not_be_loaded_shows_why_in_its_line() {
    let disk = Disk::new();
    let mut rig = on_models(with(&disk), 8 << 30);
    rig.click("Load tiny-F32");
    rig.emit(EngineEvent::ModelFailed { sentence: "The device is out of memory.".into(), bad_input: false });
    assert!(rig.shows("The device is out of memory."));
    assert!(rig.harness.query_by_label("Load tiny-F32").is_some(), "it can be tried again");
}

#[test]
fn folder_of_ones_own_is_looked_in_and_remembered() {
    let disk = Disk::new();
    let mut rig = on_models(with(&disk), 8 << 30);
    let add = |rig: &mut Rig, folder: &Path| {
        rig.harness.get_by_role_and_label(Role::TextInput, "Another folder to look in").focus();
        rig.harness.run();
        rig.harness.get_by_role_and_label(Role::TextInput, "Another folder to look in").type_text(&folder.display().to_string());
        rig.harness.run();
        rig.click("Add");
        searched(rig);
    };
    add(&mut rig, &disk.path("own"));
    assert!(rig.harness.query_by_label("Load mine").is_some());
    add(&mut rig, &disk.path("gone"));
    assert!(rig.shows("There is no folder"));
    drop(rig);
    let mut rig = on_models(with(&disk), 8 << 30);
    assert!(rig.harness.query_by_label("Load mine").is_some(), "the next window knows it");
    rig.click(&format!("Remove the folder {}", disk.path("own").display()));
    searched(&mut rig);
    assert!(rig.harness.query_by_label("Load mine").is_none());
}

#[test]
fn picker_is_reached_from_the_model_menu() {
    let mut rig = Rig::ready();
    rig.harness.get_by_label_contains("Model: Strata Quote").click();
    rig.harness.run();
    rig.click("Models on this machine…");
    assert!(rig.shows("nothing is copied or downloaded"));
    rig.harness.key_press(Key::Escape);
    rig.harness.run();
    assert!(!rig.shows("nothing is copied or downloaded"));
}

#[test]
fn context_and_type_of_the_picker_go_with_the_model_that_is_loaded_from_it() {
    let disk = Disk::new();
    let mut rig = on_models(with(&disk), 8 << 30);
    rig.harness.get_by_role_and_label(Role::TextInput, "Context cap").focus();
    rig.harness.run();
    rig.harness.get_by_role_and_label(Role::TextInput, "Context cap").type_text("4096");
    rig.harness.run();
    assert!(rig.shows("~4.00 KiB of KV"));
    rig.click("q4");
    assert!(!rig.shows("~4.00 KiB of KV"), "what is said follows what is chosen");
    rig.click("Load tiny-F32");
    let Some(EngineCommand::LoadModel { options, .. }) = rig.command() else { panic!("not loaded") };
    assert_eq!((options.context, options.kv_dtype), (Some(4096), KvDtype::Q4));
    rig.emit(loaded("tiny-F32"));
    rig.harness.state_mut().state.load_model(ModelSource::BuiltIn);
    let Some(EngineCommand::LoadModel { options, .. }) = rig.command() else { panic!("not loaded") };
    assert_eq!((options.context, options.kv_dtype), (None, KvDtype::F16), "they are not the other model's");
}

fn assert_snapshot(theme: ThemeChoice, name: &str) {
    let disk = Disk::new();
    let mut rig = on_models(Setup { size: [960.0, 760.0], theme, ..with(&disk) }, 8 << 30);
    // The test's folder has a new name each time.
    rig.harness.state_mut().state.models.places.clear();
    rig.harness.remove_cursor();
    rig.harness.run();
    rig.harness.snapshot(name);
}

#[test]
fn picker_in_the_dark_theme_matches_its_snapshot() {
    assert_snapshot(ThemeChoice::Dark, "models_dark");
}

#[test]
fn picker_in_the_light_theme_matches_its_snapshot() {
    assert_snapshot(ThemeChoice::Light, "models_light");
}
