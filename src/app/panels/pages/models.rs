//! Models page: the models on this machine, their facts, and whether each fits, before any is loaded.
//!
//! ```text
//! built in │ Hugging Face │ LM Studio │ Ollama │ Jan │ your folders ──► a line each: Load, Unload, or why not
//! ```
//! Memory estimates apply to a load from this page, with its context and its KV type.

use std::path::Path;

use egui::{Label, RichText, ScrollArea, Sense, TextEdit, Ui, vec2};

use crate::app::panels;
use crate::app::panels::Action;
use crate::app::panels::pages::settings::{field_ui, kv_dtype_ui};
use crate::app::state::models::{ModelEntry, ModelFacts};
use crate::app::state::resume_estimate::{self, Placement};
use crate::app::state::settings::{FIELDS, Field};
use crate::app::state::{MainView, ModelState, ViewState};
use crate::app::ui::icon::{self, Icon};
use crate::app::ui::theme::{self, GRID, GUTTER};
use crate::app::ui::widgets::{self, Weight};
use crate::app::ui::{format, shortcuts};
use crate::engine::{DeviceFacts, LoadOptions, MemoryFit, ModelSource};
use crate::model::discovery::Provider;

/// The order of the page.
const STORES: [Provider; 5] = [Provider::HuggingFace, Provider::LmStudio, Provider::Ollama, Provider::Jan, Provider::Own];
/// Room for the button of a line, points.
const BUTTON_WIDTH: f32 = 120.0;

/// The page in the middle of the window.
pub fn models_ui(ui: &mut Ui, state: &mut ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    ScrollArea::vertical().id_salt("models").auto_shrink(false).show(ui, |ui| {
        ui.add_space(theme::SECTION);
        widgets::column(ui, |ui| {
            actions.extend(head_ui(ui, state));
            let mut load = state.engine.load.clone();
            state.models.chosen.put_in(&mut load);
            widgets::list_heading(ui, "BUILT IN");
            actions.extend(built_in_ui(ui, state));
            for store in STORES {
                actions.extend(store_ui(ui, state, store, &load));
            }
            ui.add_space(GUTTER);
            widgets::caption(ui, summary(state));
        });
        ui.add_space(theme::SECTION);
    });
    actions
}

/// Title, load options, and the search field.
fn head_ui(ui: &mut Ui, state: &mut ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    let t = theme::tokens(ui);
    ui.horizontal(|ui| {
        ui.label(RichText::new("Models").font(theme::title()).color(t.strong));
        ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
            if widgets::button(ui, Weight::Plain, None, "Done").clicked() {
                actions.push(Action::Show(MainView::Chat));
            }
            if widgets::button(ui, Weight::Plain, Some(Icon::Redo), "Look again").clicked() {
                actions.push(Action::FindModels);
            }
        });
    });
    widgets::caption(ui, "Files that other programs have put here are used where they are; nothing is copied or downloaded.");
    ui.add_space(GUTTER);
    let models = &mut state.models;
    for (index, field) in FIELDS.iter().enumerate().filter(|(_, field)| **field == Field::ContextCap) {
        if field_ui(ui, &mut models.form, index, *field, None).is_some() {
            models.form.check(&mut models.chosen);
        }
    }
    kv_dtype_ui(ui, &mut models.chosen.kv_dtype, false);
    if let Some(device) = &state.engine.device {
        widgets::caption(ui, device_label(device));
        ui.add_space(GRID);
    }
    let find = TextEdit::singleline(&mut state.models.filter)
        .hint_text("Find by name")
        .desired_width(f32::INFINITY)
        .min_size(vec2(0.0, theme::CONTROL))
        .align(egui::Align2::LEFT_CENTER)
        .background_color(t.raised);
    ui.add(find).accessible_name("Find by name");
    ui.add_space(GUTTER);
    actions
}

/// The device and its free memory.
fn device_label(device: &DeviceFacts) -> String {
    let memory = device.memory_name();
    let free = device.free_bytes().map_or_else(|| "N/A".to_owned(), format::bytes);
    let disk = device.machine.free_disk.map_or_else(|| "N/A".to_owned(), |bytes| format::bytes(bytes.0));
    format!("{}: {free} of {memory} free before a model is loaded, {disk} on the disk", device.name)
}

fn built_in_ui(ui: &mut Ui, state: &ViewState) -> Vec<Action> {
    let name = panels::BUILT_IN_NAME;
    let what = "Finds and quotes passages. A part of Strata: always here, and it fits everywhere.";
    line_ui(ui, state, name, &ModelSource::BuiltIn, |ui| {
        widgets::caption(ui, what);
    })
}

/// The models of one provider.
fn store_ui(ui: &mut Ui, state: &mut ViewState, store: Provider, load: &LoadOptions) -> Vec<Action> {
    let mut actions = Vec::new();
    let n = state.models.shown(store).count();
    if n == 0 && store != Provider::Own {
        return actions;
    }
    ui.add_space(GUTTER);
    widgets::list_heading(ui, &format!("{}  {n}", store.name().to_uppercase()));
    if store == Provider::Own {
        actions.extend(folders_ui(ui, state));
    }
    for (index, entry) in state.models.shown(store).enumerate() {
        let source = ModelSource::Path(entry.path.clone());
        ui.push_id((store, index), |ui| match &entry.facts {
            Ok(facts) => actions.extend(line_ui(ui, state, &entry.name, &source, |ui| facts_ui(ui, state, entry, facts, load))),
            Err(reason) => broken_ui(ui, entry, reason),
        });
    }
    actions
}

/// The user's folders, and a field that adds one.
fn folders_ui(ui: &mut Ui, state: &mut ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    let t = theme::tokens(ui);
    for folder in &state.models.folders {
        ui.horizontal(|ui| {
            let shown = folder.display().to_string();
            match state.models.searched.as_ref().is_some_and(|searched| searched.missing.contains(folder)) {
                true => widgets::error_sentence(ui, &format!("There is no folder {shown}.")),
                false => ui.label(&shown),
            };
            if widgets::icon_button(ui, Icon::Cross, &format!("Remove the folder {shown}")).clicked() {
                actions.push(Action::RemoveModelFolder(folder.clone()));
            }
        });
    }
    let row = vec2(ui.available_width(), theme::CONTROL);
    ui.allocate_ui_with_layout(row, egui::Layout::right_to_left(egui::Align::Center), |ui| {
        if widgets::button(ui, Weight::Plain, Some(Icon::Folder), "Choose…").clicked() {
            actions.push(Action::ChooseModelFolder);
        }
        let is_clicked = widgets::button(ui, Weight::Plain, None, "Add").clicked();
        let field = TextEdit::singleline(&mut state.models.typed)
            .hint_text("Another folder to look in")
            .desired_width(f32::INFINITY)
            .min_size(vec2(0.0, theme::CONTROL))
            .align(egui::Align2::LEFT_CENTER)
            .background_color(t.raised);
        let typed = ui.add(field).accessible_name("Another folder to look in");
        let is_entered = typed.lost_focus() && shortcuts::SEND.is_pressed(ui);
        let folder = state.models.typed.trim();
        if (is_clicked || is_entered) && !folder.is_empty() {
            actions.push(Action::AddModelFolder(folder.into()));
        }
    });
    actions
}

/// A model that can be loaded: its name, the facts that `add` draws, and a button for its state.
fn line_ui(ui: &mut Ui, state: &ViewState, name: &str, source: &ModelSource, add: impl FnOnce(&mut Ui)) -> Vec<Action> {
    let mut actions = Vec::new();
    let t = theme::tokens(ui);
    let is_chosen = state.engine.source == *source;
    separator(ui);
    ui.horizontal_top(|ui| {
        let width = ui.available_width() - BUTTON_WIDTH;
        ui.vertical(|ui| {
            ui.set_width(width);
            ui.add(Label::new(RichText::new(name).color(t.strong)).truncate());
            add(ui);
            if is_chosen && let ModelState::Failed(sentence) = &state.engine.model {
                widgets::error_sentence(ui, sentence);
            }
        });
        ui.with_layout(egui::Layout::right_to_left(egui::Align::Min), |ui| {
            let button = |ui: &mut Ui, weight, verb: &str| {
                widgets::button(ui, weight, None, verb).accessible_name(format!("{verb} {name}")).clicked()
            };
            match &state.engine.model {
                ModelState::Ready(_) if is_chosen => {
                    if button(ui, Weight::Plain, "Unload") {
                        actions.push(Action::UnloadModel);
                    }
                }
                ModelState::Loading { share, .. } if is_chosen => {
                    if button(ui, Weight::Plain, "Stop") {
                        actions.push(Action::StopLoading);
                    }
                    widgets::caption(ui, format!("{:.0} %", (share * 100.0).floor()));
                }
                _ => {
                    if button(ui, Weight::Plain, "Load") {
                        actions.push(Action::LoadFromPicker(source.clone()));
                    }
                }
            }
        });
    });
    actions
}

/// Facts of a model's header, and whether it fits.
fn facts_ui(ui: &mut Ui, state: &ViewState, entry: &ModelEntry, facts: &ModelFacts, load: &LoadOptions) {
    let t = theme::tokens(ui);
    widgets::caption(ui, facts_label(entry, facts)).on_hover_text(entry.path.display().to_string());
    let (Some(needs), Some(device)) = (&facts.needs, &state.engine.device) else {
        widgets::caption(ui, "Whether it fits is known once a device is open.");
        return;
    };
    let fit = needs.fit(load, device);
    let (fits, words) = fit_label(&fit, device);
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = GRID;
        let (square, _) = ui.allocate_exact_size(vec2(16.0, 20.0), Sense::hover());
        let (mark, ink) = if fits { (Icon::Tick, t.ram) } else { (Icon::Warning, t.error_text) };
        icon::paint(ui.painter(), mark, square.shrink2(vec2(0.0, 2.0)), ink);
        let ink = if fits { t.text } else { t.error_text };
        ui.add(Label::new(RichText::new(words).font(theme::small()).color(ink)).wrap());
    });
}

/// A file that cannot be used, and the reason.
fn broken_ui(ui: &mut Ui, entry: &ModelEntry, reason: &str) {
    let t = theme::tokens(ui);
    separator(ui);
    ui.add(Label::new(RichText::new(&entry.name).color(t.text)).truncate()).on_hover_text(entry.path.display().to_string());
    widgets::error_sentence(ui, reason);
}

fn separator(ui: &mut Ui) {
    ui.add_space(GRID);
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 1.0), Sense::hover());
    ui.painter().rect_filled(rect, 0.0, theme::tokens(ui).line);
    ui.add_space(GRID);
}

/// `1.2B parameters · Q4_K_M · llama · 128k window · 770 MiB · license llama3.2 · chat template · bartowski/…`
fn facts_label(entry: &ModelEntry, facts: &ModelFacts) -> String {
    let mut words = vec![
        format::parameters(facts.n_params),
        facts.quantization.clone(),
        facts.architecture.clone(),
        format!("{} window", format::window(facts.window)),
        format::bytes(entry.bytes),
        facts.license.as_ref().map_or_else(|| "license not stated".to_owned(), |license| format!("license {license}")),
        if facts.has_template { "chat template" } else { "no chat template" }.to_owned(),
    ];
    words.extend(Some(entry.within.clone()).filter(|within| !within.is_empty()));
    words.join(" · ")
}

/// Fit of a model, and the tiers of its parts.
fn fit_label(fit: &MemoryFit, device: &DeviceFacts) -> (bool, String) {
    let (memory, least) = (device.memory_name(), format::bytes(fit.least));
    if let Some(short) = fit.too_large_by() {
        let free = format::bytes(fit.least.saturating_sub(short));
        return (false, format!("Too large: it needs at least ~{least} of {memory}, and {free} are free."));
    }
    let context = format::window(fit.context);
    let kv = format::bytes(fit.kv_bytes);
    match resume_estimate::place(fit.kv_bytes, fit.budgets) {
        Placement::Fits(at) => {
            let places = panels::document::document_card::tier_label(at, "~");
            (true, format!("Fits: ~{least} of {memory} for the model, ~{kv} of KV for {context} tokens in {places}"))
        }
        Placement::TooLarge { room } => {
            let per_token = (fit.kv_bytes / fit.context.max(1) as u64).max(1);
            let held = format::short_count(usize::try_from(room / per_token).unwrap_or(usize::MAX));
            let words = format!(
                "Fits with a shorter context: ~{least} of {memory} for the model; KV for {context} tokens needs ~{kv}, the \
                 budgets hold {}, which is ~{held} tokens.",
                format::bytes(room)
            );
            (false, words)
        }
    }
}

/// Result of the search.
fn summary(state: &ViewState) -> String {
    let models = &state.models;
    let mut places: Vec<String> = models.places.iter().map(|place| shown(&place.folder)).collect();
    places.sort();
    let places = if places.is_empty() { "no folder of another program".to_owned() } else { places.join(", ") };
    match &models.searched {
        None if models.is_searching => format!("Looking… {} so far", models.entries.len()),
        None => String::new(),
        Some(searched) if searched.has_more => {
            format!("{} models were found, and there are more. Add the folder that you need below.", searched.n_found)
        }
        Some(searched) => format!("{} models found. Looked in {places}.", searched.n_found),
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Bytes, Tiers};
    use crate::kv::budget::Machine;

    const GIB: u64 = 1 << 30;

    fn said(least: u64, kv_bytes: u64, free: Option<u64>) -> (bool, String) {
        let machine = Machine { free_memory: free.map(Bytes), ..Machine::default() };
        let device =
            DeviceFacts { name: "card".into(), is_software: false, software_kernels: false, max_binding_bytes: 1 << 27, machine };
        let budgets = Tiers { vram: 2 * GIB, ram: 4 * GIB, disk: 10 * GIB };
        fit_label(&MemoryFit { context: 131_072, least, kv_bytes, budgets, free }, &device)
    }

    #[test]
    fn fit_shows_where_each_part_would_be() {
        let (fits, words) = said(5 * GIB, 7 * GIB, Some(8 * GIB));
        assert!(fits && words.contains("~5.00 GiB of memory for the model"), "{words}");
        assert!(words.contains("128k tokens in VRAM ~2.00 GiB + RAM ~4.00 GiB + disk ~1.00 GiB"), "{words}");
        let (fits, words) = said(5 * GIB, GIB, None);
        assert!(fits && words.ends_with("in VRAM"), "what nobody knows is no obstacle: {words}");
    }

    #[test]
    fn model_that_does_not_fit_shows_by_how_much_or_what_would() {
        let (fits, words) = said(9 * GIB, GIB, Some(8 * GIB));
        assert!(!fits && words.contains("at least ~9.00 GiB of memory, and 8.00 GiB are free"), "{words}");
        let (fits, words) = said(GIB, 32 * GIB, Some(8 * GIB));
        assert!(!fits && words.contains("the budgets hold 16.0 GiB, which is ~66k tokens"), "{words}");
    }
}
