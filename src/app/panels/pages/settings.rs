//! Settings page: each value is checked while it is typed. A wrong value shows a hint and changes nothing.

use egui::{Response, RichText, ScrollArea, TextEdit, Ui, vec2};

use crate::app::panels::Action;
use crate::app::state::settings::{FIELDS, Field, Form, ThemeChoice, ZOOM};
use crate::app::state::{MainView, ViewState};
use crate::app::ui::format;
use crate::app::ui::icon::Icon;
use crate::app::ui::theme::{self, GRID, GUTTER};
use crate::app::ui::widgets::{self, Weight};
use crate::engine::{KvDtype, PolicySpec};

/// The page in the middle of the window.
pub fn settings_ui(ui: &mut Ui, state: &mut ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    let t = theme::tokens(ui);
    ScrollArea::vertical().id_salt("settings").auto_shrink(false).show(ui, |ui| {
        ui.add_space(theme::SECTION);
        widgets::column(ui, |ui| {
            ui.horizontal(|ui| {
                ui.label(RichText::new("Settings").font(theme::title()).color(t.strong));
                ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                    if widgets::button(ui, Weight::Plain, None, "Done").clicked() {
                        actions.push(Action::Show(MainView::Chat));
                    }
                });
            });
            ui.add_space(theme::SECTION);
            group(ui, "ANSWERS");
            for (i, field) in FIELDS.iter().enumerate().filter(|(_, f)| !f.loads()) {
                actions.extend(field_ui(ui, &mut state.settings.form, i, *field, None));
            }
            actions.extend(own_sampling_ui(ui, state));
            ui.add_space(GUTTER);
            actions.extend(memory_ui(ui, state));
            ui.add_space(GUTTER + 2.0 * GRID);
            actions.extend(library_ui(ui, state));
            ui.add_space(GUTTER + 2.0 * GRID);
            group(ui, "WINDOW");
            theme_ui(ui, &mut state.settings.values.theme);
            ui.add_space(2.0 * GRID);
            zoom_ui(ui, &mut state.settings.values.zoom);
        });
        ui.add_space(theme::SECTION);
    });
    actions
}

/// Origin of the sampling values, and a button that resets them to the model's own.
fn own_sampling_ui(ui: &mut Ui, state: &ViewState) -> Option<Action> {
    let name = &state.info()?.name;
    ui.horizontal(|ui| {
        ui.add_space(LABEL_WIDTH + 2.0 * GRID);
        if !state.has_own_sampling() {
            help_ui(ui, &format!("These are {name}'s own values. Changes are saved for this model only."));
            return None;
        }
        let is_clicked = widgets::button(ui, Weight::Plain, Some(Icon::Redo), "Use the model's own values").clicked();
        help_ui(ui, &format!("Saved for {name} only."));
        is_clicked.then_some(Action::ResetSampling)
    })
    .inner
}

fn zoom_ui(ui: &mut Ui, zoom: &mut f32) {
    /// One click.
    const STEP: f32 = 0.1;
    ui.horizontal(|ui| {
        label_ui(ui, "Size");
        let stepped = |by: f32| ((*zoom / STEP).round() * STEP + by).clamp(*ZOOM.start(), *ZOOM.end());
        let (smaller, larger) = (stepped(-STEP), stepped(STEP));
        if widgets::button(ui, Weight::Plain, None, "−").accessible_name("Smaller").clicked() {
            *zoom = smaller;
        }
        ui.label(format!("{:.0} %", *zoom * 100.0)).accessible_name("Size in percent");
        if widgets::button(ui, Weight::Plain, None, "+").accessible_name("Larger").clicked() {
            *zoom = larger;
        }
        help_ui(ui, "scale of the window; 100 % is that of the desktop. Also Ctrl + and Ctrl −");
    });
}

const LABEL_WIDTH: f32 = 140.0;
const FIELD_WIDTH: f32 = 120.0;

fn group(ui: &mut Ui, name: &str) {
    widgets::list_heading(ui, name);
    let t = theme::tokens(ui);
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 1.0), egui::Sense::hover());
    ui.painter().rect_filled(rect, 0.0, t.line);
    ui.add_space(GUTTER);
}

/// The name of a row, in a column of its own.
fn label_ui(ui: &mut Ui, text: &str) -> Response {
    let t = theme::tokens(ui);
    let layout = egui::Layout::left_to_right(egui::Align::Center);
    let label = ui.allocate_ui_with_layout(vec2(LABEL_WIDTH, theme::CONTROL), layout, |ui| {
        ui.set_width(LABEL_WIDTH);
        ui.label(RichText::new(text).color(t.strong))
    });
    label.inner
}

fn help_ui(ui: &mut Ui, text: &str) {
    /// In less width than this, words would break across lines, points.
    const NARROW: f32 = 160.0;
    let t = theme::tokens(ui);
    let label = egui::Label::new(RichText::new(text).font(theme::small()).color(t.weak));
    let narrow = ui.available_width() < NARROW;
    ui.add(if narrow { label.truncate() } else { label.wrap() });
}

/// Settings that take effect when the model is loaded.
fn memory_ui(ui: &mut Ui, state: &mut ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    group(ui, "MODEL AND MEMORY");
    let budgets = state.budgets();
    for (i, field) in FIELDS.iter().enumerate().filter(|(_, f)| f.loads()) {
        let in_force = budgets.and_then(|b| field.budget(&b)).map(format::bytes);
        actions.extend(field_ui(ui, &mut state.settings.form, i, *field, in_force));
    }
    let f32_chosen = state.engine.load.kv_dtype == KvDtype::F32;
    kv_dtype_ui(ui, &mut state.settings.values.kv_dtype, f32_chosen);
    attention_ui(ui, &mut state.settings.values.policy, state.engine.load.policy);
    switch_ui(
        ui,
        "Reuse anywhere",
        &mut state.settings.values.reuse_anywhere,
        "saved documents are reused after others too, labeled approximate",
    );
    let disk = state.info().map(|info| (info.kv.io_backend.as_str(), info.kv.io_reason.as_str()));
    ui.horizontal(|ui| {
        label_ui(ui, "Disk access");
        match disk.filter(|(backend, _)| !backend.is_empty()) {
            Some((backend, reason)) => {
                ui.label(backend);
                help_ui(ui, reason);
            }
            None => help_ui(ui, "N/A"),
        }
    });
    if state.needs_reload() {
        ui.add_space(2.0 * GRID);
        ui.horizontal(|ui| {
            ui.add_space(LABEL_WIDTH + 2.0 * GRID);
            if widgets::button(ui, Weight::Primary, None, "Load the model again").clicked() {
                actions.push(Action::LoadModel(state.engine.source.clone()));
            }
            help_ui(ui, "Changes take effect then.");
        });
    }
    actions
}

pub(in crate::app) fn kv_dtype_ui(ui: &mut Ui, chosen: &mut KvDtype, f32_chosen: bool) {
    ui.horizontal(|ui| {
        label_ui(ui, "KV type");
        let hidden = |dtype: &KvDtype| *dtype == KvDtype::F32 && !f32_chosen;
        for dtype in [KvDtype::F16, KvDtype::Q8, KvDtype::Q4, KvDtype::F32].into_iter().filter(|d| !hidden(d)) {
            ui.radio_value(chosen, dtype, dtype.name());
            ui.add_space(GRID);
        }
        help_ui(ui, kv_dtype_cost(*chosen));
    });
    ui.add_space(2.0 * GRID);
}

/// Choice between full attention and a policy. A policy from the command line keeps its numbers.
fn attention_ui(ui: &mut Ui, chosen: &mut Option<PolicySpec>, given: Option<PolicySpec>) {
    let policy = chosen.or(given).unwrap_or_default();
    ui.horizontal(|ui| {
        label_ui(ui, "Answers read");
        ui.radio_value(chosen, None, "everything");
        ui.add_space(GRID);
        ui.radio_value(chosen, Some(policy), format!("what matters ({})", policy.kind));
        ui.add_space(GRID);
        help_ui(
            ui,
            match chosen {
                None => "exact, in any tier",
                Some(_) => "faster outside VRAM; for a question about the whole document, choose everything",
            },
        );
    });
    ui.add_space(2.0 * GRID);
}

/// Cost of a type of K and V, in one line.
fn kv_dtype_cost(kv_dtype: KvDtype) -> &'static str {
    match kv_dtype {
        KvDtype::F16 => "the whole size, and nothing is rounded further",
        KvDtype::Q8 => "about 0.53 of f16; keys and values are rounded to 8 bits",
        KvDtype::Q4 => "about 0.28 of f16; rounded to 4 bits, so answers can differ",
        KvDtype::F32 => "twice f16, for comparing engines",
    }
}

/// A row with a checkbox.
fn switch_ui(ui: &mut Ui, name: &str, is_on: &mut bool, help: &str) {
    ui.horizontal(|ui| {
        let label = label_ui(ui, name);
        ui.scope(|ui| {
            // As wide as its mark, so that it is aligned with the fields.
            ui.spacing_mut().interact_size.y = 16.0;
            ui.add(egui::Checkbox::without_text(is_on)).labelled_by(label.id);
        });
        help_ui(ui, help);
    });
    ui.add_space(2.0 * GRID);
}

/// The switch that saves documents, and their folder.
fn library_ui(ui: &mut Ui, state: &mut ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    group(ui, "LIBRARY");
    switch_ui(
        ui,
        "Save what was read",
        &mut state.settings.values.keep_read,
        "A saved document opens without being read again. Its text can be recovered from the folder below.",
    );
    let folder = state.info().and_then(|info| info.kv.kv_dir.clone()).or_else(|| state.engine.load.kv_dir.clone());
    ui.horizontal(|ui| {
        label_ui(ui, "Library folder");
        let Some(folder) = folder else {
            help_ui(ui, "N/A");
            return;
        };
        let path = folder.display().to_string();
        let width = ui.available_width() - 2.0 * (theme::CONTROL + GRID) - 2.0 * GRID;
        let (rect, response) = ui.allocate_exact_size(vec2(width, theme::CONTROL), egui::Sense::hover());
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, &path));
        widgets::text_in(ui, rect, &path, theme::body(), theme::tokens(ui).text);
        response.on_hover_text(&path);
        if widgets::icon_button_sized(ui, Icon::Copy, "Copy the path", theme::CONTROL).clicked() {
            actions.push(Action::Copy(path));
        }
        if widgets::icon_button_sized(ui, Icon::Folder, "Open the library folder", theme::CONTROL).clicked() {
            actions.push(Action::OpenFolder(folder));
        }
    });
    actions
}

/// A field, with the value in force as a hint.
pub(in crate::app) fn field_ui(
    ui: &mut Ui,
    form: &mut Form,
    index: usize,
    field: Field,
    in_force: Option<String>,
) -> Option<Action> {
    let t = theme::tokens(ui);
    let (Some(text), Some(error)) = (form.texts.get_mut(index), form.errors.get(index)) else { return None };
    let mut changed = false;
    ui.horizontal(|ui| {
        let label = label_ui(ui, field.label());
        let edit = TextEdit::singleline(text)
            .hint_text(in_force.unwrap_or_default())
            .desired_width(FIELD_WIDTH)
            .min_size(vec2(FIELD_WIDTH, theme::CONTROL))
            .align(egui::Align2::RIGHT_CENTER)
            .background_color(t.raised)
            .text_color(if error.is_some() { t.error_text } else { t.strong });
        changed = ui.add(edit).labelled_by(label.id).changed();
        ui.add_space(GRID);
        match error {
            Some(sentence) => {
                widgets::error_sentence(ui, sentence);
            }
            None => help_ui(ui, field.help()),
        };
    });
    ui.add_space(2.0 * GRID);
    changed.then_some(Action::SettingsChanged)
}

fn theme_ui(ui: &mut Ui, choice: &mut ThemeChoice) {
    ui.horizontal(|ui| {
        label_ui(ui, "Theme");
        let choices = [(ThemeChoice::System, "As the desktop"), (ThemeChoice::Light, "Light"), (ThemeChoice::Dark, "Dark")];
        for (value, name) in choices {
            ui.radio_value(choice, value, name);
            ui.add_space(GRID);
        }
    });
}
