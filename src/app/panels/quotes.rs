//! The quotations of an answer: each opens its page, or is said to be in no document.

use egui::{Sense, Ui, vec2};

use super::Action;
use crate::app::chat::{Doc, Exchange};
use crate::app::icon::{self, Icon};
use crate::app::theme::{self, GRID};
use crate::app::{format, widgets};

/// Characters of a quotation in its row.
const SHOWN_CHARS: usize = 90;

/// A row for each quotation.
pub fn quotes_ui(ui: &mut Ui, exchange: &Exchange, documents: &[Doc]) -> Vec<Action> {
    let mut actions = Vec::new();
    let quotes = exchange.quotes.as_deref().unwrap_or_default();
    if quotes.is_empty() {
        return actions;
    }
    ui.add_space(GRID);
    for (i, cited) in quotes.iter().enumerate() {
        let text = format::title(&cited.text.split_whitespace().collect::<Vec<_>>().join(" "), SHOWN_CHARS);
        let spot = cited.found.as_ref().and_then(|spot| Some((spot, documents.iter().find(|d| d.id == spot.doc)?)));
        match spot {
            Some((spot, doc)) => {
                let page = format!("page {}", format::count(doc.page_number(spot.page)));
                let label = format!("\u{201C}{text}\u{201D}, {page} of {}", doc.name);
                let quoted = format!("\u{201C}{text}\u{201D}");
                if ui.push_id(i, |ui| widgets::row(ui, Some(Icon::Page), &quoted, &page, false, &label)).inner.clicked() {
                    actions.push(Action::ShowSpot(spot.clone(), exchange.id));
                }
            }
            None => not_found_ui(ui, &text),
        }
    }
    actions
}

fn not_found_ui(ui: &mut Ui, text: &str) {
    let t = theme::tokens(ui);
    ui.horizontal(|ui| {
        ui.set_height(theme::CONTROL);
        ui.spacing_mut().item_spacing.x = 2.0 * GRID;
        ui.add_space(2.0 * GRID);
        let (mark, _) = ui.allocate_exact_size(vec2(16.0, 16.0), Sense::hover());
        icon::paint(ui.painter(), Icon::Warning, mark, t.error_text);
        let sentence = format!("Not found in the document: \u{201C}{text}\u{201D}");
        ui.add(egui::Label::new(egui::RichText::new(sentence).color(t.error_text)).truncate());
    });
}
