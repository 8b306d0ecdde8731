//! Settings page: each value is checked while it is typed, and fields that need a reload are marked.

use egui::OutputCommand;
use egui::accesskit::Role;
use egui_kittest::kittest::{NodeT, Queryable};
use strata::app::state::MainView;
use strata::app::state::settings::ThemeChoice;
use strata::base::{Bytes, Tiers};
use strata::engine::{EngineCommand, KvDtype, LoadOptions, PolicyKind, PolicySpec};

use crate::mock_engine::{Rig, Setup};

fn on_settings(setup: Setup) -> Rig {
    let mut rig = Rig::ready_with(Setup { size: [1280.0, 1100.0], ..setup });
    rig.click("Settings");
    rig
}

fn type_in(rig: &mut Rig, field: &str, text: &str) {
    rig.harness.get_by_role_and_label(Role::TextInput, field).focus();
    rig.harness.run();
    rig.harness.get_by_role_and_label(Role::TextInput, field).type_text(text);
    rig.harness.run();
}

fn loaded_with(rig: &mut Rig) -> LoadOptions {
    match rig.command() {
        Some(EngineCommand::LoadModel { options, .. }) => options,
        other => panic!("not loaded: {other:?}"),
    }
}

#[test]
fn budgets_are_checked_and_go_with_the_next_load() {
    let mut rig = on_settings(Setup::default());
    assert!(rig.harness.query_by_label("Load the model again").is_none(), "nothing changed yet");
    type_in(&mut rig, "VRAM budget", "much");
    assert!(rig.shows("Type a size such as 64MiB, 2GiB or 1.5GB, or nothing."));
    assert!(rig.harness.query_by_label("Load the model again").is_none(), "a wrong size changes nothing");
    type_in(&mut rig, "RAM budget", "1.5GB");
    type_in(&mut rig, "Disk budget", "0");
    rig.click("Load the model again");
    let budgets = loaded_with(&mut rig).budgets;
    assert_eq!(budgets, Tiers { vram: None, ram: Some(Bytes(1_500_000_000)), disk: Some(Bytes(0)) });
}

#[test]
fn budget_fields_show_the_defaults_in_force() {
    let rig = on_settings(Setup::default());
    for (field, in_force) in [("VRAM budget", "2.00 GiB"), ("RAM budget", "8.00 GiB"), ("Disk budget", "40.0 GiB")] {
        let node = rig.harness.get_by_role_and_label(Role::TextInput, field);
        assert_eq!(node.accesskit_node().placeholder(), Some(in_force), "{field}");
    }
}

#[test]
fn kv_type_shows_what_it_costs_and_loads_the_model_again() {
    let mut rig = on_settings(Setup::default());
    assert!(rig.harness.query_by_label("f32").is_none(), "for comparing engines only");
    rig.click("q4");
    assert!(rig.shows("about 0.28 of f16"));
    rig.click("Load the model again");
    assert_eq!(loaded_with(&mut rig).kv_dtype, KvDtype::Q4);
}

#[test]
fn reading_what_matters_is_an_option_that_shows_where_it_is_poor_and_loads_the_model_again() {
    let mut rig = on_settings(Setup::default());
    assert!(rig.shows("exact, in any tier"));
    rig.click("what matters (leoam)");
    assert!(rig.shows("a question about the whole document"));
    rig.click("Load the model again");
    assert_eq!(loaded_with(&mut rig).policy, Some(PolicySpec::default()));
    // A policy of the command line keeps its numbers.
    let given = PolicySpec { kind: PolicyKind::Window, ..PolicySpec::default() };
    let load = LoadOptions { policy: Some(given), ..LoadOptions::default() };
    let mut rig = on_settings(Setup { load, ..Setup::default() });
    assert!(rig.harness.query_by_label("Load the model again").is_none());
    rig.click("everything");
    rig.click("Load the model again");
    assert_eq!(loaded_with(&mut rig).policy, None);
}

#[test]
fn kv_type_f32_is_offered_where_the_environment_chose_it() {
    let load = LoadOptions { kv_dtype: KvDtype::F32, ..LoadOptions::default() };
    let rig = on_settings(Setup { load, ..Setup::default() });
    assert!(rig.harness.query_by_label("f32").is_some());
}

#[test]
fn budgets_of_the_command_line_stand_in_their_fields() {
    let budgets = Tiers { vram: Some(Bytes(64 << 20)), ..Tiers::default() };
    let rig = on_settings(Setup { load: LoadOptions { budgets, ..LoadOptions::default() }, ..Setup::default() });
    let field = rig.harness.get_by_role_and_label(Role::TextInput, "VRAM budget");
    assert_eq!(field.value().as_deref(), Some("64MiB"));
    assert!(rig.harness.query_by_label("Load the model again").is_none());
}

#[test]
fn library_folder_and_disk_access_are_told() {
    let mut rig = on_settings(Setup::default());
    assert!(rig.shows("io_uring") && rig.shows("one ring, past the page cache"));
    assert!(rig.shows("/home/ann/.cache/strata/kv"));
    assert!(rig.shows("Its text can be recovered from the folder below"));
    assert!(rig.harness.query_by_label("Open the library folder").is_some());
    rig.harness.get_by_label("Copy the path").click();
    let mut copied = None;
    for _ in 0..4 {
        rig.harness.step();
        let commands = &rig.harness.output().platform_output.commands;
        copied = copied.or_else(|| {
            commands.iter().find_map(|c| match c {
                OutputCommand::CopyText(text) => Some(text.clone()),
                _ => None,
            })
        });
    }
    assert_eq!(copied.as_deref(), Some("/home/ann/.cache/strata/kv"));
}

#[test]
fn keeping_that_is_turned_off_is_asked_for_no_more() {
    let mut rig = on_settings(Setup::default());
    rig.click("Save what was read");
    assert!(!rig.harness.state().state.settings.values.keep_read);
    rig.click("Done");
    rig.drop_text("notes.txt", "Facts.");
    rig.click("Read now");
    let Some(EngineCommand::Prefill { documents, .. }) = rig.command() else { panic!("not read") };
    assert!(documents.iter().all(|document| !document.save) && documents.len() == 1);
}

#[test]
fn reuse_at_another_position_is_off_until_it_is_chosen() {
    let mut rig = on_settings(Setup::default());
    assert!(!rig.harness.state().state.settings.values.reuse_anywhere);
    assert!(rig.shows("labeled approximate"));
    rig.click("Reuse anywhere");
    assert!(rig.harness.state().state.settings.values.reuse_anywhere);
    rig.click("Load the model again");
    let loads = std::iter::from_fn(|| rig.command()).find_map(|command| match command {
        EngineCommand::LoadModel { options, .. } => Some(options),
        _ => None,
    });
    assert!(loads.unwrap().reuse_anywhere);
}

#[test]
fn wrong_setting_shows_what_to_type_and_changes_nothing() {
    let mut rig = on_settings(Setup::default());
    rig.harness.get_by_role_and_label(Role::TextInput, "Temperature").focus();
    rig.harness.run();
    rig.harness.get_by_role_and_label(Role::TextInput, "Temperature").type_text("x");
    rig.harness.run();
    assert!(rig.shows("Type a number between 0 and 5."));
    assert_eq!(rig.harness.state().state.settings.values.sampling.temperature, 0.0);
    rig.click("Done");
    assert_eq!(rig.harness.state().state.page, MainView::Chat);
}

#[test]
fn theme_choice_of_the_settings_page_is_taken() {
    let mut rig = on_settings(Setup::default());
    rig.click("Light");
    assert_eq!(rig.harness.state().state.settings.values.theme, ThemeChoice::Light);
    assert!(!rig.harness.ctx.global_style().visuals.dark_mode);
}
