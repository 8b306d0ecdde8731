//! Undo bar at the foot of the sidebar: the last deletion, and the button that restores it.

use egui::{Frame, Margin, Ui};

use crate::app::panels::Action;
use crate::app::state::ViewState;
use crate::app::state::deletion::Undo;
use crate::app::ui::format;
use crate::app::ui::icon::Icon;
use crate::app::ui::theme::{self, GRID};
use crate::app::ui::widgets::{self, Weight};

/// Draws nothing if there is nothing to undo.
pub fn undo_ui(ui: &mut Ui, state: &ViewState) -> Option<Action> {
    let undo = state.chats.persistence.undo.as_ref()?;
    let mut action = None;
    let frame = Frame::NONE.fill(theme::tokens(ui).raised).corner_radius(theme::RADIUS).inner_margin(Margin::same(8));
    frame.show(ui, |ui| {
        ui.set_width(ui.available_width());
        ui.spacing_mut().item_spacing.y = GRID;
        ui.add(egui::Label::new(words(undo, state)).wrap());
        ui.horizontal(|ui| {
            if widgets::button(ui, Weight::Plain, None, "Undo").clicked() {
                action = Some(Action::Undo);
            }
            ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                if widgets::icon_button(ui, Icon::Cross, "Do not undo").clicked() {
                    action = Some(Action::DiscardUndo);
                }
            });
        });
    });
    action
}

fn words(undo: &Undo, state: &ViewState) -> String {
    match undo {
        Undo::Chat(chat) => {
            format!("Deleted the chat \u{201C}{}\u{201D}.", format::title(&chat.title(&state.documents.list), 40))
        }
        Undo::Document { name, keeps_text, kv_bytes, .. } => {
            let name = format::title(name, 40);
            let freed = match *kv_bytes {
                0 => String::new(),
                n => format!(" This frees {} on the disk.", format::bytes(n)),
            };
            match keeps_text {
                true => format!("Deleted the KV of {name}; its text stays.{freed}"),
                false => format!("Removed {name} from the library; its file stays.{freed}"),
            }
        }
    }
}
