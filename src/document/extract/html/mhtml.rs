//! MHTML: the web page in a file that a browser saved whole.
//!
//! ```text
//! From: <Saved by …>, multipart/related ──► text/html parts, decoded ──► pages, the shown one first
//! ```
//! Source: RFC 2557 (MHTML), RFC 2045 (MIME), by `mail-parser`. Limits: [`HEAD_BYTES`].

use encoding_rs::Encoding;
use mail_parser::decoders::base64::base64_decode;
use mail_parser::decoders::quoted_printable::quoted_printable_decode;
use mail_parser::{Encoding as Transfer, MessageParser, MessagePart, MimeHeaders};

use crate::document::encoding::{Decoded, decode};

/// First bytes, in which the type of the message must stand.
const HEAD_BYTES: usize = 4096;

/// Pages of the file; None if it is no MHTML.
pub fn pages(bytes: &[u8]) -> Option<Vec<Decoded>> {
    if !is_mhtml(bytes) {
        return None;
    }
    let message = MessageParser::default().parse(bytes)?;
    let root = message.content_type().and_then(|kind| kind.attribute("start")).map(without_brackets);
    let is_root = |part: &MessagePart<'_>| root.is_some() && part.content_id().map(without_brackets) == root;
    let mut pages: Vec<&MessagePart<'_>> = message
        .parts
        .iter()
        .filter(|part| part.is_content_type("text", "html") || part.is_content_type("application", "xhtml+xml"))
        .collect();
    pages.sort_by_key(|part| !is_root(part));
    Some(pages.into_iter().filter_map(|part| page(part, bytes)).collect())
}

/// Name of a part, without the brackets that stand around it in headers.
fn without_brackets(id: &str) -> &str {
    id.trim().trim_start_matches('<').trim_end_matches('>')
}

fn is_mhtml(bytes: &[u8]) -> bool {
    let head = bytes.get(..HEAD_BYTES).unwrap_or(bytes);
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let head = head.trim_start_matches('\u{FEFF}').trim_start();
    let (headers, _) = head.split_once("\r\n\r\n").or_else(|| head.split_once("\n\n")).unwrap_or((head, ""));
    let first = headers.lines().next().unwrap_or_default();
    let begins_as_headers =
        first.split_once(':').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
    begins_as_headers && headers.contains("content-type:") && (headers.contains("multipart/") || headers.contains("text/html"))
}

fn page(part: &MessagePart<'_>, bytes: &[u8]) -> Option<Decoded> {
    let raw = bytes.get(usize::try_from(part.offset_body).ok()?..usize::try_from(part.offset_end).ok()?)?;
    let content = match part.encoding {
        Transfer::None => raw.to_vec(),
        Transfer::QuotedPrintable => quoted_printable_decode(raw)?,
        Transfer::Base64 => base64_decode(raw)?,
    };
    let charset = part.content_type().and_then(|kind| kind.attribute("charset"));
    let declared = charset.and_then(|label| Encoding::for_label(label.as_bytes()));
    match declared.filter(|_| std::str::from_utf8(&content).is_err()) {
        Some(encoding) => {
            let (text, _, had_errors) = encoding.decode(&content);
            let n_bad_bytes = if had_errors { text.matches('\u{FFFD}').count() } else { 0 };
            Some(Decoded { text: text.into_owned(), encoding: None, is_guess: false, n_bad_bytes, n_controls: 0 })
        }
        None => decode(&content, true).ok(),
    }
}
