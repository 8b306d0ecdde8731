//! DOCX to text: paragraphs, tables and notes, split at the page breaks that Word recorded.
//!
//! ```text
//! ZIP ──► _rels ──► word/document.xml ──► paragraphs ─┐
//!                   footnotes, endnotes  ─────────────┴─► parts: one per page, if the file has page breaks
//! ```
//! Invariants: 1. Deleted revisions, field codes and fallback copies are skipped. 2. Only XML's five predefined entities are
//! expanded. Headers, footers and comments are skipped.
//! Limits: [`limits::MAX_XML_DEPTH`], the archive's. Source: ECMA-376, part 1, chapter 17.

use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};

use super::extracted::{ExtractError, Extracted, Part, TextLimit};
use super::text_flow::{Flow, Gap};
use super::zip_archive::Archive;
use crate::base::limits;

const MAIN_PART: &str = "word/document.xml";
/// Parts with notes, and the element of each note.
const NOTES: [(&str, &[u8]); 2] = [("word/footnotes.xml", b"footnote"), ("word/endnotes.xml", b"endnote")];

pub fn extract(bytes: &[u8]) -> Result<Extracted, ExtractError> {
    let mut archive = Archive::open(bytes)?;
    let main = main_part(&mut archive)?;
    let mut body = Body::default();
    body.read(&archive.require(&main)?)?;
    for (name, element) in NOTES {
        if let Some(xml) = archive.read(name)? {
            body.flow.end(Gap::Paragraph);
            body.note_element = Some(element);
            body.read(&xml)?;
        }
    }
    let parts = body.finish();
    let mut limit = TextLimit::default();
    parts.iter().try_for_each(|part| limit.add(&part.text))?;
    // A single page means that the file has no page breaks.
    let is_paged = parts.len() > 1;
    Ok(Extracted { parts, is_paged, notes: Vec::new() })
}

/// Name of the archive's file with the text.
fn main_part(archive: &mut Archive<'_>) -> Result<String, ExtractError> {
    let Some(xml) = archive.read("_rels/.rels")? else { return Ok(MAIN_PART.to_owned()) };
    let mut reader = Reader::from_reader(xml.as_slice());
    let mut found = None;
    while let Ok(event) = reader.read_event() {
        let (Event::Start(e) | Event::Empty(e)) = event else {
            if matches!(event, Event::Eof) {
                break;
            }
            continue;
        };
        if attribute(&e, b"Type").is_some_and(|kind| kind.ends_with("/officeDocument")) {
            found = attribute(&e, b"Target");
        }
    }
    Ok(found.map_or_else(|| MAIN_PART.to_owned(), |target| target.trim_start_matches('/').to_owned()))
}

/// Value of an attribute, by its name without prefix.
fn attribute(element: &BytesStart<'_>, name: &[u8]) -> Option<String> {
    let found = element.attributes().with_checks(false).flatten().find(|a| a.key.local_name().as_ref() == name)?;
    Some(String::from_utf8_lossy(&found.value).into_owned())
}

/// State of the conversion.
#[derive(Default)]
struct Body {
    flow: Flow,
    pages: Vec<String>,
    depth: usize,
    /// nesting of `w:t`, whose text counts
    in_text: usize,
    /// nesting of tables
    n_tables: usize,
    /// depth of the element whose content is skipped
    skipped: Option<usize>,
    note_element: Option<&'static [u8]>,
}

impl Body {
    fn read(&mut self, xml: &[u8]) -> Result<(), ExtractError> {
        let mut reader = Reader::from_reader(xml);
        reader.config_mut().check_end_names = false;
        (self.depth, self.in_text, self.n_tables, self.skipped) = (0, 0, 0, None);
        loop {
            let event = reader.read_event().map_err(|e| ExtractError::corrupt(format!("its XML is invalid ({e})")))?;
            match event {
                Event::Eof => return Ok(()),
                Event::Start(e) => {
                    self.depth += 1;
                    if self.depth > limits::MAX_XML_DEPTH {
                        return Err(ExtractError::corrupt("its XML is nested too deeply"));
                    }
                    self.open(&e);
                }
                Event::Empty(e) => {
                    self.depth += 1;
                    self.open(&e);
                    self.close(e.local_name().as_ref());
                }
                Event::End(e) => self.close(e.local_name().as_ref()),
                Event::Text(text) if self.reads() => {
                    let text = text.decode().map_err(|e| ExtractError::corrupt(e.to_string()))?;
                    self.flow.verbatim(&text);
                }
                Event::GeneralRef(name) if self.reads() => self.flow.verbatim(&referenced(&name)),
                _ => {}
            }
        }
    }

    fn reads(&self) -> bool {
        self.in_text > 0 && self.skipped.is_none()
    }

    fn open(&mut self, element: &BytesStart<'_>) {
        let name = element.local_name();
        let name = name.as_ref();
        if self.skipped.is_some() {
            return;
        }
        match name {
            b"Fallback" | b"del" | b"moveFrom" | b"rPr" | b"pPr" | b"sectPr" | b"tblPr" | b"trPr" | b"tcPr" => {
                self.skipped = Some(self.depth);
            }
            b"tbl" => self.n_tables += 1,
            b"t" => self.in_text += 1,
            b"tab" if !self.flow.is_empty() => self.flow.end(Gap::Cell),
            b"br" if attribute(element, b"type").as_deref() == Some("page") => self.page_break(),
            b"lastRenderedPageBreak" => self.page_break(),
            b"br" | b"cr" => self.flow.end(Gap::Line),
            b"noBreakHyphen" => self.flow.verbatim("\u{2011}"),
            b"footnoteReference" | b"endnoteReference" => self.note_mark(element),
            _ if self.note_element == Some(name) => match attribute(element, b"type") {
                // Separator lines between notes and text.
                Some(kind) if kind != "normal" => self.skipped = Some(self.depth),
                _ => self.note_mark(element),
            },
            _ => {}
        }
    }

    fn close(&mut self, name: &[u8]) {
        let depth = self.depth;
        self.depth = self.depth.saturating_sub(1);
        match self.skipped {
            Some(at) if at == depth => self.skipped = None,
            Some(_) => {}
            None => match name {
                b"t" => self.in_text = self.in_text.saturating_sub(1),
                b"p" => self.flow.end(if self.n_tables == 0 { Gap::Paragraph } else { Gap::Line }),
                b"tc" => self.flow.replace(Gap::Cell),
                b"tr" => self.flow.replace(Gap::Line),
                b"tbl" => {
                    self.n_tables = self.n_tables.saturating_sub(1);
                    self.flow.end(Gap::Paragraph);
                }
                _ => {}
            },
        }
    }

    fn note_mark(&mut self, element: &BytesStart<'_>) {
        if let Some(id) = attribute(element, b"id") {
            self.flow.verbatim(&format!("[{id}]"));
            if self.note_element.is_some() {
                self.flow.end(Gap::Space);
            }
        }
    }

    /// A break before the first word, or right after another, makes no page.
    fn page_break(&mut self) {
        if !self.flow.is_empty() {
            self.pages.push(std::mem::take(&mut self.flow).finish());
        }
    }

    fn finish(mut self) -> Vec<Part> {
        self.pages.push(self.flow.finish());
        self.pages.into_iter().map(|text| Part { title: None, text }).collect()
    }
}

/// Text of `&amp;` or `&#8211;`; other entities are empty, whatever the file defines.
fn referenced(name: &BytesRef<'_>) -> String {
    if let Ok(Some(c)) = name.resolve_char_ref() {
        return c.to_string();
    }
    let known = std::str::from_utf8(name).ok().and_then(quick_xml::escape::resolve_predefined_entity);
    known.unwrap_or_default().to_owned()
}
