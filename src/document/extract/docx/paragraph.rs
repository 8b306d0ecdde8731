//! State of a paragraph, its runs and the table cells around it, while a DOCX file is read.

use quick_xml::events::BytesStart;

use super::super::scripts::Script;
use super::super::table_rows::{Cell, Rows};
use super::super::text_flow::Flow;
use super::super::xml::attribute;
use super::styles::{Styles, is_on};

/// An open paragraph.
#[derive(Debug, Default)]
pub struct Paragraph {
    pub style: Option<String>,
    /// list of its own properties; "0" for none
    pub list: Option<String>,
    pub level: Option<usize>,
    /// true once its number was counted
    pub is_numbered: bool,
    /// number of contexts around it
    pub depth: usize,
    /// true if its end is deleted, so that it goes on in the next paragraph
    pub is_end_deleted: bool,
    /// text boxes, notes and comments, which follow it
    pub after: Vec<String>,
    pub readings: Vec<Reading>,
    pub run: Run,
    /// raised or lowered text of the last runs
    pub script: Option<(Script, String)>,
}

/// Reading of a word (ruby).
#[derive(Debug)]
pub struct Reading {
    pub word: String,
    pub reading: String,
    /// end of the word in its flow, bytes
    pub end_byte: usize,
}

/// Properties of a run.
#[derive(Debug, Default)]
pub struct Run {
    pub script: Option<Script>,
    pub is_hidden: bool,
    pub font: Option<String>,
}

impl Run {
    /// Takes a run property.
    pub fn set(&mut self, name: &[u8], e: &BytesStart<'_>, styles: &Styles) {
        let value = || attribute(e, b"val");
        match name {
            b"vertAlign" => {
                self.script = match value().as_deref() {
                    Some("superscript") => Some(Script::Raised),
                    Some("subscript") => Some(Script::Lowered),
                    _ => None,
                };
            }
            // Half points: a digit is raised by hand.
            b"position" => match value().and_then(|v| v.parse::<i32>().ok()) {
                Some(4..) => self.script = Some(Script::Raised),
                Some(..=-4) => self.script = Some(Script::Lowered),
                _ => {}
            },
            b"vanish" => self.is_hidden = value().is_none_or(|v| is_on(&v)),
            b"rFonts" => self.font = attribute(e, b"ascii").or_else(|| attribute(e, b"hAnsi")),
            b"rStyle" => {
                let id = value().unwrap_or_default();
                self.is_hidden = styles.is_hidden(&id).unwrap_or(self.is_hidden);
                self.script = styles.script(&id);
            }
            _ => {}
        }
    }
}

/// Text that is collected by itself: a page, a cell, a text box, or a part of a formula.
#[derive(Debug, Default)]
pub struct Context {
    pub flow: Flow,
    /// texts that follow the paragraph or the table
    pub after: Vec<String>,
    pub is_cell: bool,
    pub cell: Cell,
    pub is_deleted: bool,
    /// true if the next paragraph goes on with one that has its number, whose end is deleted
    pub goes_on: bool,
}

/// An open table.
#[derive(Debug, Default)]
pub struct Table {
    pub rows: Rows,
    pub cells: Vec<Cell>,
    pub is_header: bool,
    pub is_deleted: bool,
    /// columns that the row leaves free at its end
    pub n_after: usize,
    pub n_rows: usize,
    /// true if the first row is a header by the table's format
    pub has_header: bool,
}
