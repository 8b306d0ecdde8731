//! Library in the sidebar: documents with saved KV, and documents whose text is stored.
//!
//! ```text
//! saved KV (engine) ┐
//! stored texts      ├─ by the hash of the text ─► LibraryItem ─► a row: state, size, a menu
//! this session      ┘
//! ```

use egui::{CornerRadius, Rect, Response, Role, Sense, Ui, WidgetInfo, pos2, vec2};

use crate::app::panels;
use crate::app::panels::Action;
use crate::app::panels::menu_row::{self, entry_ui, menu_row_ui};
use crate::app::state::chat::OpenDocument;
use crate::app::state::{ViewState, resume_estimate};
use crate::app::ui::icon::Icon;
use crate::app::ui::theme::{self, GRID, GUTTER};
use crate::app::ui::{format, widgets};
use crate::chats::StoredDocument;
use crate::engine::{SavedDocument, SavedState};

const ROW_HEIGHT: f32 = 44.0;

/// All data about one text.
struct LibraryItem<'a> {
    content_hash: String,
    name: &'a str,
    /// saved KV of one model: first of a prompt if there is such, else after other documents
    saved: Option<&'a SavedDocument>,
    /// other saved KV of the same model: after other documents
    others: Vec<&'a SavedDocument>,
    stored: Option<&'a StoredDocument>,
    doc: Option<&'a OpenDocument>,
    /// it belongs to the current chat
    here: bool,
}

/// Documents with saved KV first, most recently used first; then those with a stored text only.
pub fn library_ui(ui: &mut Ui, state: &ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    if panels::sidebar::heading_with_button(ui, "LIBRARY", "Add a document") {
        actions.push(Action::OpenDocuments);
    }
    let library_items = library_items(state);
    for (i, item) in library_items.iter().enumerate() {
        let key = (item.content_hash.as_str(), i);
        actions.extend(ui.push_id(key, |ui| item_ui(ui, state, item)).inner);
    }
    if library_items.is_empty() {
        panels::sidebar::note(ui, "Documents that were read appear here, and are not read again.");
    }
    actions
}

fn library_items(state: &ViewState) -> Vec<LibraryItem<'_>> {
    let doc_of = |hash: &str| state.documents.list.iter().find(|d| d.content_hash.to_string() == hash);
    let stored_of = |hash: &str| state.chats.persistence.documents.iter().find(|k| k.document.content_hash == hash);
    let is_here = |doc: Option<&OpenDocument>| doc.is_some_and(|d| state.chat().documents.contains(&d.id));
    let mut library_items: Vec<LibraryItem> = Vec::new();
    for saved in state.library.iter().flatten().filter(|s| !state.is_removed(&s.content_hash, true)) {
        let is_same = |other: &SavedDocument| {
            let is_after = !(saved.after.is_empty() && other.after.is_empty());
            is_after && (&other.content_hash, &other.model, other.kv_dtype) == (&saved.content_hash, &saved.model, saved.kv_dtype)
        };
        let item = library_items.iter_mut().find(|item| item.saved.is_some_and(is_same));
        if let Some(item) = item {
            item.add(saved);
            continue;
        }
        let (content_hash, doc) = (saved.content_hash.clone(), doc_of(&saved.content_hash));
        let (stored, others) = (stored_of(&content_hash), Vec::new());
        library_items.push(LibraryItem {
            content_hash,
            name: &saved.name,
            saved: Some(saved),
            others,
            stored,
            doc,
            here: is_here(doc),
        });
    }
    for stored in &state.chats.persistence.documents {
        let hash = &stored.document.content_hash;
        if !library_items.iter().any(|s| s.content_hash == *hash) && !state.is_removed(hash, false) {
            let doc = doc_of(hash);
            let (content_hash, name) = (hash.clone(), stored.document.name.as_str());
            library_items.push(LibraryItem {
                content_hash,
                name,
                saved: None,
                others: Vec::new(),
                stored: Some(stored),
                doc,
                here: is_here(doc),
            });
        }
    }
    library_items
}

impl<'a> LibraryItem<'a> {
    fn add(&mut self, saved: &'a SavedDocument) {
        let is_first = saved.after.is_empty() && self.saved.is_some_and(|shown| !shown.after.is_empty());
        let other = if is_first { self.saved.replace(saved) } else { Some(saved) };
        self.others.extend(other);
    }

    /// Bytes of all its KV on disk.
    fn kv_bytes(&self) -> u64 {
        self.saved.iter().chain(&self.others).map(|saved| saved.kv_bytes).sum()
    }

    fn note(&self) -> String {
        match (self.saved, self.doc, self.stored) {
            (Some(saved), _, _) => saved_note(saved, self.kv_bytes()),
            (None, Some(doc), _) => {
                let (n, exact) = doc.tokens();
                format!("not read · {}{} tokens", if exact { "" } else { "~" }, format::short_count(n))
            }
            (None, None, Some(stored)) => {
                let n = crate::app::state::chat::estimate_tokens(stored.n_chars);
                format!("not read · ~{} tokens", format::short_count(n))
            }
            (None, None, None) => String::new(),
        }
    }

    /// Effect of a click.
    fn act(&self) -> &'static str {
        match (self.doc.is_some() || self.stored.is_some(), self.here) {
            (_, true) => "in this chat",
            (true, false) => "add to this chat",
            (false, _) => "open its file to ask about it",
        }
    }

    fn clicked(&self) -> Action {
        match (self.doc, self.stored) {
            (Some(doc), _) => Action::Attach(doc.id),
            (None, Some(_)) => Action::AttachStored(self.content_hash.clone()),
            (None, None) => Action::OpenDocuments,
        }
    }
}

/// `read`, `41 % read`, `missing`, `read after a.txt`
fn state_label(saved: &SavedDocument) -> String {
    let state = match saved.state {
        SavedState::Read => "read".to_owned(),
        SavedState::Partial => format!("{} read", format::percent(saved.saved_tokens, saved.tokens)),
        SavedState::Missing => "missing".to_owned(),
    };
    let before = saved.after.iter().map(|before| before.name.as_str()).collect::<Vec<_>>().join(", ");
    if before.is_empty() { state } else { format!("{state} after {before}") }
}

/// `read · 3.50 GiB · 1.2M tokens`
fn saved_note(saved: &SavedDocument, kv_bytes: u64) -> String {
    let tokens = format!("{} tokens", format::short_count(saved.tokens));
    match saved.state {
        SavedState::Missing => format!("{} · {tokens}", state_label(saved)),
        _ => format!("{} · {} · {tokens}", state_label(saved), format::bytes(kv_bytes)),
    }
}

/// One document: a click adds it to the chat if its text is available, else opens a dialog for its file.
fn item_ui(ui: &mut Ui, state: &ViewState, item: &LibraryItem) -> Vec<Action> {
    let draw = |ui: &mut Ui, near: bool| line_ui(ui, item, near);
    let shown = menu_row_ui(ui, ROW_HEIGHT, &format!("More about {}", item.name), draw, |ui| menu_ui(ui, state, item));
    let mut actions = shown.actions;
    if shown.response.on_hover_ui(|ui| facts_ui(ui, state, item)).clicked() {
        actions.push(item.clicked());
    }
    actions
}

fn line_ui(ui: &mut Ui, item: &LibraryItem, near: bool) -> Response {
    let t = theme::tokens(ui);
    let (rect, row) = ui.allocate_exact_size(vec2(ui.available_width(), ROW_HEIGHT), Sense::click());
    let note = item.note();
    row.widget_info(|| WidgetInfo::labeled(Role::Button, true, format!("{}, {note}: {}", item.name, item.act())));
    let near = near || row.has_focus();
    if near {
        ui.painter().rect_filled(rect, CornerRadius::same(theme::RADIUS), t.hover);
    }
    let left = rect.left() + 2.0 * GRID;
    widgets::share_mark(ui, pos2(left + 8.0, rect.top() + 15.0), item.saved.map_or(0.0, resume_estimate::saved_share), t.disk);
    let text_left = left + 16.0 + 2.0 * GRID;
    let name_right = rect.right() - if near { GRID + menu_row::BUTTON } else { 2.0 * GRID };
    let name = Rect::from_min_max(pos2(text_left, rect.top() + GRID), pos2(name_right, rect.top() + 26.0));
    widgets::text_in(ui, name, item.name, theme::body(), if near { t.strong } else { t.text });
    let below = Rect::from_min_max(pos2(text_left, rect.top() + 24.0), pos2(rect.right() - GRID, rect.bottom() - GRID));
    widgets::text_in(ui, below, &note, theme::small(), t.weak);
    widgets::focus_ring(ui, &row, rect, theme::RADIUS);
    row
}

fn menu_ui(ui: &mut Ui, state: &ViewState, item: &LibraryItem) -> Vec<Action> {
    let mut actions = Vec::new();
    let remove =
        |keeps_text| Action::RemoveDocument { content_hash: item.content_hash.clone(), name: item.name.to_owned(), keeps_text };
    if let Some(doc) = item.doc
        && entry_ui(ui, Icon::Page, "Show its pages")
    {
        actions.push(Action::ShowDocument(doc.id));
    }
    if let Some(doc) = item.doc.filter(|doc| state.can_prefill_alone(doc))
        && entry_ui(ui, Icon::Layers, "Read it by itself")
    {
        actions.push(Action::PrefillAlone(doc.id));
    }
    let has_kv = item.saved.is_some_and(|s| s.state != SavedState::Missing);
    if has_kv && item.stored.is_some() && entry_ui(ui, Icon::Layers, "Delete KV, keep text") {
        actions.push(remove(true));
    }
    if entry_ui(ui, Icon::Trash, "Remove from the library") {
        actions.push(remove(false));
    }
    actions
}

/// Tooltip of a document.
fn facts_ui(ui: &mut Ui, state: &ViewState, item: &LibraryItem) {
    egui::Frame::NONE.inner_margin(8).show(ui, |ui| facts_in_ui(ui, state, item));
}

fn facts_in_ui(ui: &mut Ui, state: &ViewState, item: &LibraryItem) {
    let t = theme::tokens(ui);
    ui.set_max_width(300.0);
    ui.label(egui::RichText::new(item.name).color(t.strong));
    egui::Grid::new("facts").num_columns(2).spacing(vec2(GUTTER, 2.0)).min_row_height(18.0).show(ui, |ui| {
        for (name, value) in facts(state, item) {
            widgets::caption(ui, name);
            ui.label(egui::RichText::new(value).font(theme::small()));
            ui.end_row();
        }
    });
    ui.add_space(GRID);
    widgets::caption(ui, format!("Click: {}.", item.act()));
}

fn facts(state: &ViewState, item: &LibraryItem) -> Vec<(String, String)> {
    let pages = |n: usize| if n == 1 { "1 page".to_owned() } else { format!("{} pages", format::count(n)) };
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: String| facts.push((name.to_owned(), value));
    match (item.saved, item.stored) {
        (Some(saved), stored) => {
            fact("State", state_label(saved));
            fact("File", format!("{}, {}", format::bytes(saved.bytes), pages(saved.pages)));
            fact("Read by", saved.model.clone());
            fact("KV on the disk", format!("{}, {}", saved.kv_dtype.name(), format::bytes(item.kv_bytes())));
            for other in &item.others {
                fact("Also", state_label(other));
            }
            if saved.state != SavedState::Missing {
                fact(
                    "Time to resume",
                    format::about_seconds(resume_estimate::resume_seconds(saved.kv_bytes, state.measured.disk_speed)),
                );
            }
            fact("Saves reading for", format::seconds(saved.prefill_seconds));
            fact("Last used", format::date(saved.last_used));
            fact("Text", if stored.is_some() { "kept" } else { "in its file" }.to_owned());
        }
        (None, Some(stored)) => {
            fact("State", "not read".to_owned());
            fact("File", format!("{}, {}", format::bytes(stored.bytes), pages(stored.n_pages)));
            fact("Characters", format::count(stored.n_chars));
        }
        (None, None) => {}
    }
    // The context belongs to the current chat; its documents share it.
    if let Some(kv) = state.measured.kv.filter(|_| item.here && state.chat().cached_tokens > 0) {
        let held =
            [("This chat in VRAM", kv.used.vram), ("This chat in RAM", kv.used.ram), ("This chat on the disk", kv.used.disk)];
        held.into_iter().filter(|(_, used)| *used > 0).for_each(|(name, used)| fact(name, format::bytes(used)));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::test_support::saved;

    #[test]
    fn saved_document_shows_state_size_and_tokens() {
        let note = |state| saved_note(&saved(state), saved(state).kv_bytes);
        assert_eq!(note(SavedState::Read), "read · 3.50 GiB · 1.2M tokens");
        assert_eq!(note(SavedState::Partial), "41 % read · 3.50 GiB · 1.2M tokens");
        assert_eq!(note(SavedState::Missing), "missing · 1.2M tokens");
    }
}
