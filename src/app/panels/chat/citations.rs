//! Citation rows: quotations of an answer, each with the way to its page or a warning, and mentions that a list misses.

use egui::{Sense, Ui, vec2};

use crate::app::answer::citations::Citation;
use crate::app::panels::Action;
use crate::app::state::chat::{Chat, Exchange, OpenDocument};
use crate::app::ui::icon::{self, Icon};
use crate::app::ui::theme::{self, GRID};
use crate::app::ui::{format, widgets};
use crate::document::{MAX_MISSING_MENTIONS, QuoteKind};

/// Characters of a quotation in its row.
const SHOWN_CHARS: usize = 90;

/// Characters of a document's name in a row.
const NAME_CHARS: usize = 28;

/// Rows of mentions that a list leaves out, before they are counted only.
const SHOWN_LEFT_OUT: usize = 5;

/// A row for each quotation, and for mentions that a list leaves out.
pub fn citations_ui(ui: &mut Ui, chat: &Chat, exchange: &Exchange, documents: &[OpenDocument]) -> Vec<Action> {
    let sources = Sources { chat, documents, are_named: chat.documents.len() + chat.missing.len() > 1 };
    let quotes = exchange.quotes.as_deref().unwrap_or_default();
    // Missing mentions come last.
    let n_cited = quotes.partition_point(|cited| cited.kind != QuoteKind::MissingMention);
    let n_left_out = quotes.len() - n_cited;
    let mut actions = Vec::new();
    if quotes.is_empty() {
        return actions;
    }
    ui.add_space(GRID);
    for (i, cited) in quotes.iter().enumerate().take(n_cited) {
        actions.extend(citation_ui(ui, i, cited, exchange, &sources));
    }
    if n_left_out == 0 {
        return actions;
    }
    let places = match n_left_out {
        1 => "one mention".to_owned(),
        MAX_MISSING_MENTIONS.. => format!("{MAX_MISSING_MENTIONS} mentions or more"),
        n => format!("{n} mentions"),
    };
    warning_ui(ui, format!("The list leaves out {places}:"));
    for (i, cited) in quotes.iter().enumerate().skip(n_cited).take(SHOWN_LEFT_OUT) {
        actions.extend(citation_ui(ui, i, cited, exchange, &sources));
    }
    if let n @ 1.. = n_left_out.saturating_sub(SHOWN_LEFT_OUT) {
        ui.horizontal(|ui| {
            ui.add_space(2.0 * GRID);
            widgets::caption(ui, format!("and {n} more"));
        });
    }
    actions
}

/// The documents that quotations are from.
struct Sources<'a> {
    chat: &'a Chat,
    documents: &'a [OpenDocument],
    /// rows name the document: the chat has several
    are_named: bool,
}

/// A quotation that opens its page, or a warning if no document has it.
fn citation_ui(ui: &mut Ui, i: usize, cited: &Citation, exchange: &Exchange, sources: &Sources<'_>) -> Option<Action> {
    let text = format::title(&cited.text.split_whitespace().collect::<Vec<_>>().join(" "), SHOWN_CHARS);
    let spot = cited.found.as_ref().and_then(|spot| Some((spot, sources.documents.iter().find(|d| d.id == spot.doc)?)));
    let Some((spot, doc)) = spot else {
        let within = if sources.are_named { "any document" } else { "the document" };
        warning_ui(ui, format!("Not found in {within}: \u{201C}{text}\u{201D}"));
        return None;
    };
    let page = format!("page {}", format::count(doc.page_number(spot.page)));
    let name = sources.chat.document_name(sources.documents, doc);
    let label = format!("\u{201C}{text}\u{201D}, {page} of {name}");
    let quoted = format!("\u{201C}{text}\u{201D}");
    let note = match sources.are_named {
        true => format!("{} · {page}", format::shorten_middle(&name, NAME_CHARS)),
        false => page,
    };
    let row = ui.push_id(i, |ui| widgets::row(ui, Some(Icon::Page), &quoted, &note, false, &label)).inner;
    row.clicked().then(|| Action::ShowSource(spot.clone(), exchange.id))
}

fn warning_ui(ui: &mut Ui, sentence: String) {
    let t = theme::tokens(ui);
    ui.horizontal(|ui| {
        ui.set_height(theme::CONTROL);
        ui.spacing_mut().item_spacing.x = 2.0 * GRID;
        ui.add_space(2.0 * GRID);
        let (mark, _) = ui.allocate_exact_size(vec2(16.0, 16.0), Sense::hover());
        icon::paint(ui.painter(), Icon::Warning, mark, t.error_text);
        ui.add(egui::Label::new(egui::RichText::new(sentence).color(t.error_text)).truncate());
    });
}
