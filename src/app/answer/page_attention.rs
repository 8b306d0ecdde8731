//! Page attention: the pages of documents that an answer attended to most. Pure.
//!
//! ```text
//! PageAttention: share of every 64 tokens, their bytes ─► pages of the chat's documents ─► AttendedPages, highest first
//! ```
//! Invariants: 1. shares are of the attention on documents; questions, answers and instructions do not count;
//! 2. tokens across the end of a page count for both pages, by their bytes.

use std::ops::Range;

use crate::app::state::open_document::{DocId, OpenDocument};
use crate::document::BLANK_LINE;
use crate::engine::PageAttention;

/// Pages in the list at most.
const MAX_PAGES: usize = 12;
/// Smaller shares are not listed.
const LEAST_SHARE: f32 = 0.01;

/// A page and its share of the attention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttendedPage {
    /// the document
    pub doc: DocId,
    /// from 0
    pub page: usize,
    /// of the attention on the documents, 0 to 1
    pub share: f32,
}

/// The attended pages of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct AttendedPages {
    /// highest share first
    pub pages: Vec<AttendedPage>,
    /// tokens of the answer at which attention was measured
    pub n_steps: usize,
}

impl AttendedPages {
    /// Attended pages of an answer from `documents`, those of its chat. None if no attention fell on a document.
    pub fn of<'a>(documents: impl Iterator<Item = &'a OpenDocument>, attention: &PageAttention) -> Option<AttendedPages> {
        let mut pages = Vec::new();
        let mut begin = 0;
        for doc in documents {
            pages.extend(pages_of(doc, begin, attention));
            begin += doc.text.len() + BLANK_LINE.len();
        }
        let sum: f32 = pages.iter().map(|page| page.share).sum();
        if sum <= 0.0 {
            return None;
        }
        pages.iter_mut().for_each(|page| page.share /= sum);
        pages.sort_by(|a, b| b.share.total_cmp(&a.share));
        pages.retain(|page| page.share >= LEAST_SHARE);
        pages.truncate(MAX_PAGES);
        Some(AttendedPages { pages, n_steps: attention.n_steps })
    }
}

/// Attention on the pages of a document that begins at byte `begin` of the joined text.
fn pages_of(doc: &OpenDocument, begin: usize, attention: &PageAttention) -> Vec<AttendedPage> {
    let mut shares = vec![0.0; doc.pages.len()];
    for (mass, bytes) in attention.mass.iter().zip(attention.first_byte.windows(2)) {
        let [from, to] = [bytes.first(), bytes.last()].map(|byte| byte.map_or(0, |byte| *byte as usize));
        let within = from.max(begin)..to.min(begin + doc.text.len());
        if within.is_empty() {
            continue;
        }
        let own = within.start - begin..within.end - begin;
        for (page, share) in shares.iter_mut().enumerate().skip(doc.page_of(own.start)) {
            let n_bytes = doc.pages.get(page).map_or(0, |span| overlap(&own, &(span.first_byte..span.end_byte)));
            if n_bytes == 0 && doc.pages.get(page).is_none_or(|span| span.first_byte >= own.end) {
                break;
            }
            *share += mass * n_bytes as f32 / (to - from) as f32;
        }
    }
    shares.into_iter().enumerate().map(|(page, share)| AttendedPage { doc: doc.id, page, share }).collect()
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> usize {
    a.end.min(b.end).saturating_sub(a.start.max(b.start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;

    fn doc(id: DocId, text: &str) -> OpenDocument {
        let document = Document::from_bytes(&format!("{id}.txt"), text.as_bytes()).unwrap().into();
        OpenDocument {
            id,
            document,
            n_chars: text.len(),
            n_tokens: None,
            token_range: None,
            ingest_ms: None,
            sample: false,
            path: None,
        }
    }

    fn shares(attention: &PageAttention) -> Vec<(DocId, usize, u32)> {
        // Pages of 10 and 9 bytes; the second document begins at byte 21.
        let docs = [doc(1, "Page one.\u{0C}Page two."), doc(2, "Page alone")];
        assert_eq!((docs[0].text.len(), docs[0].pages.len()), (19, 2));
        let read = AttendedPages::of(docs.iter(), attention);
        let pages = read.map(|read| read.pages).unwrap_or_default();
        pages.iter().map(|p| (p.doc, p.page, (p.share * 1000.0).round() as u32)).collect()
    }

    #[test]
    fn mass_goes_to_the_pages_whose_bytes_it_fell_on() {
        let attention =
            |mass: &[f32], first_byte: &[u32]| PageAttention { n_steps: 2, mass: mass.into(), first_byte: first_byte.into() };
        // The first piece lies half on either page, the last is the question.
        assert_eq!(shares(&attention(&[0.2, 0.1, 0.7], &[5, 15, 19, 40])), [(2, 0, 526), (1, 1, 316), (1, 0, 158)]);
        assert_eq!(shares(&attention(&[1.0], &[21, 31])), [(2, 0, 1000)]);
        assert_eq!(shares(&attention(&[1.0], &[40, 50])), [], "nothing fell on a document");
        assert_eq!(shares(&attention(&[0.995, 0.005], &[0, 10, 19])), [(1, 0, 995)], "a thousandth is no line");
        assert_eq!(shares(&attention(&[0.5, 0.5], &[0, 0, 10])), [(1, 0, 1000)], "what has no text has no page");
    }
}
