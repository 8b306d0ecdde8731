//! Footnotes, endnotes and comments of a DOCX file, with the numbers that Word gives them.
//!
//! ```text
//! footnotes.xml ──► split: the XML of each note ──► text ──► Notes ── cite(kind, id) ──► "[1]" and "[1] A note."
//! ```
//! Source: ECMA-376, part 1, 17.11 and 17.13.4.

use std::collections::{HashMap, HashSet};

use quick_xml::Reader;
use quick_xml::events::Event;

use super::super::extracted::ExtractError;
use super::super::list_number::NumberFormat;
use super::super::xml::attribute;

/// Kind of note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// at the end of its page
    Footnote,
    /// at the end of the document
    Endnote,
    /// of a reviewer
    Comment,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Footnote, Kind::Endnote, Kind::Comment];

    fn element(self) -> &'static [u8] {
        match self {
            Kind::Footnote => b"footnote",
            Kind::Endnote => b"endnote",
            Kind::Comment => b"comment",
        }
    }
}

/// XML of one note.
pub struct NoteXml {
    pub id: String,
    pub author: String,
    pub xml: String,
}

/// All notes of a part.
///
/// # Errors
/// It is no XML.
pub fn split(xml: &str, kind: Kind) -> Result<Vec<NoteXml>, ExtractError> {
    let mut reader = Reader::from_str(xml);
    reader.config_mut().check_end_names = false;
    let (mut notes, mut open): (Vec<NoteXml>, Option<(NoteXml, usize)>) = (Vec::new(), None);
    loop {
        let begin = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX);
        match reader.read_event().map_err(|e| ExtractError::corrupt(format!("its XML is invalid ({e})")))? {
            Event::Eof => return Ok(notes),
            Event::Start(e) if open.is_none() && e.local_name().as_ref() == kind.element() => {
                // Separator lines between notes and text have another type.
                let is_normal = attribute(&e, b"type").is_none_or(|kind| kind == "normal");
                if let Some(id) = attribute(&e, b"id").filter(|_| is_normal) {
                    let author = attribute(&e, b"author").unwrap_or_default();
                    let end = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX);
                    open = Some((NoteXml { id, author, xml: String::new() }, end));
                }
            }
            Event::End(e) if e.local_name().as_ref() == kind.element() => {
                if let Some((mut note, from)) = open.take() {
                    note.xml = xml.get(from..begin).unwrap_or_default().to_owned();
                    notes.push(note);
                }
            }
            _ => {}
        }
    }
}

/// Notes by kind and id, and the numbers given so far.
#[derive(Debug, Default)]
pub struct Notes {
    texts: HashMap<(Kind, String), (String, String)>,
    cited: HashSet<(Kind, String)>,
    n_footnotes: i64,
    n_endnotes: i64,
}

impl Notes {
    pub fn insert(&mut self, kind: Kind, id: String, author: String, text: String) {
        self.texts.insert((kind, id), (author, text));
    }

    /// Mark in the text and text of a note, at its first reference; `mark` is the author's own.
    pub fn cite(&mut self, kind: Kind, id: &str, has_own_mark: bool) -> Option<(String, String)> {
        let key = (kind, id.to_owned());
        let is_first = self.cited.insert(key.clone());
        let (author, text) = self.texts.get(&key).cloned().unwrap_or_default();
        if kind == Kind::Comment {
            let by = if author.trim().is_empty() { String::new() } else { format!(" by {}", author.trim()) };
            return Some((String::new(), format!("[Comment{by}: {text}]"))).filter(|_| is_first && !text.is_empty());
        }
        if has_own_mark {
            return Some((String::new(), text)).filter(|(_, text)| !text.is_empty());
        }
        let (counter, format) = match kind {
            Kind::Endnote => (&mut self.n_endnotes, NumberFormat::LowerRoman),
            _ => (&mut self.n_footnotes, NumberFormat::Decimal),
        };
        *counter += 1;
        let mark = format!("[{}]", format.write(*counter));
        let text = if text.is_empty() { String::new() } else { format!("{mark} {text}") };
        Some((mark, text))
    }

    /// Texts of the notes that nothing refers to.
    pub fn uncited(&self) -> Vec<String> {
        let mut rest: Vec<_> = self.texts.iter().filter(|(key, _)| key.0 != Kind::Comment && !self.cited.contains(key)).collect();
        rest.sort_by_key(|((_, id), _)| id.parse::<i64>().unwrap_or(i64::MAX));
        rest.into_iter().map(|(_, (_, text))| text.clone()).filter(|text| !text.is_empty()).collect()
    }
}
