//! Notices above the chat: one line with the newest and a count, which opens to a list of bounded height.
//!
//! ```text
//! a model that failed to load ─► card with what to do
//! Notices ─► line: newest, count ── click ──► list that scrolls: Dismiss each, Dismiss all
//! ```
//! Invariant: notices have a place of their own in the layout. They never cover the conversation or the composer.

use egui::{CornerRadius, Frame, Label, Margin, Panel, Rect, Role, ScrollArea, Sense, Ui, UiBuilder, WidgetInfo, pos2, vec2};

use crate::app::panels::Action;
use crate::app::state::notices::{Notice, Notices};
use crate::app::state::{ModelState, ViewState};
use crate::app::ui::icon::{self, Icon};
use crate::app::ui::theme::{self, GRID, GUTTER};
use crate::app::ui::widgets::{self, Weight};
use crate::engine::ModelSource;

/// Height of the open list at most, points.
const LIST_HEIGHT: f32 = 160.0;
/// Share of the height above the composer that the open list takes at most.
const LIST_SHARE: f32 = 0.3;
/// Side of a button in the line and in the list, points.
const BUTTON: f32 = 24.0;

/// Draws nothing if there is no notice and the model did not fail.
pub fn notices_ui(ui: &mut Ui, state: &ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    let failed = match &state.engine.model {
        ModelState::Failed(sentence) => Some(sentence.as_str()),
        _ => None,
    };
    let newest = state.notices.newest();
    if failed.is_none() && newest.is_none() {
        return actions;
    }
    let list_height = (ui.available_height() * LIST_SHARE).min(LIST_HEIGHT);
    let frame = Frame::NONE.fill(theme::tokens(ui).page).inner_margin(Margin { top: 8, ..Margin::ZERO });
    Panel::top("notices").resizable(false).show_separator_line(false).frame(frame).show(ui, |ui| {
        widgets::column(ui, |ui| {
            ui.spacing_mut().item_spacing.y = 2.0 * GRID;
            if let Some(sentence) = failed {
                actions.extend(failure_ui(ui, sentence, &state.engine.source));
            }
            if let Some(newest) = newest {
                actions.extend(frame_ui(ui, &state.notices, newest, list_height));
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

/// The line, and the list if it is open.
fn frame_ui(ui: &mut Ui, notices: &Notices, newest: &Notice, list_height: f32) -> Vec<Action> {
    let mut actions = Vec::new();
    let t = theme::tokens(ui);
    Frame::NONE.fill(t.raised).corner_radius(CornerRadius::same(theme::RADIUS)).show(ui, |ui| {
        ui.set_width(ui.available_width());
        ui.spacing_mut().item_spacing.y = 0.0;
        actions.extend(line_ui(ui, notices, newest));
        if notices.is_open() {
            let margin = Margin { left: 8, right: 4, top: 4, bottom: 8 };
            Frame::NONE.inner_margin(margin).show(ui, |ui| actions.extend(list_ui(ui, notices, list_height)));
        }
    });
    actions
}

/// The newest notice, how many there are, and a button that dismisses. A click elsewhere opens the list, or closes it.
fn line_ui(ui: &mut Ui, notices: &Notices, newest: &Notice) -> Option<Action> {
    let t = theme::tokens(ui);
    let (n, is_open) = (notices.list().len(), notices.is_open());
    let count = if n == 1 { String::new() } else { format!("{n} notices") };
    let (row, response) = ui.allocate_exact_size(vec2(ui.available_width(), theme::CONTROL), Sense::click());
    let label = match (is_open, n) {
        (true, _) => "Close the list of notices".to_owned(),
        (false, 1) => newest.text.clone(),
        (false, _) => format!("{count}, newest: {}", newest.text),
    };
    response.widget_info(|| WidgetInfo::labeled(Role::Button, true, &label));
    if response.hovered() {
        ui.painter().rect_filled(row, CornerRadius::same(theme::RADIUS), t.hover);
    }
    let room = Rect::from_min_max(row.min + vec2(2.0 * GRID, 0.0), row.max - vec2(GRID, 0.0));
    let builder = UiBuilder::new().max_rect(room).layout(egui::Layout::right_to_left(egui::Align::Center));
    let mut right = ui.new_child(builder);
    right.spacing_mut().item_spacing.x = 2.0 * GRID;
    let dismissed = match is_open {
        true => widgets::button(&mut right, Weight::Quiet, None, "Dismiss all").clicked().then_some(Action::DismissAll),
        false => {
            widgets::icon_button_sized(&mut right, Icon::Cross, "Dismiss", BUTTON).clicked().then_some(Action::Dismiss(n - 1))
        }
    };
    let (mark, _) = right.allocate_exact_size(vec2(16.0, 16.0), Sense::hover());
    icon::paint(ui.painter(), if is_open { Icon::ChevronUp } else { Icon::Chevron }, mark, t.weak);
    if !count.is_empty() && !is_open {
        widgets::caption(&mut right, &count);
    }
    let room = room.with_max_x(right.min_rect().left() - 2.0 * GRID);
    if is_open {
        widgets::text_in(ui, room, if count.is_empty() { "1 notice" } else { &count }, theme::body(), t.strong);
    } else {
        let (room, ink) = mark_ui(ui, room, newest.error);
        let line = newest.text.split_whitespace().collect::<Vec<_>>().join(" ");
        widgets::text_in(ui, room, &line, theme::body(), ink);
    }
    widgets::focus_ring(ui, &response, row, theme::RADIUS);
    dismissed.or(response.clicked().then_some(Action::ToggleNotices))
}

/// The mark of an error at the left of `rect`. The room that is left for the text, and its color.
fn mark_ui(ui: &Ui, rect: Rect, error: bool) -> (Rect, egui::Color32) {
    let t = theme::tokens(ui);
    if !error {
        return (rect, t.text);
    }
    let mark = Rect::from_min_size(pos2(rect.left(), rect.center().y - 8.0), vec2(16.0, 16.0));
    icon::paint(ui.painter(), Icon::Warning, mark, t.error_text);
    (rect.with_min_x(mark.right() + 2.0 * GRID), t.error_text)
}

/// All notices, newest first.
fn list_ui(ui: &mut Ui, notices: &Notices, height: f32) -> Vec<Action> {
    let mut actions = Vec::new();
    ScrollArea::vertical().id_salt("notices").max_height(height).min_scrolled_height(height).auto_shrink([false, true]).show(
        ui,
        |ui| {
            ui.spacing_mut().item_spacing.y = GRID;
            for (i, notice) in notices.list().iter().enumerate().rev() {
                let row = ui.push_id(i, |ui| ui.horizontal_top(|ui| row_ui(ui, notice, notices.list().len() - i)).inner);
                if row.inner {
                    actions.push(Action::Dismiss(i));
                }
            }
        },
    );
    actions
}

/// A notice with a button that dismisses it. True if that is clicked.
fn row_ui(ui: &mut Ui, notice: &Notice, number: usize) -> bool {
    let width = ui.available_width() - BUTTON - 4.0 * GRID;
    ui.vertical(|ui| {
        ui.set_width(width);
        ui.add_space(2.0);
        if notice.error {
            widgets::error_sentence(ui, &notice.text);
        } else {
            ui.add(Label::new(&notice.text).wrap());
        }
    });
    widgets::icon_button_sized(ui, Icon::Cross, &format!("Dismiss notice {number}"), BUTTON).clicked()
}
