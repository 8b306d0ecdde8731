//! Text to pages: at form feeds, or else where a paragraph ends.
//!
//! ```text
//! text ──► LF line ends ──► pages of about PAGE_CHARS characters
//! ```
//! Invariants: 1. the pages are in order, cover the text and begin at code points; 2. one text has one cut, whatever its
//! file's line ends.

use super::text::PageSpan;

/// A page of text without form feeds has about this many characters, and ends with a paragraph where one is near.
const PAGE_CHARS: usize = 3000;
/// Fewest and most characters of such a page.
const PAGE_CHARS_MIN: usize = 1500;
const PAGE_CHARS_MAX: usize = 4500;

/// LF line ends, and pages: at form feeds where there are any.
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

/// The pages that end at these bytes.
pub fn spans(ends: Vec<usize>) -> Vec<PageSpan> {
    let starts: Vec<usize> = std::iter::once(0).chain(ends.iter().copied()).collect();
    starts.into_iter().zip(ends).map(|(first_byte, end_byte)| PageSpan { first_byte, end_byte }).collect()
}

/// Where the pages of a text end, but for the last.
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
