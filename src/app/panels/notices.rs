//! Sentences over the chat: a model that could not be loaded, a file that is no document, what the engine noticed.
//! They stand outside the part that scrolls, so that none is missed at the end of a long chat.

use egui::{Frame, Label, Margin, Panel, Ui};

use crate::app::panels::Action;
use crate::app::state::{ModelState, ViewState};
use crate::app::ui::icon::Icon;
use crate::app::ui::theme::{self, GRID, GUTTER};
use crate::app::ui::widgets::{self, Weight};
use crate::engine::ModelSource;

/// Nothing is drawn where there is nothing to say.
pub fn notices_ui(ui: &mut Ui, state: &ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    let failed = match &state.model {
        ModelState::Failed(sentence) => Some(sentence.as_str()),
        _ => None,
    };
    if failed.is_none() && state.notices.is_empty() {
        return actions;
    }
    let frame = Frame::NONE.fill(theme::tokens(ui).page).inner_margin(Margin { top: 12, ..Margin::ZERO });
    Panel::top("notices").resizable(false).show_separator_line(false).frame(frame).show(ui, |ui| {
        widgets::column(ui, |ui| {
            ui.spacing_mut().item_spacing.y = 2.0 * GRID;
            if let Some(sentence) = failed {
                actions.extend(failure_ui(ui, sentence, &state.source));
            }
            for (i, notice) in state.notices.iter().enumerate() {
                if ui.push_id(i, |ui| notice_ui(ui, &notice.text, notice.error)).inner {
                    actions.push(Action::Dismiss(i));
                }
            }
        });
    });
    actions
}

fn failure_ui(ui: &mut Ui, sentence: &str, source: &ModelSource) -> Vec<Action> {
    let mut actions = Vec::new();
    widgets::card(ui, |ui| {
        widgets::error_sentence(ui, sentence);
        ui.add_space(GUTTER);
        ui.horizontal(|ui| {
            let built_in = *source == ModelSource::BuiltIn;
            if !built_in && widgets::button(ui, Weight::Primary, None, "Use the built-in model").clicked() {
                actions.push(Action::LoadModel(ModelSource::BuiltIn));
            }
            if widgets::button(ui, Weight::Plain, Some(Icon::Redo), "Try again").clicked() {
                actions.push(Action::LoadModel(source.clone()));
            }
            if widgets::button(ui, Weight::Plain, None, "Open another model…").clicked() {
                actions.push(Action::OpenModelFile);
            }
        });
    });
    actions
}

/// One sentence. True when it is to be taken away.
fn notice_ui(ui: &mut Ui, text: &str, error: bool) -> bool {
    widgets::card(ui, |ui| {
        ui.horizontal_top(|ui| {
            let width = ui.available_width() - 36.0;
            ui.vertical(|ui| {
                ui.set_width(width);
                ui.add_space(GRID);
                if error {
                    widgets::error_sentence(ui, text);
                } else {
                    ui.add(Label::new(text).wrap());
                }
            });
            widgets::icon_button(ui, Icon::Cross, "Dismiss").clicked()
        })
        .inner
    })
}
