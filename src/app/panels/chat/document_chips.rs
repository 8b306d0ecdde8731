//! Document chips: the documents of a chat, each with its read progress, and documents that are missing.

use egui::{
    CornerRadius, Frame, Margin, Panel, Pos2, Rect, Response, Role, Sense, Stroke, StrokeKind, Ui, Vec2, WidgetInfo, pos2, vec2,
};

use crate::app::panels::Action;
use crate::app::state::ViewState;
use crate::app::state::chat::{MissingDocument, OpenDocument};
use crate::app::ui::icon::{self, Icon};
use crate::app::ui::theme::{self, GRID};
use crate::app::ui::{format, widgets};

/// The strip above the chat. Draws nothing if the chat has no document.
pub fn documents_ui(ui: &mut Ui, state: &ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    if state.chat().documents.is_empty() && state.chat().missing.is_empty() {
        return actions;
    }
    let t = theme::tokens(ui);
    let frame = Frame::NONE.fill(t.page).inner_margin(Margin::symmetric(0, 8));
    Panel::top("documents").resizable(false).frame(frame).show(ui, |ui| {
        widgets::column(ui, |ui| {
            ui.horizontal_wrapped(|ui| {
                ui.spacing_mut().item_spacing = vec2(2.0 * GRID, GRID);
                let shares = state.chat().read_shares(&state.documents.list, state.saved_prefix());
                let names = state.chat().document_names(&state.documents.list);
                for ((doc, share), name) in state.chat().docs(&state.documents.list).zip(shares).zip(names) {
                    actions.extend(chip_ui(ui, doc, &name, share, state.chat().approximate.contains(&doc.id)));
                }
                for missing in &state.chat().missing {
                    actions.extend(missing_ui(ui, missing));
                }
                if widgets::icon_button_sized(ui, Icon::Plus, "Add another document", theme::CONTROL).clicked() {
                    actions.push(Action::OpenDocuments);
                }
            });
        });
    });
    actions
}

/// `read`, `41 % read`, `not read`
fn read_label(share: f32) -> String {
    match share {
        s if s <= 0.0 => "not read".to_owned(),
        s if s >= 1.0 => "read".to_owned(),
        s => format!("{:.0} % read", (s * 100.0).floor()),
    }
}

/// One document: a click shows its pages, the cross removes it.
fn chip_ui(ui: &mut Ui, doc: &OpenDocument, name: &str, share: f32, is_approximate: bool) -> Option<Action> {
    let (n, exact) = doc.tokens();
    let approximate = if is_approximate { " · approximate" } else { "" };
    let note = format!("{} · {}{approximate}", format::tokens(n, exact), read_label(share));
    let chip = Chip { id: doc.id.to_string(), name, note, is_wrong: false };
    let (response, removed) = chip.ui(ui, |ui, center| read_mark(ui, center, share));
    if removed {
        return Some(Action::Detach(doc.id));
    }
    response.on_hover_text("Show its pages").clicked().then_some(Action::ShowDocument(doc.id))
}

/// A missing document: a click opens its file, the cross removes it.
fn missing_ui(ui: &mut Ui, missing: &MissingDocument) -> Option<Action> {
    let MissingDocument { document, is_lost, .. } = missing;
    let note = if *is_lost { "not here: open its file" } else { "being opened" };
    let chip = Chip { id: document.content_hash.clone(), name: &document.name, note: note.to_owned(), is_wrong: *is_lost };
    let ink = theme::tokens(ui).error_text;
    let (response, removed) = chip.ui(ui, |ui, center| {
        icon::paint(ui.painter(), Icon::Warning, Rect::from_center_size(center, Vec2::splat(16.0)), ink);
    });
    if removed {
        return Some(Action::DetachMissing(document.content_hash.clone()));
    }
    let open = || document.path.clone().filter(|path| path.exists()).map_or(Action::OpenDocuments, Action::OpenFile);
    (response.clicked() && *is_lost).then(open)
}

struct Chip<'a> {
    /// unlike that of the other chips
    id: String,
    name: &'a str,
    note: String,
    is_wrong: bool,
}

impl Chip<'_> {
    /// Mark, name, note, and a cross; whether the cross was clicked. It is allocated in the row itself, which wraps.
    fn ui(&self, ui: &mut Ui, mark: impl FnOnce(&mut Ui, Pos2)) -> (Response, bool) {
        let t = theme::tokens(ui);
        let name = format::title(self.name, 36);
        let name_galley = ui.painter().layout_no_wrap(name.clone(), theme::body(), t.strong);
        let note_ink = if self.is_wrong { t.error_text } else { t.weak };
        let note_galley = ui.painter().layout_no_wrap(self.note.clone(), theme::small(), note_ink);
        let text_left = 8.0 + 16.0 + 8.0;
        let width = text_left + name_galley.size().x + 8.0 + note_galley.size().x + 4.0 + 28.0;
        let (rect, response) = ui.allocate_exact_size(vec2(width, theme::CONTROL), Sense::click());
        response.widget_info(|| WidgetInfo::labeled(Role::Button, true, format!("{name}, {}", self.note)));
        if response.hovered() {
            ui.painter().rect_filled(rect, CornerRadius::same(theme::RADIUS), t.hover);
        }
        ui.painter().rect_stroke(rect, CornerRadius::same(theme::RADIUS), Stroke::new(1.0, t.line), StrokeKind::Inside);
        mark(ui, pos2(rect.left() + 16.0, rect.center().y));
        let at = pos2(rect.left() + text_left, rect.center().y - name_galley.size().y / 2.0);
        let note_x = at.x + name_galley.size().x + 8.0;
        ui.painter().galley(at, name_galley, t.strong);
        let y = rect.center().y - note_galley.size().y / 2.0 + 1.0;
        ui.painter().galley(pos2(note_x, y), note_galley, note_ink);
        let cross = Rect::from_center_size(pos2(rect.right() - 16.0, rect.center().y), Vec2::splat(24.0));
        let layout = egui::Layout::left_to_right(egui::Align::Center);
        let mut child = ui.new_child(egui::UiBuilder::new().id_salt(&self.id).max_rect(cross).layout(layout));
        let removed = widgets::icon_button_sized(&mut child, Icon::Cross, &format!("Remove {}", self.name), 24.0).clicked();
        widgets::focus_ring(ui, &response, rect, theme::RADIUS);
        (response, removed)
    }
}

/// A circle, filled as far as the document is read; a tick when it all is.
fn read_mark(ui: &Ui, center: Pos2, share: f32) {
    let t = theme::tokens(ui);
    widgets::share_mark(ui, center, share, t.vram);
    if share >= 1.0 {
        icon::paint(ui.painter(), Icon::Tick, Rect::from_center_size(center, Vec2::splat(10.0)), egui::Color32::WHITE);
    }
}
