//! Help page: keyboard shortcuts, the legend of colors, and the limits of the window.

use egui::{RichText, ScrollArea, Ui, vec2};

use crate::app::dashboard::legend::legend_ui;
use crate::app::panels::Action;
use crate::app::state::MainView;
use crate::app::ui::shortcuts::{PLACES, Shortcut};
use crate::app::ui::theme::{self, GRID, GUTTER};
use crate::app::ui::widgets::{self, Weight};

/// Room for the keys, points.
const KEYS_WIDTH: f32 = 200.0;

/// The page in the middle of the window.
pub fn help_ui(ui: &mut Ui) -> Vec<Action> {
    let mut actions = Vec::new();
    let t = theme::tokens(ui);
    ScrollArea::vertical().id_salt("help").auto_shrink(false).show(ui, |ui| {
        ui.add_space(theme::SECTION);
        widgets::column(ui, |ui| {
            ui.horizontal(|ui| {
                ui.label(RichText::new("Shortcuts and legend").font(theme::title()).color(t.strong));
                ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                    if widgets::button(ui, Weight::Plain, None, "Done").clicked() {
                        actions.push(Action::Show(MainView::Chat));
                    }
                });
            });
            ui.add_space(theme::SECTION);
            PLACES.iter().for_each(|(place, shortcuts)| shortcuts_ui(ui, place, shortcuts));
            ui.add_space(theme::SECTION);
            for (color, name) in [
                (t.vram, "KV cache in VRAM, where attention reads it fastest"),
                (t.ram, "KV cache in RAM"),
                (t.disk, "KV cache on the disk, and saved documents"),
                (t.error, "over a budget or a limit"),
            ] {
                ui.horizontal(|ui| {
                    let (rect, _) = ui.allocate_exact_size(vec2(12.0, 12.0), egui::Sense::hover());
                    ui.painter().rect_filled(rect, 3.0, color);
                    ui.label(name);
                });
            }
            ui.add_space(GUTTER);
            marks_ui(ui);
            ui.add_space(theme::SECTION);
            ui.label(RichText::new("In the dashboard").color(t.strong));
            legend_ui(ui);
            ui.add_space(GUTTER);
            widgets::caption(ui, "exact dense: every token attends to every token before it, all of them in VRAM.");
            widgets::caption(ui, "exact offload: the same, with tokens in RAM or on the disk fetched as they are needed.");
            widgets::caption(ui, "~ marks an estimate. N/A marks what is not measured.");
            widgets::caption(
                ui,
                "Nothing is sent over the network. Chats and saved documents stay on this machine until you delete them.",
            );
        });
    });
    actions
}

/// The keys of a place.
fn shortcuts_ui(ui: &mut Ui, place: &str, shortcuts: &[Shortcut]) {
    let t = theme::tokens(ui);
    widgets::list_heading(ui, &place.to_uppercase());
    let grid = egui::Grid::new(place).num_columns(2).min_col_width(KEYS_WIDTH).spacing(vec2(theme::SECTION, GRID));
    grid.min_row_height(24.0).show(ui, |ui| {
        for shortcut in shortcuts {
            ui.label(RichText::new(shortcut.names(ui)).monospace().color(t.strong));
            ui.label(shortcut.what);
            ui.end_row();
        }
    });
    ui.add_space(GUTTER);
}

/// The circles of the library.
fn marks_ui(ui: &mut Ui) {
    let t = theme::tokens(ui);
    for (share, name) in [
        (1.0, "read: opens without being read again"),
        (0.5, "read in part: continues where it stopped"),
        (0.0, "missing: will be read again"),
    ] {
        ui.horizontal(|ui| {
            let (rect, _) = ui.allocate_exact_size(vec2(12.0, 12.0), egui::Sense::hover());
            widgets::share_mark(ui, rect.center(), share, t.disk);
            ui.label(name);
        });
    }
}
