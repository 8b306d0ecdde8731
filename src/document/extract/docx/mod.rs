//! DOCX to text: paragraphs with their numbers, tables, text boxes, notes and comments, split at the page breaks of Word.
//!
//! ```text
//! ZIP ──► parts ──► styles, numbering, notes, comments ─┐
//!             └──► main part ──► Body ──────────────────┴──► parts: one per page, if the file has page breaks
//! ```
//! Invariants: 1. Deleted revisions, field codes and copies are skipped. 2. Notes, comments and text boxes stand after the
//! paragraph, or the table, that refers to them. 3. One notice counts what is left out.
//! Limits: [`limits::MAX_XML_DEPTH`], [`MAX_CHUNK_DEPTH`], the archive's. Source: ECMA-376, part 1, chapter 17.

mod body;
mod field;
mod inline;
mod losses;
mod notes;
mod numbering;
mod paragraph;
mod parts;
mod properties;
mod styles;
mod symbols;

use super::extracted::{ExtractError, Extracted, Part, TextLimit, one_notice};
use super::html;
use crate::document::encoding;

use body::Body;
use losses::Losses;
use notes::Notes;
use numbering::Numbering;
use parts::Parts;
use styles::Styles;

/// Most documents that lie in one another.
const MAX_CHUNK_DEPTH: usize = 4;

pub fn extract(bytes: &[u8]) -> Result<Extracted, ExtractError> {
    let (pages, losses) = pages_of(bytes, 0)?;
    let mut limit = TextLimit::default();
    pages.iter().try_for_each(|page| limit.add(page))?;
    // A single page means that the file has no page breaks.
    let is_paged = pages.len() > 1;
    let parts = pages.into_iter().map(|text| Part { title: None, text }).collect();
    Ok(Extracted { parts, is_paged, notes: one_notice(losses.sentences()) })
}

/// Pages of a document that lies in `depth` others.
fn pages_of(bytes: &[u8], depth: usize) -> Result<(Vec<String>, Losses), ExtractError> {
    let mut parts = Parts::open(bytes)?;
    let main = parts.main()?;
    let mut losses = Losses::default();
    let mut read = |kind: &str| match parts.of_kind(kind) {
        Err(error @ (ExtractError::TooLarge { .. } | ExtractError::Protected { .. })) => Err(error),
        Err(_) => {
            losses.n_unreadable_parts += 1;
            Ok(None)
        }
        Ok(xml) => Ok(xml),
    };
    let styles = read("styles")?.and_then(|xml| Styles::read(&xml).ok()).unwrap_or_default();
    let numbering = read("numbering")?.and_then(|xml| Numbering::read(&xml).ok()).unwrap_or_default();
    let xmls = [read("footnotes")?, read("endnotes")?, read("comments")?];
    for xml in parts.all_of_kind("header")?.iter().chain(&parts.all_of_kind("footer")?) {
        let header = Body::new(&mut parts, &styles, Numbering::default(), Notes::default(), depth).text_of(xml);
        losses.n_header_words += header.map_or(0, |text| text.split_whitespace().count());
    }
    let mut notes = Notes::default();
    for (xml, kind) in xmls.iter().zip(notes::Kind::ALL) {
        let Some(xml) = xml else { continue };
        for note in notes::split(xml, kind).unwrap_or_default() {
            let text = Body::new(&mut parts, &styles, numbering.fresh(), Notes::default(), depth).text_of(&note.xml);
            match text {
                Ok(text) => notes.insert(kind, note.id, note.author, text.trim().to_owned()),
                Err(_) => losses.n_unreadable_parts += 1,
            }
        }
    }
    let mut body = Body::new(&mut parts, &styles, numbering, notes, depth);
    body.read(&main)?;
    losses.n_bad_letters += main.matches('\u{FFFD}').count();
    Ok(body.finish(losses))
}

/// Text of a part that was put in whole: a page, a text or another document; None if its format is unknown.
fn chunk_text(name: &str, content_type: Option<&str>, bytes: &[u8], depth: usize) -> Option<String> {
    if bytes.starts_with(b"PK\x03\x04") {
        let (pages, _) = (depth < MAX_CHUNK_DEPTH).then(|| pages_of(bytes, depth + 1))?.ok()?;
        return Some(pages.join("\n\n"));
    }
    let name = name.to_ascii_lowercase();
    let is_typed = content_type.is_some_and(|kind| kind.contains("html") || kind.contains("message/rfc822"));
    if is_typed || [".html", ".htm", ".xhtml", ".mht", ".mhtml"].iter().any(|end| name.ends_with(end)) {
        return html::whole_text(bytes).ok();
    }
    if bytes.starts_with(b"{\\rtf") {
        return None;
    }
    let text = encoding::decode(bytes, true).ok()?.text;
    let begins_as_page =
        text.trim_start().get(..5).is_some_and(|head| head.eq_ignore_ascii_case("<html") || head.eq_ignore_ascii_case("<!doc"));
    match begins_as_page {
        true => html::whole_text(bytes).ok(),
        false => Some(text.replace("\r\n", "\n")).filter(|text| !text.starts_with("<?xml")),
    }
}
