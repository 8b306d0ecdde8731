//! Pages of a text: split at form feeds, or else at ends of paragraphs.
//!
//! ```text
//! text ──► LF line ends ──► pages of about PAGE_CHARS characters
//! ```
//! Invariants: 1. The pages are in order, cover the text and begin at code points. 2. The split depends on the text only,
//! not on the file's line ends.

/// Target length of a page without form feeds, characters; it ends with a paragraph if one ends nearby.
const PAGE_CHARS: usize = 3000;
/// Shortest and longest such page, characters.
const PAGE_CHARS_MIN: usize = 1500;
const PAGE_CHARS_MAX: usize = 4500;

/// Bytes `first_byte .. end_byte` of [`Document::text`](super::Document::text).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct PageSpan {
    /// first byte
    pub first_byte: usize,
    /// one past the last byte
    pub end_byte: usize,
}

/// Text with LF line ends, and its pages, split at form feeds if there are any.
pub fn normalize(text: &str) -> (String, Vec<PageSpan>) {
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
    (out, spans(ends))
}

/// Pages that end at these bytes.
pub fn spans(ends: Vec<usize>) -> Vec<PageSpan> {
    let starts: Vec<usize> = std::iter::once(0).chain(ends.iter().copied()).collect();
    starts.into_iter().zip(ends).map(|(first_byte, end_byte)| PageSpan { first_byte, end_byte }).collect()
}

/// Ends of a text's pages but for the last.
pub fn page_ends(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut start = 0;
    while let Some(rest) = text.get(start..) {
        let Some(page) = page_len(rest) else { break };
        start += page;
        ends.push(start);
    }
    ends
}

/// Bytes of the first page of `text`; None if it is the last.
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
    // Blank lines after a paragraph belong to its page.
    let blank = text.get(end..)?.len() - text.get(end..)?.trim_start_matches('\n').len();
    Some(end + blank)
}
