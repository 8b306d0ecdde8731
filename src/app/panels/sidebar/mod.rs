//! The sidebar: search, the chats, the library, the model, the settings.

pub mod chats;
mod heading;
pub mod model_bar;
pub mod undo;

pub use heading::{heading_with_button, note};

use egui::{Frame, Id, Margin, Panel, ScrollArea, Stroke, TextEdit, Ui, pos2, vec2};

use crate::app::panels::Action;
use crate::app::panels::pages::library::library_ui;
use crate::app::panels::sidebar::chats::chats_ui;
use crate::app::panels::sidebar::model_bar::{model_bar_height, model_bar_ui};
use crate::app::panels::sidebar::undo::undo_ui;
use crate::app::state::{MainView, ViewState};
use crate::app::ui::icon::{self, Icon};
use crate::app::ui::theme::{self, GRID};
use crate::app::ui::widgets;

/// The search field, for Ctrl+F.
pub fn search_id() -> Id {
    Id::unique("strata search")
}

/// Gaps and the row under the model, points.
const FOOT_HEIGHT: f32 = GRID + 2.0 * 2.0 + theme::CONTROL;

/// Everything left of the chat.
pub fn sidebar_ui(ui: &mut Ui, state: &mut ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    let t = theme::tokens(ui);
    let frame = Frame::NONE.fill(t.panel).inner_margin(Margin::symmetric(8, 8));
    Panel::left("sidebar").exact_size(theme::SIDEBAR_WIDTH).resizable(false).frame(frame).show(ui, |ui| {
        ui.spacing_mut().item_spacing.y = 2.0;
        search_ui(ui, &mut state.chats.search);
        state.request_search();
        let height = FOOT_HEIGHT + model_bar_height(state);
        let foot = Panel::bottom("sidebar foot").resizable(false).show_separator_line(false).frame(Frame::NONE);
        let foot = foot.exact_size(height).show(ui, |ui| {
            ui.spacing_mut().item_spacing.y = 2.0;
            ui.add_space(GRID);
            actions.extend(model_bar_ui(ui, state));
            actions.extend(foot_ui(ui, state.page));
        });
        let edge = foot.response.rect;
        ui.painter().hline(edge.x_range().expand(8.0), edge.top(), Stroke::new(1.0, t.line));
        if state.chats.persistence.undo.is_some() {
            let above = Panel::bottom("undo").resizable(false).show_separator_line(false).frame(Frame::NONE.inner_margin(GRID));
            actions.extend(above.show(ui, |ui| undo_ui(ui, state)).inner);
        }
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            ui.spacing_mut().item_spacing.y = 2.0;
            actions.extend(chats_ui(ui, state));
            actions.extend(library_ui(ui, state));
        });
    });
    actions
}

fn search_ui(ui: &mut Ui, search: &mut String) {
    let t = theme::tokens(ui);
    let field = TextEdit::singleline(search)
        .id(search_id())
        .hint_text("Search chats")
        .desired_width(f32::INFINITY)
        .min_size(vec2(0.0, theme::CONTROL))
        .align(egui::Align2::LEFT_CENTER)
        .background_color(t.raised)
        .margin(Margin { left: 32, right: 8, top: 4, bottom: 4 });
    let response = ui.add(field).accessible_name("Search chats");
    let square = egui::Rect::from_center_size(pos2(response.rect.left() + 16.0, response.rect.center().y), vec2(16.0, 16.0));
    icon::paint(ui.painter(), Icon::Search, square, t.weak);
}

fn foot_ui(ui: &mut Ui, page: MainView) -> Vec<Action> {
    let mut actions = Vec::new();
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = GRID;
        let width = ui.available_width() - 3.0 * (theme::CONTROL + GRID);
        ui.scope(|ui| {
            ui.set_max_width(width);
            let here = page == MainView::Settings;
            if widgets::row(ui, Some(Icon::Sliders), "Settings", "", here, "Settings").clicked() {
                actions.push(Action::Show(if here { MainView::Chat } else { MainView::Settings }));
            }
        });
        if widgets::icon_button_sized(ui, Icon::Pulse, "Dashboard", theme::CONTROL).clicked() {
            actions.push(Action::ToggleDock);
        }
        let dark = theme::tokens(ui).dark;
        let (mark, label) = if dark { (Icon::Sun, "Light theme") } else { (Icon::Moon, "Dark theme") };
        if widgets::icon_button_sized(ui, mark, label, theme::CONTROL).clicked() {
            actions.push(Action::ToggleTheme);
        }
        if widgets::icon_button_sized(ui, Icon::Help, "Shortcuts and legend", theme::CONTROL).clicked() {
            actions.push(Action::Show(if page == MainView::Help { MainView::Chat } else { MainView::Help }));
        }
    });
    actions
}
