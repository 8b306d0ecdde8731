//! Text of runs, and what stands for one place in it: breaks, signs, references and parts put in whole.

use quick_xml::events::BytesStart;

use super::super::extracted::ExtractError;
use super::super::scripts::{MAX_SCRIPT_CHARS, Script};
use super::super::text_flow::Gap;
use super::super::xml::{Rules, Token, attribute, visit};
use super::body::Body;
use super::notes::Kind;
use super::paragraph::Paragraph;
use super::styles::is_on;
use super::symbols::{character, is_symbol_font};
use super::{chunk_text, parts};

impl Body<'_, '_> {
    /// Text of a run.
    pub(super) fn text(&mut self, text: &str) {
        if self.fields.is_instruction() || text.is_empty() {
            return;
        }
        let font = self.paragraphs.last().and_then(|paragraph| paragraph.run.font.as_deref());
        let text = readable(text, font);
        self.shown(text);
    }

    /// Text of a run as it is shown, unless the run is hidden.
    fn shown(&mut self, text: String) {
        if self.fields.is_instruction() {
            return;
        }
        let Some(paragraph) = self.paragraphs.last_mut() else { return self.write(&text) };
        if paragraph.run.is_hidden {
            self.losses.n_hidden_words += text.split_whitespace().count();
            return;
        }
        let script = paragraph.run.script;
        match (script, &mut paragraph.script) {
            (Some(script), Some((own, pending))) if script == *own => pending.push_str(&text),
            (Some(script), _) => {
                self.end_script();
                if let Some(paragraph) = self.paragraphs.last_mut() {
                    paragraph.script = Some((script, text));
                }
            }
            (None, _) => self.write(&text),
        }
    }

    /// Appends text to the innermost flow.
    pub(super) fn write(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.end_script();
        self.begin_paragraph();
        self.n_written += 1;
        self.context().flow.verbatim(text);
    }

    /// Writes the raised or lowered text of the last runs.
    pub(super) fn end_script(&mut self) {
        if let Some((script, text)) = self.paragraphs.last_mut().and_then(|paragraph| paragraph.script.take()) {
            self.script(script, &text);
        }
    }

    pub(super) fn script(&mut self, script: Script, text: &str) {
        self.begin_paragraph();
        self.n_written += 1;
        let flow = &mut self.context().flow;
        if text.chars().count() > MAX_SCRIPT_CHARS {
            return flow.verbatim(text);
        }
        let inner = text.trim();
        if text.starts_with(char::is_whitespace) {
            flow.verbatim(" ");
        }
        flow.script(script, inner);
        if !inner.is_empty() && text.ends_with(char::is_whitespace) {
            flow.verbatim(" ");
        }
    }

    /// Counts the paragraph in its list, and sets its number in front of its text, which may begin in a formula or a word with a
    /// reading.
    pub(super) fn begin_paragraph(&mut self) {
        let Some(paragraph) = self.paragraphs.last_mut().filter(|paragraph| !paragraph.is_numbered) else { return };
        paragraph.is_numbered = true;
        let Some(paragraph) = self.paragraphs.pop() else { return };
        if let Some(mark) = self.number(&paragraph) {
            let around = paragraph.depth.checked_sub(1).and_then(|i| self.contexts.get_mut(i));
            around.unwrap_or(&mut self.base).flow.item(mark);
        }
        self.paragraphs.push(paragraph);
    }

    /// Number of a paragraph in the list of its own or of its style.
    pub(super) fn number(&mut self, paragraph: &Paragraph) -> Option<String> {
        let style = paragraph.style.as_deref();
        let of_style = self.styles.list(style);
        let list = paragraph.list.as_deref().or(of_style.map(|(list, ..)| list)).filter(|list| *list != "0")?;
        let level = paragraph.level.or_else(|| {
            let (of_list, level, style) = of_style?;
            let by_style = || self.numbering.level_of_style(of_list, style);
            level.or_else(by_style).filter(|_| paragraph.list.is_none())
        });
        self.numbering.next(list, level.unwrap_or_default(), self.styles)
    }

    pub(super) fn gap(&mut self, gap: Gap) {
        self.end_script();
        let flow = &mut self.context().flow;
        if !flow.is_empty() {
            flow.end(gap);
        }
    }

    /// A break before the first word, or right after another, makes no page; one inside a table waits for its row.
    pub(super) fn page_break(&mut self) {
        self.end_script();
        if !self.contexts.is_empty() {
            self.breaks_at_row |= self.contexts.iter().all(|context| context.is_cell);
        } else if !self.base.flow.is_empty() {
            self.pages.push(std::mem::take(&mut self.base.flow).finish());
        }
    }

    pub(super) fn symbol(&mut self, e: &BytesStart<'_>) {
        let font = attribute(e, b"font").unwrap_or_default();
        let code = attribute(e, b"char").and_then(|code| u32::from_str_radix(&code, 16).ok());
        let found = code.and_then(|code| character(&font, code));
        self.losses.n_bad_letters += usize::from(found.is_none());
        self.shown(found.unwrap_or('\u{FFFD}').to_string());
    }

    pub(super) fn cite(&mut self, kind: Kind, e: &BytesStart<'_>) {
        let has_own_mark = attribute(e, b"customMarkFollows").is_some_and(|v| is_on(&v));
        let Some((mark, text)) = attribute(e, b"id").and_then(|id| self.notes.cite(kind, &id, has_own_mark)) else { return };
        self.write(&mark);
        self.put_after(text);
    }

    /// Texts of a diagram (SmartArt).
    pub(super) fn diagram(&mut self, e: &BytesStart<'_>) -> Result<(), ExtractError> {
        let Some(id) = attribute(e, b"dm") else { return Ok(()) };
        let Some((_, bytes)) = self.parts.by_id(&id)? else { return Ok(()) };
        let (mut lines, mut in_text) = (vec![String::new()], false);
        let read = visit(&parts::text_of(&bytes)?, Rules::Data, &mut |token| {
            match token {
                Token::Open(e) if e.local_name().as_ref() == b"p" => lines.push(String::new()),
                Token::Open(e) => in_text = e.local_name().as_ref() == b"t",
                Token::Text(text) if in_text => lines.iter_mut().last().into_iter().for_each(|line| line.push_str(text)),
                Token::Close => in_text = false,
                Token::Text(_) => {}
            }
            Ok(())
        });
        self.losses.n_unreadable_parts += usize::from(read.is_err());
        lines.retain(|line| !line.trim().is_empty());
        self.put_after(lines.join("\n"));
        Ok(())
    }

    /// A document, page or text that was put in whole.
    pub(super) fn chunk(&mut self, e: &BytesStart<'_>) -> Result<(), ExtractError> {
        let part = match attribute(e, b"id") {
            Some(id) => self.parts.by_id(&id)?,
            None => None,
        };
        let text = match part {
            Some((name, bytes)) => chunk_text(&name, self.parts.content_type(&name)?.as_deref(), &bytes, self.depth),
            None => None,
        };
        match text {
            Some(text) => self.flush_after(vec![text]),
            None => self.losses.n_unreadable_parts += 1,
        }
        Ok(())
    }
}

/// Text without line ends of the XML, soft hyphens and letters of symbol fonts.
fn readable(text: &str, font: Option<&str>) -> String {
    let font = font.filter(|font| is_symbol_font(font));
    let sign = |c: char| font.and_then(|font| character(font, u32::from(c))).unwrap_or(c);
    let shown = text.chars().filter(|c| *c != '\u{AD}');
    shown.map(|c| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { sign(c) }).collect()
}
