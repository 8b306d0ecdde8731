//! Body of a DOCX file: the events of its XML to text.
//!
//! ```text
//! Open(name) ──► Element on a stack ──► Close ──► Element off it: text goes to the page, the cell or the box around it
//! ```
//! Invariants: 1. Text boxes, notes and comments never cut a sentence. 2. Of alternative contents the first with text counts.
//! Limits: [`MAX_CONTEXTS`] texts in one another.

use quick_xml::events::BytesStart;

use super::super::extracted::ExtractError;
use super::super::scripts::Script;
use super::super::table_rows::Cell;
use super::super::text_flow::Gap;
use super::super::xml::{Rules, Token, attribute, visit};
use super::field::{Fields, in_parentheses};
use super::losses::Losses;
use super::notes::{Kind, Notes};
use super::numbering::Numbering;
use super::paragraph::{Context, Paragraph, Reading, Run, Table};
use super::parts::Parts;
use super::styles::Styles;

/// Most tables, boxes and formulas in one another; deeper ones are read as plain paragraphs.
const MAX_CONTEXTS: usize = 32;

/// An open element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    Other,
    Paragraph,
    ParagraphProperties,
    Run,
    RunProperties,
    Text,
    Instruction,
    Table,
    TableProperties,
    Row,
    RowProperties,
    Cell,
    CellProperties,
    Box,
    Alternate,
    Ruby,
    Reading,
    Word,
    Formula(Script),
    Numerator,
    Denominator,
    Terms,
    Delimiters,
    NaryProperties,
    Root,
    FormField,
}

/// Terms of a formula that stand side by side, with the signs before, between and after them.
pub(super) struct Terms {
    pub begin: String,
    pub separator: String,
    pub end: String,
    /// terms so far
    n: usize,
}

impl Terms {
    fn new(signs: [&str; 3]) -> Terms {
        let [begin, separator, end] = signs.map(str::to_owned);
        Terms { begin, separator, end, n: 0 }
    }
}

/// State of the conversion.
pub struct Body<'a, 'b> {
    pub(super) parts: &'a mut Parts<'b>,
    pub(super) styles: &'a Styles,
    pub(super) numbering: Numbering,
    pub(super) notes: Notes,
    pub(super) depth: usize,
    pub(super) elements: Vec<Element>,
    /// elements open inside of one that is skipped
    n_skipped: usize,
    pub(super) base: Context,
    pub(super) contexts: Vec<Context>,
    pub(super) tables: Vec<Table>,
    pub(super) paragraphs: Vec<Paragraph>,
    pub(super) fields: Fields,
    /// number of texts written before each alternative content
    alternates: Vec<usize>,
    pub(super) n_written: usize,
    pub(super) terms: Vec<Terms>,
    pub(super) entries: Vec<String>,
    pub(super) pages: Vec<String>,
    pub(super) breaks_at_row: bool,
    pub(super) losses: Losses,
}

impl<'a, 'b> Body<'a, 'b> {
    pub fn new(parts: &'a mut Parts<'b>, styles: &'a Styles, numbering: Numbering, notes: Notes, depth: usize) -> Self {
        Body {
            parts,
            styles,
            numbering,
            notes,
            depth,
            elements: Vec::new(),
            n_skipped: 0,
            base: Context::default(),
            contexts: Vec::new(),
            tables: Vec::new(),
            paragraphs: Vec::new(),
            fields: Fields::default(),
            alternates: Vec::new(),
            n_written: 0,
            terms: Vec::new(),
            entries: Vec::new(),
            pages: Vec::new(),
            breaks_at_row: false,
            losses: Losses::default(),
        }
    }

    /// Reads the XML of a part, or of a note.
    ///
    /// # Errors
    /// It is no XML, or nested too deeply.
    pub fn read(&mut self, xml: &str) -> Result<(), ExtractError> {
        visit(xml, Rules::Data, &mut |token| {
            match token {
                Token::Open(e) if self.n_skipped == 0 => {
                    let name = e.local_name();
                    match self.open(name.as_ref(), e)? {
                        Some(element) => self.elements.push(element),
                        None => self.n_skipped = 1,
                    }
                }
                Token::Open(_) => self.n_skipped += 1,
                Token::Close if self.n_skipped > 0 => self.n_skipped -= 1,
                Token::Close => {
                    if let Some(element) = self.elements.pop() {
                        self.close(element);
                    }
                }
                Token::Text(text) if self.n_skipped == 0 => match self.elements.last() {
                    Some(Element::Text) => self.text(text),
                    Some(Element::Instruction) => self.fields.instruct(text),
                    _ => {}
                },
                Token::Text(_) => {}
            }
            Ok(())
        })?;
        // Elements without an end, which the rules of the reader allow.
        while let Some(element) = self.elements.pop() {
            self.close(element);
        }
        Ok(())
    }

    /// Text of a note or a header.
    pub fn text_of(mut self, xml: &str) -> Result<String, ExtractError> {
        self.read(xml)?;
        let (pages, _) = self.finish(Losses::default());
        Ok(pages.join("\n\n"))
    }

    /// All pages, and what was left out.
    pub fn finish(mut self, losses: Losses) -> (Vec<String>, Losses) {
        let rest = self.notes.uncited();
        self.flush_after(rest);
        let after = std::mem::take(&mut self.base.after);
        self.flush_after(after);
        self.pages.push(self.base.flow.finish());
        let losses = Losses {
            n_unreadable_parts: losses.n_unreadable_parts + self.losses.n_unreadable_parts,
            n_hidden_words: losses.n_hidden_words + self.losses.n_hidden_words,
            n_bad_letters: losses.n_bad_letters + self.losses.n_bad_letters,
            ..losses
        };
        (self.pages, losses)
    }

    pub(super) fn context(&mut self) -> &mut Context {
        self.contexts.last_mut().unwrap_or(&mut self.base)
    }

    /// Kind of an element that opens; None if it is skipped.
    fn open(&mut self, name: &[u8], e: &BytesStart<'_>) -> Result<Option<Element>, ExtractError> {
        if name.ends_with(b"Change") {
            return Ok(None);
        }
        let element = match self.elements.last() {
            Some(Element::ParagraphProperties) => self.paragraph_property(name, e),
            Some(Element::RunProperties) => self.run_property(name, e),
            Some(Element::CellProperties | Element::RowProperties | Element::TableProperties) => self.table_property(name, e),
            Some(Element::NaryProperties | Element::Delimiters) => self.formula_property(name, e),
            Some(Element::FormField) => self.form_property(name, e),
            _ => return self.open_content(name, e),
        };
        Ok(element)
    }

    fn open_content(&mut self, name: &[u8], e: &BytesStart<'_>) -> Result<Option<Element>, ExtractError> {
        let has_room = self.contexts.len() < MAX_CONTEXTS;
        Ok(Some(match name {
            b"del" | b"moveFrom" | b"sectPr" | b"sdtPr" | b"tblGrid" => return Ok(None),
            b"p" => {
                let is_numbered = std::mem::take(&mut self.context().goes_on);
                let depth = self.contexts.len();
                self.paragraphs.push(Paragraph { is_numbered, depth, ..Paragraph::default() });
                Element::Paragraph
            }
            b"pPr" => Element::ParagraphProperties,
            b"r" => {
                if let Some(paragraph) = self.paragraphs.last_mut() {
                    let is_hidden = paragraph.style.as_deref().and_then(|style| self.styles.is_hidden(style)) == Some(true);
                    paragraph.run = Run { is_hidden, ..Run::default() };
                }
                Element::Run
            }
            b"rPr" => Element::RunProperties,
            b"t" => Element::Text,
            b"instrText" => Element::Instruction,
            b"tbl" if has_room => {
                self.tables.push(Table::default());
                Element::Table
            }
            b"tblPr" => Element::TableProperties,
            b"tr" if self.elements.contains(&Element::Table) => Element::Row,
            b"trPr" => Element::RowProperties,
            b"tc" if has_room && self.elements.contains(&Element::Row) => {
                self.contexts.push(Context { is_cell: true, ..Context::default() });
                Element::Cell
            }
            b"tcPr" => Element::CellProperties,
            b"txbxContent" if has_room => self.open_context(Element::Box),
            b"AlternateContent" => {
                self.alternates.push(self.n_written);
                Element::Alternate
            }
            b"Choice" | b"Fallback" if self.alternates.last().is_none_or(|before| *before != self.n_written) => return Ok(None),
            b"ruby" => Element::Ruby,
            b"rt" if has_room && self.elements.contains(&Element::Ruby) => self.open_context(Element::Reading),
            b"rubyBase" if has_room => self.open_context(Element::Word),
            b"ffData" => Element::FormField,
            _ => return self.open_formula(name, e, has_room),
        }))
    }

    fn open_formula(&mut self, name: &[u8], e: &BytesStart<'_>, has_room: bool) -> Result<Option<Element>, ExtractError> {
        Ok(Some(match name {
            b"sup" if has_room => self.open_context(Element::Formula(Script::Raised)),
            b"sub" | b"lim" if has_room => self.open_context(Element::Formula(Script::Lowered)),
            b"num" if has_room => self.open_context(Element::Numerator),
            b"den" if has_room => self.open_context(Element::Denominator),
            b"d" => self.open_terms(["(", "|", ")"]),
            b"m" | b"eqArr" => self.open_terms(["", "; ", ""]),
            b"mr" => {
                self.open_term();
                self.open_terms(["", ", ", ""])
            }
            b"e" => {
                self.open_term();
                Element::Other
            }
            b"dPr" => Element::Delimiters,
            b"naryPr" => {
                self.terms.push(Terms::new(["\u{222B}", "", ""]));
                Element::NaryProperties
            }
            b"rad" => Element::Root,
            b"deg" if has_room => self.open_context(Element::Formula(Script::Raised)),
            _ => {
                self.open_point(name, e)?;
                Element::Other
            }
        }))
    }

    fn open_terms(&mut self, signs: [&str; 3]) -> Element {
        self.terms.push(Terms::new(signs));
        Element::Terms
    }

    /// Writes the sign in front of a term: the opening bracket, the separator, or the root.
    fn open_term(&mut self) {
        let sign = match (self.elements.last(), self.terms.last_mut()) {
            (Some(Element::Terms), Some(terms)) => {
                terms.n += 1;
                if terms.n == 1 { terms.begin.clone() } else { terms.separator.clone() }
            }
            (Some(Element::Root), _) => "\u{221A}".to_owned(),
            _ => return,
        };
        self.write(&sign);
    }

    fn open_context(&mut self, element: Element) -> Element {
        self.end_script();
        self.contexts.push(Context::default());
        element
    }

    /// Elements that stand for one place: breaks, signs, references.
    fn open_point(&mut self, name: &[u8], e: &BytesStart<'_>) -> Result<(), ExtractError> {
        match name {
            b"tab" | b"ptab" => self.gap(Gap::Cell),
            b"br" if attribute(e, b"type").as_deref() == Some("page") => self.page_break(),
            b"lastRenderedPageBreak" => self.page_break(),
            b"br" | b"cr" => self.gap(Gap::Line),
            b"noBreakHyphen" => self.write("\u{2011}"),
            b"sym" => self.symbol(e),
            b"fldChar" => match attribute(e, b"fldCharType").as_deref() {
                Some("begin") => self.fields.begin(),
                Some("separate") => self.fields.separate(),
                Some("end") => {
                    if let Some(text) = self.fields.end() {
                        self.text(&text);
                    }
                }
                _ => {}
            },
            b"footnoteReference" => self.cite(Kind::Footnote, e),
            b"endnoteReference" => self.cite(Kind::Endnote, e),
            b"commentReference" => self.cite(Kind::Comment, e),
            b"textpath" => {
                let text = attribute(e, b"string").unwrap_or_default();
                self.put_after(text);
            }
            b"relIds" => self.diagram(e)?,
            b"altChunk" => self.chunk(e)?,
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self, element: Element) {
        match element {
            Element::Paragraph => self.close_paragraph(),
            Element::Table => self.close_table(),
            Element::Row => self.close_row(),
            Element::Alternate => drop(self.alternates.pop()),
            Element::Terms => {
                if let Some(terms) = self.terms.pop() {
                    self.write(&terms.end);
                }
            }
            Element::NaryProperties => {
                if let Some(terms) = self.terms.pop() {
                    self.write(&terms.begin);
                }
            }
            Element::Cell
            | Element::Box
            | Element::Reading
            | Element::Word
            | Element::Formula(_)
            | Element::Numerator
            | Element::Denominator => {
                self.end_script();
                let context = self.contexts.pop().unwrap_or_default();
                self.close_context(element, context);
            }
            _ => {}
        }
    }

    fn close_context(&mut self, element: Element, context: Context) {
        let Context { flow, after, mut cell, is_deleted, .. } = context;
        let text = flow.finish();
        if element == Element::Box {
            self.put_after(text);
            return self.flush_after(after);
        }
        self.context().after.extend(after);
        match element {
            Element::Cell => {
                cell.text = text;
                if let Some(table) = self.tables.last_mut().filter(|_| !is_deleted) {
                    cell.is_header = table.is_header || (table.has_header && table.n_rows == 0);
                    table.cells.push(cell);
                }
            }
            Element::Reading => {
                let end_byte = self.context().flow.n_bytes();
                if let Some(paragraph) = self.paragraphs.last_mut() {
                    paragraph.readings.push(Reading { word: String::new(), reading: text, end_byte });
                }
            }
            Element::Word => self.word_with_reading(&text),
            Element::Formula(script) => self.script(script, &text),
            Element::Numerator => self.write(&format!("{}/", in_parentheses(&text))),
            Element::Denominator => self.write(&in_parentheses(&text)),
            _ => {}
        }
    }

    /// Writes a word; its reading, which came before it, joins that of the word that it touches.
    fn word_with_reading(&mut self, word: &str) {
        self.write(word);
        let end_byte = self.context().flow.n_bytes();
        let Some(paragraph) = self.paragraphs.last_mut() else { return };
        let Some(mut last) = paragraph.readings.pop() else { return };
        match paragraph.readings.last_mut().filter(|before| before.end_byte == last.end_byte) {
            Some(before) => {
                before.word.push_str(word);
                before.reading.push_str(&last.reading);
                before.end_byte = end_byte;
            }
            None => {
                last.word = word.to_owned();
                last.end_byte = end_byte;
                paragraph.readings.push(last);
            }
        }
    }

    fn close_paragraph(&mut self) {
        self.end_script();
        let Some(paragraph) = self.paragraphs.pop() else { return };
        self.fields.abandon();
        let readings = paragraph.readings.iter().filter(|r| !r.reading.is_empty() && !r.word.is_empty());
        let readings: Vec<String> = readings.map(|r| format!("{}: {}", r.word, r.reading)).collect();
        if !readings.is_empty() {
            self.context().flow.verbatim(&format!(" ({})", readings.join(", ")));
        }
        if !paragraph.is_end_deleted {
            if !paragraph.is_numbered {
                let mark = self.number(&paragraph);
                // A column of numbers.
                let cell = self.contexts.last_mut().filter(|context| context.is_cell && context.flow.is_empty());
                if let (Some(cell), Some(mark)) = (cell, mark.filter(|mark| mark.trim() != "-")) {
                    cell.flow.verbatim(mark.trim());
                }
            }
            self.context().flow.end(Gap::Paragraph);
        } else {
            self.context().goes_on = paragraph.is_numbered;
        }
        let context = self.context();
        match context.is_cell {
            true => context.after.extend(paragraph.after),
            false => self.flush_after(paragraph.after),
        }
    }

    fn close_row(&mut self) {
        let Some(table) = self.tables.last_mut() else { return };
        if table.n_after > 0 {
            table.cells.push(Cell { n_columns: table.n_after, ..Cell::default() });
        }
        let cells = std::mem::take(&mut table.cells);
        table.n_rows += 1;
        let is_deleted = std::mem::take(&mut table.is_deleted);
        (table.is_header, table.n_after) = (false, 0);
        if self.contexts.is_empty() && std::mem::take(&mut self.breaks_at_row) {
            table.rows.write(&mut self.base.flow);
            self.page_break();
        }
        if let Some(table) = self.tables.last_mut().filter(|_| !is_deleted) {
            table.rows.add(cells);
        }
    }

    fn close_table(&mut self) {
        let table = self.tables.pop();
        let context = self.context();
        table.into_iter().for_each(|mut table| table.rows.write(&mut context.flow));
        context.flow.end(Gap::Paragraph);
        if !context.is_cell {
            let after = std::mem::take(&mut context.after);
            self.flush_after(after);
        }
    }

    pub(super) fn flush_after(&mut self, texts: Vec<String>) {
        let flow = &mut self.context().flow;
        for text in texts.iter().filter(|text| !text.trim().is_empty()) {
            flow.end(Gap::Paragraph);
            flow.verbatim(text);
            flow.end(Gap::Paragraph);
        }
    }

    pub(super) fn put_after(&mut self, text: String) {
        match self.paragraphs.last_mut() {
            Some(paragraph) => paragraph.after.push(text),
            None => self.context().after.push(text),
        }
    }
}
