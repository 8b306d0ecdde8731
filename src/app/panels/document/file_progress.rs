//! File progress: the file that is being opened, its progress, and a cancel button.

use egui::{Frame, Margin, Panel, Ui};

use crate::app::panels::Action;
use crate::app::state::ViewState;
use crate::app::state::document_list::Opening;
use crate::app::ui::format;
use crate::app::ui::icon::Icon;
use crate::app::ui::theme::{self, GRID};
use crate::app::ui::widgets::{self, Weight};

/// A strip above the chat. Draws nothing if no file is being opened.
pub fn opening_ui(ui: &mut Ui, state: &ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    let Some(opening) = &state.documents.opening else { return actions };
    let t = theme::tokens(ui);
    let frame = Frame::NONE.fill(t.page).inner_margin(Margin { top: 12, ..Margin::ZERO });
    Panel::top("opening").resizable(false).show_separator_line(false).frame(frame).show(ui, |ui| {
        widgets::column(ui, |ui| {
            let (words, share) = progress_label(opening);
            ui.horizontal(|ui| {
                ui.vertical(|ui| {
                    ui.set_width(ui.available_width() - 120.0);
                    widgets::caption(ui, &words);
                    ui.add_space(GRID);
                    let width = ui.available_width();
                    widgets::meter(ui, share, t.accent, width, &words);
                });
                ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                    if widgets::button(ui, Weight::Plain, Some(Icon::Stop), "Cancel").clicked() {
                        actions.push(Action::CancelOpening);
                    }
                });
            });
        });
    });
    actions
}

/// `Opening book.pdf · page 120 of 352 · 3 more files`, and the share done.
fn progress_label(opening: &Opening) -> (String, f32) {
    let mut words = format!("Opening {}", opening.name);
    let progress = opening.watch.progress();
    if let Some((done, total)) = progress {
        words += &format!(" · {} of {}", format::count(done), format::count(total));
    }
    match opening.n_left {
        0 => {}
        1 => words += " · 1 more file",
        n => words += &format!(" · {} more files", format::count(n)),
    }
    (words, progress.map_or(0.0, |(done, total)| done as f32 / total.max(1) as f32))
}
