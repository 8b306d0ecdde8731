//! The text that a page of the KV cache was made of, on the page of the document that it stands on.
//!
//! ```text
//! byte range of the documents as one text ─► place() ─► which document, which of its pages ─► reader_ui
//! ```

use std::ops::Range;

use egui::text::{CCursor, LayoutJob, TextFormat};
use egui::{ScrollArea, Ui};

use crate::app::chat::{Chat, Doc, DocId};
use crate::app::format;
use crate::app::icon::Icon;
use crate::app::theme::{self, GRID};
use crate::app::widgets;
use crate::document::BLANK_LINE;

/// What is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reader {
    /// of which document
    pub document: DocId,
    /// bytes of its text that are marked
    pub marked: Range<usize>,
}

/// Where a byte of the documents of `chat`, joined as the model reads them, is: which document, and the byte in it.
pub fn place<'a>(chat: &Chat, documents: &'a [Doc], byte: usize) -> Option<(&'a Doc, usize)> {
    let mut begin = 0;
    for id in &chat.documents {
        let doc = documents.iter().find(|doc| doc.id == *id)?;
        let end = begin + doc.text.len();
        if byte < end {
            return Some((doc, byte.saturating_sub(begin)));
        }
        begin = end + BLANK_LINE.len();
    }
    None
}

/// The page of a document that holds `byte`, from 0.
pub fn page_of(doc: &Doc, byte: usize) -> usize {
    doc.pages.partition_point(|page| page.end_byte <= byte).min(doc.pages.len().saturating_sub(1))
}

impl Reader {
    /// Bytes `range` of the documents of `chat` as one text; none where they are of no document, such as those of a question.
    pub fn open(chat: &Chat, documents: &[Doc], range: Range<usize>) -> Option<Reader> {
        let (doc, first) = place(chat, documents, range.start)?;
        let end = first + range.len();
        Some(Reader { document: doc.id, marked: to_char(&doc.text, first)..to_char(&doc.text, end) })
    }
}

/// The code point that begins at or before `byte`.
fn to_char(text: &str, byte: usize) -> usize {
    let byte = byte.min(text.len());
    (0..=byte).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Draws the page, with what is marked. True when it is to be closed.
pub fn reader_ui(ui: &mut Ui, reader: &Reader, documents: &[Doc]) -> bool {
    let t = theme::tokens(ui);
    let Some(doc) = documents.iter().find(|doc| doc.id == reader.document) else { return true };
    let page = page_of(doc, reader.marked.start);
    let mut closed = false;
    ui.horizontal(|ui| {
        let name = format::title(&doc.name, 32);
        ui.label(egui::RichText::new(name).font(theme::small()).color(t.strong));
        widgets::caption(ui, format!("page {} of {}", format::count(page + 1), format::count(doc.pages.len())));
        ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
            closed = widgets::icon_button(ui, Icon::Cross, "Close the page").clicked();
        });
    });
    ui.add_space(GRID);
    let span = doc.pages.get(page).map_or(0..doc.text.len(), |p| p.first_byte..p.end_byte);
    ui.set_max_width(ui.available_width().min(theme::COLUMN_WIDTH));
    ScrollArea::vertical().id_salt(("reader", doc.id, page)).auto_shrink(false).show(ui, |ui| {
        let job = marked_text(&doc.text, span.clone(), &reader.marked, ui.available_width(), t);
        let galley = ui.painter().layout_job(job);
        let before = doc.text.get(span.start..reader.marked.start).map_or(0, |text| text.chars().count());
        let mark = galley.pos_from_cursor(CCursor::new(before));
        let response = ui.add(egui::Label::new(galley));
        show_once(ui, reader, mark.translate(response.rect.min.to_vec2()));
    });
    closed
}

/// Brings the mark into view, when it is another one than before.
fn show_once(ui: &Ui, reader: &Reader, mark: egui::Rect) {
    let id = ui.scope_id().with("shown mark");
    let shown = ui.data(|data| data.get_temp::<usize>(id));
    if shown != Some(reader.marked.start) {
        ui.data_mut(|data| data.insert_temp(id, reader.marked.start));
        ui.scroll_to_rect(mark, Some(egui::Align::Center));
    }
}

/// Text of `span`, with the part that is `marked` on another ground.
fn marked_text(text: &str, span: Range<usize>, marked: &Range<usize>, width: f32, t: &theme::Tokens) -> LayoutJob {
    let mut job = LayoutJob::default();
    job.wrap.max_width = width;
    let first = marked.start.clamp(span.start, span.end);
    // What is marked may go on over the end of the page.
    let end = marked.end.clamp(first, text.len());
    let plain = TextFormat { font_id: theme::body(), color: t.text, ..TextFormat::default() };
    let strong = TextFormat { color: t.strong, background: t.accent_soft, ..plain.clone() };
    for (range, format) in [(span.start..first, &plain), (first..end, &strong), (end..span.end.max(end), &plain)] {
        job.append(text.get(range).unwrap_or_default(), 0.0, format.clone());
    }
    job
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{ContentHash, PageSpan};

    fn doc(id: DocId, text: &str, cut: usize) -> Doc {
        let pages = vec![PageSpan { first_byte: 0, end_byte: cut }, PageSpan { first_byte: cut, end_byte: text.len() }];
        Doc {
            id,
            name: format!("{id}.txt"),
            text: text.into(),
            bytes: text.len() as u64,
            pages,
            content_hash: ContentHash([0; 32]),
            n_chars: text.chars().count(),
            n_tokens: None,
            sample: false,
        }
    }

    #[test]
    fn bytes_of_joined_documents_are_found_in_the_one_that_has_them() {
        let docs = [doc(1, "Alpha beta.", 6), doc(2, "Gämma delta.", 7)];
        let chat = Chat { documents: vec![1, 2], ..Chat::default() };
        assert_eq!(Reader::open(&chat, &docs, 6..10), Some(Reader { document: 1, marked: 6..10 }));
        // 11 bytes, and a blank line.
        assert_eq!(Reader::open(&chat, &docs, 13..18), Some(Reader { document: 2, marked: 0..5 }));
        assert_eq!(Reader::open(&chat, &docs, 15..20).unwrap().marked, 1..7, "from the beginning of a code point");
        assert_eq!(Reader::open(&chat, &docs, 500..510), None, "the question is no document");
        assert_eq!((page_of(&docs[0], 5), page_of(&docs[0], 6), page_of(&docs[0], 99)), (0, 1, 1));
    }

    #[test]
    fn text_of_a_page_is_whole_with_its_mark() {
        let text = "One two three. Four five six.";
        let job = marked_text(text, 0..14, &(8..20), 200.0, theme::of(true));
        assert_eq!(job.text, "One two three. Four ", "the mark goes on over the end of the page");
        assert_eq!(job.sections.iter().filter(|s| s.format.background != egui::Color32::TRANSPARENT).count(), 1);
        assert_eq!(marked_text(text, 15..29, &(20..29), 200.0, theme::of(true)).text, "Four five six.");
    }
}
