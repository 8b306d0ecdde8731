//! Document view beside the chat: pages, search, and a highlighted quotation.
//!
//! ```text
//! Viewer { page, marked } ──► header, page number, search ──► the text of one page, the passage highlighted
//!        { answer } ────────► its attended pages, below
//! ```
//! Invariants: 1. One page is laid out at a time. 2. Pages have the numbers of the file.
//! Owner thread: the UI thread.

use std::ops::Range;

use egui::text::{CCursor, LayoutJob, TextFormat};
use egui::{DragValue, Frame, Label, Margin, Panel, RichText, ScrollArea, TextEdit, Ui, vec2};

use crate::app::answer::page_attention::AttendedPage;
use crate::app::panels::Action;
use crate::app::panels::chat::page_attention::{answered, attended_pages_ui};
use crate::app::state::ViewState;
use crate::app::state::chat::OpenDocument;
use crate::app::state::viewer::Viewer;
use crate::app::ui::icon::Icon;
use crate::app::ui::theme::{self, GRID, GUTTER};
use crate::app::ui::{format, shortcuts, widgets};

/// Width of the panel when it opens, points.
const WIDTH: f32 = 440.0;
/// Width left for the chat at least, points.
const CHAT_WIDTH: f32 = 360.0;

/// The panel at the right. Draws nothing if no document is open.
pub fn document_view_ui(ui: &mut Ui, state: &mut ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    let Some(mut viewer) = state.documents.viewer.take() else { return actions };
    let Some(doc) = state.documents.list.iter().find(|d| d.id == viewer.doc) else { return actions };
    let t = theme::tokens(ui);
    let frame = Frame::NONE.fill(t.panel).inner_margin(Margin::symmetric(16, 12));
    let widest = (ui.available_width() - CHAT_WIDTH).max(200.0);
    let panel = Panel::right("document page").resizable(true).default_size(WIDTH.min(widest)).size_range(200.0..=widest);
    panel.frame(frame).show(ui, |ui| {
        let answer = answered(state, viewer.answer).filter(|_| state.chat().documents.contains(&viewer.doc));
        let read = Panel::bottom("most read").resizable(false).frame(Frame::NONE);
        let chosen = answer.and_then(|answer| read.show(ui, |ui| attended_pages_ui(ui, state, answer)).inner);
        let name = state.chat().document_name(&state.documents.list, doc);
        if pages_ui(ui, doc, &name, &mut viewer) {
            actions.push(Action::CloseDocument);
        }
        if let Some(AttendedPage { doc, page, .. }) = chosen {
            viewer = Viewer { answer: viewer.answer, page, ..Viewer::of(doc) };
        }
    });
    state.documents.viewer = Some(viewer);
    actions
}

/// Pages of a document. True if the user closes it.
pub fn pages_ui(ui: &mut Ui, doc: &OpenDocument, name: &str, viewer: &mut Viewer) -> bool {
    let is_closed = header_ui(ui, name);
    turn_ui(ui, doc, viewer);
    search_ui(ui, doc, viewer);
    ui.add_space(2.0 * GRID);
    ui.separator();
    page_ui(ui, doc, viewer);
    is_closed
}

/// The name and the close button. True if that is clicked.
fn header_ui(ui: &mut Ui, name: &str) -> bool {
    let t = theme::tokens(ui);
    ui.horizontal(|ui| {
        let title = RichText::new(name).color(t.strong);
        let width = ui.available_width() - theme::CONTROL;
        ui.allocate_ui(vec2(width, theme::CONTROL), |ui| ui.add(Label::new(title).truncate()));
        ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
            widgets::icon_button(ui, Icon::Cross, "Close the document").clicked()
        })
        .inner
    })
    .inner
}

fn turn_ui(ui: &mut Ui, doc: &OpenDocument, viewer: &mut Viewer) {
    let n_pages = doc.pages.len();
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = GRID;
        ui.add_enabled_ui(viewer.page > 0, |ui| {
            if widgets::icon_button(ui, Icon::Previous, "Previous page").clicked() {
                viewer.go_to_page(viewer.page.saturating_sub(1));
            }
        });
        widgets::caption(ui, "Page");
        let (first, last) = (doc.page_number(0), doc.page_number(n_pages.saturating_sub(1)));
        let mut number = doc.page_number(viewer.page);
        let field = ui.add(DragValue::new(&mut number).range(first..=last).speed(0.2)).accessible_name("Page number");
        if field.changed() {
            viewer.go_to_page(number.saturating_sub(first));
        }
        widgets::caption(ui, format!("of {}", format::count(last)));
        ui.add_enabled_ui(viewer.page + 1 < n_pages, |ui| {
            if widgets::icon_button(ui, Icon::Next, "Next page").clicked() {
                viewer.go_to_page(viewer.page + 1);
            }
        });
        let at = doc.pages.get(viewer.page).map_or(0, |page| page.first_byte);
        if let Some(section) = doc.section_of(at) {
            ui.add_space(GUTTER);
            let t = theme::tokens(ui);
            ui.add(Label::new(RichText::new(&section.title).font(theme::small()).color(t.weak)).truncate());
        }
    });
}

fn search_ui(ui: &mut Ui, doc: &OpenDocument, viewer: &mut Viewer) {
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = GRID;
        let width = (ui.available_width() - 180.0).max(80.0);
        let field = TextEdit::singleline(&mut viewer.search).hint_text("Search this document").desired_width(width);
        let response = ui.add(field).accessible_name("Search this document");
        let backwards = shortcuts::FIND_BACK.is_pressed(ui);
        let enter = response.lost_focus() && shortcuts::SEND.is_pressed(ui);
        if response.changed() {
            viewer.matches = None;
        }
        let has_words = !viewer.search.trim().is_empty();
        let (mut next, mut previous) = (enter && has_words && !backwards, enter && has_words && backwards);
        ui.add_enabled_ui(has_words, |ui| {
            previous |= widgets::icon_button(ui, Icon::Previous, "Previous match").clicked();
            next |= widgets::icon_button(ui, Icon::Next, "Next match").clicked();
        });
        if next || previous {
            viewer.find(doc, previous);
        }
        if enter {
            response.request_focus();
        }
        match viewer.matches {
            Some((_, 0)) => widgets::caption(ui, "not found"),
            Some((at, n)) => widgets::caption(ui, format!("{} of {}", format::count(at), format::count(n))),
            None => return,
        };
    });
}

fn page_ui(ui: &mut Ui, doc: &OpenDocument, viewer: &mut Viewer) {
    let text = doc.page_text(viewer.page).unwrap_or_default();
    let first_byte = doc.pages.get(viewer.page).map_or(0, |page| page.first_byte);
    let marked = viewer.marked.as_ref().and_then(|marked| on_page(marked, first_byte, text));
    let area = ScrollArea::vertical().id_salt((doc.id, viewer.page)).auto_shrink(false);
    area.show(ui, |ui| {
        if text.trim().is_empty() {
            widgets::caption(ui, "There is no text on this page.");
            return;
        }
        let mut job = page_job(ui, text, marked.clone());
        job.wrap.max_width = ui.available_width();
        let galley = ui.fonts_mut(|fonts| fonts.layout_job(job));
        let response = ui.add(Label::new(galley.clone()).selectable(true));
        if let (Some(marked), true) = (marked, viewer.is_new) {
            let index = text.get(..marked.start).map_or(0, |before| before.chars().count());
            let at = galley.pos_from_cursor(CCursor::new(index)).translate(response.rect.min.to_vec2());
            ui.scroll_to_rect(at, Some(egui::Align::Center));
            viewer.is_new = false;
        }
    });
}

/// The part of a passage on this page, as bytes of the page.
fn on_page(marked: &Range<usize>, first_byte: usize, text: &str) -> Option<Range<usize>> {
    let start = marked.start.max(first_byte) - first_byte;
    let end = marked.end.checked_sub(first_byte)?.min(text.len());
    text.get(start..end).filter(|part| !part.is_empty()).map(|_| start..end)
}

fn page_job(ui: &Ui, text: &str, marked: Option<Range<usize>>) -> LayoutJob {
    let t = theme::tokens(ui);
    let plain = TextFormat { font_id: theme::body(), color: t.text, ..TextFormat::default() };
    let lit = TextFormat { color: t.on_accent, background: t.accent, ..plain.clone() };
    let marked = marked.unwrap_or(0..0);
    let mut job = LayoutJob::default();
    for (range, format) in [(0..marked.start, &plain), (marked.clone(), &lit), (marked.end..text.len(), &plain)] {
        job.append(text.get(range).unwrap_or_default(), 0.0, format.clone());
    }
    job
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;

    fn document() -> Document {
        Document::from_bytes("a.txt", "The lamp.\u{0C}A Lamp and\nanother lamp.\u{0C}Nothing.".as_bytes()).unwrap()
    }

    #[test]
    fn passage_is_marked_on_every_page_that_it_touches() {
        let document = document();
        let passage = 4..20;
        let shown = |page: usize| {
            let text = document.page_text(page).unwrap();
            on_page(&passage, document.pages[page].first_byte, text).map(|range| text[range].to_owned())
        };
        assert_eq!((shown(0).as_deref(), shown(1).as_deref(), shown(2)), (Some("lamp.\n"), Some("A Lamp and"), None));
    }
}
