//! Heading of a list in the sidebar, and the note below it.

use egui::{Frame, Margin, Ui};

use crate::app::ui::icon::Icon;
use crate::app::ui::theme::{GRID, GUTTER};
use crate::app::ui::widgets;

/// The heading of a list with a button that adds to it. True if that is clicked.
pub fn heading_with_button(ui: &mut Ui, text: &str, button: &str) -> bool {
    ui.add_space(GUTTER);
    let mut clicked = false;
    ui.horizontal(|ui| {
        ui.set_height(24.0);
        ui.add_space(2.0 * GRID);
        widgets::list_heading(ui, text);
        ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
            clicked = widgets::icon_button_sized(ui, Icon::Plus, button, 24.0).clicked();
        });
    });
    clicked
}

/// A quiet sentence under a heading.
pub fn note(ui: &mut Ui, text: &str) {
    Frame::NONE.inner_margin(Margin::symmetric(8, 4)).show(ui, |ui| widgets::caption(ui, text));
}
