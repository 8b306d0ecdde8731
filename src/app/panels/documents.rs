//! The documents in front of a chat, as chips over it.

use egui::{CornerRadius, Frame, Margin, Panel, Rect, Role, Sense, Stroke, StrokeKind, Ui, Vec2, WidgetInfo, pos2, vec2};

use super::Action;
use crate::app::chat::Doc;
use crate::app::icon::{self, Icon};
use crate::app::state::ViewState;
use crate::app::theme::{self, GRID};
use crate::app::{format, widgets};

/// The strip over the chat. Nothing is drawn where the chat has no document.
pub fn documents_ui(ui: &mut Ui, state: &ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    if state.chat().documents.is_empty() {
        return actions;
    }
    let t = theme::tokens(ui);
    let frame = Frame::NONE.fill(t.page).inner_margin(Margin::symmetric(0, 8));
    Panel::top("documents").resizable(false).frame(frame).show(ui, |ui| {
        widgets::column(ui, |ui| {
            ui.horizontal_wrapped(|ui| {
                ui.spacing_mut().item_spacing = vec2(2.0 * GRID, GRID);
                let share = state.chat().read_share(&state.documents);
                let saved = state.saved_here().is_some();
                for doc in state.chat().docs(&state.documents) {
                    actions.extend(ui.push_id(doc.id, |ui| chip_ui(ui, doc, &read_word(share, saved), share)).inner);
                }
                if widgets::icon_button_sized(ui, Icon::Plus, "Add another document", theme::CONTROL).clicked() {
                    actions.push(Action::OpenDocuments);
                }
            });
        });
    });
    actions
}

fn read_word(share: f32, saved: bool) -> String {
    match share {
        s if s <= 0.0 && saved => "read before".to_owned(),
        s if s <= 0.0 => "not read".to_owned(),
        s if s >= 1.0 => "read".to_owned(),
        s => format!("{:.0} % read", (s * 100.0).floor()),
    }
}

/// One document: a click shows its pages, the cross takes it away.
fn chip_ui(ui: &mut Ui, doc: &Doc, read: &str, share: f32) -> Option<Action> {
    let t = theme::tokens(ui);
    let (n, exact) = doc.tokens();
    let note = format!("{} · {read}", format::tokens(n, exact));
    let name = format::title(&doc.name, 36);
    let name_galley = ui.painter().layout_no_wrap(name.clone(), theme::body(), t.strong);
    let note_galley = ui.painter().layout_no_wrap(note.clone(), theme::small(), t.weak);
    let text_left = 8.0 + 16.0 + 8.0;
    let width = text_left + name_galley.size().x + 8.0 + note_galley.size().x + 4.0 + 28.0;
    let (rect, response) = ui.allocate_exact_size(vec2(width, theme::CONTROL), Sense::click());
    response.widget_info(|| WidgetInfo::labeled(Role::Button, true, format!("{name}, {note}")));
    if response.hovered() {
        ui.painter().rect_filled(rect, CornerRadius::same(theme::RADIUS), t.hover);
    }
    ui.painter().rect_stroke(rect, CornerRadius::same(theme::RADIUS), Stroke::new(1.0, t.line), StrokeKind::Inside);
    read_mark(ui, pos2(rect.left() + 16.0, rect.center().y), share);
    let at = pos2(rect.left() + text_left, rect.center().y - name_galley.size().y / 2.0);
    let note_x = at.x + name_galley.size().x + 8.0;
    ui.painter().galley(at, name_galley, t.strong);
    let y = rect.center().y - note_galley.size().y / 2.0 + 1.0;
    ui.painter().galley(pos2(note_x, y), note_galley, t.weak);
    let cross = Rect::from_center_size(pos2(rect.right() - 16.0, rect.center().y), Vec2::splat(24.0));
    let layout = egui::Layout::left_to_right(egui::Align::Center);
    let builder = egui::UiBuilder::new().max_rect(cross).layout(layout);
    let mut child = ui.new_child(builder);
    if widgets::icon_button_sized(&mut child, Icon::Cross, &format!("Remove {}", doc.name), 24.0).clicked() {
        return Some(Action::Detach(doc.id));
    }
    widgets::focus_ring(ui, &response, rect, theme::RADIUS);
    response.on_hover_text("Show its pages").clicked().then_some(Action::ShowDocument(doc.id))
}

/// A circle, filled as far as the document is read; a tick when it all is.
fn read_mark(ui: &Ui, centre: egui::Pos2, share: f32) {
    let t = theme::tokens(ui);
    widgets::share_mark(ui, centre, share, t.vram);
    if share >= 1.0 {
        icon::paint(ui.painter(), Icon::Tick, Rect::from_center_size(centre, Vec2::splat(10.0)), egui::Color32::WHITE);
    }
}
