//! The settings page: every value is checked as it is typed; a wrong one says what to type and changes nothing.

use egui::{RichText, ScrollArea, TextEdit, Ui, vec2};

use super::Action;
use crate::app::settings::{FIELDS, Field, Form, ThemeChoice};
use crate::app::state::{Page, ViewState};
use crate::app::theme::{self, GRID, GUTTER};
use crate::app::widgets::{self, Weight};

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
                        actions.push(Action::Show(Page::Chat));
                    }
                });
            });
            ui.add_space(theme::SECTION);
            group(ui, "ANSWERS");
            for (i, field) in FIELDS.iter().enumerate().filter(|(_, f)| **f != Field::ContextCap) {
                actions.extend(field_ui(ui, &mut state.form, i, *field));
            }
            ui.add_space(GUTTER);
            group(ui, "MODEL");
            for (i, field) in FIELDS.iter().enumerate().filter(|(_, f)| **f == Field::ContextCap) {
                actions.extend(field_ui(ui, &mut state.form, i, *field));
            }
            if state.info().is_some() && state.load.context != state.settings.context_cap {
                ui.horizontal(|ui| {
                    ui.add_space(LABEL_WIDTH + 2.0 * GRID);
                    if widgets::button(ui, Weight::Primary, None, "Load the model again").clicked() {
                        actions.push(Action::LoadModel(state.source.clone()));
                    }
                });
            }
            ui.add_space(GUTTER);
            group(ui, "WINDOW");
            theme_ui(ui, &mut state.settings.theme);
        });
        ui.add_space(theme::SECTION);
    });
    actions
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

fn field_ui(ui: &mut Ui, form: &mut Form, index: usize, field: Field) -> Option<Action> {
    let t = theme::tokens(ui);
    let (Some(text), Some(error)) = (form.texts.get_mut(index), form.errors.get(index)) else { return None };
    let mut changed = false;
    ui.horizontal(|ui| {
        let label = ui.allocate_ui_with_layout(
            vec2(LABEL_WIDTH, theme::CONTROL),
            egui::Layout::left_to_right(egui::Align::Center),
            |ui| {
                ui.set_width(LABEL_WIDTH);
                ui.label(RichText::new(field.label()).color(t.strong))
            },
        );
        let edit = TextEdit::singleline(text)
            .desired_width(FIELD_WIDTH)
            .min_size(vec2(FIELD_WIDTH, theme::CONTROL))
            .align(egui::Align2::RIGHT_CENTER)
            .background_color(t.raised)
            .text_color(if error.is_some() { t.error_text } else { t.strong });
        changed = ui.add(edit).labelled_by(label.inner.id).changed();
        ui.add_space(GRID);
        match error {
            Some(sentence) => widgets::error_sentence(ui, sentence),
            None => ui.add(egui::Label::new(RichText::new(field.help()).font(theme::small()).color(t.weak)).wrap()),
        };
    });
    ui.add_space(2.0 * GRID);
    changed.then_some(Action::SettingsChanged)
}

fn theme_ui(ui: &mut Ui, choice: &mut ThemeChoice) {
    let t = theme::tokens(ui);
    ui.horizontal(|ui| {
        ui.allocate_ui_with_layout(vec2(LABEL_WIDTH, theme::CONTROL), egui::Layout::left_to_right(egui::Align::Center), |ui| {
            ui.set_width(LABEL_WIDTH);
            ui.label(RichText::new("Theme").color(t.strong));
        });
        let choices = [(ThemeChoice::System, "As the desktop"), (ThemeChoice::Light, "Light"), (ThemeChoice::Dark, "Dark")];
        for (value, name) in choices {
            ui.radio_value(choice, value, name);
            ui.add_space(GRID);
        }
    });
}
