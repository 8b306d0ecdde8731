//! Properties of paragraphs, runs, tables, formulas and form fields, which shape the text of a DOCX file.
//!
//! Source: ECMA-376, part 1, 17.3, 17.4, 17.16.5 and 22.1.

use quick_xml::events::BytesStart;

use super::super::table_rows::Cell;
use super::super::xml::attribute;
use super::body::{Body, Element};
use super::styles::is_on;

/// Bit of `tblLook` for a header row.
const FIRST_ROW: u32 = 0x20;

impl Body<'_, '_> {
    pub(super) fn paragraph_property(&mut self, name: &[u8], e: &BytesStart<'_>) -> Option<Element> {
        let value = || attribute(e, b"val");
        let paragraph = self.paragraphs.last_mut()?;
        match name {
            b"pStyle" => paragraph.style = value(),
            b"ilvl" => paragraph.level = value().and_then(|v| v.parse().ok()),
            b"numId" => paragraph.list = value(),
            // The mark of the paragraph's end is deleted.
            b"del" | b"moveFrom" => paragraph.is_end_deleted = true,
            b"numPr" | b"rPr" => return Some(Element::ParagraphProperties),
            _ => return None,
        }
        Some(Element::Other)
    }

    pub(super) fn run_property(&mut self, name: &[u8], e: &BytesStart<'_>) -> Option<Element> {
        if let Some(paragraph) = self.paragraphs.last_mut() {
            paragraph.run.set(name, e, self.styles);
        }
        Some(Element::Other)
    }

    pub(super) fn table_property(&mut self, name: &[u8], e: &BytesStart<'_>) -> Option<Element> {
        let number = || attribute(e, b"val").and_then(|v| v.parse::<usize>().ok()).unwrap_or_default();
        let is_cell = self.elements.last() == Some(&Element::CellProperties);
        if let Some(context) = self.contexts.last_mut().filter(|_| is_cell) {
            match name {
                b"gridSpan" => context.cell.n_columns = number(),
                b"cellDel" => context.is_deleted = true,
                _ => {}
            }
        }
        let table = self.tables.last_mut()?;
        match name {
            b"tblHeader" => table.is_header = attribute(e, b"val").is_none_or(|v| is_on(&v)),
            b"del" => table.is_deleted = true,
            b"gridBefore" => table.cells.push(Cell { n_columns: number(), ..Cell::default() }),
            b"gridAfter" => table.n_after = number(),
            b"tblLook" => {
                let bits = attribute(e, b"val").and_then(|v| u32::from_str_radix(&v, 16).ok()).unwrap_or_default();
                table.has_header = attribute(e, b"firstRow").map_or(bits & FIRST_ROW != 0, |v| is_on(&v));
            }
            _ => {}
        }
        Some(Element::Other)
    }

    pub(super) fn formula_property(&mut self, name: &[u8], e: &BytesStart<'_>) -> Option<Element> {
        let value = attribute(e, b"val").unwrap_or_default();
        match (name, self.terms.last_mut()) {
            (b"begChr" | b"chr", Some(terms)) => terms.begin = value,
            (b"sepChr", Some(terms)) => terms.separator = value,
            (b"endChr", Some(terms)) => terms.end = value,
            _ => {}
        }
        Some(Element::Other)
    }

    pub(super) fn form_property(&mut self, name: &[u8], e: &BytesStart<'_>) -> Option<Element> {
        let value = attribute(e, b"val");
        match name {
            b"checkBox" | b"ddList" => {
                self.entries.clear();
                return Some(Element::FormField);
            }
            b"default" | b"checked" if self.entries.is_empty() => {
                self.fields.show(if value.is_none_or(|v| is_on(&v)) { "\u{2612}" } else { "\u{2610}" });
            }
            b"result" => self.entries.insert(0, value.unwrap_or_default()),
            b"listEntry" => {
                self.entries.push(value.unwrap_or_default());
                let chosen = self.entries.first().and_then(|first| first.parse::<usize>().ok());
                let entry = chosen.map_or(self.entries.first(), |i| self.entries.get(i + 1));
                if let Some(entry) = entry.cloned() {
                    self.fields.show(&entry);
                }
            }
            _ => {}
        }
        Some(Element::Other)
    }
}
