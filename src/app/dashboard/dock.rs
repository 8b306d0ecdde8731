//! Dock frame: the tabs, and the buttons that fill the window or close the dock.
//!
//! Limits: at least [`MIN_WIDTH`] wide; at least [`CHAT_WIDTH`] is left for the chat.

use std::time::Instant;

use egui::{Frame, Margin, Panel, Sense, Ui, WidgetInfo, pos2, vec2};

use crate::app::dashboard::activity::activity_ui;
use crate::app::dashboard::fidelity::fidelity_ui;
use crate::app::dashboard::kv_map::kv_map_ui;
use crate::app::dashboard::{DashboardState, Tab, ledger, timeline, traces};
use crate::app::panels::Action;
use crate::app::state::ViewState;
use crate::app::ui::icon::Icon;
use crate::app::ui::theme::{self, GRID, GUTTER};
use crate::app::ui::widgets;

/// Narrowest dock, points.
const MIN_WIDTH: f32 = 320.0;
/// Width of the dock in a new window, points.
const DEFAULT_WIDTH: f32 = 440.0;
/// Width left for the chat at least, points.
const CHAT_WIDTH: f32 = 360.0;
/// Height of the row of tabs, points.
const HEADER_HEIGHT: f32 = 44.0;

/// The dock at the right, if it is open and does not fill the window.
pub fn dock_ui(ui: &mut Ui, view: &ViewState, state: &mut DashboardState) -> Vec<Action> {
    if !state.open || state.fills {
        return Vec::new();
    }
    let t = theme::tokens(ui);
    let widest = (ui.available_width() - CHAT_WIDTH).max(MIN_WIDTH);
    let panel =
        Panel::right("dock").resizable(true).default_size(state.width.unwrap_or(DEFAULT_WIDTH)).size_range(MIN_WIDTH..=widest);
    let shown = panel.frame(Frame::NONE.fill(t.panel)).show(ui, |ui| contents_ui(ui, view, state));
    state.width = Some(shown.response.rect.width());
    shown.inner
}

/// The contents of the dock, in the room that `ui` has.
pub fn contents_ui(ui: &mut Ui, view: &ViewState, state: &mut DashboardState) -> Vec<Action> {
    let began = Instant::now();
    let mut actions = header_ui(ui, state);
    if matches!(state.tab, Tab::Timeline | Tab::Ledger) {
        let frame = Frame::NONE.inner_margin(Margin::symmetric(GUTTER as i8, GRID as i8));
        actions.extend(Panel::bottom("runs").resizable(false).frame(frame).show(ui, |ui| traces::show(ui, state)).inner);
    }
    Frame::NONE.inner_margin(GUTTER).show(ui, |ui| {
        actions.extend(match state.tab {
            Tab::Timeline => timeline::show(ui, state),
            Tab::Ledger => ledger::show(ui, state),
            Tab::KvMap => kv_map_ui(ui, view, state),
            Tab::Activity => without_actions(ui, |ui| activity_ui(ui, view, state)),
            Tab::Fidelity => without_actions(ui, |ui| fidelity_ui(ui, view, state)),
        });
    });
    state.cost.dock(began.elapsed());
    actions
}

/// Runs a panel that returns no actions, at the width of the text column at most.
fn without_actions(ui: &mut Ui, panel: impl FnOnce(&mut Ui)) -> Vec<Action> {
    ui.set_max_width(ui.available_width().min(theme::COLUMN_WIDTH));
    panel(ui);
    Vec::new()
}

fn header_ui(ui: &mut Ui, state: &mut DashboardState) -> Vec<Action> {
    let mut actions = Vec::new();
    let frame = Frame::NONE.inner_margin(Margin::symmetric(GUTTER as i8, 0));
    Panel::top("dock tabs").exact_size(HEADER_HEIGHT).resizable(false).frame(frame).show(ui, |ui| {
        ui.horizontal_centered(|ui| {
            ui.spacing_mut().item_spacing.x = GUTTER;
            for tab in Tab::ALL {
                if tab_ui(ui, tab, state.tab == tab).clicked() {
                    state.tab = tab;
                }
            }
            ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                ui.spacing_mut().item_spacing.x = 0.0;
                if widgets::icon_button(ui, Icon::Cross, "Close the dashboard").clicked() {
                    actions.push(Action::ToggleDock);
                }
                let (icon, label) = match state.fills {
                    false => (Icon::Expand, "Fill the window"),
                    true => (Icon::Shrink, "Show beside the chat"),
                };
                if widgets::icon_button(ui, icon, label).clicked() {
                    actions.push(Action::ToggleDockFullWidth);
                }
            });
        });
    });
    actions
}

/// A tab: a word, underlined in the accent if it is selected.
fn tab_ui(ui: &mut Ui, tab: Tab, selected: bool) -> egui::Response {
    let t = theme::tokens(ui);
    let galley = ui.painter().layout_no_wrap(tab.name().to_owned(), theme::body(), t.text);
    let (rect, response) = ui.allocate_exact_size(vec2(galley.size().x, HEADER_HEIGHT), Sense::click());
    let enabled = ui.is_enabled();
    response.widget_info(|| WidgetInfo::selected(egui::Role::Tab, enabled, selected, tab.name()));
    let ink = if selected || response.hovered() { t.strong } else { t.weak };
    let at = pos2(rect.left(), rect.center().y - galley.size().y / 2.0);
    ui.painter().galley_with_override_text_color(at, galley, ink);
    if selected {
        ui.painter().hline(rect.x_range(), rect.bottom() - 1.0, egui::Stroke::new(2.0, t.accent));
    }
    widgets::focus_ring(ui, &response, rect.expand2(vec2(GRID, -GRID)), theme::RADIUS);
    response
}
