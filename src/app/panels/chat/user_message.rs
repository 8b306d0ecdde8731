//! User message: a question in a bubble that can be edited in place, and the switch to other branches.
//!
//! Enter sends the edited question, Escape cancels.

use egui::{CornerRadius, Frame, Id, Label, Layout, Margin, Rect, RichText, Sense, TextEdit, Ui};
use egui::{UiBuilder, pos2, vec2};

use crate::app::panels::Action;
use crate::app::panels::chat::memory::ChatMemory;
use crate::app::state::branches::Alternatives;
use crate::app::state::chat::{Chat, Exchange};
use crate::app::ui::icon::Icon;
use crate::app::ui::shortcuts;
use crate::app::ui::theme::{self, GRID, SECTION};
use crate::app::ui::widgets::{self, Weight};

/// Around the text of a question, points.
const PAD: f32 = 12.0;

/// The question in a bubble at the right, or the field that edits it.
pub fn question_ui(ui: &mut Ui, chat: &Chat, exchange: &Exchange, idle: bool, memory: &mut ChatMemory) -> Option<Action> {
    if memory.editing.as_ref().is_some_and(|(id, _)| *id == exchange.id) {
        let action = edit_ui(ui, idle, memory);
        ui.add_space(SECTION - GRID);
        return action;
    }
    let rect = bubble_ui(ui, &exchange.question);
    let (row, _) = ui.allocate_exact_size(vec2(ui.available_width(), 28.0), Sense::hover());
    let near = ui.rect_contains_pointer(rect.union(row));
    let builder = UiBuilder::new().max_rect(row).layout(Layout::right_to_left(egui::Align::Center));
    let mut row = ui.new_child(builder);
    row.spacing_mut().item_spacing.x = GRID;
    row.scope(|row| {
        let focused = row.memory(|m| m.has_focus(row.next_auto_id()));
        row.set_opacity(if near || focused { 1.0 } else { 0.0 });
        row.add_enabled_ui(idle, |row| {
            if widgets::icon_button(row, Icon::Pencil, "Edit question").clicked() {
                memory.editing = Some((exchange.id, exchange.question.clone()));
                row.memory_mut(|m| m.request_focus(edit_id()));
            }
        });
    });
    alternatives_ui(&mut row, &chat.questions_beside(exchange), "question")
}

fn bubble_ui(ui: &mut Ui, question: &str) -> Rect {
    let t = theme::tokens(ui);
    let max = (ui.available_width() * 0.8).floor();
    let galley = ui.painter().layout(question.to_owned(), theme::body(), t.strong, max - 2.0 * PAD);
    let size = galley.size().ceil() + vec2(2.0 * PAD + 1.0, 2.0 * PAD - 8.0);
    let (row, _) = ui.allocate_exact_size(vec2(ui.available_width(), size.y), Sense::hover());
    let rect = Rect::from_min_size(pos2(row.right() - size.x, row.top()), size);
    ui.painter().rect_filled(rect, CornerRadius::same(theme::RADIUS_LARGE), t.raised);
    let mut child = ui.new_child(UiBuilder::new().max_rect(rect.shrink2(vec2(PAD, PAD - 4.0))));
    child.add(Label::new(RichText::new(question).font(theme::body()).color(t.strong)).wrap());
    row
}

fn edit_id() -> Id {
    Id::unique("strata question edit")
}

fn edit_ui(ui: &mut Ui, idle: bool, memory: &mut ChatMemory) -> Option<Action> {
    let (exchange, text) = memory.editing.as_mut()?;
    let exchange = *exchange;
    let t = theme::tokens(ui);
    let mut done = None;
    let frame = Frame::NONE.fill(t.raised).corner_radius(theme::RADIUS_LARGE).inner_margin(Margin::same(12));
    frame.show(ui, |ui| {
        ui.set_width(ui.available_width());
        let field = TextEdit::multiline(text)
            .id(edit_id())
            .desired_width(f32::INFINITY)
            .desired_rows(1)
            .frame(Frame::NONE)
            .return_key(shortcuts::LINE_BREAK.first());
        let response = ui.add(field).accessible_name("Changed question");
        let is_plain = ui.input(|i| !i.modifiers.any());
        let enter = response.has_focus() && is_plain && shortcuts::SEND.is_pressed(ui);
        let escape = is_plain && shortcuts::LEAVE.is_pressed(ui);
        ui.add_space(2.0 * GRID);
        ui.horizontal(|ui| {
            let ask = ui.add_enabled_ui(idle && !text.trim().is_empty(), |ui| {
                widgets::button(ui, Weight::Primary, None, "Ask this instead").clicked()
            });
            if ask.inner || (enter && idle && !text.trim().is_empty()) {
                done = Some(Some(Action::EditQuestion(exchange, text.clone())));
            }
            if widgets::button(ui, Weight::Plain, None, "Cancel").clicked() || escape {
                done = Some(None);
            }
            widgets::caption(ui, "Later messages stay on their own branch.");
        });
    });
    let action = done?;
    memory.editing = None;
    action
}

/// `‹ 2 / 3 ›`; nothing if there is one alternative only.
pub fn alternatives_ui(ui: &mut Ui, alternatives: &Alternatives, what: &str) -> Option<Action> {
    if !alternatives.is_choice() {
        return None;
    }
    let mut action = None;
    let before = (Icon::Previous, format!("Previous {what}"), alternatives.before());
    let after = (Icon::Next, format!("Next {what}"), alternatives.after());
    let mut step = |ui: &mut Ui, (icon, label, to): (Icon, String, Option<u64>)| {
        ui.add_enabled_ui(to.is_some(), |ui| {
            if widgets::icon_button_sized(ui, icon, &label, 24.0).clicked() {
                action = to.map(Action::ShowBranch);
            }
        });
    };
    let (first, last) = if ui.layout().prefer_right_to_left() { (after, before) } else { (before, after) };
    step(ui, first);
    widgets::caption(ui, format!("{} / {}", alternatives.here + 1, alternatives.ids.len()));
    step(ui, last);
    action
}

/// Link back to the rest of the chat.
pub fn rest_ui(ui: &mut Ui, chat: &Chat) -> Option<Action> {
    let last = chat.exchanges.last().filter(|_| chat.has_continuation())?;
    let mut action = None;
    ui.horizontal(|ui| {
        widgets::caption(ui, "The next question starts a new branch. Later messages are kept.");
        if widgets::button(ui, Weight::Quiet, None, "Show it").clicked() {
            action = Some(Action::ShowBranch(last.id));
        }
    });
    action
}
