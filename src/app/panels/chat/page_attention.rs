//! Page attention beside a document: the pages that an answer attended to most, each a link to its page.

use egui::{CornerRadius, Label, Rect, RichText, Role, Sense, Ui, WidgetInfo, pos2, vec2};

use crate::app::answer::page_attention::{AttendedPage, AttendedPages};
use crate::app::state::ViewState;
use crate::app::state::chat::{Exchange, OpenDocument, Outcome};
use crate::app::ui::theme::{self, GRID};
use crate::app::ui::{format, widgets};
use crate::engine::{AttentionKind, RequestSummary};

/// Lines at most.
const LINES: usize = 6;
/// Height of a line, points.
const LINE: f32 = 26.0;
/// Width of a bar, points.
const BAR: f32 = 88.0;
/// Room for the figure after it, points.
const FIGURE: f32 = 44.0;
/// Characters of a question.
const QUESTION_CHARS: usize = 48;

/// List of attended pages. Returns the page that was clicked.
pub fn attended_pages_ui(ui: &mut Ui, state: &ViewState, exchange: &Exchange) -> Option<AttendedPage> {
    let t = theme::tokens(ui);
    ui.add_space(GRID);
    ui.label(RichText::new("Pages most read").color(t.strong));
    widgets::caption(ui, format!("for \u{201C}{}\u{201D}", format::title(&exchange.question, QUESTION_CHARS)));
    let mut chosen = None;
    for page in exchange.attended_pages.iter().flat_map(|read| &read.pages).take(LINES) {
        let Some(doc) = state.documents.list.iter().find(|doc| doc.id == page.doc) else { continue };
        let name = state.chat().document_name(&state.documents.list, doc);
        if line_ui(ui, doc, &name, page, state.chat().documents.len() > 1) {
            chosen = Some(*page);
        }
    }
    let note = RichText::new(note(exchange)).font(theme::small()).color(t.weak);
    ui.add(Label::new(note).wrap());
    chosen
}

/// The selected answer, else the last one of the chat.
pub fn answered(state: &ViewState, answer: Option<u64>) -> Option<&Exchange> {
    let exchanges = &state.chat().exchanges;
    let asked = exchanges.iter().find(|e| Some(e.id) == answer);
    let has_ended = |e: &&Exchange| matches!(e.outcome, Outcome::Done(_) | Outcome::Restored(_)) && !e.answer.is_empty();
    asked.or_else(|| exchanges.iter().rfind(has_ended))
}

/// Meaning of the figures, or the reason why there are none.
fn note(exchange: &Exchange) -> String {
    match (&exchange.attended_pages, &exchange.outcome) {
        (Some(read), Outcome::Done(summary)) => measured(read, summary),
        (None, Outcome::Done(summary)) if summary.phases.ended_ns > 0 => unmeasured(summary).to_owned(),
        _ => "The pages most read are not saved with a chat. Ask again to see them.".to_owned(),
    }
}

fn measured(read: &AttendedPages, summary: &RequestSummary) -> String {
    let reads = match &summary.selection {
        Some(selection) => format!("{:.0} % of the context was read", (selection.share_read * 100.0).ceil()),
        None => "Every page was read".to_owned(),
    };
    let n_tokens = format::count(summary.generated_tokens);
    format!("Share of the attention on the documents, at {} of {n_tokens} tokens of the answer. {reads}.", read.n_steps)
}

fn unmeasured(summary: &RequestSummary) -> &'static str {
    match summary.attention {
        AttentionKind::ExactOffload => {
            "Exact attention read every page. The pages most read are not measured if pages are in RAM or on the disk."
        }
        AttentionKind::Dense | AttentionKind::ExactByCost => {
            "Exact attention read every page. The pages most read were not measured: the answer is too short."
        }
        AttentionKind::Selective => "The pages most read were not measured: the answer is too short.",
    }
}

/// Page, section or document, bar and figure. True if it is clicked.
fn line_ui(ui: &mut Ui, doc: &OpenDocument, name: &str, page: &AttendedPage, names_document: bool) -> bool {
    let t = theme::tokens(ui);
    let number = format::count(doc.page_number(page.page));
    let share = format!("{:.0} %", page.share * 100.0);
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), LINE), Sense::click());
    let label = format!("Read most: page {number} of {name}, {share}");
    response.widget_info(|| WidgetInfo::labeled(Role::Button, true, &label));
    let lit = response.hovered() || response.has_focus();
    if lit {
        ui.painter().rect_filled(rect, CornerRadius::same(theme::RADIUS), t.hover);
    }
    let first_byte = doc.pages.get(page.page).map_or(0, |span| span.first_byte);
    let section = doc.section_of(first_byte).map(|section| section.title.as_str());
    let within = if names_document { Some(name) } else { section };
    let within = within.map(|within| format!(" · {within}")).unwrap_or_default();
    let bar_left = rect.right() - FIGURE - BAR;
    let words = Rect::from_min_max(rect.min + vec2(GRID, 0.0), pos2(bar_left - 2.0 * GRID, rect.bottom()));
    let ink = if lit { t.strong } else { t.text };
    widgets::text_in(ui, words, &format!("Page {number}{within}"), theme::body(), ink);
    let bar = Rect::from_min_size(pos2(bar_left, rect.center().y - theme::METER), vec2(BAR, 2.0 * theme::METER));
    ui.painter().rect_filled(bar, CornerRadius::same(2), t.idle);
    ui.painter().rect_filled(bar.with_max_x(bar.left() + BAR * page.share), CornerRadius::same(2), t.accent);
    let at = pos2(rect.right() - GRID, rect.center().y);
    ui.painter().text(at, egui::Align2::RIGHT_CENTER, share, theme::small(), t.text);
    widgets::focus_ring(ui, &response, rect, theme::RADIUS);
    response.clicked()
}
