//! The library in the sidebar: documents whose KV is kept, and those of this session; and the question before one of
//! them is removed, which is the only thing of the window that is modal.

use egui::{CornerRadius, Id, Layout, Modal, Rect, Role, Sense, Ui, UiBuilder, Vec2, WidgetInfo, pos2, vec2};

use super::Action;
use crate::app::chat::Doc;
use crate::app::icon::Icon;
use crate::app::kept;
use crate::app::state::ViewState;
use crate::app::theme::{self, GRID, GUTTER};
use crate::app::widgets::{self, Weight};
use crate::app::{format, panels};
use crate::engine::{SavedDocument, SavedState};

const ROW_HEIGHT: f32 = 44.0;
/// Side of the button that removes, points.
const REMOVE: f32 = 24.0;

/// Saved documents first, least recently used last; then those of this session that are not kept.
pub fn library_ui(ui: &mut Ui, state: &ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    if super::sidebar::heading_with_button(ui, "LIBRARY", "Add a document") {
        actions.push(Action::OpenDocuments);
    }
    let saved = state.library.as_deref().unwrap_or_default();
    let doc_of = |s: &SavedDocument| state.documents.iter().find(|d| d.content_hash.to_string() == s.content_hash);
    for document in saved {
        let doc = doc_of(document);
        let here = doc.is_some_and(|d| state.chat().documents.contains(&d.id));
        actions.extend(ui.push_id(&document.id, |ui| saved_ui(ui, document, doc, here)).inner);
    }
    let kept = |d: &Doc| saved.iter().any(|s| s.content_hash == d.content_hash.to_string());
    for doc in state.documents.iter().filter(|d| !kept(d)) {
        let here = state.chat().documents.contains(&doc.id);
        let label = if here { format!("{}, in this chat", doc.name) } else { format!("Add {} to this chat", doc.name) };
        if ui.push_id(doc.id, |ui| widgets::row(ui, Some(Icon::Page), &doc.name, &doc_note(doc), false, &label).clicked()).inner {
            actions.push(Action::Attach(doc.id));
        }
    }
    if saved.is_empty() && state.documents.is_empty() {
        super::sidebar::note(ui, "Documents that were read appear here, and are not read again.");
    }
    actions
}

fn doc_note(doc: &Doc) -> String {
    let (n, exact) = doc.tokens();
    if exact { format::short_count(n) } else { format!("~{}", format::short_count(n)) }
}

/// `read`, `41 % read`, `missing`
fn state_words(saved: &SavedDocument) -> String {
    match saved.state {
        SavedState::Read => "read".to_owned(),
        SavedState::Partial => format!("{} read", format::percent(saved.saved_tokens, saved.tokens)),
        SavedState::Missing => "missing".to_owned(),
    }
}

/// `read · 3.50 GiB · 1.2M tokens`
fn saved_note(saved: &SavedDocument) -> String {
    let tokens = format!("{} tokens", format::short_count(saved.tokens));
    match saved.state {
        SavedState::Missing => format!("{} · {tokens}", state_words(saved)),
        _ => format!("{} · {} · {tokens}", state_words(saved), format::bytes(saved.kv_bytes)),
    }
}

/// One saved document: a click puts it in front of the chat if its text is there, and asks for its file otherwise.
fn saved_ui(ui: &mut Ui, saved: &SavedDocument, doc: Option<&Doc>, here: bool) -> Vec<Action> {
    let mut actions = Vec::new();
    let t = theme::tokens(ui);
    let (rect, row) = ui.allocate_exact_size(vec2(ui.available_width(), ROW_HEIGHT), Sense::click());
    let act = match doc {
        Some(_) if here => "in this chat",
        Some(_) => "add to this chat",
        None => "open its file to ask about it",
    };
    let note = saved_note(saved);
    row.widget_info(|| WidgetInfo::labeled(Role::Button, true, format!("{}, {note}: {act}", saved.name)));
    let near = ui.rect_contains_pointer(rect) || row.has_focus();
    if near {
        ui.painter().rect_filled(rect, CornerRadius::same(theme::RADIUS), t.hover);
    }
    let left = rect.left() + 2.0 * GRID;
    widgets::share_mark(ui, pos2(left + 8.0, rect.top() + 15.0), kept::saved_share(saved), t.disk);
    let text_left = left + 16.0 + 2.0 * GRID;
    let remove = Rect::from_center_size(pos2(rect.right() - GRID - REMOVE / 2.0, rect.top() + 16.0), Vec2::splat(REMOVE));
    let name_right = if near { remove.left() } else { rect.right() - 2.0 * GRID };
    let name = Rect::from_min_max(pos2(text_left, rect.top() + GRID), pos2(name_right, rect.top() + 26.0));
    widgets::text_in(ui, name, &saved.name, theme::body(), if near { t.strong } else { t.text });
    let below = Rect::from_min_max(pos2(text_left, rect.top() + 24.0), pos2(rect.right() - GRID, rect.bottom() - GRID));
    widgets::text_in(ui, below, &note, theme::small(), t.weak);
    widgets::focus_ring(ui, &row, rect, theme::RADIUS);
    let mut child = ui.new_child(UiBuilder::new().max_rect(remove).layout(Layout::left_to_right(egui::Align::Center)));
    let focused = child.memory(|m| m.has_focus(child.next_auto_id()));
    child.set_opacity(if near || focused { 1.0 } else { 0.0 });
    let label = format!("Remove {} from the library", saved.name);
    if widgets::icon_button_sized(&mut child, Icon::Trash, &label, REMOVE).clicked() {
        actions.push(Action::AskRemove(saved.id.clone()));
    }
    if row.on_hover_ui(|ui| facts_ui(ui, saved, act)).clicked() {
        actions.push(doc.map_or(Action::OpenDocuments, |d| Action::Attach(d.id)));
    }
    actions
}

/// What the pointer finds out.
fn facts_ui(ui: &mut Ui, saved: &SavedDocument, act: &str) {
    egui::Frame::NONE.inner_margin(8).show(ui, |ui| facts_in_ui(ui, saved, act));
}

fn facts_in_ui(ui: &mut Ui, saved: &SavedDocument, act: &str) {
    let t = theme::tokens(ui);
    ui.set_max_width(300.0);
    ui.label(egui::RichText::new(&saved.name).color(t.strong));
    let pages = if saved.pages == 1 { "1 page".to_owned() } else { format!("{} pages", format::count(saved.pages)) };
    let facts = [
        ("State", state_words(saved)),
        ("File", format!("{}, {pages}", format::bytes(saved.bytes))),
        ("Read by", saved.model.clone()),
        ("KV cache", format!("{}, {}", panels::kv_dtype_name(saved.kv_dtype), format::bytes(saved.kv_bytes))),
        ("Saves reading for", format::seconds(saved.prefill_seconds)),
        ("Last used", format::date(saved.last_used)),
    ];
    egui::Grid::new("facts").num_columns(2).spacing(vec2(GUTTER, 2.0)).min_row_height(18.0).show(ui, |ui| {
        for (name, value) in facts {
            widgets::caption(ui, name);
            ui.label(egui::RichText::new(value).font(theme::small()));
            ui.end_row();
        }
    });
    ui.add_space(GRID);
    widgets::caption(ui, format!("Click: {act}."));
}

/// The question before a saved document is removed. Nothing is drawn where none is to be.
pub fn confirm_ui(ctx: &egui::Context, state: &ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    let removing = state.removing.as_ref().and_then(|id| state.library.iter().flatten().find(|d| d.id == *id));
    let Some(saved) = removing else { return actions };
    let frame = |ui: &egui::Style| egui::Frame::window(ui).inner_margin(theme::SECTION);
    let style = ctx.global_style();
    let shown = Modal::new(Id::unique("strata remove")).frame(frame(&style)).show(ctx, |ui| {
        let t = theme::tokens(ui);
        ui.set_width(380.0);
        ui.label(egui::RichText::new(format!("Remove {}?", saved.name)).heading().color(t.strong));
        ui.add_space(2.0 * GRID);
        let time = format::seconds(saved.prefill_seconds);
        ui.label(format!(
            "This frees {} on the disk. The file itself stays where it is; the next question about it reads it again, which \
             took {time}.",
            format::bytes(saved.kv_bytes)
        ));
        ui.add_space(theme::SECTION - GRID);
        ui.with_layout(Layout::right_to_left(egui::Align::Center), |ui| {
            if widgets::button(ui, Weight::Primary, Some(Icon::Trash), "Remove").clicked() {
                actions.push(Action::Remove);
            }
            let keep = widgets::button(ui, Weight::Plain, None, "Keep");
            if ui.memory(|m| m.focused().is_none()) {
                keep.request_focus();
            }
            if keep.clicked() {
                actions.push(Action::KeepSaved);
            }
        });
    });
    if shown.should_close() {
        actions.push(Action::KeepSaved);
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing::saved;

    #[test]
    fn saved_document_says_state_size_and_tokens() {
        assert_eq!(saved_note(&saved(SavedState::Read)), "read · 3.50 GiB · 1.2M tokens");
        assert_eq!(saved_note(&saved(SavedState::Partial)), "41 % read · 3.50 GiB · 1.2M tokens");
        assert_eq!(saved_note(&saved(SavedState::Missing)), "missing · 1.2M tokens");
    }
}
