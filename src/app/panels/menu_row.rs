//! Menu row: a list row with a menu, behind a button at its right and behind a right click.

use egui::{Layout, Popup, Rect, Response, Ui, UiBuilder, Vec2, pos2, vec2};

use crate::app::panels::Action;
use crate::app::ui::icon::Icon;
use crate::app::ui::theme::GRID;
use crate::app::ui::widgets;

/// Side of the button, points.
pub const BUTTON: f32 = 24.0;
/// Width of the menu, points.
const WIDTH: f32 = 220.0;

/// Result of a row.
pub struct MenuRow {
    /// response of the row itself
    pub response: Response,
    /// actions selected in the menu
    pub actions: Vec<Action>,
}

/// Draws a row of `height` with `draw`. Its flag is true if the row has to leave room for the button.
/// `label` names the button.
pub fn menu_row_ui(
    ui: &mut Ui,
    height: f32,
    label: &str,
    draw: impl FnOnce(&mut Ui, bool) -> Response,
    menu: impl Fn(&mut Ui) -> Vec<Action>,
) -> MenuRow {
    let row = Rect::from_min_size(ui.cursor().min, vec2(ui.available_width(), height));
    let is_open = Popup::is_id_open(ui.ctx(), ui.scope_id().with(("menu of", label)));
    let near = ui.rect_contains_pointer(row) || is_open;
    let response = draw(ui, near);
    let square = Rect::from_center_size(pos2(row.right() - GRID - BUTTON / 2.0, row.top() + 16.0), Vec2::splat(BUTTON));
    let builder = UiBuilder::new().id_salt("more").max_rect(square).layout(Layout::left_to_right(egui::Align::Center));
    let mut child = ui.new_child(builder);
    let focused = child.memory(|m| m.has_focus(child.next_auto_id()));
    child.set_opacity(if near || focused { 1.0 } else { 0.0 });
    let button = widgets::icon_button_sized(&mut child, Icon::More, label, BUTTON);
    let popup = Popup::menu(&button).id(ui.scope_id().with(("menu of", label)));
    let mut actions = popup.width(WIDTH).show(|ui| entries_ui(ui, &menu)).map(|shown| shown.inner).unwrap_or_default();
    let beside = Popup::context_menu(&response).width(WIDTH).show(|ui| entries_ui(ui, &menu));
    actions.extend(beside.map(|shown| shown.inner).unwrap_or_default());
    MenuRow { response, actions }
}

fn entries_ui(ui: &mut Ui, menu: &impl Fn(&mut Ui) -> Vec<Action>) -> Vec<Action> {
    ui.set_width(WIDTH);
    ui.spacing_mut().item_spacing.y = 2.0;
    let actions = menu(ui);
    if !actions.is_empty() {
        ui.close();
    }
    actions
}

/// An entry of a menu. True if it is clicked.
pub fn entry_ui(ui: &mut Ui, icon: Icon, text: &str) -> bool {
    widgets::row(ui, Some(icon), text, "", false, text).clicked()
}
