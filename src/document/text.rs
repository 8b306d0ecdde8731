//! A file of text or Markdown, checked, normalised and cut into pages.
//!
//! ```text
//! bytes ──► UTF-8? text at all? ──► no BOM, LF line ends ──► text ──► pages, content hash
//! ```
//! Invariants: 1. the pages are in order, cover the text and begin at code points; 2. one text has one
//! [`ContentHash`], whatever its file's line ends; 3. nothing is cut off: what does not fit is refused.
//! Limits: [`limits::MAX_DOCUMENT_BYTES`]; a page without form feeds has about [`PAGE_CHARS`] characters.

use std::fmt;
use std::io::Read;
use std::path::Path;

use super::DocumentError;
use crate::base::{Bytes, limits};

/// A page of text without form feeds has about this many characters, and ends with a paragraph where one is near.
const PAGE_CHARS: usize = 3000;
/// Fewest and most characters of such a page.
const PAGE_CHARS_MIN: usize = 1500;
const PAGE_CHARS_MAX: usize = 4500;
/// A text has at most one control character in this many.
const CHARS_PER_CONTROL: usize = 50;

/// Bytes `first_byte .. end_byte` of [`Document::text`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct PageSpan {
    /// first byte
    pub first_byte: usize,
    /// one past the last
    pub end_byte: usize,
}

/// BLAKE3 of a document's text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash(pub [u8; 32]);

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

/// A document as the model reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// file name
    pub name: String,
    /// the text, with LF line ends and no BOM; a form feed became a line end
    pub text: String,
    /// size of the file
    pub bytes: u64,
    /// of [`Document::text`]
    pub content_hash: ContentHash,
    /// where the pages are
    pub pages: Vec<PageSpan>,
}

impl Document {
    /// Reads a file of UTF-8 text or Markdown.
    ///
    /// # Errors
    /// What is wrong with the file, and what to do.
    pub fn open(path: &Path) -> Result<Self, DocumentError> {
        let unreadable = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => DocumentError::Missing { path: path.to_owned() },
            _ => DocumentError::Unreadable { path: path.to_owned(), reason: e.to_string() },
        };
        let kind = std::fs::metadata(path).map_err(unreadable)?;
        if !kind.is_file() {
            let what = if kind.is_dir() { "a folder" } else { "a device or a pipe" };
            return Err(DocumentError::NotAFile { path: path.to_owned(), what });
        }
        let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
        check_size(&name, kind.len())?;
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(limits::MAX_DOCUMENT_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        Self::from_bytes(&name, &bytes)
    }

    /// The content of a file called `name`.
    ///
    /// # Errors
    /// What is wrong with it, and what to do.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self, DocumentError> {
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        check_size(name, size)?;
        if let Some(what) = binary_kind(bytes) {
            return Err(DocumentError::Binary { name: name.to_owned(), what });
        }
        let text = std::str::from_utf8(bytes).map_err(|e| not_utf8(name, bytes, e.valid_up_to()))?;
        let n_control = text.chars().filter(|&c| is_odd_control(c)).count();
        if n_control * CHARS_PER_CONTROL > text.len().max(CHARS_PER_CONTROL) {
            return Err(DocumentError::Binary { name: name.to_owned(), what: "full of control characters" });
        }
        let (text, pages) = normalise(text.strip_prefix('\u{FEFF}').unwrap_or(text));
        if text.trim().is_empty() {
            return Err(DocumentError::Empty { name: name.to_owned() });
        }
        let content_hash = ContentHash(*blake3::hash(text.as_bytes()).as_bytes());
        Ok(Document { name: name.to_owned(), text, bytes: size, content_hash, pages })
    }

    /// The page that holds a byte of the text, from 0.
    pub fn page_of(&self, byte: usize) -> usize {
        self.pages.partition_point(|page| page.end_byte <= byte).min(self.pages.len().saturating_sub(1))
    }

    /// The text of a page, from 0.
    pub fn page_text(&self, page: usize) -> Option<&str> {
        let span = self.pages.get(page)?;
        self.text.get(span.first_byte..span.end_byte)
    }
}

/// Between two documents, and between the documents and the question: every front end must join them alike, or what one
/// has read is of no use to the other.
pub const BLANK_LINE: &str = "\n\n";

/// The texts of documents as one: what is read, hashed and saved.
pub fn join_texts(documents: &[Document]) -> String {
    let texts: Vec<&str> = documents.iter().map(|d| d.text.as_str()).collect();
    texts.join(BLANK_LINE)
}

/// The user turn that puts documents in front of a question: each text, a blank line, and last the question. Nothing
/// is trimmed, so that the documents are a prefix of every later prompt.
pub fn join_for_prompt(documents: &[Document], question: &str) -> String {
    match documents {
        [] => question.to_owned(),
        _ => join_texts(documents) + BLANK_LINE + question,
    }
}

fn check_size(name: &str, size: u64) -> Result<(), DocumentError> {
    if size > limits::MAX_DOCUMENT_BYTES {
        let (got, max) = (Bytes(size), Bytes(limits::MAX_DOCUMENT_BYTES));
        return Err(DocumentError::TooLarge { name: name.to_owned(), got, max });
    }
    Ok(())
}

/// What a file that is no text seems to be.
fn binary_kind(bytes: &[u8]) -> Option<&'static str> {
    const KINDS: [(&[u8], &str); 10] = [
        (b"%PDF-", "a PDF"),
        (b"PK\x03\x04", "a ZIP archive (or a DOCX or EPUB)"),
        (b"\xD0\xCF\x11\xE0", "an old Office file"),
        (b"{\\rtf", "an RTF file"),
        (b"\x89PNG", "a picture"),
        (b"\xFF\xD8\xFF", "a picture"),
        (b"\x1F\x8B", "a compressed file"),
        (b"GGUF", "a model"),
        (b"\xFF\xFE", "UTF-16 text"),
        (b"\xFE\xFF", "UTF-16 text"),
    ];
    let known = KINDS.iter().find(|(head, _)| bytes.starts_with(head)).map(|(_, what)| *what);
    known.or_else(|| bytes.contains(&0).then_some("a binary file"))
}

fn not_utf8(name: &str, bytes: &[u8], offset: usize) -> DocumentError {
    let high = bytes.iter().filter(|b| !b.is_ascii()).count();
    // One odd byte in several letters is how an accent looks in the old one-byte encodings.
    let guess = if high * 4 < bytes.len() { "; it looks like Windows-1252 or Latin-1" } else { "" };
    DocumentError::NotUtf8 { name: name.to_owned(), offset, guess }
}

/// A control character that no text file uses.
fn is_odd_control(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{0C}' | '\u{85}')
}

/// LF line ends, and pages: at form feeds where there are any.
fn normalise(text: &str) -> (String, Vec<PageSpan>) {
    let mut out = String::with_capacity(text.len());
    let mut ends = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' => {
                chars.next_if_eq(&'\n');
                out.push('\n');
            }
            '\u{0C}' => {
                out.push('\n');
                ends.push(out.len());
            }
            c => out.push(c),
        }
    }
    if ends.is_empty() {
        ends = page_ends(&out);
    }
    if ends.last() != Some(&out.len()) {
        ends.push(out.len());
    }
    let starts = std::iter::once(0).chain(ends.clone());
    let pages = starts.zip(ends).map(|(first_byte, end_byte)| PageSpan { first_byte, end_byte }).collect();
    (out, pages)
}

fn page_ends(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut start = 0;
    while let Some(rest) = text.get(start..) {
        let Some(page) = page_len(rest) else { break };
        start += page;
        ends.push(start);
    }
    ends
}

/// Bytes of the first page of `text`; None where it is the last one.
fn page_len(text: &str) -> Option<usize> {
    let byte_of = |n_chars: usize| text.char_indices().nth(n_chars).map(|(at, _)| at);
    byte_of(PAGE_CHARS_MAX)?;
    let (min, middle, max) = (byte_of(PAGE_CHARS_MIN)?, byte_of(PAGE_CHARS)?, byte_of(PAGE_CHARS_MAX)?);
    let window = text.get(min..max)?;
    let nearest = |mark: &str| {
        let ends = window.match_indices(mark).map(|(at, mark)| min + at + mark.len());
        ends.min_by_key(|end| end.abs_diff(middle))
    };
    let end = nearest("\n\n").or_else(|| nearest("\n")).or_else(|| nearest(". ")).or_else(|| nearest(" ")).unwrap_or(middle);
    // Blank lines after a paragraph belong to it.
    let blank = text.get(end..)?.len() - text.get(end..)?.trim_start_matches('\n').len();
    Some(end + blank)
}
