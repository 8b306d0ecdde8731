//! Document: the text that the model prefills, split into pages.
//!
//! ```text
//! bytes of a text file ──► encoding ──► no BOM, LF line ends ──► text ──► pages, content hash
//! parts of another file (pages, chapters) ──────────────────────► ─┘ └──► sections
//! ```
//! Invariants: 1. The pages are in order, cover the text and begin at code points. 2. The [`ContentHash`] depends on the
//! text only, not on the file's line ends. 3. Nothing is truncated: a text that is too long is rejected.
//! Limits: [`limits::MAX_DOCUMENT_BYTES`].

use std::fmt;
use std::ops::Range;

use super::DocumentError;
use super::encoding;
use super::extract::Extracted;
use super::file_format::FileFormat;
use super::pages::{self, PageSpan};
use crate::base::{Bytes, limits};

/// A chapter, with its position in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// title in the table of contents, or heading
    pub title: String,
    /// first byte of [`Document::text`]
    pub first_byte: usize,
}

/// BLAKE3 hash of a document's text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash(pub [u8; 32]);

impl ContentHash {
    /// Hash of this text.
    pub fn of(text: &str) -> ContentHash {
        ContentHash(*blake3::hash(text.as_bytes()).as_bytes())
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentHash({self})")
    }
}

/// A document as the model gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// file name
    pub name: String,
    /// format of the file
    pub kind: FileFormat,
    /// text with LF line ends and no BOM; form feeds become line ends
    pub text: String,
    /// bytes of the file
    pub bytes: u64,
    /// hash of [`Document::text`]
    pub content_hash: ContentHash,
    /// pages; a page of a PDF may be empty
    pub pages: Vec<PageSpan>,
    /// index of the first page in the file; above 0 for an excerpt
    pub first_page: usize,
    /// chapters, if the file has them
    pub sections: Vec<Section>,
    /// notices for the user, one sentence each
    pub notes: Vec<String>,
}

impl Document {
    /// Document of a text file called `name`, in any encoding.
    ///
    /// # Errors
    /// The file cannot be used; the error has the reason and the remedy.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self, DocumentError> {
        check_size(name, bytes.len(), limits::MAX_DOCUMENT_BYTES)?;
        let binary = |what| DocumentError::Binary { name: name.to_owned(), what };
        if let kind @ (FileFormat::Pdf | FileFormat::Docx | FileFormat::Epub) = FileFormat::of(name, bytes).map_err(binary)? {
            return Err(binary(kind.name()));
        }
        let decoded = encoding::decode(bytes, false).map_err(binary)?;
        check_size(name, decoded.text.len(), limits::MAX_DOCUMENT_BYTES)?;
        let (text, pages) = pages::normalize(&decoded.text);
        Self::checked(Document {
            kind: FileFormat::Text,
            pages,
            notes: decoded.notice().into_iter().collect(),
            ..Self::of_text(name, bytes.len(), text)
        })
    }

    /// Document of the content extracted from another format.
    ///
    /// # Errors
    /// It has no text, or too much.
    pub fn from_extracted(name: &str, kind: FileFormat, bytes: u64, extracted: Extracted) -> Result<Self, DocumentError> {
        let (mut text, mut ends, mut sections) = (String::new(), Vec::new(), Vec::new());
        for part in extracted.parts {
            let first_byte = text.len();
            let (body, _) = pages::normalize(part.text.trim_matches('\n'));
            sections.extend(part.title.map(|title| Section { title, first_byte }));
            if !extracted.is_paged {
                ends.extend(pages::page_ends(&body).into_iter().map(|end| first_byte + end));
            }
            text.push_str(&body);
            if !body.is_empty() {
                text.push_str(BLANK_LINE);
            }
            ends.push(text.len());
        }
        check_size(name, text.len(), limits::MAX_DOCUMENT_BYTES)?;
        text.truncate(text.trim_end().len());
        ends.iter_mut().for_each(|end| *end = (*end).min(text.len()));
        let pages = pages::spans(ends);
        Self::checked(Document { kind, bytes, pages, sections, notes: extracted.notes, ..Self::of_text(name, 0, text) })
    }

    fn of_text(name: &str, n_bytes: usize, text: String) -> Self {
        Document {
            name: name.to_owned(),
            kind: FileFormat::Text,
            bytes: n_bytes as u64,
            content_hash: ContentHash::of(&text),
            text,
            pages: Vec::new(),
            first_page: 0,
            sections: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn checked(self) -> Result<Self, DocumentError> {
        match self.text.trim().is_empty() {
            true => Err(DocumentError::Empty { name: self.name }),
            false => Ok(self),
        }
    }

    /// Excerpt of some pages, counted from 0, with the pages in its name.
    ///
    /// # Errors
    /// The pages have no text.
    pub fn excerpt(&self, pages: Range<usize>) -> Result<Self, DocumentError> {
        let taken = self.pages.get(pages.clone()).unwrap_or_default();
        let first_byte = taken.first().map_or(0, |page| page.first_byte);
        let end_byte = taken.last().map_or(0, |page| page.end_byte);
        let text = self.text.get(first_byte..end_byte).unwrap_or_default().to_owned();
        let first_page = self.first_page + pages.start;
        let name = format!("{} (pages {}\u{2013}{})", self.name, first_page + 1, self.first_page + pages.end);
        let moved = |page: &PageSpan| PageSpan { first_byte: page.first_byte - first_byte, end_byte: page.end_byte - first_byte };
        let section = |s: &Section| Section { title: s.title.clone(), first_byte: s.first_byte.saturating_sub(first_byte) };
        // A chapter that continues into the first page counts too.
        let before = self.section_of(first_byte).filter(|s| s.first_byte < first_byte);
        let inside = self.sections.iter().filter(|s| (first_byte..end_byte).contains(&s.first_byte));
        Self::checked(Document {
            kind: self.kind,
            bytes: self.bytes,
            pages: taken.iter().map(moved).collect(),
            first_page,
            sections: before.into_iter().chain(inside).map(section).collect(),
            notes: self.notes.clone(),
            ..Self::of_text(&name, 0, text)
        })
    }

    /// Index of the page with a byte of the text.
    pub fn page_of(&self, byte: usize) -> usize {
        self.pages.partition_point(|page| page.end_byte <= byte).min(self.pages.len().saturating_sub(1))
    }

    /// Page number in the file, from 1.
    pub fn page_number(&self, page: usize) -> usize {
        self.first_page + page + 1
    }

    /// Text of a page, by its index.
    pub fn page_text(&self, page: usize) -> Option<&str> {
        let span = self.pages.get(page)?;
        self.text.get(span.first_byte..span.end_byte)
    }

    /// Chapter with a byte of the text.
    pub fn section_of(&self, byte: usize) -> Option<&Section> {
        let n_before = self.sections.partition_point(|section| section.first_byte <= byte);
        self.sections.get(n_before.checked_sub(1)?)
    }
}

/// Separator between two documents, and between documents and question. All front ends must use the same one, or they
/// cannot share saved KV.
pub const BLANK_LINE: &str = "\n\n";

/// Texts of all documents as one: the text that is prefilled, hashed and saved.
pub fn join_texts(documents: &[Document]) -> String {
    let texts: Vec<&str> = documents.iter().map(|d| d.text.as_str()).collect();
    texts.join(BLANK_LINE)
}

/// User turn with the documents in front of the question, separated by blank lines. Nothing is trimmed, so that the
/// documents are a prefix of every later prompt.
pub fn join_for_prompt(documents: &[Document], question: &str) -> String {
    match documents {
        [] => question.to_owned(),
        _ => join_texts(documents) + BLANK_LINE + question,
    }
}

/// Rejects more than `max` bytes.
pub fn check_size(name: &str, n_bytes: usize, max: u64) -> Result<(), DocumentError> {
    let got = n_bytes as u64;
    if got > max {
        return Err(DocumentError::TooLarge { name: name.to_owned(), got: Bytes(got), max: Bytes(max) });
    }
    Ok(())
}
